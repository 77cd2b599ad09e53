# Read the state of an attempt from the names of the files in a/<token>/. Read-only, except that `prove`
# removes a leftover container. The working directory is <root>/a. docs/worker-protocol.md lists files, states
# and races.
#
# Files named *.pending, and stop.idle, are created in advance and renamed at most once. So recording an end
# needs no disk space, and a process whose rename fails has lost the race.

# read_names TOKEN: read the names in the attempt's directory. Times are uptimes. A missing value is - or
# empty.
#   $record $record_code $record_cause   the exit record: EXITED, CANCELLED or NOSTART; exit code; reason
#   $launched $began $ended $end_code    last sign of life before the command; its begin, end, exit code
#   $first_go $has_go $has_setup         first call `go`; 1 if the wrapper has started; 1 if the set-up has
#   $ready                               1 if the attempt is prepared
#   $stop $lease $had_signal             names of stop.* and lease.*; 1 if a signal came before the record
#   $unrecorded                          1 if the begin, the end or the exit record is missing
read_names() {
    clear_names
    for name in "$1"/*; do
        name=${name##*/}
        case $name in
        x.pending) unrecorded=1 ;;
        *.pending) ;;
        cancel) cancelled=1 ;;
        x.*) read_record "${name#x.}" ;;
        launch.*) launched=${name#*.} ;;
        begin.*) began=${name#*.} ;;
        end.*)
            ended=${name#*.}
            end_code=${ended#*.}
            ended=${ended%%.*}
            ;;
        stop.*) case $stop in '' | stop.idle) stop=$name ;; esac ;; # sorted: done idle run stuck
        ready) ready=1 ;;
        reserve.begin) [ "$began" != - ] || [ -s "$1/$name" ] || unrecorded=1 ;; # sorted: after begin.*
        reserve.end) [ "$ended" != - ] || [ -s "$1/$name" ] || unrecorded=1 ;;
        run) [ ! -s "$1/run" ] || has_run=1 ;;
        told) had_signal=1 ;;
        go) has_go=1 ;;
        go.*) first_go "${name#*.}" ;;
        setup.pid) has_setup=1 ;;
        lease.*) lease=$name ;;
        esac
    done
    [ -n "$has_run" ] || ready=
    is_complete || record= record_code=- record_cause=-
}

# is_complete: true if there is one exit record and no other name contradicts it. Otherwise the result is
# unknown. After a lease has expired, the watchdog of the lease records the end, and a record of the wrapper
# does not count.
is_complete() {
    [ "$records" = 1 ] || return
    case $record$record_cause in
    EXITED*)
        case $lease in lease.out.*) return 1 ;; esac
        case $unrecorded:$end_code in :- | ":$record_code") ;; *) return 1 ;; esac
        ;;
    NOSTART*) [ "$began" = - ] ;;
    CANCELLED-) [ -n "$cancelled" ] ;;
    esac
}

clear_names() {
    record= record_code=- record_cause=- records=0 had_signal= unrecorded= cancelled=
    launched=- began=- ended=- end_code=- stop= ready= has_run= has_go= first_go=- has_setup= lease=
}

first_go() {
    is_number "$1" || return
    if [ "$first_go" = - ] || [ "$1" -lt "$first_go" ]; then first_go=$1; fi
}

# read_record NAME: parse the exit record x.NAME and add 1 to $records. Ignores other names.
read_record() {
    case $1 in
    cancelled) record=CANCELLED ;;
    cancelled.lease)
        record=CANCELLED
        record_cause=lease
        ;;
    nostart.setup | nostart.disk | nostart.chips | nostart.port | nostart.workspace)
        record=NOSTART
        record_cause=${1#nostart.}
        ;;
    *)
        is_code "${1%%.*}" || return
        case ${1#*.} in timeout | oom | signal) record_cause=${1#*.} ;; "$1") ;; *) return ;; esac
        record=EXITED
        record_code=${1%%.*}
        ;;
    esac
    records=$((records + 1))
}

is_code() {
    case $1 in '' | *[!0-9]* | 0?* | ????*) return 1 ;; esac
    [ "$1" -le 255 ]
}

# read_pid FILE -> $pid $pid_start $pid_boot: the process that wrote FILE. False if FILE is missing or
# malformed.
read_pid() {
    pid= pid_start= pid_boot=
    [ -f "$1" ] || return 1
    # A file without a newline is still being written.
    read -r pid pid_start pid_boot pid_rest 2>/dev/null <"$1" || return
    is_number "$pid" && [ -n "$pid_boot" ] && [ -z "$pid_rest" ]
}

