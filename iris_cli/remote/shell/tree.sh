# Find and end all processes of an attempt.
#
# A process belongs to an attempt if its environment has the marker IRIS_ATTEMPT_TOKEN=<token>, if it is in a
# control group named iris-<token> or in the session of the attempt's wrapper, if an earlier scan found it, or
# if its parent belongs to the attempt. The number of the wrapper's session can't be reused while the wrapper
# lives. So a stop ends the wrapper last.

# scan TOKEN WRAPPERS SEEN SELF -> $found: the attempt's processes, as pid:start. WRAPPERS are the attempt's
# wrappers, and SEEN the processes that earlier scans found (both as pid:start). SELF, the pid of the caller,
# is excluded with its children. False if the processes can't be listed, for example if the list lacks SELF.
scan() {
    found=
    if has_only_wrappers "$@"; then
        for process in $2; do [ "${process%%:*}" = "$4" ] || found="$found $process"; done
        return 0
    fi
    find_marked "$1" || return 1
    marks=
    for path in $paths; do marks="$marks $path"; done
    found=$(print_processes | LC_ALL=C awk -v marks="$marks" -v wrappers="$2" -v seen="$3" -v self="$4" '
        match($0, /\/[0-9]+\/stat:/) {
            pid = substr($0, RSTART + 1, RLENGTH - 7)
            stat[pid] = stat[pid] " " substr($0, RSTART + RLENGTH)
            next
        }
        $1 == "complete" { complete = 1; next }
        {
            parent[$1] = $2; session[$1] = $3; state[$1] = $4; threads[$1] = 1
            start[$1] = $5 "_" $6 "_" $7 "_" $8 "_" $9
        }
        function is_dead(pid) { return state[pid] ~ /^[ZXx]/ && threads[pid] <= 1 }
        function live_pid(process,    colon, pid) {
            colon = index(process, ":")
            pid = substr(process, 1, colon - 1)
            return (pid in start) && start[pid] == substr(process, colon + 1) ? pid : 0
        }
        function add_children(set,    pid, more) {
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
            excluded[self] = 1
            n = split(marks, word, " ")
            for (i = 1; i <= n; i++) {
                sub(/\/[^\/]*$/, "", word[i])
                sub(/.*\//, "", word[i])
                if (word[i] in start) ours[word[i]] = 1
            }
            split(wrappers " " seen, word, " ")
            for (i in word) if (pid = live_pid(word[i])) {
                ours[pid] = 1
                if (index(" " wrappers " ", " " word[i] " ") && session[pid] == pid) wrapper_sessions[pid] = 1
            }
            for (pid in start) if (session[pid] in wrapper_sessions) ours[pid] = 1
            add_children(ours)
            add_children(excluded)
            for (pid in ours) if (!(pid in excluded) && !is_dead(pid)) print pid ":" start[pid]
        }') || return 1
}

# find_wrappers TOKEN -> $wrappers: live wrappers of the attempt in the working directory, as pid:start. The
# files `pid` and `setup.pid` name them. $wrapper (pid:start, or empty) is added, because the task may have
# removed the files.
find_wrappers() {
    wrappers=
    [ -z "$wrapper" ] || ! is_alive "${wrapper%%:*}" "${wrapper#*:}" || wrappers=" $wrapper"
    for name in pid setup.pid; do
        read_pid "$name" || continue
        case "$wrappers " in *" $pid:$pid_start "*) continue ;; esac
        ! is_writer "$name" "$1" || wrappers="$wrappers $pid:$pid_start"
    done
}

wrapper=

# signal NAME PROCESSES: send the signal to those of the PROCESSES (pid:start) that live. Check each process
# immediately before, because its pid may have been reused.
signal() {
    signal_name=$1
    shift
    for process; do
        is_alive "${process%%:*}" "${process#*:}" && kill -s "$signal_name" "${process%%:*}" 2>/dev/null
    done
}

# end_processes TOKEN MODE SELF -> $had_processes: end all processes of the attempt in the working directory,
# until two scans in a row find none. Send TERM once to each process, and KILL from the uptime $kill_at on,
# which `update_kill_at` may change. False if a process survives KILL for ten seconds. $had_processes is 1 if
# there was a process other than a wrapper. With the MODE `keep` the wrapper is not ended. With `last` the
# wrapper may end by itself when no other process is left, and is killed after two seconds.
end_processes() {
    empty_scans=0 seen= had_processes= got_term= killing_since= alone_since= rounds=0
    while :; do
        find_wrappers "$1"
        find_group . "$1"
        now
        update_kill_at
        if ! scan "$1" "$wrappers" "$seen" "$3"; then
            empty_scans=0 others=unknown
        else
            seen=$found
            others=
            for process in $found; do
                case " $wrappers " in *" $process "*) ;; *) others="$others $process" ;; esac
            done
            if [ -n "$others" ]; then
                empty_scans=0
            else
                empty_scans=$((empty_scans + 1))
                [ "$2" = last ] && [ -n "$wrappers" ] && empty_scans=0
            fi
            # With a control group one scan suffices, except for a stop.
            if [ "$empty_scans" -gt 0 ] && ! is_populated && remove_container . "$1"; then
                case $empty_scans$2$populated$own_group in 1keep0?*) return 0 ;; esac
                [ "$empty_scans" -lt 2 ] || return 0
            fi
        fi
        send_signals "$2" || return 1
        rounds=$((rounds + 1))
        # Don't pause if the first scan found nothing.
        [ "$rounds$empty_scans" != 11 ] || continue
        nap_until_change
    done
}

# nap_until_change: nap for 0.2 s; in the first rounds only until one of the known processes ends or the next
# signal is due. These checks need no scan, which costs much more CPU time.
nap_until_change() {
    if [ "$rounds" -gt 10 ]; then
        nap 0.2
        return
    fi
    for _ in 1 2 3 4 5; do
        nap 0.04
        known=$others
        [ -z "$alone_since" ] || known=$wrappers
        [ -n "$known" ] || return 0
        for process in $known; do is_alive "${process%%:*}" "${process#*:}" || return 0; done
        now
        update_kill_at
        if [ -n "$alone_since" ]; then
            [ "$now" -lt $((alone_since + 200)) ] || return 0
        else
            [ -n "$killing_since" ] || [ "$now" -lt "$kill_at" ] || return 0
        fi
    done
}

# send_signals MODE: send signals to $others or, if $others is empty, to the wrapper (see `end_processes`).
# False ten seconds after the first KILL.
send_signals() {
    if [ "$now" -ge "$kill_at" ]; then
        : "${killing_since:=$now}"
        [ "$now" -lt $((killing_since + 1000)) ] || return 1
        kill_group
    fi
    case $others in
    unknown) return 0 ;;
    '')
        [ "$1" = last ] && [ -n "$wrappers" ] || return 0
        : "${alone_since:=$now}"
        # shellcheck disable=SC2086
        [ "$now" -lt $((alone_since + 200)) ] || signal KILL $wrappers
        return 0
        ;;
    esac
    alone_since= had_processes=1
    if [ "$now" -ge "$kill_at" ]; then
        for process in $others; do
            [ "$now" -ge $((killing_since + 500)) ] || ! is_client "${process%%:*}" || continue
            signal KILL "$process"
        done
        remove_container . "$token" keep # the container's processes may be another user's
        return 0
    fi
    for process in $others; do
        case " $got_term " in *" $process "*) continue ;; esac
        got_term="$got_term $process"
        ! is_client "${process%%:*}" || continue
        signal TERM "$process"
        signal CONT "$process"
    done
    return 0
}
