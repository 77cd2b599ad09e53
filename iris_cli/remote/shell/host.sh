# Differences between kinds of hosts: time, boot, processes.
#
# Written for dash, busybox ash and bash as `sh`. Rules of the whole library:
# - Functions return values in variables, because a command substitution costs a process. POSIX sh has no
#   `local`. The comment `name ARGUMENTS -> $variables` lists the variables that a function sets for callers.
# - A failed redirection of a special builtin (`:`, `.`, `exec`, `set`, ...) ends the shell. Make files with
#   `printf`, and use `.` and `exec` only where that is harmless.
# - No `#` line inside quotes, because comment lines and indentation are removed before the library is sent.
#
# The script of a call sets iris_proc, iris_dev, iris_sys, iris_mounts and iris_lock, normally to /proc, /dev,
# /sys, /proc/self/mounts and /tmp/libtpu_lockfile. The variables below are emptied, because functions read
# them before any function sets them, and the session's environment may contain them.

boot_time= this_process= setsid= started= not_prepared= watchdog= kills_before= warnings= terse= no_clock=
renew_leases= group= renewed_at= cannot_fork= skip_requests_left= known_requests= proven= nonce= missing=
own_group= container_id= memory_limit= v1_group= limit= holder= claims=
group_file=cgroup
spare=../spare
newline='
'

# nap [SECONDS]: sleep for SECONDS (default: 0.05), or for one second if `sleep` accepts no fractions.
nap() { sleep "${1:-0.05}" 2>/dev/null || sleep 1; }

# wall_clock -> $clock: seconds since the epoch. Only bash has `printf -v`, which needs no process.
wall_clock() {
    clock=
    # shellcheck disable=SC3045
    printf -v clock '%(%s)T' -1 >/dev/null 2>&1
    is_number "$clock" || clock=$(date +%s 2>/dev/null)
    is_number "$clock" || boot_clock # a probe reports a missing `date`
}

# boot_clock -> $clock: seconds since the epoch, without a process; empty if unknown.
boot_clock() {
    clock=
    while read -r word rest; do
        [ "$word" != btime ] || clock=$rest
    done 2>/dev/null <"$iris_proc/stat"
    is_number "$clock" || return
    now
    clock=$((clock + now / 100))
}

# wait_while HUNDREDTHS COMMAND...: wait until COMMAND returns false, for at most HUNDREDTHS.
wait_while() {
    now
    wait_ends=$((now + $1))
    shift
    while "$@" && [ "$now" -lt "$wait_ends" ]; do
        nap
        now
    done
}

# with_timeout SECONDS COMMAND...: run COMMAND for at most SECONDS. Unset its marker, because busybox's
# `timeout` leaves a process for up to a second, which must not count as a process of the attempt.
with_timeout() { (unset IRIS_ATTEMPT_TOKEN && exec timeout "$@"); }

# run_in_background COMMAND...: run COMMAND, which may outlive this call. Wait for at most two seconds.
run_in_background() {
    (
        trap '' HUP
        "$@"
    ) </dev/null >/dev/null 2>&1 &
    wait_while 200 read_start $!
}

# detach COMMAND...: execute COMMAND in a new session. Call it in a background subshell. A subshell is no
# group leader, so setsid does not fork, and `$!` is the pid of COMMAND.
detach() {
    if command -v setsid >/dev/null 2>&1; then exec setsid "$@"; fi
    if command -v perl >/dev/null 2>&1; then
        exec perl -MPOSIX -e '$SIG{INT} = $SIG{QUIT} = "DEFAULT"; POSIX::setsid(); exec @ARGV' "$@"
    fi
    trap '' HUP
    exec "$@"
}

# is_number TEXT: true for a decimal number without leading zeros, because the shell would read 010 as eight.
is_number() {
    case $1 in '' | *[!0-9]* | 0?* | ?????????????*) return 1 ;; esac
}

