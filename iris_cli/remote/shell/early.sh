# For an attempt with an early signal: the watchdog of the time limit signals the task's processes before the
# limit. Settings: $early_name and $early_number of the signal, $early_lead in hundredths of a second.

# run_limit: replaces run_limit of run.sh.
run_limit() {
    now
    deadline=$((now + $1))
    if [ "$2" = timeout ]; then
        await_limit $((deadline - early_lead)) "$2" "$3" "$4" || return
        send_early_signal $$
    fi
    end_at "$deadline" "$2" "$3" "$4"
}

# send_early_signal SELF: signal the processes that have a handler for the signal. Most signals kill a process
# without a handler.
send_early_signal() {
    find_wrappers "$token"
    scan "$token" "$wrappers" "" "$1" || return
    handled=0 handlers=
    for process in $found; do
        # A process forked by the wrapper has the wrapper's handlers until it executes the command. A
        # container's client forwards signals to the program, which is signalled directly.
        executes_run "${process%%:*}" "$token" || is_client "${process%%:*}" && continue
        is_handled "${process%%:*}" "$early_number" || continue
        handled=$((handled + 1)) handlers="$handlers $process"
    done
    # Print BEFORE the signal, because this watchdog ends with the task.
    printf 'iris: %s s before the time limit: SIG%s to %s process(es) with a handler for it\n' \
        $((early_lead / 100)) "$early_name" "$handled" 2>/dev/null >>err
    for process in $handlers; do
        ! is_handled "${process%%:*}" "$early_number" || signal "$early_name" "$process"
    done
}

# is_handled PID NUMBER: true if the process has a handler for the signal: bit NUMBER-1 of its mask SigCgt.
is_handled() {
    mask=
    while read -r word rest; do
        [ "$word" != SigCgt: ] || mask=$rest
    done 2>/dev/null <"$iris_proc/$1/status"
    digit=$((($2 - 1) / 4))
    while [ "$digit" -gt 0 ]; do
        mask=${mask%?} digit=$((digit - 1))
    done
    mask=${mask#"${mask%?}"}
    case $mask in '' | *[!0-9a-f]*) return 1 ;; esac
    [ $((0x$mask >> ($2 - 1) % 4 & 1)) = 1 ]
}
