# The wrapper and its watchdogs: `sh <root>/a/<token>/run MODE`. MODE is `setup` or `start` (the wrapper) or
# `limit`, `lease` or `terminal` (its watchdogs). The file `run` contains the scripts that this file needs
# and the attempt's settings: $mask (the umask of the session), $nonce (of the call that wrote it) and, in
# hundredths of a second, $time_limit $setup_limit $lease_limit (0: no limit) and $grace.

run_main() {
    dir=${0%/*}
    token=${dir##*/}
    spare=../../spare # an empty file, to be linked in place of a new file on a full disk
    cd "$dir" || exit 1
    boot_id
    # The wrapper must survive signals that the task sends to its process group. Set handlers, because the
    # task would inherit `trap ''`. $signalled is 1 after a signal that a shutdown sends to all processes.
    signalled= shell_report=/dev/null
    trap : USR1 USR2
    trap 'signalled=1' HUP INT QUIT TERM
    mode=$1
    shift
    "run_$mode" "$@"
}

# run_start: the wrapper of the task. Several wrappers may start. The one that makes the file `go` runs the
# command.
#
# A wrapper writes `pid`, THEN tests `cancel`. A stop makes `cancel`, THEN reads `pid`. So either the stop
# finds this wrapper, or this wrapper finds the stop.
run_start() {
    if [ -t 0 ]; then
        # On a terminal (iris run) no call `go` has checked the state. Ctrl-C is for the task.
        (cd .. && read_state "$token" && [ "$state" = PREPARED ]) && [ ! -e cancel ] || return
        trap : INT QUIT
    fi
    now
    renewed_at=$now
    printf '' 2>/dev/null >"launch.$now" || mv launch.pending "launch.$now" 2>/dev/null
    if ! claim go; then
        [ -e go ] || refuse . nostart.disk
        return
    fi
    write_pid pid || { give_up && return; }
    if [ -e cancel ] || [ ! -e x.pending ]; then record cancelled && return; fi
    [ -r "env.$nonce" ] && [ -r "cmd.$nonce" ] || { give_up && return; }
    # The devices were free when the attempt was prepared. Wait only 3 s, because the call `go` waits for this
    # wrapper.
    have_devices 300 || { give_up "$in_use" && return; }
    renew_launch
    . "./env.$nonce"
    empty_secrets .
    . "./cmd.$nonce"
    renew_launch
    watch_lease || { give_up && return; }
    renew_launch
    start_watchdog "$time_limit" timeout
    watch_terminal
    make_group
    limit_memory
    count_kills_before
    now
    began_at=$now
    record_step begin "$now"
    # The shell reports a signal in the file `signal` (see `is_by_signal`), unless the set-up has replaced it.
    [ ! -f signal ] || [ -L signal ] || [ ! -w signal ] || shell_report=signal
    # `code=$?` must be inside the group: dash ignores the redirection of a group that consists of a
    # subshell.
    {
        if [ -t 0 ]; then (run_task) >&7 2>&8 7>&- 8>&-; else (run_task) </dev/null >>out 2>>err; fi
        code=$?
    } 2>"$shell_report"
    end_watchdog
    end_lease || return
    classify_end "$code" timeout "$time_limit"
    sweep
    explain_failure "$code" "$began_at"
    record "$end"
    is_stopped && return
    remove_named x "x.$end"
    [ -e "x.$end" ] || make_empty "x.$end"
}

# run_task: run the command in this process. On a terminal, file descriptors 7 and 8 are its output.
run_task() {
    enter_group
    record_command_pid
    # shellcheck disable=SC2154 # task_env and task_cmd come from the files
    umask "$mask" && cd work && task_env "$dir" && task_cmd
}

limit_memory() { :; } # memory.sh replaces this function for an attempt with a limit

# record_step NAME WORDS: record that the command has begun or ended. NAME is `begin` or `end`. WORDS is the
# uptime, and for `end` also the exit code. Make the file NAME.WORDS, and fill reserve.NAME, because the task
# may remove NAME.WORDS. On a full disk rename reserve.NAME to NAME.WORDS. First remove any NAME.* that the
# task made.
record_step() {
    remove_named "$1"
    if printf '' >"$1.$2" && [ -f "reserve.$1" ] && printf 1 >"reserve.$1"; then return; fi 2>/dev/null
    mv "reserve.$1" "$1.$2" 2>/dev/null || make_empty "$1.$2"
}

