# Of an attempt with an early signal, behind its settings early_name early_number early_lead (in hundredths
# of a second): its watchdog warns the processes of the task that their time limit is near.

# This one stands for that of `run`.
run_limit() {
    now
    deadline=$((now + $1))
    if [ "$2" = timeout ]; then
        await $((deadline - early_lead)) "$2" "$3" "$4" || return
        warn $$
    fi
    end_at "$deadline" "$2" "$3" "$4"
}

# warn SELF: whoever waits for this signal. Most others would be ended by it, and nobody asked for that.
warn() {
    leaders "$token"
    look "$token" "$leaders" "" "$1" || return
    warned=0 handlers=
    for process in $found; do
        # What the wrapper forks has its handlers, too, until it is the task.
        executes_run "${process%%:*}" "$token" || is_client "${process%%:*}" && continue
        is_handled "${process%%:*}" "$early_number" || continue
        warned=$((warned + 1)) handlers="$handlers $process"
    done
    # BEFORE the signal: a task that it ends takes its watchdog along.
    printf 'iris: %s s before the time limit: SIG%s to %s process(es) with a handler for it\n' \
        $((early_lead / 100)) "$early_name" "$warned" 2>/dev/null >>err
    for process in $handlers; do
        ! is_handled "${process%%:*}" "$early_number" || signal "$early_name" "$process"
    done
}

# is_handled PID NUMBER: whether that process has a handler for that signal. The mask has a bit for each, the
# last one is that of signal 1.
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
