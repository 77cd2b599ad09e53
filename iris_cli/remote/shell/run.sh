# The wrapper and its watchdogs: `sh <root>/a/<token>/run MODE`. MODE is `setup` or `start` (the wrapper) or
# `limit`, `lease` or `terminal` (its watchdogs). The file `run` has the library up to this file, and the
# attempt's settings: mask (the umask of the session), nonce (of the call that wrote it) and, in hundredths of
# a second, time_limit setup_limit lease_limit grace (0: no limit).

run_main() {
    dir=${0%/*}
    token=${dir##*/}
    spare=../../spare
    cd "$dir" || exit 1
    boot_id
    # The wrapper must survive signals of the task to its process group. Unlike `trap ''`, handlers aren't
    # inherited. A shutdown signals all processes.
    signalled= shell_report=/dev/null
    trap : USR1 USR2
    trap 'signalled=1' HUP INT QUIT TERM
    mode=$1
    shift
    "run_$mode" "$@"
}

# run_start: the wrapper of the task. Only one process ever makes `go`: the wrapper itself, so that no caller
# can die between making it and starting the task.
#
# Before the command: write `pid`, THEN test `cancel`. A stop sets `cancel`, THEN reads `pid`. So either the
# stop sees this wrapper, or this wrapper sees the stop.
run_start() {
    if [ -t 0 ]; then
        # On a terminal (iris run) no caller has checked the state. Ctrl-C is for the task.
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
    # They were free when it was prepared. Wait only 3 s: the caller waits for this wrapper.
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
    # Not if the set-up has replaced the file.
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

# run_task: run the command in this process. On a terminal, 7 and 8 are its output: the wrapper prints none.
run_task() {
    enter_group
    name_process
    # shellcheck disable=SC2154 # task_env and task_cmd come from the files
    umask "$mask" && cd work && task_env "$dir" && task_cmd
}

# limit_memory: memory.sh replaces it for an attempt with a limit.
limit_memory() { :; }

# note NAME WORDS: make NAME.WORDS, and fill reserve.NAME, which is empty until then (a task may remove
# NAME.WORDS); on a full disk rename it. Remove files that the task made under that name.
note() {
    drop "$1"
    if printf '' >"$1.$2" && [ -f "reserve.$1" ] && printf 1 >"reserve.$1"; then return; fi 2>/dev/null
    mv "reserve.$1" "$1.$2" 2>/dev/null || make_empty "$1.$2"
}

# is_stopped: true if a stop has begun. A stop sets `cancel` first; without it, the task removed stop.idle.
is_stopped() { [ ! -e stop.idle ] && [ -e cancel ]; }

# sign: renew launch.<uptime>, every two seconds at most: it tells a slow start from a hanging one. Only the
# start needs it.
sign() {
    [ -n "$alive_at" ] || return 0
    now
    [ "$now" -ge $((alive_at + 200)) ] || return 0
    for name in launch.[0-9]*; do mv "$name" "launch.$now" 2>/dev/null; done
    alive_at=$now
}

# run_setup: run the set-up. `ln` to setup.pid decides the winner and records it in one step. Keep `env` for
# the task.
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
    shell=$(command -v sh) # BEFORE the task's PATH is set
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

# be_ready: become PREPARED, unless being stopped. A later `prepare` may have made an attempt ready that only
# waits for devices.
be_ready() { [ ! -e cancel ] && { mv ready.pending ready 2>/dev/null || [ -e ready ]; }; }

# unready CAUSE: give up the set-up. Take ready.pending BEFORE recording that, so that no call makes it
# `ready` later. If `ready` exists, the attempt may run already.
unready() { { ! mv ready.pending ready.off 2>/dev/null && [ -e ready ]; } || give_up "$1"; }

# have_devices HUNDREDTHS: wait at most that long for the devices. False if they aren't free; `err` says why.
have_devices() {
    await_devices "$1" && return
    [ -e cancel ] || tell_lacking 2>/dev/null >>err
    return 1
}

# write_pid FILE -> $wrapper $myself: write this process's pid, start and boot.
write_pid() {
    start_of $$ && wrapper=$$:$start && myself=$wrapper && [ -n "$boot" ] &&
        printf '%s %s %s\n' $$ "$start" "$boot" 2>/dev/null >"$1"
}

# ended_with CODE LIMIT HUNDREDTHS -> $end: the name of the exit record. A stop renames stop.idle, and the
# watchdog LIMIT.pending, before the first signal: that tells their ends from an end of the task itself.
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

# explain CODE UPTIME -> $end: gather facts about the task's own failure; adjust $end for a proven OOM kill.
explain() {
    case $end in "$1" | "$1.signal") ;; *) return ;; esac
    gather "$1" "$2"
    [ "$1" = 137 ] || return 0
    case "
