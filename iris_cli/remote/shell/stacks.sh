# The call `stacks`: stacks of the programs of attempts, from py-spy or from Python's faulthandler. For
# each attempt, and then for each of its programs, the oldest first:
#   N <token> <STATE> <number of programs, or - if they can't be listed>
#   P <pid> <state of the process> <how>     T: its command, py-spy's error, and the stacks
# HOW: spy; handler; deaf (no output after the signal); catches.<signal> (has a handler for it);
# silent (has no handler); other (no Python program); late (no time or room was left).
#
# Without a stack, its threads as the kernel describes them follow, read twice: each time a line `at` with
# the uptime in hundredths of a second, then lines `TID/stat:` and `TID/wchan:`, which no name of a
# thread can forge.
#
# A signal can end a program, or have another meaning. So it is sent only to programs that catch it and have
# the attempt's file stacks.<signal> open, which declares its purpose; or if the operator requests it.

# stacks TOKEN SIGNAL: SIGNAL is the operator's choice, or empty. Continues after the caller has
# disconnected: py-spy must not be left with a program that it has stopped.
stacks() {
    token=$1 consent=$2 left=524288 thread_room=131072
    if [ -n "$missing" ]; then no_names; state=ABSENT; else state_of "$1"; fi
    case $state in
    RUNNING | ORPHANED | STOPPING | UNKILLABLE) ;;
    *)
        line "N $1 $state 0"
        return
        ;;
    esac
    cd "$1" 2>/dev/null || return
    leaders "$1"
    self_pid
    if look "$1" "$leaders" "" "$self"; then
        here=$(pwd -P)
        # shellcheck disable=SC2046,SC2086
        set -- $(printf '%s\n' $found | sort -t : -k 2n -k 1n)
        tell_programs "$@"
    else
        line "N $1 $state -"
    fi
    cd "$root/a" || exit 1
}

