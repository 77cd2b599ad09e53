# Resources that a task can't share: the host's chips, and the task's ports. Without root only processes of
# this user can be inspected.

# open_files PATTERN -> $holders: processes with an open file whose path matches the awk pattern, as words
# <pid>:<descriptor>, one per process and path. False if the processes can't be listed.
#
# Paths may contain any text, also newlines, so a pid may be wrong. Call `check_holder` before you use a word.
open_files() {
    holders=$({
        printf '%s\n' "$iris_proc"/[0-9]*/fd | LC_ALL=C xargs ls -ln 2>/dev/null
        case $? in 0 | 123) printf 'complete\n' ;; esac
    } | LC_ALL=C awk -v wanted=" -> ($1)\$" '
        /^\/.*\/fd:$/ { pid = $0; sub(/\/fd:$/, "", pid); sub(/.*\//, "", pid); next }
        $0 == "complete" { complete = 1; next }
        match($0, wanted) {
            path = substr($0, RSTART + 4)
            fd = substr($0, 1, RSTART - 1)
            sub(/.* /, "", fd)
            if (!((pid, path) in printed)) print pid ":" fd
            printed[pid, path] = 1
        }
        END { exit !complete }')
}

# check_holder WORD -> $holding_pid $device $start: pid, path and start time. WORD is one of $holders. False
# if the process no longer has the file open.
check_holder() {
    holding_pid=${1%%:*}
    device=$(readlink "$iris_proc/$holding_pid/fd/${1#*:}" 2>/dev/null) && read_start "$holding_pid"
}

# chip_holders -> $holders: processes that hold chips; empty if the host has none.
chip_holders() {
    holders=
    for each in "$iris_dev"/accel[0-9]* "$iris_dev"/vfio/[0-9]*; do
        if [ -e "$each" ]; then
            open_files "$iris_dev/(accel|vfio/)[0-9]+"
            return
        fi
    done
}

# listeners PORT -> $listening $holders: sockets listening on this TCP port, and their visible processes.
listeners() {
    holders=
    listening=$(cat "$iris_proc/net/tcp" "$iris_proc/net/tcp6" 2>/dev/null |
        LC_ALL=C awk -v port="$(printf ':%04X' "$1")" '
            $4 == "0A" && substr($2, length($2) - 4) == port { inodes = inodes (inodes ? "|" : "") $10 }
            END { print inodes }') || return
    [ -z "$listening" ] || open_files "socket:.($listening)."
}

# check_devices -> $in_use $holders: `chips` if the attempt needs chips and they are in use; `port` if one of
# its ports is in use; empty if all are free. False if the processes can't be listed.
check_devices() {
    in_use=
    [ -r "$iris_proc/self/stat" ] || return 0
    if [ "$exclusive" = 1 ]; then
        in_use=chips
        chip_holders || return
        [ -z "$holders" ] || return 0
    fi
    for port in $ports; do
        in_use=port
        listeners "$port" || return
        [ -z "$listening" ] || return 0
    done
    in_use=
}

# await_devices HUNDREDTHS: wait until the chips and ports are free. Then remove a lock file that a killed
# program left. False on timeout, or if the attempt is being stopped. The working directory is the attempt's
# directory.
await_devices() {
    [ "$exclusive$ports" != 0 ] || return 0
    now
    wait_until=$((now + $1)) pause=0.1
    until check_devices && [ -z "$in_use" ]; do
        now
        [ "$now" -lt "$wait_until" ] && [ -e stop.idle ] && [ ! -e cancel ] || return
        kill_leftovers
        nap "$pause"
        case $pause in 0.1) pause=0.2 ;; *) pause=0.5 ;; esac # each look lists the open files of the host
        renew_launch
    done
    [ "$exclusive" != 1 ] || remove_stale_lock
}

# kill_leftovers: kill those of $holders that have the marker of another attempt, which has ended. Its end was
# recorded when no process of the attempt was found, so these processes can't change the result.
kill_leftovers() {
    for word in $holders; do
        check_holder "$word" || continue
        read_marker "$holding_pid"
        [ -n "$marker" ] && [ "$marker" != "$token" ] && has_ended "../$marker" || continue
        signal KILL "$holding_pid:$start"
    done
}

# has_ended PATH: true if the names in the attempt's directory say that it ended, and its wrapper is gone.
has_ended() {
    [ -d "$1" ] || { [ -f "$1" ] && return; }
    read_names "$1"
    [ -n "$record" ] || [ "$stop" = stop.done ] || return
    ! is_writer "$1/pid" "${1##*/}" && ! is_writer "$1/setup.pid" "${1##*/}"
}

# read_marker PID -> $marker: the token in its environment; empty if missing or unreadable.
read_marker() {
    marker=$(tr '\0' '\n' 2>/dev/null <"$iris_proc/$1/environ" |
        sed -n 's/^IRIS_ATTEMPT_TOKEN=\([0-9a-f]\{32\}\)$/\1/p' | head -n 1)
}

print_in_use() {
    printf 'iris: not started: '
    case $in_use in
    chips) printf 'the chips of this host are held' ;;
    port) printf 'port %s is in use' "$port" ;;
    esac
    separator=' by'
    for word in $holders; do
        check_holder "$word" || continue
        printf '%s process %s (%s)' "$separator" "$holding_pid" "$(print_program_name "$holding_pid")"
        separator=,
        [ "$in_use" = port ] || printf ' on %s' "$device"
        read_marker "$holding_pid"
        if [ -n "$marker" ]; then
            printf ' of attempt %s (%s here)' "$marker" "$(print_state "$marker")"
        else
            printf ' that iris did not start'
        fi
    done
    [ "$separator" = , ] || printf ' by a process that cannot be seen'
    printf '\n'
}

# print_state TOKEN: print the state of another attempt. Call it in a subshell: it changes the directory.
print_state() {
    state=unknown
    cd .. && [ -e "$1" ] && read_state "$1"
    printf '%s' "$state"
}

# print_program_name PID: print its program's name, with `?` for control and non-ASCII characters.
print_program_name() {
    read_start "$1"
    comm=${stat_text#*'('}
    printf '%s' "${comm%')'*}" | LC_ALL=C tr -c '\040-\176' '?'
}

# remove_stale_lock: remove a stale lock file of libtpu, because no program with libtpu starts while the file
# exists. Call it after `check_devices` has found no holder.
remove_stale_lock() {
    lock_state
    [ "$lock" != stale ] || rm -f "$iris_lock" 2>/dev/null
    return 0
}

# lock_state -> $lock: none, foreign (another user's, or not a regular file), held (a process has it open), or
# stale.
lock_state() {
    lock=none
    [ -e "$iris_lock" ] || [ -L "$iris_lock" ] || return 0
    lock=foreign
    # shellcheck disable=SC2046,SC2012
    set -- $(LC_ALL=C ls -ldn "$iris_lock" 2>/dev/null)
    case $1 in -*) ;; *) return 0 ;; esac
    [ "$3" = "$(id -u)" ] || return 0
    lock=held
    saved=$holders
    open_files "$iris_lock" && [ -z "$holders" ] && lock=stale
    holders=$saved
}
