# What differs between kinds of hosts: time, the boot, processes. Everything else is the same everywhere.
#
# Written for dash, busybox ash and bash as `sh`. Rules of the whole library:
# - Functions answer in variables: a command substitution costs a process. There is no `local` in POSIX sh;
# what a function sets is named in its first comment line.
# - A redirection that fails on a special builtin (`:`, `.`, `exec`, `set`, ...) ends the shell: files are
#   made with `printf`, and `.` and `exec` are used only where that end is harmless.
# - No comment line inside quotes: comment lines and indentation are cut off before the library is sent.
#
# Set by the caller beforehand: iris_proc iris_dev iris_sys iris_mounts iris_lock, normally /proc /dev /sys
# /proc/self/mounts /tmp/libtpu_lockfile. What is looked at before it is set must not come from the session's
# environment:

search_works= boot_time= defaults= started= no_room= watchdog= kills_before= cautions= terse=
renewing= group= alive_at= alone= asking= held= proven= nonce= lacks=
spare=../spare

# nap: a short pause, a whole second where `sleep` knows no fractions.
nap() { sleep "${1:-0.05}" 2>/dev/null || sleep 1; }

# wall_clock -> $clock: seconds since the epoch. bash knows them without a process; others don't know -v.
wall_clock() {
    clock=
    # shellcheck disable=SC3045
    printf -v clock '%(%s)T' -1 >/dev/null 2>&1
    is_number "$clock" || clock=$(date +%s 2>/dev/null)
    is_number "$clock" || boot_clock # so that a probe can say that `date` is missing
}

# boot_clock -> $clock: the wall clock without a process, to the second.
boot_clock() {
    clock=
    while read -r word rest; do
        [ "$word" != btime ] || clock=$rest
    done 2>/dev/null <"$iris_proc/stat"
    is_number "$clock" || return
    now
    clock=$((clock + now / 100))
}

# detach COMMAND...: become COMMAND in a session of its own. To be called in a background subshell, which is
# no group leader, so that neither variant has to fork: `$!` stays the process id of COMMAND.
detach() {
    if command -v setsid >/dev/null 2>&1; then exec setsid "$@"; fi
    if command -v perl >/dev/null 2>&1; then
        exec perl -MPOSIX -e '$SIG{INT} = $SIG{QUIT} = "DEFAULT"; POSIX::setsid(); exec @ARGV' "$@"
    fi
    trap '' HUP
    exec "$@"
}

# is_number TEXT: whether it is a number that arithmetic can take (it would read 010 as eight, and fail at
# 08).
is_number() {
    case $1 in '' | *[!0-9]* | 0?* | ?????????????*) return 1 ;; esac
}