# read_boot TOKEN -> $pid_boot: the boot to which the attempt belongs, empty if unknown.
read_boot() {
    ! read_pid "$1/pid" && ! read_pid "$1/setup.pid" || return 0
    pid_boot=
    [ -f "$1/run" ] && read -r _ _ pid_boot _ 2>/dev/null <"$1/run"
}

# read_state TOKEN -> $state, and the variables of `read_names`.
#
# The names are not read atomically. If the process that wrote `pid` or `setup.pid` is found dead, read the
# names again, because it may have made records before it died. If there are none, the result is lost. Also
# read the names again AFTER the proof that no process is left. Before that proof, the wrapper may correct
# names that its task forged, and a stop or the lease may end the attempt.
read_state() {
    dead_writer= end_proven=
    clear_names
    while :; do
        if [ -f "$1" ]; then
            state=STOPPED # a tombstone
        elif [ ! -d "$1" ]; then
            state=ABSENT
        else
            read_names "$1"
            state_by_names "$1" || continue
        fi
        case $end_proven$state in
        ABSENT | EXITED | CANCELLED | NOSTART | STOPPED | LOST) ;;
        *) return ;;
        esac
        if ! is_proven "$1"; then
            read_live_state "$1"
            return
        fi
        end_proven=1
    done
}

# read_live_state TOKEN -> $state: the state of an attempt whose names claim an end while its processes live.
# Either the wrapper has not started the command yet or is about to exit, or the task has forged the names.
read_live_state() {
    record= record_code=- record_cause=- ended=- state=ORPHANED
    if is_writer "$1/pid" "$1"; then
        state=LAUNCHING
    elif is_writer "$1/setup.pid" "$1"; then
        state=PREPARING
    fi
    if [ "$began" != - ] && { [ "$state" = LAUNCHING ] || [ ! -e "$1/pid" ]; }; then state=RUNNING; fi
}

# is_proven TOKEN: true if no process of the attempt is left. Call it if the names in the attempt's directory
# say that the attempt has ended.
is_proven() {
    if [ -n "$cannot_fork" ]; then
        is_unmarked "$1"
        return $? # in a trap, bash's `return` without a number returns the status from before the trap
    fi
    case " $proven " in *" $1 "*) ;; *) prove "$1" ;; esac
    case " $proven " in *" $1 "*) ;; *) return 1 ;; esac
    group=
    find_group "$1" "$1"
    ! is_populated
}

# prove TOKENS -> $proven: append those of the attempts that have no processes. Repeat the search for a
# quarter of a second, because a wrapper that has just recorded the end is about to exit. Search only once for
# an attempt for which `prove_claims` has waited.
prove() {
    for pause in 0.02 0.03 0.05 0.05 0.1 ''; do
        if find_processes "$@" && [ -z "$found" ] && remove_containers "$@"; then
            proven="$proven $*"
            return
        fi
        case " $claims " in *" $1 "*) break ;; esac
        [ -z "$pause" ] || nap "$pause"
    done
    [ $# -gt 1 ] || return
    for suspect; do
        ! find_processes "$suspect" || [ -n "$found" ] || ! remove_containers "$suspect" ||
            proven="$proven $suspect"
    done
}

# is_writer FILE TOKEN -> $pid $pid_start: true if the process named in FILE lives and executes the attempt's
# `run`. The task may have written the pid of another process to FILE.
is_writer() {
    read_pid "$1" && [ "$pid_boot" = "$boot" ] && is_alive "$pid" "$pid_start" || return
    [ ! -r "$iris_proc/self/stat" ] || executes_run "$pid" "$2"
}

# executes_run PID TOKEN: true if the process is the attempt's wrapper, or was forked by the wrapper and has
# not executed another program yet.
executes_run() {
    words=
    IFS= read -r words 2>/dev/null <"$iris_proc/$1/cmdline"
    case $words in *"/$2/runstart" | *"/$2/runsetup") ;; *) return 1 ;; esac
}

