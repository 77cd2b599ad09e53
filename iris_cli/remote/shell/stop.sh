# The call `stop` in the working directory <root>/a, and its stopper process in <root>/a/<token>.
# docs/worker-protocol.md lists files and races.
#
# A stopper renames stop.idle, or the file of a dead stopper, to stop.run.<since>.<grace>.<pid>.<start>. Only
# one stopper succeeds. <since>, the uptime at the first stop, and <grace> are in hundredths of a second.

# stop TOKEN GRACE: fence the attempt. If it may have processes, start a stopper.
stop() {
    read_state "$1"
    case $state in EXITED | NOSTART | CANCELLED | STOPPED) return ;; esac
    { [ -d "$1" ] && [ ! -L "$1" ]; } || make_stop_dir "$1" || return
    # Make `cancel` BEFORE any other check. From then on no wrapper starts the command.
    cancel "$1" || return
    find_stop "$1"
    [ -n "$stop" ] || { make_empty "$1/stop.idle" && read_names "$1"; }
    case $stop in
    stop.done)
        read_state "$1" # another stop may have ended the attempt; if it lives, its task forged stop.done
        case $state in EXITED | NOSTART | CANCELLED | STOPPED) return ;; esac
        ;;
    stop.run.*)
        stop_parts "$stop"
        if is_alive "$stop_pid" "$stop_start"; then
            # Pass a shorter grace period to the running stopper. If the rename fails, the stopper is about to
            # end.
            [ "$2" -ge "$stop_grace" ] ||
                mv "$1/$stop" "$1/stop.run.$stop_since.$2.$stop_pid.$stop_start" 2>/dev/null
            return
        fi
        ;;
    esac
    run_detached stopper "$PWD/$1" "$stop" "$2"
}

# make_stop_dir TOKEN: for an attempt without a directory, make a tombstone and return false. If processes of
# the attempt live, its task has removed the directory. Then make the directory again, because a stopper needs
# it.
make_stop_dir() {
    [ ! -L "$1" ] || rm -f "$1" 2>/dev/null # made by the task: don't write where it leads
    if find_processes "$1" && [ -z "$found" ]; then
        if [ ! -f "$1" ] && [ ! -d "$1" ]; then
            [ ! -e "$1" ] || rm -f "$1"
            make_tombstone "$1"
        fi
        [ ! -f "$1" ] || return
    elif [ -n "$found" ]; then
        rm -f "$1" 2>/dev/null # iris makes no tombstone while processes live: the task made this file
    fi
    mkdir "$1" 2>/dev/null
    [ -d "$1" ]
}

# find_stop TOKEN -> $stop: the name of the stop file, and the variables of `read_names`. During a rename a
# listing may show neither the old nor the new name. If `run` exists, a stop file exists, so list again until
# it appears. Don't make stop.idle again: for the wrapper, stop.idle proves that no stop has begun, so the
# wrapper would record a stopped task as one that ended by itself.
find_stop() {
    read_names "$1"
    for _ in 1 2 3 4 5 6 7 8; do
        [ -z "$stop" ] && [ -e "$1/run" ] || return 0
        nap 0.02
        read_names "$1"
    done
}

# stop_parts NAME -> $stop_since $stop_grace $stop_pid $stop_start: the parts of the name of a stop file.
stop_parts() {
    case $1 in
    stop.run.* | stop.stuck.*) ;;
    *) set -- "stop.idle.$now.$grace" ;;
    esac
    IFS=.
    set -f
    # shellcheck disable=SC2086
    set -- $1
    set +f
    unset IFS
    stop_since=$3 stop_grace=${4-} stop_pid=${5-} stop_start=${6-}
    is_number "$stop_since" || stop_since=0
    is_number "$stop_grace" || stop_grace=0
}