$facts" in *"
memory proven "*) end=137.oom ;; esac # at the start of a line: the text of a fact may hold these words
}

# is_by_signal CODE: true if this shell printed that a signal ended the command ("Killed"). CODE alone can't
# tell: 137 is also the exit code of a shell whose last program was killed.
is_by_signal() { [ "$1" -gt 128 ] && [ -s "$shell_report" ]; }

# in_time LIMIT HUNDREDTHS: true if the command ended before its watchdog acted. HUNDREDTHS 0: no watchdog.
in_time() { [ "$2" = 0 ] || [ -e "$1.off" ] || mv "$1.pending" "$1.off" 2>/dev/null || [ ! -e "$1" ]; }

# give_up CAUSE: record that the attempt can't start (default: disk), or that it was cancelled: a stop also
# ends the wrapper's commands.
give_up() {
    if [ -e cancel ]; then record cancelled; else record "nostart.${1:-disk}"; fi
}

# record NAME: record the end of the attempt, once. Needs no disk space, never fails.
record() {
    empty_secrets .
    remove_groups . "$token"
    # BEFORE the record: after a shutdown signal, its readers must not trust the code.
    [ -z "$signalled" ] || mv told.pending told 2>/dev/null
    mv x.pending "x.$1" 2>/dev/null
    # Retry if the `mv` was killed.
    [ ! -e x.pending ] || mv x.pending "x.$1" 2>/dev/null
    return 0
}

# sweep: end the processes that the task left, so that the next attempt finds the chips free. The attempt
# does not end before: its end would release the chips they hold. A stop does the same, so a sweep leaves
# them to it.
sweep() {
    until is_stopped || {
        now
        kill_at=$((now + grace))
        end_all "$token" keep $$
    }; do nap; done
}

when_to_kill() { :; }

# watch HUNDREDTHS LIMIT -> $watchdog, as pid:start: start the watchdog, outside the attempt: with neither
# its marker nor its session.
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

# unwatch: end the watchdog BEFORE the wrapper runs commands: it ends everything with the marker.
unwatch() {
    # shellcheck disable=SC2086
    signal KILL $watchdog
}

# run_limit HUNDREDTHS LIMIT PID START: the watchdog: at the limit, end the processes of wrapper PID, which
# records why. Exits within ten seconds after the command ends.
run_limit() {
    now
    end_at $((now + $1)) "$2" "$3" "$4"
}

# await UPTIME LIMIT PID START: wait until UPTIME. False if the command has ended or is being stopped.
await() {
    while [ "$now" -lt "$1" ]; do
        is_alive "$3" "$4" && [ -e "$2.pending" ] && ! is_stopped || return
        doze $(($1 - now))
        now
    done
}

# end_at UPTIME LIMIT PID START: end the attempt's processes at UPTIME.
end_at() {
    await "$@" || return
    is_alive "$3" "$4" && mv "$2.pending" "$2" 2>/dev/null || return
    kill_at=$((now + grace)) wrapper=$3:$4
    end_all "$token" keep $$
}

# doze HUNDREDTHS: sleep that long, at most ten seconds.
doze() {
    if [ "$1" -ge 1000 ]; then sleep 10; elif [ "$1" -ge 100 ]; then sleep $(($1 / 100)); else nap; fi
}

# watch_terminal: start the watchdog of the terminal, if any. When it closes, the kernel signals only the
# wrapper, which waits for the command.
watch_terminal() {
    [ -t 0 ] || return 0
    start_of $$
    (
        unset IRIS_ATTEMPT_TOKEN
        # By a descriptor other than 0: dash and busybox close 0 of background commands first.
        (detach sh "$dir/run" terminal "$$" "$start") <&8 >/dev/null 2>&1 7>&- 8>&- &
    )
}

# run_terminal PID START: the watchdog of the wrapper's terminal: once closed, send SIGHUP, as to the jobs of
# a login shell.
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

# watch_lease: start the watchdog of the lease, and wait for it: no task runs without it. It is no child of
# the wrapper, so that a stop doesn't treat it as a process of the task.
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

# end_lease: end the lease after the task. False if it had expired: the watchdog then ends all processes, also
# the wrapper, and records the end.
end_lease() {
    [ "$lease_limit" -gt 0 ] || return 0
    while :; do
        for name in lease.*; do
            case $name in lease.out.*) return 1 ;; esac
        done
        # If the name is gone, the lease was just renewed or has expired.
        mv "$name" lease.off 2>/dev/null || [ -e "$name" ] || [ "$name" = 'lease.*' ] && return 0
    done
}

# run_lease PID START: the watchdog of the lease: stop the attempt when the lease expires. The scheduler
# relies on it, so it survives the wrapper, and acts also if the lease's name is missing or can't be
# renamed.
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
            # Just renewed, or it can't be renamed: then the next round finds the same time.
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