# state_by_names TOKEN -> $state: the state according to the names. False if the names must be read again,
# because a writer was just found dead ($dead_writer).
state_by_names() {
    read_boot "$1"
    state=
    case $stop in
    stop.done)
        state=${record:-STOPPED}
        [ "$record" = CANCELLED ] && state=STOPPED
        ;;
    stop.run.*) state=STOPPING ;;
    stop.stuck.*) state=UNKILLABLE ;;
    *) state=$record ;;
    esac
    # An attempt of another boot has ended.
    case $pid_boot in '' | "$boot") ;; *)
        [ "$had_signal$record" != 1EXITED ] || record= state=STOPPED # the shutdown may have ended it
        [ "$stop" = stop.done ] || state=${record:-LOST}
        ;;
    esac
    if [ -n "$state" ]; then
        return 0
    elif [ -n "$has_go" ] || [ "$began" != - ]; then
        state=LAUNCHING
        [ -s "$1/pid" ] || [ "$began" != - ] || return 0
        [ "$began" = - ] || state=RUNNING
        check_writer "$1" pid || return
        # The task may have removed the file `pid` of a wrapper that lives.
        [ "$state" != ORPHANED ] || [ -e "$1/pid" ] || state=RUNNING
    elif [ -n "$ready" ]; then
        state=PREPARED
    else
        state=PREPARING
        if [ -n "$has_setup" ]; then
            check_writer "$1" setup.pid
        elif [ ! -s "$1/run" ]; then
            # Either a call has not finished the directory, or the task emptied it. If a process is left,
            # don't prepare the attempt again.
            is_gone "$1" || state=ORPHANED
        fi
    fi
}

# check_writer TOKEN FILE -> $state: unchanged if the writer of FILE lives, or if processes of the set-up
# outlive their wrapper; otherwise ORPHANED, LOST, or CANCELLED. False if the names must be read again. The
# writer of a malformed file counts as dead.
check_writer() {
    ! is_writer "$1/$2" "$1" || return 0
    case $dead_writer in
    "$2 $pid $pid_start gone")
        state=LOST proven="$proven $1"
        # The watchdog of an expired lease has ended all processes and will record that.
        case $lease in lease.out.*) state=CANCELLED record_cause=lease ended=${lease#lease.out.} ;; esac
        ;;
    "$2 $pid $pid_start")
        [ "$2" = setup.pid ] || state=ORPHANED # after a set-up the command has not started
        is_gone "$1" || return 0
        dead_writer="$dead_writer gone"
        return 1
        ;;
    *)
        dead_writer="$2 $pid $pid_start"
        return 1
        ;;
    esac
}

# is_gone TOKEN [DIRECTORY]: true if two scans find no process of the attempt, because processes that fork and
# end could escape one scan. False if a scan fails, for example because this shell can't fork. DIRECTORY is
# the attempt's (default: TOKEN).
is_gone() {
    [ -z "$cannot_fork" ] || return
    self_pid
    group=
    find_group "${2:-$1}" "$1"
    scan "$1" "" "" "$self" && [ -z "$found" ] || return
    nap 0.03
    scan "$1" "" "" "$self" && [ -z "$found" ] && ! is_populated && remove_container "${2:-$1}" "$1"
}

remove_containers() {
    for each; do remove_container "$each" "$each" || return; done
}

# remove_container DIRECTORY TOKEN [keep]: remove the container of an attempt that must not run any more. True
# if the attempt can't have a container, or the runtime confirms that the container is gone. The attempt may
# have one, perhaps not started or already exited, if the file <root>/c/<token> exists. The container has no
# access to that file. With `keep`, keep the file, because the client may still create a container.
remove_container() {
    case $1 in .) container=../../c/$2 ;; *) container=../c/$2 ;; esac
    [ -f "$container" ] || return 0
    runtime=
    read -r runtime _ 2>/dev/null <"$container"
    case $runtime in docker | podman) ;; *) return 0 ;; esac
    # The removal may take longer than this call. Then a later call finds the container gone. `exec`, so that
    # no shell with the marker waits.
    (unset IRIS_ATTEMPT_TOKEN && exec timeout 30 "$runtime" rm -f -v "iris-$2") >/dev/null 2>&1 &
    wait_while 400 read_start $!
    ! read_start $! || return
    if ! wait $!; then
        left=$(with_timeout 4 "$runtime" ps -aq --filter "name=iris-$2" 2>/dev/null) &&
            [ -z "$left" ] || return
    fi
    [ -n "${3-}" ] || rm -f "$container"
}

# is_client PID: true if the process is the docker or podman client of an attempt's container. Don't signal a
# client: it would forward the signal to the program, which is signalled directly. A client ends when the
# program ends. A client that is killed while it creates the container leaves parts of the container that the
# runtime does not know.
is_client() {
    words=
    IFS= read -r words 2>/dev/null <"$iris_proc/$1/cmdline"
    case $words in
    docker"run--nameiris-"* | podman"run--nameiris-"*) ;;
    */docker"run--nameiris-"* | */podman"run--nameiris-"*) ;;
    *) return 1 ;;
    esac
}
