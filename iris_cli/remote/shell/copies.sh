# Copies the workspace for an attempt, as shipped or as the job's set-up left it. The working directory is
# <root>/a/<token>. docs/worker-protocol.md lists the names below s/<key>/ and the races.
#
# A set-up runs once per workspace (or none) and command, under lock.<n>, in tree.<n>, which never moves.
# Attempts that start meanwhile wait, and fail with it. If its runner dies or is stopped, or after a failure,
# the next takes lock.<n+1>. Settings: $workspace (may be empty), $set_up_key (empty without a set-up).

# set_up_copy: replaces `set_up`. A failed copy is recorded as such, not as a failed set-up.
set_up_copy() {
    packed=../../w/$workspace
    [ -n "$set_up_key" ] || { copy "$packed" work; return; }
    store=../../s/$set_up_key
    mkdir ../../s 2>/dev/null
    mkdir "$store" 2>/dev/null
    [ -d "$store" ] || no_copy disk "$store can't be made"
    touch "$store" 2>/dev/null # the time of its last use
    waits_for=
    while goes_on; do
        newest_run
        if [ "$run" -gt 0 ] && ! is_over_run; then
            waits_for=$run
            nap 0.2
        elif [ -e "$store/done.$run" ]; then # test AFTER is_over_run: it may have just ended
            copy "$store/tree.$run" work
            return
        elif [ "$waits_for" = "$run" ] && [ -e "$store/failed.$run" ]; then
            cat "$store/failed.$run" >>err 2>/dev/null
            return 1
        elif take_run; then
            run_in_cache
            return
        elif [ ! -e "$store/lock.$run" ]; then
            no_copy disk "nothing can be made in $store"
        fi
    done
    return 1
}

# goes_on: true if the attempt is not stopped and its set-up has not timed out.
goes_on() { [ -e stop.idle ] && [ ! -e cancel ] && [ ! -e setup-timeout ]; }

# newest_run -> $run: number of the newest run of the set-up; 0 if none.
newest_run() {
    run=0
    for name in "$store"/lock.*; do
        name=${name##*.}
        ! is_number "$name" || [ "$name" -le "$run" ] || run=$name
    done
}

# is_over_run: true if the run has recorded its end, or its runner is dead.
is_over_run() {
    [ ! -e "$store/done.$run" ] && [ ! -e "$store/failed.$run" ] || return 0
    read_pid "$store/lock.$run" && [ "$pid_boot" = "$boot" ] && is_alive "$pid" "$pid_start" || return 0
    return 1
}

# take_run -> $run: claim the next run. False if another attempt has claimed it.
take_run() {
    run=$((run + 1))
    write_pid lock.new || no_copy disk "there is no room for a file"
    ln lock.new "$store/lock.$run" 2>/dev/null
    taken=$?
    rm -f lock.new
    return "$taken"
}

run_in_cache() {
    for name in "$store"/tree.*; do remove_tree "$name"; done # of failed or dead runs
    tree=$store/tree.$run
    begin_tree || return
    (
        enter_group
        set -- "$shell" "$dir/setup.$nonce" # BEFORE the variables of the job take these names
        umask "$mask" && cd "$tree" && task_env "$dir" && IRIS_WORKDIR=$PWD && exec "$@"
    ) </dev/null >>out 2>>err
    code=$?
    goes_on || return 1
    unwatch # BEFORE the sweep, which would end the watchdog
    if [ "$code" != 0 ]; then
        end_of_output >"$store/failed.new" 2>/dev/null
        mv "$store/failed.new" "$store/failed.$run" 2>/dev/null || make_empty "$store/failed.$run"
        remove_tree "$tree"
        return "$code"
    fi
    sweep # BEFORE the tree is used: leftover processes could still write to it
    goes_on && chmod -R a-w "$tree" || return
    { sync -f "$tree" || sync; } 2>/dev/null # the name `done.<n>` survives a power cut
    printf '' 2>/dev/null >"$store/done.$run"
    [ -e "$store/done.$run" ] || no_copy disk "there is no room for a file"
    copy "$tree" work
}

# begin_tree: make $tree for the set-up: a copy of the workspace, or an empty directory.
begin_tree() {
    [ -z "$workspace" ] || { copy "$packed" "$tree"; return; }
    mkdir "$tree" 2>/dev/null || no_copy disk "$tree can't be made"
}

# end_of_output: print the end of a failed set-up's output, for the attempts that waited for it.
end_of_output() {
    printf 'the set-up was run for another attempt, and failed:\n'
    for each in out err; do
        if [ -f "$each" ] && [ ! -L "$each" ]; then tail -c 2000 "$each"; fi
    done
}

# copy TREE DIRECTORY: copy TREE to DIRECTORY, writable.
copy() {
    said=$( ([ -d "$2" ] || mkdir "$2") 2>&1 && LC_ALL=C cp -RPp "$1/." "$2/" 2>&1 && chmod -R u+w "$2" 2>&1)
    # shellcheck disable=SC2181
    [ $? != 0 ] || return 0
    goes_on || return
    case $said in
    *'No space left'* | *'uota exceeded'*) no_copy disk "$said" ;;
    *) no_copy workspace "$said" ;;
    esac
}

# no_copy CAUSE WORDS: give the attempt up, and exit.
no_copy() {
    said=$(printf '%s' "$2" | tr '\n' ' ')
    printf "iris: not started: its workspace can't be had: %s\n" "$said" 2>/dev/null >>err
    unwatch
    unready "$1"
    exit
}