# centis TEXT -> $centis: 1234.56 as 123456, without leading zeros.
centis() {
    centis=${1%.*}${1#*.}
    while :; do
        case $centis in 0?*) centis=${centis#0} ;; *) break ;; esac
    done
}

# is_alive PID START: whether that very process lives. Two processes never share a number and a start time.
is_alive() { start_of "$1" && [ "$start" = "$2" ]; }

if [ -r "$iris_proc/self/stat" ]; then

    # now -> $now: uptime in hundredths of a second. It grows while the host sleeps, and never jumps.
    now() {
        read -r now _ <"$iris_proc/uptime"
        centis "$now"
        now=$centis
    }

    # boot_id -> $boot: names this boot.
    boot_id() {
        boot=
        read -r boot 2>/dev/null <"$iris_proc/sys/kernel/random/boot_id" && return
        # Where it only can't be read now, another word for the boot would be taken for another boot.
        [ ! -e "$iris_proc/sys/kernel/random/boot_id" ] || return
        while read -r word rest; do
            [ "$word" = btime ] && boot=btime-$rest
        done <"$iris_proc/stat"
    }

    # start_of PID -> $start: its start in clock ticks since boot. False for what has ended, zombies too,
    # unless other threads of it live on: they still hold what it held.
    start_of() {
        stat_text=
        while IFS= read -r stat_line || [ -n "$stat_line" ]; do
            stat_text="$stat_text $stat_line"
        done 2>/dev/null <"$iris_proc/$1/stat"
        # The program's name is in parentheses and may hold anything, newlines too; what follows is numbers.
        case $stat_text in *') '*) ;; *) return 1 ;; esac
        # shellcheck disable=SC2086
        set -- ${stat_text##*) }
        start=${20}
        case $1 in [ZXx]) [ "${18}" -gt 1 ] ;; esac
    }

    # self_pid -> $self: this shell, also where $$ is its parent's number (in a subshell).
    self_pid() { read -r self _ <"$iris_proc/self/stat"; }

    # processes: every process of the host in lines for `look`, and a last line if all could be listed.
    processes() {
        printf '%s\n' "$iris_proc"/[0-9]*/stat | LC_ALL=C xargs grep -sH '' 2>/dev/null
        case $? in 0 | 123) printf 'complete\n' ;; esac
    }

    # marked TOKEN: prints the processes with the attempt's marker in their environment, or in its control
    # group, as paths. False if the search itself failed: then nothing is known.
    marked() {
        printf '%s\n' "$iris_proc"/[0-9]*/environ "$iris_proc"/[0-9]*/cgroup |
            LC_ALL=C xargs grep -ls -e "IRIS_ATTEMPT_TOKEN=$1" -e "/iris-$1" 2>/dev/null
        case $? in 0 | 1 | 123) ;; *) return 1 ;; esac
    }

    # processes_of TOKENS -> $found: the live processes of these attempts, by marker and control group, for
    # the price of one process. False if that is not known: `grep` must find its own environment, too.
    processes_of() {
        found= complete= mark=$$.$nonce
        patterns="-e IRIS_SEARCH=$mark"
        for candidate; do patterns="$patterns -e IRIS_ATTEMPT_TOKEN=$candidate -e /iris-$candidate"; done
        # shellcheck disable=SC2086
        paths=$(IRIS_SEARCH=$mark LC_ALL=C grep -ls $patterns "$iris_proc"/[0-9]*/environ \
            "$iris_proc"/[0-9]*/cgroup "$iris_proc/self/environ" 2>/dev/null)
        for candidate in $paths; do
            candidate=${candidate%/*}
            case $candidate in
            */self) complete=1 ;;
            *) ! start_of "${candidate##*/}" || found="$found ${candidate##*/}" ;;
            esac
        done
        [ -n "$complete" ]
    }

    # can_search: whether grep here finds a variable in the middle of an environment, behind a NUL.
    can_search() {
        [ -n "$search_works" ] && return
        # shellcheck disable=SC2016
        env -i A=1 IRIS_SEARCH=works "PATH=$PATH" \
            sh -c 'grep -ls IRIS_SEARCH=works "$0/$$/environ"' "$iris_proc" >/dev/null 2>&1 || return 1
        search_works=1
    }

    encode() { if command -v base64 >/dev/null 2>&1; then base64; else openssl base64; fi; }

else

    # No /proc (macOS). The start time is ps's, to the second; a session can't be told from a process group.

    # boot_time -> $boot_time: when the host was started, in seconds since the epoch; 0 if that can't be had.
    boot_time() {
        boot_time=$(sysctl -n kern.boottime 2>/dev/null)
        boot_time=${boot_time#*sec = }
        boot_time=${boot_time%%,*}
        is_number "$boot_time" || boot_time=0
    }

    now() {
        [ -n "$boot_time" ] || boot_time
        now=$((($(date +%s) - boot_time) * 100))
    }

    boot_id() {
        boot=$(sysctl -n kern.bootsessionuuid 2>/dev/null)
        [ -n "$boot" ] && return
        boot_time
        [ "$boot_time" = 0 ] || boot=btime-$boot_time
    }

    # shellcheck disable=SC2046,SC2086
    start_of() {
        set -- $(LC_ALL=C ps -o stat= -o lstart= -p "$1" 2>/dev/null)
        case $1 in '' | Z*) return 1 ;; esac
        shift
        start=$(IFS=_ && printf '%s' "$*")
    }

    # shellcheck disable=SC2016
    self_pid() { self=$(exec sh -c 'echo "$PPID"'); }

    processes() {
        LC_ALL=C ps -A -o pid= -o ppid= -o pgid= -o stat= -o lstart= && printf 'complete\n'
    }

    # Best effort: here a process that left its group is found by its parents, or where ps shows environments.
    marked() {
        { LC_ALL=C ps -A -E -ww -o pid= -o command= || LC_ALL=C ps axeww -o pid= -o command=; } 2>/dev/null |
            awk -v marker="IRIS_ATTEMPT_TOKEN=$1" 'index($0, " " marker) { print "/" $1 "/" }'
    }

    processes_of() {
        found=
        for candidate; do found=$found$(marked "$candidate") || return; done
    }

    can_search() { :; }

    encode() { base64 | fold -w 76; }

fi
