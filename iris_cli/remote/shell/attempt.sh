# Read the state of an attempt from the names below a/<token>/. Writes nothing, except that a
# proof removes a leftover container. The working directory is
# <root>/a. docs/worker-protocol.md has the tables of names, states and races.
#
# Files named *.pending, and stop.idle, are made beforehand and renamed at most once: recording an end needs
# no disk space, and a process whose rename fails has lost the race.

# names TOKEN -> from the names in its directory: $x (EXITED CANCELLED NOSTART, or empty) $x_code $x_cause
# $launched $began $ended $end_code $stop $ready $going $asked $set_up $lease $told
names() {
    no_names
    for name in "$1"/*; do
        name=${name##*/}
        case $name in
        x.pending | begin.pending | end.pending) unsaid=1 ;; # older versions made the last two
        *.pending) ;;
        cancel) cancelled=1 ;;
        x.*) final "${name#x.}" ;;
        launch.*) launched=${name#*.} ;;
        begin.*) began=${name#*.} ;;
        end.*)
            ended=${name#*.}
            end_code=${ended#*.}
            ended=${ended%%.*}
            ;;
        stop.*) case $stop in '' | stop.idle) stop=$name ;; esac ;; # in order: done idle run stuck
        ready) ready=1 ;;
        reserve.begin) [ "$began" != - ] || [ -s "$1/$name" ] || unsaid=1 ;; # in order, after `begin`
        reserve.end) [ "$ended" != - ] || [ -s "$1/$name" ] || unsaid=1 ;;
        run) [ ! -s "$1/run" ] || has_run=1 ;;
        told) told=1 ;;
        go) going=1 ;;
        go.*) first_go "${name#*.}" ;;
        setup.pid) set_up=1 ;;
        lease.*) lease=$name ;;
        esac
    done
    [ -n "$has_run" ] || ready=
    is_complete || x= x_code=- x_cause=-
}

# is_complete: true if the names record exactly one end, completely. If not, the result is unknown. After the
# lease has expired, its watchdog records the end.
is_complete() {
    [ "$finals" = 1 ] || return
    case $x$x_cause in
    EXITED*)
        case $lease in lease.out.*) return 1 ;; esac
        case $unsaid:$end_code in :- | ":$x_code") ;; *) return 1 ;; esac
        ;;
    NOSTART*) [ "$began" = - ] ;;
    CANCELLED-) [ -n "$cancelled" ] ;;
    esac
}

no_names() {
    x= x_code=- x_cause=- finals=0 told= unsaid= cancelled=
    launched=- began=- ended=- end_code=- stop= ready= has_run= going= asked=- set_up= lease=
}

# first_go UPTIME -> $asked: the earliest of them.
first_go() {
    is_number "$1" || return
    if [ "$asked" = - ] || [ "$1" -lt "$asked" ]; then asked=$1; fi
}

# final NAME -> $x $x_code $x_cause $finals: parse an exit record x.NAME. Ignore other names.
final() {
    case $1 in
    cancelled) x=CANCELLED ;;
    cancelled.lease)
        x=CANCELLED
        x_cause=lease
        ;;
    nostart.setup | nostart.disk | nostart.chips | nostart.port | nostart.workspace)
        x=NOSTART
        x_cause=${1#nostart.}
        ;;
    *)
        is_code "${1%%.*}" || return
        case ${1#*.} in timeout | oom | signal) x_cause=${1#*.} ;; "$1") ;; *) return ;; esac
        x=EXITED
        x_code=${1%%.*}
        ;;
    esac
    finals=$((finals + 1))
}

# is_code TEXT: true for an exit code.
is_code() {
    case $1 in '' | *[!0-9]* | 0?* | ????*) return 1 ;; esac
    [ "$1" -le 255 ]
}

# read_pid FILE -> $pid $pid_start $pid_boot: its writer. False if the file is missing or malformed.
read_pid() {
    pid= pid_start= pid_boot=
    [ -f "$1" ] || return 1
    # Without a line end it is still being written.
    read -r pid pid_start pid_boot pid_rest 2>/dev/null <"$1" || return
    is_number "$pid" && [ -n "$pid_boot" ] && [ -z "$pid_rest" ]
}