# tell_programs PROCESSES, as pid:start.
tell_programs() {
    pythons=
    for process; do
        shift
        executes_run "${process%%:*}" "$token" || is_client "${process%%:*}" && continue
        set -- "$@" "$process"
        [ $# -gt 64 ] || ! is_python "${process%%:*}" || pythons="$pythons ${process%%:*}"
    done
    line "N $token $state $#"
    # If none looks like Python, it may be embedded: py-spy can tell.
    [ -n "$pythons" ] || pythons=any
    read_first "$@"
    told=0
    for process; do
        [ "$told" -lt 64 ] || return 0
        told=$((told + 1))
        ! is_alive "${process%%:*}" "${process#*:}" || tell_program "${process%%:*}" "${process#*:}"
    done
}

# tell_program PID START: print its lines. The caller has set $stat_text to its status.
tell_program() {
    process_state=${stat_text##*) }
    process_state=${process_state%% *}
    program=$(tr '\0\n' '  ' 2>/dev/null <"$iris_proc/$1/cmdline" | head -c 200)
    how=other trouble= said=
    case " $pythons " in
    *" $1 "*) ask "$1" "$2" ;;
    ' any ') in_time_for_more && ask_spy "$1" || trouble= ;;
    esac
    line "P $1 $process_state $how"
    left=$((left - ${#said}))
    case $how in spy | handler) ;; *) read_second "$1" "$2" ;; esac
    text "$(printf '%s\n%s\n%s' "$program" "$trouble" "$said" | encode)"
}

# read_first PROCESSES -> $first_at, and $threads_PID of each: the first reading.
read_first() {
    looked=0
    for process; do
        looked=$((looked + 1))
        [ "$looked" -le 64 ] || break
        read_threads "${process%%:*}"
        eval "threads_${process%%:*}=\$threads"
    done
    now
    first_at=$now
}

# read_second PID START -> $said: both readings, if the process is still the same.
read_second() {
    eval "first=\${threads_$1-}"
    [ -n "$first" ] && [ "$thread_room" -gt 0 ] || return 0
    now
    [ $((now - first_at)) -ge 20 ] || nap 0.2
    read_threads "$1"
    is_alive "$1" "$2" && [ -n "$threads" ] || return 0
    said=$first$newline$threads
    thread_room=$((thread_room - ${#said}))
}

# read_threads PID -> $threads: the main thread first; empty for an ended or hidden process.
read_threads() {
    threads=
    [ -r "$iris_proc/$1/task/$1/stat" ] || return 0
    now
    threads=$(
        cd "$iris_proc/$1/task" 2>/dev/null || exit 0
        first=$1
        set -- "$first/stat" "$first/wchan"
        for each in [0-9]*; do
            [ $# -lt 64 ] || break
            [ "$each" = "$first" ] || set -- "$@" "$each/stat" "$each/wchan"
        done
        grep -Hs '' "$@" | head -c 12288
    )
    [ -z "$threads" ] || threads="at $now$newline$threads"
}

in_time_for_more() {
    now
    [ "$now" -lt "$ask_until" ] && [ "$left" -gt 0 ]
}

ask() {
    how=late
    in_time_for_more || return 0
    ask_spy "$1" || ask_handler "$1" "$2"
}

is_python() {
    case $(readlink "$iris_proc/$1/exe" 2>/dev/null) in
    */python | */python[0-9]* | */pypy | */pypy[0-9]*) ;;
    *) grep -qs libpython "$iris_proc/$1/maps" ;;
    esac
}

# ask_spy PID -> $how $said; or $trouble, if py-spy is installed and failed.
ask_spy() {
    find_spy "$1" || return
    said=$({
        limited 1000 "$1" "$spy" dump --pid "$1"
        printf '\nexit %s' "$?"
    } | {
        head -c 49152
        cat >/dev/null
    })
    end=${said##*"$newline"}
    said=${said%"$newline"exit *}
    case $end in
    'exit 0') ;;
    exit\ [0-9]*)
        trouble=${said%%"$newline"*}
        [ "$end" != 'exit 137' ] || trouble='it took too long'
        : "${trouble:=$end}"
        said=
        return 1
        ;;
    esac
    how=spy
}

# limited HUNDREDTHS PID COMMAND...: run it for at most that long. PID is the process that it inspects, and
# may have stopped.
limited() {
    limit=$1 watched=$2
    shift 2
    "$@" </dev/null 2>&1 &
    now
    until_when=$((now + limit))
    while start_of $! && [ "$now" -lt "$until_when" ]; do
        nap
        now
    done
    if start_of $!; then
        kill -s KILL $!
        [ "$process_state" = T ] || kill -s CONT "$watched" 2>/dev/null
    fi
    wait $!
}

# find_spy PID -> $spy: py-spy from the program's PATH, or from the session's. The PATH of another user's
# process is not used.
find_spy() {
    spy=
    if is_ours "$1"; then
        places=$(tr '\0' '\n' 2>/dev/null <"$iris_proc/$1/environ" | sed -n 's/^PATH=//p' | head -n 1)
        set -f
        IFS=:
        for each in $places "${program%/python*}" "$HOME/.local/bin"; do
            case $each in /*) [ -n "$spy" ] || [ ! -x "$each/py-spy" ] || spy=$each/py-spy ;; esac
        done
        unset IFS
        set +f
    fi
    [ -n "$spy" ] || spy=$(command -v py-spy 2>/dev/null)
    case $spy in /*) ;; *) return 1 ;; esac
}

# is_ours PID: true if the process belongs to this user.
is_ours() {
    # shellcheck disable=SC2046,SC2012
    set -- $(LC_ALL=C ls -ldn "$iris_proc/$1" 2>/dev/null)
    [ "$3" = "$(id -u)" ]
}

# ask_handler PID START -> $how $said: signal the program if it is safe.
ask_handler() {
    how=silent
    for each in USR1:10 USR2:12; do
        name=${each%:*} number=${each#*:}
        # The numbers differ on some architectures.
        [ "$(kill -l "$number")" = "$name" ] && is_handled "$1" "$number" || continue
        if has_open "$1" "$here/stacks.$name"; then
            written="stacks.$name"
        elif [ "$name" = "$consent" ]; then
            written='out err'
            errors=$iris_proc/$1/fd/2
            [ ! -f "$errors" ] || has_open "$1" "$here/err" || written="$written $errors"
        else
            [ "$how" != silent ] || how=catches.$name
            continue
        fi
        # A process just forked may be about to execute another program, without the handler.
        now
        [ $((now - $2)) -ge 100 ] || nap 1
        hear "$1" "$2"
        return
    done
}

# has_open PID PATH: true if the process has the file open.
has_open() { LC_ALL=C ls -l "$iris_proc/$1/fd" 2>/dev/null | grep -qsF -e " -> $2"; }

# hear PID START -> $how $said: send the signal $name; read what it writes to $written.
hear() {
    how=deaf
    sizes_of_written
    before=$sizes last=$sizes quiet=0
    is_handled "$1" "$number" && signal "$name" "$1:$2" || return
    now
    until_when=$((now + 500))
    while [ "$quiet" -lt 3 ] && [ "$now" -lt "$until_when" ]; do
        nap 0.1
        sizes_of_written
        quiet=$((quiet + 1))
        [ "$sizes" != "$before" ] && [ "$sizes" = "$last" ] || quiet=0
        last=$sizes
        now
    done
    [ "$sizes" != "$before" ] || return 0
    for file in $written; do
        said=$said$(tail -c "+$((${before%% *} + 1))" "$file" 2>/dev/null | head -c 49152)$newline
        before=${before#* }
    done
    case $said in *'(most recent call first)'*) how=handler ;; *) said= ;; esac
}

# sizes_of_written -> $sizes: sizes of the files in $written, each followed by a blank.
sizes_of_written() {
    sizes=
    for file in $written; do
        # shellcheck disable=SC2046,SC2012
        set -- $(LC_ALL=C ls -lnL "$file" 2>/dev/null)
        if [ -f "$file" ] && is_number "$5"; then sizes="$sizes$5 "; else sizes="${sizes}0 "; fi
    done
}

newline='
'
