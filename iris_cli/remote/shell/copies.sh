# Copy the workspace for an attempt, as shipped or as the job's set-up left it. The working directory is
# <root>/a/<token>. docs/worker-protocol.md lists the files in s/<key>/ and the races.
#
# A set-up runs once for each pair of workspace and command. The attempt that makes lock.<n> runs the set-up,
# in tree.<n>. An attempt that finds the set-up running waits for the end, and fails if the set-up fails. If
# the attempt that runs the set-up dies or is stopped, one of the waiting attempts makes lock.<n+1> and runs
# the set-up again. After a failed set-up, a later attempt also runs it again. Settings: $workspace,
# $set_up_key (both may be empty).

# set_up_copy: replaces `set_up` of run.sh. A failed copy is recorded as nostart.disk or nostart.workspace,
# not as nostart.setup.
set_up_copy() {
    packed=../../w/$workspace
    [ -n "$set_up_key" ] || { copy "$packed" work; return; }
    cache=../../s/$set_up_key
    mkdir ../../s 2>/dev/null
    mkdir "$cache" 2>/dev/null
    [ -d "$cache" ] || fail_copy disk "$cache can't be made"
    touch "$cache" 2>/dev/null # the time of its last use
    awaited_run=
    while may_continue; do
        newest_run
        if [ "$run" -gt 0 ] && ! has_run_ended; then
            awaited_run=$run
            nap 0.2
        elif [ -e "$cache/done.$run" ]; then # test AFTER has_run_ended: the run may have just ended
            copy "$cache/tree.$run" work
            return
        elif [ "$awaited_run" = "$run" ] && [ -e "$cache/failed.$run" ]; then
            cat "$cache/failed.$run" >>err 2>/dev/null
            return 1
        elif claim_run; then
            run_shared_set_up
            return
        elif [ ! -e "$cache/lock.$run" ]; then
            fail_copy disk "nothing can be made in $cache"
        fi
    done
    return 1
}

# may_continue: true if the attempt is not being stopped and its set-up has not timed out.
may_continue() { [ -e stop.idle ] && [ ! -e cancel ] && [ ! -e setup-timeout ]; }

# newest_run -> $run: the number <n> of the set-up's newest run; 0 if the set-up has not run yet.
newest_run() {
    run=0
    for name in "$cache"/lock.*; do
        name=${name##*.}
        ! is_number "$name" || [ "$name" -le "$run" ] || run=$name
    done
}

# has_run_ended: true if the run of the set-up has recorded its end, or the process that ran it is dead.
has_run_ended() {
    [ ! -e "$cache/done.$run" ] && [ ! -e "$cache/failed.$run" ] || return 0
    read_pid "$cache/lock.$run" && [ "$pid_boot" = "$boot" ] && is_alive "$pid" "$pid_start" || return 0
    return 1
}

# claim_run -> $run: claim the next run, by lock.<n>. False if another attempt has claimed the run.
claim_run() {
    run=$((run + 1))
    write_pid lock.new || fail_copy disk "there is no room for a file"
    ln lock.new "$cache/lock.$run" 2>/dev/null
    status=$?
    rm -f lock.new
    return "$status"
}

run_shared_set_up() {
    remove_trees "$cache"/tree.* # of earlier runs
    tree=$cache/tree.$run
    make_tree || return
    run_set_up_in "$tree"
    code=$?
    may_continue || return 1
    end_watchdog # BEFORE the wrapper's own commands, which the watchdog would end
    if [ "$code" != 0 ]; then
        end_of_output >"$cache/failed.new" 2>/dev/null
        mv "$cache/failed.new" "$cache/failed.$run" 2>/dev/null || make_empty "$cache/failed.$run"
        remove_tree "$tree"
        return "$code"
    fi
    sweep # BEFORE the tree is used: leftover processes could still write to it
    may_continue && chmod -R a-w "$tree" || return
    { sync -f "$tree" || sync; } 2>/dev/null # BEFORE done.<n>, which could outlive the files in a power cut
    printf '' 2>/dev/null >"$cache/done.$run"
    [ -e "$cache/done.$run" ] || fail_copy disk "there is no room for a file"
    copy "$tree" work
}

# make_tree: make $tree for the set-up: a copy of the workspace, or an empty directory.
make_tree() {
    [ -z "$workspace" ] || { copy "$packed" "$tree"; return; }
    mkdir "$tree" 2>/dev/null || fail_copy disk "$tree can't be made"
}

# end_of_output: print the last output of a failed set-up, for attempts that waited for the set-up.
end_of_output() {
    printf 'the set-up was run for another attempt, and failed:\n'
    for each in out err; do
        if [ -f "$each" ] && [ ! -L "$each" ]; then tail -c 2000 "$each"; fi
    done
}

copy() {
    message=$( { ([ -d "$2" ] || mkdir "$2") && LC_ALL=C cp -RPp "$1/." "$2/" && chmod -R u+w "$2"; } 2>&1)
    # shellcheck disable=SC2181
    [ $? != 0 ] || return 0
    may_continue || return
    case $message in
    *'No space left'* | *'uota exceeded'*) fail_copy disk "$message" ;;
    *) fail_copy workspace "$message" ;;
    esac
}

# fail_copy CAUSE WORDS: record that the attempt can't start, and exit.
fail_copy() {
    message=$(printf '%s' "$2" | tr '\n' ' ')
    printf "iris: not started: its workspace can't be copied: %s\n" "$message" 2>/dev/null >>err
    end_watchdog
    fail_setup "$1"
    exit
}