# is_stopped: true if a stop has begun. Until then, the file stop.idle exists. A stop makes `cancel` and then
# renames stop.idle. If both are missing, the task has removed stop.idle.
is_stopped() { [ ! -e stop.idle ] && [ -e cancel ]; }

# renew_launch: rename launch.* to launch.<uptime>, at most every two seconds. This sign of life shows that a
# start is slow, not hanging. In a set-up $renewed_at is empty, and nothing is done.
renew_launch() {
    [ -n "$renewed_at" ] || return 0
    now
    [ "$now" -ge $((renewed_at + 200)) ] || return 0
    for name in launch.[0-9]*; do mv "$name" "launch.$now" 2>/dev/null; done
    renewed_at=$now
}

# run_setup: the wrapper of the set-up. Several may start. The one that makes setup.pid by `ln` runs the
# set-up. It does not empty `env`, which the task needs.
run_setup() {
    if ! write_pid "setup.pid.$$" || ! ln "setup.pid.$$" setup.pid 2>/dev/null; then
        rm -f "setup.pid.$$"
        [ -e setup.pid ] || refuse . nostart.disk
        return
    fi
    rm -f "setup.pid.$$"
    if [ -e cancel ] || [ ! -e x.pending ]; then fail_setup && return; fi
    [ -r "env.$nonce" ] && [ -r "setup.$nonce" ] || { fail_setup && return; }
    have_devices "$device_wait" || { fail_setup "$in_use" && return; }
    [ -s "setup.$nonce" ] || { become_ready || fail_setup && return; }
    . "./env.$nonce"
    start_watchdog "$setup_limit" setup-timeout
    make_group
    count_kills_before
    now
    began_at=$now
    shell=$(command -v sh) # BEFORE the task's PATH is set
    set_up
    code=$?
    end_watchdog
    if [ "$code" = 0 ] && [ -e stop.idle ] && in_time setup-timeout "$setup_limit"; then
        sweep
        have_devices "$device_wait" || { fail_setup "$in_use" && return; }
        become_ready && return
    fi
    classify_end "$code" setup-timeout "$setup_limit"
    sweep
    if [ -e cancel ]; then record cancelled && return; fi
    case $end in *.timeout)
        printf 'iris: not started: the set-up%s took longer than %s s (--setup-timeout)\n' \
            "${image:+ (pull of $image)}" "$((setup_limit / 100))" 2>/dev/null >>err
        ;;
    esac
    explain_failure "$code" "$began_at"
    record nostart.setup
}

set_up() { run_set_up_in work; }

# run_set_up_in DIRECTORY: execute the set-up command.
run_set_up_in() {
    (
        enter_group
        record_command_pid
        umask "$mask" && cd "$1" || exit
        set -- "$PWD" "$shell" "$dir/setup.$nonce" # BEFORE the variables of the job take these names
        task_env "$dir" && IRIS_WORKDIR=$1 && shift && exec "$@"
    ) </dev/null >>out 2>>err
}

# become_ready: make the attempt PREPARED. False if it is being stopped. If there is no set-up command, a
# later call `prepare` may already have made `ready`.
become_ready() { [ ! -e cancel ] && { mv ready.pending ready 2>/dev/null || [ -e ready ]; }; }

# fail_setup CAUSE: record that the attempt can't start. Rename ready.pending BEFORE that, so that no call can
# rename it to `ready`. If `ready` exists already, do nothing, because the attempt may run.
fail_setup() { { ! mv ready.pending ready.off 2>/dev/null && [ -e ready ]; } || give_up "$1"; }

# have_devices HUNDREDTHS: wait at most that long for the devices. If they aren't free afterwards, write the
# reason to `err`.
have_devices() {
    await_devices "$1" && return
    [ -e cancel ] || print_in_use 2>/dev/null >>err
    return 1
}

# write_pid FILE -> $wrapper $this_process (pid:start): write this process's pid, start time and boot id.
write_pid() {
    read_start $$ && wrapper=$$:$start && this_process=$wrapper && [ -n "$boot" ] &&
        printf '%s %s %s\n' $$ "$start" "$boot" 2>/dev/null >"$1"
}

