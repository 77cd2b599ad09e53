# The processes beside the task: `sh <root>/a/<token>/run MODE`. MODE is `setup` or `start` (the wrapper) or
# `limit`, `lease` or `terminal` (its watchdogs). The file `run` holds the library up to here and the settings
# of the attempt: mask (the umask of the session), nonce (of the call that wrote it) and, in hundredths of a
# second, time_limit setup_limit lease_limit grace (0: no limit).

run_main() {
    dir=${0%/*}
    token=${dir##*/}
    spare=../../spare
    cd "$dir" || exit 1
    boot_id
    # The task may signal its whole group: the wrapper outlives that. Handlers, unlike `trap ''`, aren't
    # inherited. A host that shuts down tells everybody.
    signalled= shell_report=/dev/null
    trap : USR1 USR2
    trap 'signalled=1' HUP INT QUIT TERM
    mode=$1
    shift
    "run_$mode" "$@"
}

# The wrapper of the task. `go` has one winner, ever: the wrapper makes it itself, so that nobody can die
# between winning and starting it.
#
# BEFORE the command: `pid`, THEN the test of `cancel`. A stop sets `cancel`, THEN reads `pid`. So either the
# stop sees this wrapper, or this wrapper sees the stop.
run_start() {
    if [ -t 0 ]; then
        # On a terminal nobody has asked before in which state it is. Ctrl-C is for what runs there.
        (cd .. && state_of "$token" && [ "$state" = PREPARED ]) && [ ! -e cancel ] || return
        trap : INT QUIT
    fi
    now
    alive_at=$now
    printf '' 2>/dev/null >"launch.$now" || mv launch.pending "launch.$now" 2>/dev/null
    if ! claim go; then
        [ -e go ] || refuse . nostart.disk
        return
    fi
    write_pid pid || { give_up && return; }
    if [ -e cancel ] || [ ! -e x.pending ]; then record cancelled && return; fi
    [ -r "env.$nonce" ] && [ -r "cmd.$nonce" ] || { give_up && return; }
    # They were free when it was prepared; whoever starts it waits for us, so this is not for long.
    have_devices 300 || { give_up "$lacking" && return; }
    sign
    . "./env.$nonce"
    empty_secrets .
    . "./cmd.$nonce"
    sign
    watch_lease || { give_up && return; }
    sign
    watch "$time_limit" timeout
    watch_terminal
    make_group
    limit_memory
    begin_counting
    now
    began_at=$now
    note begin "$now"
    # Unless the setup has replaced the file.
    [ ! -f signal ] || [ -L signal ] || [ ! -w signal ] || shell_report=signal
    # Two commands: dash ignores the redirection of a group that consists of a subshell.
    {
        if [ -t 0 ]; then (run_task) >&7 2>&8 7>&- 8>&-; else (run_task) </dev/null >>out 2>>err; fi
        code=$?
    } 2>"$shell_report"
    unwatch
    end_lease || return
    ended_with "$code" timeout "$time_limit"
    sweep
    explain "$code" "$began_at"
    record "$end"
    is_stopped && return
    drop x "x.$end"
    [ -e "x.$end" ] || make_empty "x.$end"
}

# run_task: the command, in this process. On a terminal 7 and 8 are its output, for the wrapper prints none.
run_task() {
    enter_group
    name_process
    # shellcheck disable=SC2154 # task_env and task_cmd come from the files
    umask "$mask" && cd work && task_env "$dir" && task_cmd
}

# limit_memory: of an attempt with a limit, memory.sh has another.
limit_memory() { :; }

# note NAME WORDS: make NAME.WORDS, and fill reserve.NAME, which is empty until this has happened (a task may
# remove the first); on a full disk rename it. Whatever the task has made of that name goes.
note() {
    drop "$1"
    if printf '' >"$1.$2" && [ -f "reserve.$1" ] && printf 1 >"reserve.$1"; then return; fi 2>/dev/null
    mv "reserve.$1" "$1.$2" 2>/dev/null || make_empty "$1.$2"
}

# is_stopped: whether a stop is at it. It cancels first; without that, only its task can have taken that name.
is_stopped() { [ ! -e stop.idle ] && [ -e cancel ]; }

# sign: of life, of a wrapper on its way: a slow host is not one on which starts hang. At most one every two
# seconds: elsewhere there is none.
sign() {
    [ -n "$alive_at" ] || return 0
    now
    [ "$now" -ge $((alive_at + 200)) ] || return 0
    for name in launch.[0-9]*; do mv "$name" "launch.$now" 2>/dev/null; done
    alive_at=$now
}