# prepared_boot TOKEN -> $pid_boot: the boot in which it was prepared.
prepared_boot() {
    pid_boot=
    [ -f "$1/run" ] && read -r _ _ pid_boot _ 2>/dev/null <"$1/run"
}

# boot_of TOKEN -> $pid_boot: the boot it belongs to, empty if unknown.
boot_of() { read_pid "$1/pid" || read_pid "$1/setup.pid" || prepared_boot "$1"; }

# state_of TOKEN -> $state, and the variables of `names`.
#
# Names are not read atomically. So after a process is found dead, read them again: records that it wrote
# before it died are visible then, and only their absence then means that its result is lost. The
# same holds for a recorded end: the names count as read AFTER the proof that no process is left.
# Until then the wrapper may correct names that its task forged, and a stop or the lease may end the attempt.
state_of() {
    dead= settled=
    no_names
    while :; do
        if [ -f "$1" ]; then
            state=STOPPED # a tombstone
        elif [ ! -d "$1" ]; then
            state=ABSENT
        else
            names "$1"
            state_by_names "$1" || continue
        fi
        case $settled$state in
        ABSENT | EXITED | CANCELLED | NOSTART | STOPPED | LOST) ;;
        *) return ;;
        esac
        if ! is_proven "$1"; then
            state_of_living "$1"
            return
        fi
        settled=1
    done
}

# state_of_living TOKEN -> $state: its names claim an end, but its processes live. Its wrapper is before or
# after the command; or the task has edited its files, whose claims are then worthless.
state_of_living() {
    x= x_code=- x_cause=- ended=- state=ORPHANED
    if is_writer "$1/pid" "$1"; then
        state=LAUNCHING
    elif is_writer "$1/setup.pid" "$1"; then
        state=PREPARING
    fi
    if [ "$began" != - ] && { [ "$state" = LAUNCHING ] || [ ! -e "$1/pid" ]; }; then state=RUNNING; fi
}

# is_proven TOKEN: true if no process is left of an attempt whose names claim its end.
is_proven() {
    if [ -n "$alone" ]; then
        is_unmarked "$1"
        return $? # in a trap, bash takes a `return` alone for the status of before
    fi
    case " $proven " in *" $1 "*) ;; *) prove "$1" ;; esac
    case " $proven " in *" $1 "*) ;; *) return 1 ;; esac
    group=
    group_of "$1" "$1"
    ! is_populated
}

# prove TOKENS -> $proven: append those without processes. A wrapper that has just recorded the end of its
# task is about to exit: wait for it, for a quarter of a second.
prove() {
    for pause in 0.02 0.03 0.05 0.05 0.1 ''; do
        if processes_of "$@" && [ -z "$found" ] && no_containers "$@"; then
            proven="$proven $*"
            return
        fi
        [ -z "$pause" ] || nap "$pause"
    done
    [ $# -gt 1 ] || return
    for suspect; do
        ! processes_of "$suspect" || [ -n "$found" ] || ! no_containers "$suspect" ||
            proven="$proven $suspect"
    done
}

# is_writer FILE TOKEN -> $pid $pid_start: true if the process that FILE names lives and executes the
# attempt's `run`, as all writers of such files do. A task may have written another pid to it.
is_writer() {
    read_pid "$1" && [ "$pid_boot" = "$boot" ] && is_alive "$pid" "$pid_start" || return
    [ ! -r "$iris_proc/self/stat" ] || executes_run "$pid" "$2"
}

# executes_run PID TOKEN: true if it is the attempt's wrapper, or was just forked by it.
executes_run() {
    words=
    IFS= read -r words 2>/dev/null <"$iris_proc/$1/cmdline"
    case $words in *"/$2/runstart" | *"/$2/runsetup") ;; *) return 1 ;; esac
}