# classify_end CODE LIMIT HUNDREDTHS -> $end: the name of the exit record. CODE is the exit code. LIMIT
# (`timeout` or `setup-timeout`) and HUNDREDTHS are as in `in_time`. A stop renames stop.idle, and the
# watchdog renames LIMIT.pending, before the first signal. So a stop or a timeout is never recorded as an exit
# of the task by itself.
classify_end() {
    end=$1
    now
    record_step end "$now.$1"
    if is_stopped; then
        end=cancelled
    elif ! in_time "$2" "$3"; then
        end=$1.timeout
    elif is_by_signal "$1"; then
        end=$1.signal
    fi
}

# explain_failure CODE UPTIME -> $end: gather facts if the command, begun at UPTIME, failed by itself. After
# an OOM kill set $end to 137.oom.
explain_failure() {
    case $end in "$1" | "$1.signal") ;; *) return ;; esac
    gather_facts "$1" "$2"
    [ "$1" = 137 ] || return 0
    # The text of another fact may contain these words, but not at the start of a line.
    case $newline$facts in *"${newline}memory proven "*) end=137.oom ;; esac
}

# is_by_signal CODE: true if this shell printed that a signal ended the command ("Killed"). CODE alone is
# ambiguous: 137 is also the exit code of a shell whose last program was killed.
is_by_signal() { [ "$1" -gt 128 ] && [ -s "$shell_report" ]; }

# in_time LIMIT HUNDREDTHS: true if the command ended before the watchdog of its time limit acted. If
# HUNDREDTHS is 0, there is no watchdog.
in_time() { [ "$2" = 0 ] || [ -e "$1.off" ] || mv "$1.pending" "$1.off" 2>/dev/null || [ ! -e "$1" ]; }

# give_up [CAUSE]: record that the attempt can't start (default: disk). If a stop has begun, record the stop
# instead: its signals may be the reason why a command of the wrapper failed.
give_up() {
    if [ -e cancel ]; then record cancelled; else record "nostart.${1:-disk}"; fi
}

# record NAME: record the end of the attempt as x.NAME, unless an end is recorded. Needs no disk space.
record() {
    empty_secrets .
    remove_groups . "$token"
    # BEFORE the record: `told` means that the shutdown of the host may have caused the exit code.
    [ -z "$signalled" ] || mv told.pending told 2>/dev/null
    mv x.pending "x.$1" 2>/dev/null
    # Retry if the `mv` was killed.
    [ ! -e x.pending ] || mv x.pending "x.$1" 2>/dev/null
    return 0
}

# sweep: end the processes that the task left, BEFORE its end is recorded, because the record releases the
# chips that these processes may hold. If a stop has begun, the stop ends the processes instead.
sweep() {
    [ -n "$group$v1_group" ] || group_file= # no process is in a group that does not exist
    until is_stopped || {
        now
        kill_at=$((now + grace))
        end_processes "$token" keep $$
    }; do nap; done
}

update_kill_at() { :; } # called by end_processes: $kill_at stays the same

# start_watchdog HUNDREDTHS LIMIT -> $watchdog: start the watchdog of a time limit; $watchdog is its
# pid:start. The watchdog has neither the marker nor the session of the attempt.
start_watchdog() {
    watchdog=
    [ "$1" -gt 0 ] || return 0
    read_start $$
    (
        unset IRIS_ATTEMPT_TOKEN
        detach sh "$dir/run" limit "$1" "$2" "$$" "$start"
    ) </dev/null >/dev/null 2>&1 7>&- 8>&- &
    read_start $! && watchdog=$!:$start
}

# end_watchdog: end the watchdog. Call it BEFORE the wrapper runs commands, because at the limit the watchdog
# would end these commands, too.
end_watchdog() {
    # shellcheck disable=SC2086
    signal KILL $watchdog
}

# run_limit HUNDREDTHS LIMIT PID START: the watchdog of a time limit. At the limit it ends the attempt's
# processes, and the wrapper (PID, START) records that. The watchdog exits within ten seconds after the
# command ends.
run_limit() {
    now
    end_at $((now + $1)) "$2" "$3" "$4"
}

# await_limit UPTIME LIMIT PID START: wait until UPTIME. False if the command ends or is stopped before
# UPTIME.
await_limit() {
    while [ "$now" -lt "$1" ]; do
        is_alive "$3" "$4" && [ -e "$2.pending" ] && ! is_stopped || return
        sleep_at_most $(($1 - now))
        now
    done
}

