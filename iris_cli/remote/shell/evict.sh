# Ends processes named one by one, except those of attempts to keep.
# The working directory is <root>/a, or any other if that is missing.

# kept_processes TOKENS SELF -> $kept: all processes of these attempts, as words
# <pid>:<start>=<token>. SELF as for `look`. False if unknown.
kept_processes() {
    kept=
    for each in $1; do
        found=$(
            leaders=
            ! cd "$each" 2>/dev/null || leaders "$each"
            look "$each" "$leaders" "" "$2" && printf '%s ' $found
        ) || return
        for process in $found; do kept="$kept $process=$each"; done
    done
}

# clear GRACE: stop the attempts $cleared; start an evictor for the processes $evicted, words
# <boot>:<pid>:<start>. Waits for them for at most one second.
clear() {
    victims=
    for each in $evicted; do
        case $each in "$boot":*) victims="$victims ${each#*:}" ;; esac
    done
    if [ -n "$victims" ]; then
        (
            printf '%s\nevictor "$@"\n}' "{
$library" | detach sh -s "$PWD" "$1" "$keep" "$victims"
        ) >/dev/null 2>&1 &
    fi
    # shellcheck disable=SC2086
    if [ -n "$cleared" ] && make_root && cd "$root/a"; then
        missing=
        for each in $cleared; do
            stop "$each" "$1"
            # Mark an attempt that had ended by itself as known.
            [ ! -d "$each" ] || [ -z "$x" ] || mv "$each/stop.idle" "$each/stop.done" 2>/dev/null
        done
        await_stops $cleared
    fi
    now
    until_when=$((now + 100))
    while any_alive $victims && [ "$now" -lt "$until_when" ]; do
        nap 0.05
        now
    done
}

# any_alive PROCESSES: true if any of them, each as pid:start, lives.
any_alive() {
    for process; do
        ! is_alive "${process%%:*}" "${process#*:}" || return 0
    done
    return 1
}

# evictor DIRECTORY GRACE KEEP PROCESSES: send TERM, after GRACE KILL, until all have ended, or for 10 s more.
evictor() {
    cd "$1" 2>/dev/null || cd / || exit 1
    exec </dev/null
    self_pid
    kept_processes "$3" "$self" || exit 1
    victims=
    for each in $4; do
        case " $kept" in *" $each="*) ;; *) victims="$victims $each" ;; esac
    done
    # shellcheck disable=SC2086
    {
        signal TERM $victims
        signal CONT $victims
        now
        kill_at=$((now + $2))
        while any_alive $victims && [ "$now" -lt $((kill_at + 1000)) ]; do
            [ "$now" -lt "$kill_at" ] || signal KILL $victims
            nap 0.1
            now
        done
    }
}