# state_by_names TOKEN -> $state. False: read again, as $dead was found dead just now.
state_by_names() {
    boot_of "$1"
    state=
    case $stop in
    stop.done)
        state=${x:-STOPPED}
        [ "$x" = CANCELLED ] && state=STOPPED
        ;;
    stop.run.*) state=STOPPING ;;
    stop.stuck.*) state=UNKILLABLE ;;
    *) state=$x ;;
    esac
    # An attempt of another boot has ended.
    case $pid_boot in '' | "$boot") ;; *)
        [ "$told$x" != 1EXITED ] || x= state=STOPPED # the shutdown may have ended it, with any code
        [ "$stop" = stop.done ] || state=${x:-LOST}
        ;;
    esac
    if [ -n "$state" ]; then
        return 0
    elif [ -n "$going" ] || [ "$began" != - ]; then
        state=LAUNCHING
        [ -s "$1/pid" ] || [ "$began" != - ] || return 0
        [ "$began" = - ] || state=RUNNING
        writer_of "$1" pid || return
        # The task may have removed that file, while the wrapper lives.
        [ "$state" != ORPHANED ] || [ -e "$1/pid" ] || state=RUNNING
    elif [ -n "$ready" ]; then
        state=PREPARED
    else
        state=PREPARING
        if [ -n "$set_up" ]; then
            writer_of "$1" setup.pid
        elif [ ! -s "$1/run" ]; then
            # Half prepared; or emptied while its processes live: then it must not be prepared again.
            is_gone "$1" || state=ORPHANED
        fi
    fi
}

# writer_of TOKEN FILE -> $state if the writer of FILE is dead: ORPHANED, LOST, or the end that is about to be
# recorded. False: read again. A malformed file counts as a dead writer's.
writer_of() {
    ! is_writer "$1/$2" "$1" || return 0
    case $dead in
    "$2 $pid $pid_start gone")
        state=LOST proven="$proven $1"
        # No process is left: the watchdog of the lease has ended all, but not yet recorded it.
        case $lease in lease.out.*) state=CANCELLED x_cause=lease ended=${lease#lease.out.} ;; esac
        ;;
    "$2 $pid $pid_start")
        state=ORPHANED
        is_gone "$1" || return 0
        dead="$dead gone"
        return 1
        ;;
    *)
        dead="$2 $pid $pid_start"
        return 1
        ;;
    esac
}

# is_gone TOKEN [DIRECTORY]: true if two scans find no process of it: processes that fork and end could escape
# one scan. False without a proof. A lone shell can't fork to prove it.
is_gone() {
    [ -z "$alone" ] || return
    self_pid
    group=
    group_of "${2:-$1}" "$1"
    look "$1" "" "" "$self" && [ -z "$found" ] || return
    nap 0.03
    look "$1" "" "" "$self" && [ -z "$found" ] && ! is_populated && no_container "${2:-$1}" "$1"
}

# no_containers TOKENS: no_container for each.
no_containers() {
    for each; do no_container "$each" "$each" || return; done
}

# no_container DIRECTORY TOKEN: remove the container of an attempt that must not run any more, if the file
# `container` says that it may have one, exited or not yet started. False unless the runtime confirms that it
# is gone.
no_container() {
    runtime=
    [ -f "$1/container" ] && read -r runtime _ 2>/dev/null <"$1/container"
    case $runtime in docker | podman) ;; *) return 0 ;; esac
    if ! timeout 4 "$runtime" rm -f -v "iris-$2" >/dev/null 2>&1; then
        left=$(timeout 4 "$runtime" ps -aq --filter "name=iris-$2" 2>/dev/null) && [ -z "$left" ] || return
    fi
    rm -f "$1/container"
}

# is_client PID: true if it is the client of an attempt's container. It needs no signal: it would forward it
# to the program, which gets its own, and ends with the program.
is_client() {
    words=
    IFS= read -r words 2>/dev/null <"$iris_proc/$1/cmdline"
    case $words in docker"run--nameiris-"* | podman"run--nameiris-"*) ;; *) return 1 ;; esac
}
