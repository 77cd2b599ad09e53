# The call `stacks`: stacks of the programs of attempts, from py-spy or from Python's faulthandler. Answer,
# for each attempt, and then for each of its programs, the oldest first:
#   N <token> <STATE> <number of programs, or - if they can't be listed>
#   P <pid> <state of the process> <how>     T: its command, py-spy's error, and the stacks
# <how> is the source of the stacks, spy or handler; or the reason why there are none: deaf (no output after
# the signal), catches.<signal> (has a handler, maybe not faulthandler's), silent (has no handler), other (no
# Python program), late (no time or room was left). For a program without stacks the kernel's view of its
# threads follows, read twice: each time a line `at` with the uptime in hundredths of a second, then lines
# `TID/stat:` and `TID/wchan:`.
#
# A signal can end a program, or have another meaning for the program. So iris sends a signal only to programs
# that have a handler for that signal and have the attempt's file stacks.<signal> open. If the operator
# requests the signal, a handler is sufficient.

# stacks TOKEN SIGNAL: SIGNAL is the operator's choice, or empty. Continues after the caller has disconnected:
# if py-spy were killed, a program that it has paused would stay paused.
stacks() {
    token=$1 consent=$2 bytes_left=524288 thread_room=131072
    if [ -n "$root_missing" ]; then clear_names; state=ABSENT; else read_state "$1"; fi
    case $state in
    RUNNING | ORPHANED | STOPPING | UNKILLABLE) ;;
    *)
        line "N $1 $state 0"
        return
        ;;
    esac
    cd "$1" 2>/dev/null || return
    find_wrappers "$1"
    self_pid
    if scan "$1" "$wrappers" "" "$self"; then
        attempt_dir=$(pwd -P)
        # shellcheck disable=SC2046,SC2086
        set -- $(printf '%s\n' $found | sort -t : -k 2n -k 1n)
        print_programs "$@"
    else
        line "N $1 $state -"
    fi
    cd "$root/a" || exit 1
}

