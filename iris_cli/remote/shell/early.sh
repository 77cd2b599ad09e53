# For an attempt with an early signal, after its settings early_name early_number early_lead (hundredths of a
# second): the watchdog sends the signal to the task's processes before the time limit.

# Replaces run_limit of run.sh.
run_limit() {
    now
    deadline=$((now + $1))
    if [ "$2" = timeout ]; then
        await $((deadline - early_lead)) "$2" "$3" "$4" || return
        warn $$
    fi
    end_at "$deadline" "$2" "$3" "$4"
}

# warn SELF: signal the processes that have a handler; the signal would end most others.
warn() {
    leaders "$token"
    look "$token" "$leaders" "" "$1" || return
    warned=0 handlers=
    for process in $found; do
        # A process forked by the wrapper has the wrapper's handlers until it executes the task.
        executes_run "${process%%:*}" "$token" || is_client "${process%%:*}" && continue
        is_handled "${process%%:*}" "$early_number" || continue
        warned=$((warned + 1)) handlers="$handlers $process"
    done
    # Print BEFORE the signal: if it ends the task, the watchdog ends, too.
    printf 'iris: %s s before the time limit: SIG%s to %s process(es) with a handler for it\n' \
        $((early_lead / 100)) "$early_name" "$warned" 2>/dev/null >>err
    for process in $handlers; do
        ! is_handled "${process%%:*}" "$early_number" || signal "$early_name" "$process"
    done
}

# is_handled PID NUMBER: true if the process has a handler for the signal. Bit n-1 of the mask is for
# signal n.
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
