# Stop the attempts and end the processes that the operator named. The working directory is <root>/a, or any
# other directory if <root>/a does not exist.

# kept_processes TOKENS SELF -> $kept: all processes of these attempts, as words <pid>:<start>=<token>. SELF
# is the pid of this shell, which is excluded with its children. False if the processes can't be listed.
kept_processes() {
    kept=
    for each in $1; do
        found=$(
            wrappers=
            ! cd "$each" 2>/dev/null || find_wrappers "$each"
            scan "$each" "$wrappers" "" "$2" && printf '%s ' $found
        ) || return
        for process in $found; do kept="$kept $process=$each"; done
    done
}

# evict GRACE: stop the attempts in $attempts_to_stop, and start an evictor for $processes_to_end, words of
# the form <boot>:<pid>:<start>. Wait at most a second for the attempts, and a second for the processes. GRACE
# is in hundredths of a second.
evict() {
    targets=
    for each in $processes_to_end; do
        case $each in "$boot":*) targets="$targets ${each#*:}" ;; esac
    done
    [ -z "$targets" ] || run_detached evictor "$PWD" "$1" "$keep" "$targets"
    # shellcheck disable=SC2086
    if [ -n "$attempts_to_stop" ] && make_root && cd "$root/a"; then
        root_missing=
        for each in $attempts_to_stop; do
            stop "$each" "$1"
            # If the attempt had already ended by itself, record the stop as done.
            [ ! -d "$each" ] || [ -z "$record" ] || mv "$each/stop.idle" "$each/stop.done" 2>/dev/null
        done
        await_stops $attempts_to_stop
    fi
    # shellcheck disable=SC2086
    wait_while 100 any_alive $targets
}

# any_alive PROCESSES: true if one of these processes (pid:start) lives.
any_alive() {
    for process; do
        ! is_alive "${process%%:*}" "${process#*:}" || return 0
    done
    return 1
}

# evictor DIRECTORY GRACE KEEP PROCESSES: end the processes (words <pid>:<start>) except those of the attempts
# KEEP. Send TERM; after GRACE send KILL until all processes have ended, for at most 10 s.
evictor() {
    cd "$1" 2>/dev/null || cd / || exit 1
    exec </dev/null
    self_pid
    kept_processes "$3" "$self" || exit 1
    targets=
    for each in $4; do
        case " $kept" in *" $each="*) ;; *) targets="$targets $each" ;; esac
    done
    # shellcheck disable=SC2086
    {
        signal TERM $targets
        signal CONT $targets
        now
        kill_at=$((now + $2))
        while any_alive $targets && [ "$now" -lt $((kill_at + 1000)) ]; do
            [ "$now" -lt "$kill_at" ] || signal KILL $targets
            nap 0.1
            now
        done
    }
}