# print_programs PROCESSES: print the N line and the programs. PROCESSES are pid:start.
print_programs() {
    pythons=
    for process; do
        shift
        executes_run "${process%%:*}" "$token" || is_client "${process%%:*}" && continue
        set -- "$@" "$process"
        [ $# -gt 64 ] || ! is_python "${process%%:*}" || pythons="$pythons ${process%%:*}"
    done
    line "N $token $state $#"
    # If no program looks like Python, try py-spy on all of them, because Python may be embedded.
    [ -n "$pythons" ] || pythons=any
    read_first "$@"
    shown=0
    for process; do
        [ "$shown" -lt 64 ] || return 0
        shown=$((shown + 1))
        ! is_alive "${process%%:*}" "${process#*:}" || print_program "${process%%:*}" "${process#*:}"
    done
}

# print_program PID START: print the P line of a program. The caller has set $stat_text by read_start.
print_program() {
    process_state=${stat_text##*) }
    process_state=${process_state%% *}
    program=$(tr '\0\n' '  ' 2>/dev/null <"$iris_proc/$1/cmdline" | head -c 200)
    how=other trouble= dump=
    case " $pythons " in
    *" $1 "*) find_stack "$1" "$2" ;;
    ' any ') has_time_left && run_spy "$1" || trouble= ;;
    esac
    line "P $1 $process_state $how"
    bytes_left=$((bytes_left - ${#dump}))
    case $how in spy | handler) ;; *) read_second "$1" "$2" ;; esac
    text "$(printf '%s\n%s\n%s' "$program" "$trouble" "$dump" | encode)"
}

# read_first PROCESSES -> $first_at $threads_PID: read the threads of the first 64 processes; $first_at is the
# uptime of that reading.
read_first() {
    first_read=0
    for process; do
        first_read=$((first_read + 1))
        [ "$first_read" -le 64 ] || break
        read_threads "${process%%:*}"
        eval "threads_${process%%:*}=\$threads"
    done
    now
    first_at=$now
}

# read_second PID START -> $dump: read the threads again; $dump is both readings, or unchanged if the process
# has ended.
read_second() {
    eval "first=\${threads_$1-}"
    [ -n "$first" ] && [ "$thread_room" -gt 0 ] || return 0
    now
    [ $((now - first_at)) -ge 20 ] || nap 0.2
    read_threads "$1"
    is_alive "$1" "$2" && [ -n "$threads" ] || return 0
    dump=$first$newline$threads
    thread_room=$((thread_room - ${#dump}))
}

# read_threads PID -> $threads: the threads of a process, the main thread first; empty if the process has
# ended or is hidden.
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

has_time_left() {
    now
    [ "$now" -lt "$ask_until" ] && [ "$bytes_left" -gt 0 ]
}

find_stack() {
    how=late
    has_time_left || return 0
    run_spy "$1" || run_handler "$1" "$2"
}

is_python() {
    case $(readlink "$iris_proc/$1/exe" 2>/dev/null) in
    */python | */python[0-9]* | */pypy | */pypy[0-9]*) ;;
    *) grep -qs libpython "$iris_proc/$1/maps" ;;
    esac
}

# run_spy PID -> $how $dump: the stacks from py-spy. If py-spy failed, $trouble is its error.
run_spy() {
    find_spy "$1" || return
    dump=$({
        run_limited 1000 "$1" "$spy" dump --pid "$1"
        printf '\nexit %s' "$?"
    } | {
        head -c 49152
        cat >/dev/null
    })
    end=${dump##*"$newline"}
    dump=${dump%"$newline"exit *}
    case $end in
    'exit 0') ;;
    exit\ [0-9]*)
        trouble=${dump%%"$newline"*}
        [ "$end" != 'exit 137' ] || trouble='it took too long'
        : "${trouble:=$end}"
        dump=
        return 1
        ;;
    esac
    how=spy
}

# run_limited HUNDREDTHS PID COMMAND...: run COMMAND for at most that long. If COMMAND is killed, send SIGCONT
# to PID, which COMMAND may have paused.
run_limited() {
    limit=$1 watched=$2
    shift 2
    "$@" </dev/null 2>&1 &
    wait_while "$limit" read_start $!
    if read_start $!; then
        kill -s KILL $!
        [ "$process_state" = T ] || kill -s CONT "$watched" 2>/dev/null
    fi
    wait $!
}

# find_spy PID -> $spy: py-spy in the PATH of the program (unless the process is another user's), otherwise
# py-spy in the PATH of this session.
find_spy() {
    spy=
    if is_own_process "$1"; then
        directories=$(tr '\0' '\n' 2>/dev/null <"$iris_proc/$1/environ" | sed -n 's/^PATH=//p' | head -n 1)
        set -f
        IFS=:
        for each in $directories "${program%/python*}" "$HOME/.local/bin"; do
            case $each in /*) [ -n "$spy" ] || [ ! -x "$each/py-spy" ] || spy=$each/py-spy ;; esac
        done
        unset IFS
        set +f
    fi
    [ -n "$spy" ] || spy=$(command -v py-spy 2>/dev/null)
    case $spy in /*) ;; *) return 1 ;; esac
}

is_own_process() {
    # shellcheck disable=SC2046,SC2012
    set -- $(LC_ALL=C ls -ldn "$iris_proc/$1" 2>/dev/null)
    [ "$3" = "$(id -u)" ]
}

# run_handler PID START -> $how $dump: the stacks from faulthandler, if it is safe to signal the program.
run_handler() {
    how=silent
    for each in USR1:10 USR2:12; do
        name=${each%:*} number=${each#*:}
        # The numbers of signals are different on some architectures.
        [ "$(kill -l "$number")" = "$name" ] && is_handled "$1" "$number" || continue
        if has_open "$1" "$attempt_dir/stacks.$name"; then
            dump_files="stacks.$name"
        elif [ "$name" = "$consent" ]; then
            dump_files='out err'
            errors=$iris_proc/$1/fd/2
            [ ! -f "$errors" ] || has_open "$1" "$attempt_dir/err" || dump_files="$dump_files $errors"
        else
            [ "$how" != silent ] || how=catches.$name
            continue
        fi
        # A new process may be about to execute another program, without the handler.
        now
        [ $((now - $2)) -ge 100 ] || nap 1
        signal_program "$1" "$2"
        return
    done
}

has_open() { LC_ALL=C ls -l "$iris_proc/$1/fd" 2>/dev/null | grep -qsF -e " -> $2"; }

# signal_program PID START -> $how $dump: send the signal $name; read what the program writes to $dump_files.
signal_program() {
    how=deaf
    find_dump_sizes
    before=$dump_sizes last=$dump_sizes unchanged=0
    is_handled "$1" "$number" && signal "$name" "$1:$2" || return
    now
    deadline=$((now + 500))
    while [ "$unchanged" -lt 3 ] && [ "$now" -lt "$deadline" ]; do
        nap 0.1
        find_dump_sizes
        unchanged=$((unchanged + 1))
        [ "$dump_sizes" != "$before" ] && [ "$dump_sizes" = "$last" ] || unchanged=0
        last=$dump_sizes
        now
    done
    [ "$dump_sizes" != "$before" ] || return 0
    for file in $dump_files; do
        dump=$dump$(tail -c "+$((${before%% *} + 1))" "$file" 2>/dev/null | head -c 49152)$newline
        before=${before#* }
    done
    case $dump in *'(most recent call first)'*) how=handler ;; *) dump= ;; esac
}

# find_dump_sizes -> $dump_sizes: the size of each of $dump_files, followed by a blank.
find_dump_sizes() {
    dump_sizes=
    for file in $dump_files; do
        # shellcheck disable=SC2046,SC2012
        set -- $(LC_ALL=C ls -lnL "$file" 2>/dev/null)
        [ -f "$file" ] && is_number "$5" || set -- 1 2 3 4 0
        dump_sizes="$dump_sizes$5 "
    done
}

