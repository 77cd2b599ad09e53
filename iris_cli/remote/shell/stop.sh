# The call `stop`, and its stopper process. The working directory is <root>/a; the stopper's is
# <root>/a/<token>. Names and races: docs/worker-protocol.md.
#
# The stopper renames stop.idle, or the name of a dead stopper, to stop.run.<since>.<grace>.<pid>.<start>: one
# winner. SINCE is the uptime of the first stop; both times are in hundredths of a second.

# stop TOKEN GRACE: fence the attempt, and start its stopper if needed.
stop() {
    state_of "$1"
    case $state in EXITED | NOSTART | CANCELLED | STOPPED) return ;; esac
    [ -d "$1" ] || make_place "$1" || return
    # BEFORE any other check: from here on no wrapper starts the command.
    cancel "$1" || return
    find_stop "$1"
    [ -n "$stop" ] || { make_empty "$1/stop.idle" && names "$1"; }
    case $stop in
    stop.done)
        state_of "$1" # it may have been stopped since; if it lives, the task made that name
        case $state in EXITED | NOSTART | CANCELLED | STOPPED) return ;; esac
        ;;
    stop.run.*)
        stop_parts "$stop"
        if is_alive "$stop_pid" "$stop_start"; then
            # A shorter grace period: pass it to the running stopper. If the rename fails, the stopper is
            # about to end.
            [ "$2" -ge "$stop_grace" ] ||
                mv "$1/$stop" "$1/stop.run.$stop_since.$2.$stop_pid.$stop_start" 2>/dev/null
            return
        fi
        ;;
    esac
    # The stopper gets the library through a pipe: the disk may be full.
    (
        printf '%s\nstopper "$@"\n}' "{
$library" | detach sh -s "$PWD/$1" "$stop" "$2"
    ) >/dev/null 2>&1 &
}

# make_place TOKEN: make a tombstone for a missing directory. If the attempt's processes live, its directory
# was removed: make it again, as the stopper needs it. False if there is no directory.
make_place() {
    if processes_of "$1" && [ -z "$found" ]; then
        if [ ! -f "$1" ] && [ ! -d "$1" ]; then
            if [ -e "$1" ] || [ -L "$1" ]; then rm -f "$1"; fi
            tombstone "$1"
        fi
        [ ! -f "$1" ] || return
    elif [ -n "$found" ]; then
        rm -f "$1" 2>/dev/null # not iris's tombstone: that is made only if nothing lives
    fi
    mkdir "$1" 2>/dev/null
    [ -d "$1" ]
}

# find_stop TOKEN -> $stop, and the variables of `names`. stop.idle is made before `run`, and must not be made
# again: the wrapper would treat a stopped task as ended by itself. During a rename a listing may show neither
# the old nor the new name: so list several times.
find_stop() {
    names "$1"
    for _ in 1 2 3 4 5 6 7 8; do
        [ -z "$stop" ] && [ -e "$1/run" ] || return 0
        nap 0.02
        names "$1"
    done
}