# hundredths TEXT -> $hundredths: 123456 for 1234.56, without leading zeros.
hundredths() {
    hundredths=${1%.*}${1#*.}
    while :; do
        case $hundredths in 0?*) hundredths=${hundredths#0} ;; *) break ;; esac
    done
}

# is_alive PID START: true if the process with this pid and start time lives. No two processes of a boot have
# the same pid and start time. $this_process is this process, as pid:start.
is_alive() { [ "$1:$2" = "$this_process" ] || { read_start "$1" && [ "$start" = "$2" ]; }; }

if [ -r "$iris_proc/self/stat" ]; then

    # now -> $now: uptime in hundredths of a second. It includes suspend, and no clock change affects it.
    now() {
        read -r now _ <"$iris_proc/uptime"
        hundredths "$now"
        now=$hundredths
    }

    # boot_id -> $boot: id of this boot.
    boot_id() {
        boot=
        read -r boot 2>/dev/null <"$iris_proc/sys/kernel/random/boot_id" && return
        # If the file exists but can't be read now, don't use btime, because another id would mean another
        # boot.
        [ ! -e "$iris_proc/sys/kernel/random/boot_id" ] || return
        while read -r word rest; do
            [ "$word" = btime ] && boot=btime-$rest
        done <"$iris_proc/stat"
    }

    # read_start PID -> $start $stat_text: the start of the process, in clock ticks since boot. False if the
    # process has ended or is a zombie. A zombie with live threads counts as alive, because the threads hold
    # its resources.
    read_start() {
        stat_text=
        while IFS= read -r stat_line || [ -n "$stat_line" ]; do
            stat_text="$stat_text $stat_line"
        done 2>/dev/null <"$iris_proc/$1/stat"
        # The program's name is in parentheses and may contain any byte. Only numbers follow the last `)`.
        case $stat_text in *') '*) ;; *) return 1 ;; esac
        # shellcheck disable=SC2086
        set -- ${stat_text##*) }
        start=${20}
        case $1 in [ZXx]) [ "${18}" -gt 1 ] ;; esac
    }

    # self_pid -> $self: the pid of this process. In a subshell $$ is the pid of the parent.
    self_pid() { read -r self _ <"$iris_proc/self/stat"; }

    # print_processes: for `scan`, print the lines of each process's `stat` file, each after the path of the
    # file and a colon. Then print `complete`, unless the search was broken off. If a process ends while its
    # file is read, grep continues with the next file, while mawk would exit.
    print_processes() {
        printf '%s\n' "$iris_proc"/[0-9]*/stat | exec_search xargs grep -aHs ''
        case $? in 0 | 123) printf 'complete\n' ;; esac
    }

    # search PATTERN KIND... -> $paths: the files <proc>/<pid>/KIND that match PATTERN. Costs one process.
    # PATTERN is a single regular expression, because with two of them busybox's grep takes twice the time.
    # The last file is grep's own command line, which contains PATTERN. If grep does not find it there, the
    # search failed, and the result is false.
    search() {
        pattern=$1
        shift
        for kind; do
            shift
            set -- "$@" "$iris_proc"/[0-9]*/"$kind"
        done
        set -- "$@" "$iris_proc/self/cmdline"
        [ -r "$iris_proc/self/environ" ] || return
        paths=$(exec_search grep -Els "$pattern" "$@")
        # If the search failed, the files may not fit on one command line.
        is_searched || paths=$(printf '%s\n' "$@" | exec_search xargs grep -Els "$pattern")
        is_searched && paths=${paths%"$iris_proc/self/cmdline"}
    }

    # exec_search COMMAND...: execute COMMAND without the marker. Otherwise a search would find its own
    # process.
    exec_search() {
        unset IRIS_ATTEMPT_TOKEN GREP_OPTIONS
        export LC_ALL=C
        exec "$@" 2>/dev/null
    }

    is_searched() { case $paths in *"$iris_proc/self/cmdline") ;; *) return 1 ;; esac }

    # can_search: true if this host's grep finds a variable in an environment.
    can_search() { search IRIS_SEARCH=1 environ; }

    # add_pattern TOKEN -> $pattern: append the attempt's marker and the name of its control group.
    add_pattern() { pattern="${pattern:+$pattern|}IRIS_ATTEMPT_TOKEN=$1|/iris-$1"; }

    # find_marked TOKEN -> $paths: files with the attempt's marker or control group. False if unknown.
    find_marked() {
        pattern=
        add_pattern "$1"
        # shellcheck disable=SC2086
        search "$pattern" environ $group_file
    }

    # has_only_wrappers TOKEN WRAPPERS SEEN SELF: true if it is certain that only WRAPPERS and SELF (see
    # `scan`) are left: no other process has the marker, is a child of a wrapper or in a wrapper's session,
    # and no other process of SEEN lives.
    has_only_wrappers() {
        pattern= known=" $4 "
        add_pattern "$1"
        for process in $2; do
            is_alive "${process%%:*}" "${process#*:}" || return
            # The pattern finds each `stat` that contains the pid of a wrapper: as parent, as session, or by
            # chance in another field.
            number=" ${process%%:*} "
            known=$known$number
            pattern="$pattern|$number"
        done
        read_start "$4" || return
        for process in $3; do
            case " $2 " in *" $process "*) continue ;; esac
            ! is_alive "${process%%:*}" "${process#*:}" || return
        done
        # If this process made the group of the attempt and no process is in it, the files `cgroup` need no
        # search.
        kinds="environ $group_file stat"
        if [ -r "$own_group/cgroup.events" ]; then
            ! is_populated || return
            kinds='environ stat'
        fi
        # shellcheck disable=SC2086
        search "$pattern" $kinds || return
        for path in $paths; do
            path=${path%/*}
            case $known in *" ${path##*/} "*) ;; *) return 1 ;; esac
        done
    }

    # find_processes TOKENS -> $found: live processes of these attempts, by marker and control group. False if
    # the search failed.
    find_processes() {
        found= pattern=
        for candidate; do add_pattern "$candidate"; done
        search "$pattern" environ cgroup || return
        for candidate in $paths; do
            candidate=${candidate%/*}
            ! read_start "${candidate##*/}" || found="$found ${candidate##*/}"
        done
    }

    # encode: encode stdin as base64. Call it in a subshell or a pipe: it replaces the shell.
    encode() { if command -v base64 >/dev/null 2>&1; then exec base64; else exec openssl base64; fi; }

else

    # No /proc (macOS). Start times are from ps, in seconds; process groups replace sessions.

    # boot_time -> $boot_time: seconds since the epoch; 0 if unknown.
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
    read_start() {
        set -- $(LC_ALL=C ps -o stat= -o lstart= -p "$1" 2>/dev/null)
        case $1 in '' | Z*) return 1 ;; esac
        shift
        start=$(IFS=_ && printf '%s' "$*")
    }

    # shellcheck disable=SC2016
    self_pid() { self=$(exec sh -c 'echo "$PPID"'); }

    print_processes() {
        LC_ALL=C ps -A -o pid= -o ppid= -o pgid= -o stat= -o lstart= && printf 'complete\n'
    }

    # Incomplete, because ps may not show environments. `scan` also finds processes by their group and
    # parents.
    find_marked() {
        paths=$({ LC_ALL=C ps -A -E -ww -o pid= -o command= || LC_ALL=C ps axeww -o pid= -o command=; } \
            2>/dev/null | awk -v marker="IRIS_ATTEMPT_TOKEN=$1" 'index($0, " " marker) { print "/" $1 "/" }')
    }

    has_only_wrappers() { return 1; }

    find_processes() {
        found=
        for candidate; do find_marked "$candidate" && found=$found$paths || return; done
    }

    can_search() { :; }

    encode() { base64 | fold -w 76; }

fi

# is_ours DIRECTORY: true if this user owns DIRECTORY. If a directory above it is like /tmp, where another
# user can make a name first, this user must also own the name in that directory.
is_ours() {
    [ -O "$1" ] || return
    place=$1
    while [ -n "$place" ]; do
        parent=${place%/*}
        [ ! -k "${parent:-/}" ] || { [ -O "$place" ] && [ ! -L "$place" ]; } || return
        place=$parent
    done
}