# The set-up. `ln` to setup.pid has one winner, and says who that is in the same step. `env` stays for the
# task.
run_setup() {
    if ! write_pid "setup.pid.$$" || ! ln "setup.pid.$$" setup.pid 2>/dev/null; then
        rm -f "setup.pid.$$"
        [ -e setup.pid ] || refuse . nostart.disk
        return
    fi
    rm -f "setup.pid.$$"
    if [ -e cancel ] || [ ! -e x.pending ]; then unready && return; fi
    [ -r "env.$nonce" ] && [ -r "setup.$nonce" ] || { unready && return; }
    have_devices "$device_wait" || { unready "$lacking" && return; }
    [ -s "setup.$nonce" ] || { be_ready || unready && return; }
    . "./env.$nonce"
    watch "$setup_limit" setup-timeout
    make_group
    begin_counting
    now
    began_at=$now
    shell=$(command -v sh) # BEFORE the task's PATH counts
    set_up
    code=$?
    unwatch
    if [ "$code" = 0 ] && [ -e stop.idle ] && in_time setup-timeout "$setup_limit"; then
        sweep
        have_devices "$device_wait" || { unready "$lacking" && return; }
        be_ready && return
    fi
    ended_with "$code" setup-timeout "$setup_limit"
    sweep
    if [ -e cancel ]; then record cancelled && return; fi
    explain "$code" "$began_at"
    record nostart.setup
}

set_up() {
    (
        enter_group
        name_process
        set -- "$shell" "../setup.$nonce" # BEFORE the variables of the job take these names
        umask "$mask" && cd work && task_env "$dir" && exec "$@"
    ) </dev/null >>out 2>>err
}

# be_ready: PREPARED, unless it is being stopped. What only waits for devices may have been found ready by a
# later `prepare`.
be_ready() { [ ! -e cancel ] && { mv ready.pending ready 2>/dev/null || [ -e ready ]; }; }

# unready CAUSE: it will never be prepared. BEFORE that is recorded: from here on nobody can say that it is.
# If somebody has, it may run already.
unready() { { ! mv ready.pending ready.off 2>/dev/null && [ -e ready ]; } || give_up "$1"; }

# have_devices HUNDREDTHS: wait that long for them at most. False if they aren't free; why is in `err`.
have_devices() {
    await_devices "$1" && return
    [ -e cancel ] || tell_lacking 2>/dev/null >>err
    return 1
}

# write_pid FILE: who we are.
write_pid() {
    start_of $$ && wrapper=$$:$start && myself=$wrapper && [ -n "$boot" ] &&
        printf '%s %s %s\n' $$ "$start" "$boot" 2>/dev/null >"$1"
}

# ended_with CODE LIMIT HUNDREDTHS -> $end, the name of the exit record. A stop takes stop.idle, and the
# watchdog LIMIT.pending, before the first signal: so what they ended is told apart from what ended by itself.
ended_with() {
    end=$1
    now
    note end "$now.$1"
    if is_stopped; then
        end=cancelled
    elif ! in_time "$2" "$3"; then
        end=$1.timeout
    elif is_by_signal "$1"; then
        end=$1.signal
    fi
}

# explain CODE UPTIME: gather facts of what failed by itself, and adjust $end where they prove an OOM kill.
explain() {
    case $end in "$1" | "$1.signal") ;; *) return ;; esac
    gather "$1" "$2"
    [ "$1" = 137 ] || return 0
    case "
$facts" in *"
memory proven "*) end=137.oom ;; esac # at the start of a line: the text of a fact may hold these words
}

# is_by_signal CODE: whether this shell printed that a signal ended the command ("Killed"). CODE alone can't
# tell: 137 is also the exit of a shell whose last program was killed.
is_by_signal() { [ "$1" -gt 128 ] && [ -s "$shell_report" ]; }

# in_time LIMIT HUNDREDTHS: whether what just ended was faster than its watchdog. HUNDREDTHS 0: it has none.
in_time() { [ "$2" = 0 ] || [ -e "$1.off" ] || mv "$1.pending" "$1.off" 2>/dev/null || [ ! -e "$1" ]; }

# give_up CAUSE: it can't start; without a cause not even the first steps succeed. A stop ends the commands of
# the wrapper, too.
give_up() {
    if [ -e cancel ]; then record cancelled; else record "nostart.${1:-disk}"; fi
}

# record NAME: the end of the attempt, once. Needs no disk space, and never fails.
record() {
    empty_secrets .
    remove_groups . "$token"
    # BEFORE the record: who reads that must know what it is worth.
    [ -z "$signalled" ] || mv told.pending told 2>/dev/null
    mv x.pending "x.$1" 2>/dev/null
    # Once more if that command was ended from outside.
    [ ! -e x.pending ] || mv x.pending "x.$1" 2>/dev/null
    return 0
}

# sweep: end what the task has left behind, so that whoever comes next finds the chips free. If something
# can't be ended the attempt goes on: its end would release what that holds. A stop does the same, so it is
# left to that.
sweep() {
    until is_stopped || {
        now
        kill_at=$((now + grace))
        end_all "$token" keep $$
    }; do nap; done
}

when_to_kill() { :; }