# stop_parts NAME -> $stop_since $stop_grace $stop_pid $stop_start
stop_parts() {
    stop_pid= stop_start=
    case $1 in
    stop.run.*) stop_rest=${1#stop.run.} ;;
    stop.stuck.*) stop_rest=${1#stop.stuck.} ;;
    *) stop_rest=$now.$grace ;;
    esac
    stop_since=${stop_rest%%.*}
    stop_rest=${stop_rest#*.}
    stop_grace=${stop_rest%%.*}
    case $stop_rest in *.*.*)
        stop_rest=${stop_rest#*.}
        stop_pid=${stop_rest%%.*}
        stop_start=${stop_rest#*.}
        ;;
    esac
    is_number "$stop_since" || stop_since=0
    is_number "$stop_grace" || stop_grace=0
}

# stopper DIRECTORY NAME GRACE: end the attempt. NAME: the name of the stop when this process was started.
stopper() {
    cd "$1" || exit 1
    exec </dev/null
    token=${1##*/}
    grace=$3
    boot_id
    now
    stop_parts "$2"
    [ "$stop_grace" -le "$grace" ] || stop_grace=$grace
    start_of $$
    mv "$2" "stop.run.$stop_since.$stop_grace.$$.$start" 2>/dev/null || exit 0
    kill_at=$((stop_since + stop_grace))
    names .
    if end_all "$token" last $$; then
        empty_secrets .
        remove_groups . "$token"
        # An end that was recorded while the task lived is invalid.
        [ -z "$x" ] || [ -z "$pressed" ] || drop x x.pending
        mv x.pending x.cancelled 2>/dev/null
        verdict=stop.done
    else
        verdict=stop.stuck.$stop_since.$stop_grace
    fi
    # Retry if a later stop has just changed the name.
    until mv stop.run.*."$$".* "$verdict" 2>/dev/null || [ ! -e "$1" ]; do nap; done
}

# when_to_kill -> $kill_at: from the name, which a later stop may have changed.
when_to_kill() {
    for name in stop.run.*."$$".*; do
        [ -e "$name" ] || continue
        stop_parts "$name"
        kill_at=$((stop_since + stop_grace))
    done
}

# await_stops TOKENS: wait until all are stopped, at most a second: most tasks end at once.
await_stops() {
    now
    until_when=$((now + 100))
    for each; do
        while [ -d "$each" ] && [ ! -e "$each/stop.done" ] && [ "$now" -lt "$until_when" ]; do
            names "$each"
            case $stop in '' | stop.idle) [ -z "$x" ] || break ;; esac
            nap 0.02
            now
        done
    done
}

# stop_alone TOKENS: the EXIT trap of this call, for hosts where the shell can't fork: it ends at its first
# command that is no builtin. Fence attempts that have not started. Answer only if all are STOPPED;
# otherwise leave them to a later call.
stop_alone() {
    alone=1
    [ -z "$missing" ] || return
    for each; do
        state_of "$each"
        case $state in ABSENT | PREPARED) fence_alone "$each" ;; esac
    done
    for each; do
        state_of "$each"
        [ "$state" = STOPPED ] || return
    done
    begin_frame
    report "$@"
    end_frame
    exit 0
}

# fence_alone TOKEN: fence an attempt with builtins only, if it has no process.
fence_alone() {
    if [ "$state" = ABSENT ]; then
        is_unmarked "$1" || return
        claim "$1"
        return
    fi
    # BEFORE any check: a wrapper that makes `go` from here on will find `cancel`. Check both `go` and
    # `launch.*` for an earlier wrapper: one of the names may have been removed.
    printf '' 2>/dev/null >"$1/cancel"
    for name in "$1/go" "$1"/launch.[0-9]*; do [ ! -e "$name" ] || return 1; done
    [ -e "$1/cancel" ] && [ -e "$1/launch.pending" ] && is_unmarked "$1" || return 1
    empty_secrets "$1"
    printf '' 2>/dev/null >"$1/stop.done"
}

# is_unmarked TOKEN: true if certainly no process has its marker. This shell must find itself: that fails
# if no file can be opened; and `read` must skip the NUL between two variables, such as
# HOME and PATH.
is_unmarked() {
    can_tell=
    self_pid
    for environ in "$iris_proc"/[0-9]*/environ; do
        words=
        while IFS= read -r word || [ -n "$word" ]; do
            words=$words$word
        done 2>/dev/null <"$environ"
        case $words in *"IRIS_ATTEMPT_TOKEN=$1"*) return 1 ;; esac
        case $environ$words in
        "$iris_proc/$self/"*HOME=*PATH=* | "$iris_proc/$self/"*PATH=*HOME=*) can_tell=1 ;;
        esac
    done
    [ -n "$can_tell" ]
}
