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

boot_time= myself= setsid= started= no_room= watchdog= kills_before= cautions= terse= untimed=
renewing= group= alive_at= alone= asking= held= proven= nonce= lacks= own_group= container_id=
memory_limit= limited= limit=
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
# $myself, as pid:start, needs no look.
is_alive() { [ "$1:$2" = "$myself" ] || { start_of "$1" && [ "$start" = "$2" ]; }; }

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

    # processes: the paths of the `stat` files of all processes, in lines for `look`, and a last line.
    processes() { printf '%s\n' "$iris_proc"/[0-9]*/stat complete; }

    # search PATTERN KIND... -> $paths: the files <proc>/<pid>/KIND that match it. It is one expression:
    # busybox takes twice the time for two. Costs one process. False if the search failed: grep must find the
    # pattern in its own command line, which is the last file, behind a NUL. They are listed before that.
    search() {
        pattern=$1
        shift
        for kind; do
            shift
            set -- "$@" "$iris_proc"/[0-9]*/"$kind"
        done
        set -- "$@" "$iris_proc/self/cmdline"
        [ -r "$iris_proc/self/environ" ] || return
        paths=$(searching grep -Els "$pattern" "$@")
        # More files than one command line can hold.
        is_searched || paths=$(printf '%s\n' "$@" | searching xargs grep -Els "$pattern")
        is_searched && paths=${paths%"$iris_proc/self/cmdline"}
    }

    # searching COMMAND...: become it, without the marker.
    searching() {
        unset IRIS_ATTEMPT_TOKEN GREP_OPTIONS
        export LC_ALL=C
        exec "$@" 2>/dev/null
    }

    is_searched() { case $paths in *"$iris_proc/self/cmdline") ;; *) return 1 ;; esac }

    # can_search: true if grep on this host can search an environment.
    can_search() { search IRIS_SEARCH=1 environ; }

    # mark_of TOKEN: add to $pattern the marker in an environment and the name of the control group.
    mark_of() { pattern="${pattern:+$pattern|}IRIS_ATTEMPT_TOKEN=$1|/iris-$1"; }

    # marked TOKEN -> $paths: the files that show the attempt's marker or control group. False if unknown.
    marked() {
        pattern=
        mark_of "$1"
        search "$pattern" environ cgroup
    }

    # is_quiet TOKEN LEADERS SEEN SELF: true if LEADERS and SELF (see `look`) are sure to be all that is left:
    # no other process has the marker, is a child of a leader or in its session, and none of SEEN lives.
    is_quiet() {
        pattern= known=" $4 "
        mark_of "$1"
        for process in $2; do
            is_alive "${process%%:*}" "${process#*:}" || return
            # In `stat` its number is that of a parent, a session, or any other field.
            number=" ${process%%:*} "
            known=$known$number
            pattern="$pattern|$number"
        done
        start_of "$4" || return
        for process in $3; do
            case " $2 " in *" $process "*) continue ;; esac
            ! is_alive "${process%%:*}" "${process#*:}" || return
        done
        # For the group that this process made itself, the kernel says if it is empty.
        kinds='environ cgroup stat'
        [ ! -r "$own_group/cgroup.events" ] || kinds='environ stat'
        # shellcheck disable=SC2086
        search "$pattern" $kinds || return
        for path in $paths; do
            path=${path%/*}
            case $known in *" ${path##*/} "*) ;; *) return 1 ;; esac
        done
    }

    # processes_of TOKENS -> $found: the live processes of these attempts, by marker and control group. False
    # if the search failed.
    processes_of() {
        found= pattern=
        for candidate; do mark_of "$candidate"; done
        search "$pattern" environ cgroup || return
        for candidate in $paths; do
            candidate=${candidate%/*}
            ! start_of "${candidate##*/}" || found="$found ${candidate##*/}"
        done
    }

    # encode: in a process of its own, as in a pipe, and so without another one.
    encode() { if command -v base64 >/dev/null 2>&1; then exec base64; else exec openssl base64; fi; }

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
        paths=$({ LC_ALL=C ps -A -E -ww -o pid= -o command= || LC_ALL=C ps axeww -o pid= -o command=; } \
            2>/dev/null | awk -v marker="IRIS_ATTEMPT_TOKEN=$1" 'index($0, " " marker) { print "/" $1 "/" }')
    }

    is_quiet() { return 1; }

    processes_of() {
        found=
        for candidate; do marked "$candidate" && found=$found$paths || return; done
    }

    can_search() { :; }

    encode() { base64 | fold -w 76; }

fi