# end_at UPTIME LIMIT PID START: end the attempt's processes at UPTIME.
end_at() {
    await_limit "$@" || return
    is_alive "$3" "$4" && mv "$2.pending" "$2" 2>/dev/null || return
    kill_at=$((now + grace)) wrapper=$3:$4
    end_processes "$token" keep $$
}

# sleep_at_most HUNDREDTHS: sleep that long, but at most ten seconds.
sleep_at_most() {
    if [ "$1" -ge 1000 ]; then sleep 10; elif [ "$1" -ge 100 ]; then sleep $(($1 / 100)); else nap; fi
}

# watch_terminal: if the attempt runs on a terminal, start a watchdog for it. When a terminal closes, the
# kernel signals only the wrapper.
watch_terminal() {
    [ -t 0 ] || return 0
    read_start $$
    (
        unset IRIS_ATTEMPT_TOKEN
        # `<&8`, not `<&0`: dash and busybox first close file descriptor 0 of background commands.
        (detach sh "$dir/run" terminal "$$" "$start") <&8 >/dev/null 2>&1 7>&- 8>&- &
    )
}

# run_terminal PID START: the watchdog of the terminal of the wrapper (PID, START). When the terminal closes,
# send SIGHUP to the task, as a login shell does.
run_terminal() {
    while [ -t 0 ]; do
        is_alive "$1" "$2" || return
        sleep 1
    done
    wrapper=$1:$2
    find_wrappers "$token"
    scan "$token" "$wrappers" "" $$ || return
    for process in $found; do
        case " $wrappers " in *" $process "*) ;; *) signal HUP "$process" ;; esac
    done
}

# watch_lease: start the watchdog of the lease, and wait at most 20 s until it has made lease.*. False if it
# has not. The watchdog is not a child of the wrapper, because a stop would end a child as a process of the
# task.
watch_lease() {
    [ "$lease_limit" -gt 0 ] || return 0
    read_start $$
    (
        unset IRIS_ATTEMPT_TOKEN
        (detach sh "$dir/run" lease "$$" "$start") </dev/null >/dev/null 2>&1 7>&- 8>&- &
    )
    now
    deadline=$((now + 2000))
    while [ "$now" -lt "$deadline" ]; do
        for name in lease.*; do [ ! -e "$name" ] || return 0; done
        nap 0.02
        renew_launch
        now
    done
    return 1
}

# end_lease: end the lease after the task. False if the lease has expired: then the watchdog of the lease ends
# all processes, also the wrapper, and records the end.
end_lease() {
    [ "$lease_limit" -gt 0 ] || return 0
    while :; do
        for name in lease.*; do
            case $name in lease.out.*) return 1 ;; esac
        done
        # If the rename fails, the lease was just renewed or has expired. Read its name again.
        mv "$name" lease.off 2>/dev/null || [ -e "$name" ] || [ "$name" = 'lease.*' ] && return 0
    done
}

# run_lease PID START: the watchdog of the lease stops the attempt when the lease expires. The scheduler
# relies on that. So the watchdog also acts after the death of the wrapper (PID, START), and if lease.* is
# missing or can't be renamed.
run_lease() {
    now
    since=$now failed_since=
    make_empty "lease.$now" || return
    while :; do
        for name in lease.*; do
            name=${name#lease.}
            [ "$name" != off ] || return 0
            is_number "$name" && [ "$name" -le "$now" ] && since=$name
        done
        remaining=$((since + lease_limit - now))
        if [ "$remaining" -gt 0 ]; then
            is_alive "$1" "$2" || ! is_gone "$token" . || return 0
            sleep_at_most "$remaining"
        else
            mv "lease.$since" "lease.out.$now" 2>/dev/null && break
            # The lease was just renewed. If the name is still the same in the next iteration, the
            # file can't be renamed.
            [ "$failed_since" != "$since" ] || { make_empty "lease.out.$now"; break; }
            failed_since=$since
        fi
        now
    done
    kill_at=$((now + grace)) wrapper=$1:$2
    until end_processes "$token" last $$; do :; done
    remove_groups . "$token"
    now
    empty_secrets .
    record_step end "$now.-"
    mv x.pending x.cancelled.lease 2>/dev/null
}