# stopper DIRECTORY NAME GRACE: end the attempt. NAME is the stop file that this stopper renames.
stopper() {
    cd "$1" || exit 1
    exec </dev/null
    token=${1##*/}
    grace=$3
    boot_id
    now
    stop_parts "$2"
    [ "$stop_grace" -le "$grace" ] || stop_grace=$grace
    read_start $$
    mv "$2" "stop.run.$stop_since.$stop_grace.$$.$start" 2>/dev/null || exit 0
    kill_at=$((stop_since + stop_grace))
    read_names .
    if end_processes "$token" last $$; then
        empty_secrets .
        remove_groups . "$token"
        # If end_processes found processes, the exit record was made too early, or was forged.
        [ -z "$record" ] || [ -z "$had_processes" ] || remove_named x x.pending
        mv x.pending x.cancelled 2>/dev/null
        final_name=stop.done
    else
        final_name=stop.stuck.$stop_since.$stop_grace
    fi
    # Retry if a later stop has just renamed the stop file.
    until mv stop.run.*."$$".* "$final_name" 2>/dev/null || [ ! -e "$1" ]; do nap; done
}

# update_kill_at -> $kill_at: from the name of the stop file, which a later stop may have changed.
update_kill_at() {
    for name in stop.run.*."$$".*; do
        [ -e "$name" ] || continue
        stop_parts "$name"
        kill_at=$((stop_since + stop_grace))
    done
}

# await_stops TOKENS: wait until all these attempts are stopped, for at most a second.
await_stops() {
    now
    deadline=$((now + 100))
    for each; do
        while [ -d "$each" ] && [ ! -e "$each/stop.done" ] && [ "$now" -lt "$deadline" ]; do
            read_names "$each"
            case $stop in '' | stop.idle) [ -z "$record" ] || break ;; esac
            nap 0.05
            now
        done
    done
}

# stop_without_fork TOKENS: the EXIT trap of this call. On a host that can't start processes, the shell exits
# at its first command that is not a builtin. Then fence those of the attempts that have not started. Answer
# only if all attempts are STOPPED.
stop_without_fork() {
    cannot_fork=1
    [ -z "$root_missing" ] || return
    for each; do
        read_state "$each"
        case $state in ABSENT | PREPARED) fence_without_fork "$each" ;; esac
    done
    for each; do
        read_state "$each"
        [ "$state" = STOPPED ] || return
    done
    begin_frame
    report "$@"
    end_frame
    exit 0
}

# fence_without_fork TOKEN: fence an attempt with builtins only. False if it may have processes.
fence_without_fork() {
    if [ "$state" = ABSENT ]; then
        is_unmarked "$1" || return
        claim "$1"
        return
    fi
    # Make `cancel` BEFORE any check, so that a wrapper that makes the file `go` later finds `cancel`. A
    # wrapper that has started made the files `go` and launch.*. Check both, because its task may have removed
    # one of them.
    printf '' 2>/dev/null >"$1/cancel"
    for name in "$1/go" "$1"/launch.[0-9]*; do [ ! -e "$name" ] || return 1; done
    [ -e "$1/cancel" ] && [ -e "$1/launch.pending" ] && is_unmarked "$1" || return 1
    empty_secrets "$1"
    printf '' 2>/dev/null >"$1/stop.done"
}

# is_unmarked TOKEN: true if no process has the attempt's marker. To show that environments can be read, the
# search must find HOME and PATH in the environment of this shell. Otherwise, for example if files can't be
# opened or `read` stops at the NUL between variables, the result is false.
is_unmarked() {
    found_self=
    self_pid
    for environ in "$iris_proc"/[0-9]*/environ; do
        words=
        while IFS= read -r word || [ -n "$word" ]; do
            words=$words$word
        done 2>/dev/null <"$environ"
        case $words in *"IRIS_ATTEMPT_TOKEN=$1"*) return 1 ;; esac
        case $environ$words in
        "$iris_proc/$self/"*HOME=*PATH=* | "$iris_proc/$self/"*PATH=*HOME=*) found_self=1 ;;
        esac
    done
    [ -n "$found_self" ]
}
