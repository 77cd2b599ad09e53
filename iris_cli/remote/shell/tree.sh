# Find and end all processes of an attempt.
#
# A process belongs to an attempt if the marker IRIS_ATTEMPT_TOKEN=<token> is in its environment, if it is in
# a control group named iris-<token>, in the session of the attempt's wrapper, if it belonged in an earlier
# scan, or if its parent belongs. The wrapper leads its session: while it lives, no other session can
# have its number; later the number proves nothing. So a stop spares the wrapper until no other process
# is left.

# look TOKEN LEADERS SEEN SELF -> $found: the attempt's processes as pid:start. LEADERS are its wrappers, SEEN
# are processes that belonged to it before (both as pid:start); SELF, a pid, and its children are
# excluded. False if unknown, such as if the table lacks SELF.
look() {
    found=
    if is_quiet "$@"; then
        for process in $2; do [ "${process%%:*}" = "$4" ] || found="$found $process"; done
        return 0
    fi
    marked "$1" || return 1
    marks=
    for path in $paths; do marks="$marks $path"; done
    found=$(processes | LC_ALL=C awk -v marks="$marks" -v leaders="$2" -v seen="$3" -v self="$4" '
        /^\// {
            pid = $0
            sub(/\/stat$/, "", pid)
            sub(/.*\//, "", pid)
            while ((getline text < $0) > 0) stat[pid] = stat[pid] " " text
            close($0)
            next
        }
        $1 == "complete" { complete = 1; next }
        {
            parent[$1] = $2; session[$1] = $3; state[$1] = $4; threads[$1] = 1
            start[$1] = $5 "_" $6 "_" $7 "_" $8 "_" $9
        }
        function is_dead(pid) { return state[pid] ~ /^[ZXx]/ && threads[pid] <= 1 }
        function known(process,    colon, pid) {
            colon = index(process, ":")
            pid = substr(process, 1, colon - 1)
            return (pid in start) && start[pid] == substr(process, colon + 1) ? pid : 0
        }
        function spread(set,    pid, more) {
            do {
                more = 0
                for (pid in start)
                    if (!(pid in set) && (parent[pid] in set)) { set[pid] = 1; more = 1 }
            } while (more)
        }
        END {
            for (pid in stat) {
                sub(/.*\) /, "", stat[pid])
                split(stat[pid], field, " ")
                state[pid] = field[1]; parent[pid] = field[2]; session[pid] = field[4]
                threads[pid] = field[18]; start[pid] = field[20]
            }
            if (!complete || !(self in start)) exit 1
            away[self] = 1
            n = split(marks, word, " ")
            for (i = 1; i <= n; i++) {
                sub(/\/[^\/]*$/, "", word[i])
                sub(/.*\//, "", word[i])
                if (word[i] in start) ours[word[i]] = 1
            }
            split(leaders " " seen, word, " ")
            for (i in word) if (pid = known(word[i])) {
                ours[pid] = 1
                if (index(" " leaders " ", " " word[i] " ") && session[pid] == pid) led[pid] = 1
            }
            for (pid in start) if (session[pid] in led) ours[pid] = 1
            spread(ours)
            spread(away)
            for (pid in ours) if (!(pid in away) && !is_dead(pid)) print pid ":" start[pid]
        }') || return 1
}

# leaders TOKEN -> $leaders: live wrappers of the attempt in the working directory, as
# pid:start. A task may have removed the files that name them: the wrapper and its watchdogs also set
# $wrapper.
leaders() {
    leaders=
    [ -z "$wrapper" ] || ! is_alive "${wrapper%%:*}" "${wrapper#*:}" || leaders=" $wrapper"
    for name in pid setup.pid; do
        read_pid "$name" || continue
        case "$leaders " in *" $pid:$pid_start "*) continue ;; esac
        ! is_writer "$name" "$1" || leaders="$leaders $pid:$pid_start"
    done
}

wrapper=

# signal NAME PROCESSES: check each right before the signal: its pid may have been reused.
signal() {
    signal_name=$1
    shift
    for process; do
        is_alive "${process%%:*}" "${process#*:}" && kill -s "$signal_name" "${process%%:*}" 2>/dev/null
    done
}

# end_all TOKEN WRAPPER SELF -> $pressed: end all processes of the attempt in the working directory: TERM once
# per process, KILL from the uptime $kill_at on, until two scans in a row find nothing. False if a process
# survives KILL for ten seconds. `when_to_kill` sets $kill_at; $pressed is set if there was any process except
# a wrapper. WRAPPER `keep` spares the wrapper;
# `last` lets it end when no other process is left (it records the end), and kills it after two seconds.
end_all() {
    quiet=0 seen= pressed= termed= killing_since= alone_since= round=0
    while :; do
        leaders "$1"
        group_of . "$1"
        now
        when_to_kill
        if ! look "$1" "$leaders" "$seen" "$3"; then
            quiet=0 others=unknown
        else
            seen=$found
            others=
            for process in $found; do
                case " $leaders " in *" $process "*) ;; *) others="$others $process" ;; esac
            done
            if [ -n "$others" ]; then
                quiet=0
            else
                quiet=$((quiet + 1))
                [ "$2" = last ] && [ -n "$leaders" ] && quiet=0
            fi
            # One scan and the kernel's answer suffice, but not for a fence.
            if [ "$quiet" -gt 0 ] && ! is_populated && no_container . "$1"; then
                case $quiet$2$populated$own_group in 1keep0?*) return 0 ;; esac
                [ "$quiet" -lt 2 ] || return 0
            fi
        fi
        press "$2" || return 1
        round=$((round + 1))
        # If the first scan found nothing, the second needs no pause.
        if [ "$round$quiet" = 11 ]; then continue; elif [ "$round" -le 10 ]; then nap 0.03; else nap 0.2; fi
    done
}

# press WRAPPER: one round of signals to $others, or to the wrapper. False after ten seconds of KILL.
press() {
    if [ "$now" -ge "$kill_at" ]; then
        : "${killing_since:=$now}"
        [ "$now" -lt $((killing_since + 1000)) ] || return 1
        kill_group
    fi
    case $others in
    unknown) return 0 ;;
    '')
        [ "$1" = last ] && [ -n "$leaders" ] || return 0
        : "${alone_since:=$now}"
        # shellcheck disable=SC2086
        [ "$now" -lt $((alone_since + 200)) ] || signal KILL $leaders
        return 0
        ;;
    esac
    alone_since= pressed=1
    # shellcheck disable=SC2086
    if [ "$now" -ge "$kill_at" ]; then
        signal KILL $others
        no_container . "$token" # its user may be another
        return 0
    fi
    for process in $others; do
        case " $termed " in *" $process "*) continue ;; esac
        termed="$termed $process"
        ! is_client "${process%%:*}" || continue
        signal TERM "$process"
        signal CONT "$process"
    done
    return 0
}