# watch HUNDREDTHS LIMIT -> $watchdog, as pid:start: start the watchdog. It is no process of the attempt: it
# has neither the marker nor the session.
watch() {
    watchdog=
    [ "$1" -gt 0 ] || return 0
    start_of $$
    (
        unset IRIS_ATTEMPT_TOKEN
        detach sh "$dir/run" limit "$1" "$2" "$$" "$start"
    ) </dev/null >/dev/null 2>&1 7>&- 8>&- &
    start_of $! && watchdog=$!:$start
}

# unwatch: BEFORE any command of ours is run: what carries the marker is the watchdog's prey.
unwatch() {
    # shellcheck disable=SC2086
    signal KILL $watchdog
}

# The watchdog: in time, end what wrapper PID START runs; the wrapper records why. It ends within ten seconds
# when there is nothing left to watch.
run_limit() {
    now
    end_at $((now + $1)) "$2" "$3" "$4"
}

# await UPTIME LIMIT PID START: until then. False if there is nothing left to watch.
await() {
    while [ "$now" -lt "$1" ]; do
        is_alive "$3" "$4" && [ -e "$2.pending" ] && ! is_stopped || return
        doze $(($1 - now))
        now
    done
}

# end_at UPTIME LIMIT PID START: what `run_limit` is for.
end_at() {
    await "$@" || return
    is_alive "$3" "$4" && mv "$2.pending" "$2" 2>/dev/null || return
    kill_at=$((now + grace)) wrapper=$3:$4
    end_all "$token" keep $$
}

# doze HUNDREDTHS: so long, at most ten seconds.
doze() {
    if [ "$1" -ge 1000 ]; then sleep 10; elif [ "$1" -ge 100 ]; then sleep $(($1 / 100)); else nap; fi
}

# watch_terminal: start the watchdog of the terminal, if there is one. When that goes the kernel tells only
# the wrapper, which waits for the command.
watch_terminal() {
    [ -t 0 ] || return 0
    start_of $$
    (
        unset IRIS_ATTEMPT_TOKEN
        # By another number than 0: of what runs in the background dash and busybox close that first.
        (detach sh "$dir/run" terminal "$$" "$start") <&8 >/dev/null 2>&1 7>&- 8>&- &
    )
}

# The watchdog of the terminal of wrapper PID START: once it is gone, send SIGHUP, as to jobs of a login
# shell.
run_terminal() {
    while [ -t 0 ]; do
        is_alive "$1" "$2" || return
        sleep 1
    done
    wrapper=$1:$2
    leaders "$token"
    look "$token" "$leaders" "" $$ || return
    for process in $found; do
        case " $leaders " in *" $process "*) ;; *) signal HUP "$process" ;; esac
    done
}

# watch_lease: start the watchdog of the lease, and wait until it is there: nothing runs without it. It is no
# child of ours, so that a stop doesn't take it for a process of the task.
watch_lease() {
    [ "$lease_limit" -gt 0 ] || return 0
    start_of $$
    (
        unset IRIS_ATTEMPT_TOKEN
        (detach sh "$dir/run" lease "$$" "$start") </dev/null >/dev/null 2>&1 7>&- 8>&- &
    )
    now
    until_when=$((now + 2000))
    while [ "$now" -lt "$until_when" ]; do
        for name in lease.*; do [ ! -e "$name" ] || return 0; done
        nap 0.02
        sign
        now
    done
    return 1
}

# end_lease: the task has ended before its lease did. False if that ran out first: then all that is left, the
# wrapper too, is the watchdog's, and so is the record.
end_lease() {
    [ "$lease_limit" -gt 0 ] || return 0
    while :; do
        for name in lease.*; do
            case $name in lease.out.*) return 1 ;; esac
        done
        # Whoever has just renamed it has renewed it, or let it run out.
        mv "$name" lease.off 2>/dev/null || [ -e "$name" ] || [ "$name" = 'lease.*' ] && return 0
    done
}

# The watchdog of the lease: stop the attempt of wrapper PID START once nobody has renewed it for so long. As
# others rely on that, it outlives the wrapper, and a name that was taken away or can't be changed saves
# nobody.
run_lease() {
    now
    since=$now missed=
    make_empty "lease.$now" || return
    while :; do
        for name in lease.*; do
            name=${name#lease.}
            [ "$name" != off ] || return 0
            is_number "$name" && [ "$name" -le "$now" ] && since=$name
        done
        left=$((since + lease_limit - now))
        if [ "$left" -gt 0 ]; then
            is_alive "$1" "$2" || ! is_gone "$token" . || return 0
            doze "$left"
        else
            mv "lease.$since" "lease.out.$now" 2>/dev/null && break
            # Renewed at this moment; or not to be renamed, and then it is the same once more.
            [ "$missed" != "$since" ] || { make_empty "lease.out.$now"; break; }
            missed=$since
        fi
        now
    done
    kill_at=$((now + grace)) wrapper=$1:$2
    until end_all "$token" last $$; do :; done
    remove_groups . "$token"
    now
    empty_secrets .
    note end "$now.-"
    mv x.pending x.cancelled.lease 2>/dev/null
}
