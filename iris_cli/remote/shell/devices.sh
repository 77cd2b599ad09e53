# Resources that a start needs exclusively: the host's chips, and ports of the task; and their holders.
# Without root only processes of this user can be inspected.

# open_files PATTERN -> $held: processes with an open file whose path matches the awk pattern, as words
# <pid>:<descriptor>, one per process and path. False if unknown.
#
# Paths may contain any text, line ends included, so a pid may be wrong: `holding` checks a process again
# before it is named or ended.
open_files() {
    held=$({
        printf '%s\n' "$iris_proc"/[0-9]*/fd | LC_ALL=C xargs ls -ln 2>/dev/null
        case $? in 0 | 123) printf 'complete\n' ;; esac
    } | LC_ALL=C awk -v wanted=" -> ($1)\$" '
        /^\/.*\/fd:$/ { pid = $0; sub(/\/fd:$/, "", pid); sub(/.*\//, "", pid); next }
        $0 == "complete" { complete = 1; next }
        match($0, wanted) {
            path = substr($0, RSTART + 4)
            fd = substr($0, 1, RSTART - 1)
            sub(/.* /, "", fd)
            if (!((pid, path) in told)) print pid ":" fd
            told[pid, path] = 1
        }
        END { exit !complete }')
}

# holding WORD -> $holder $held_path $start: the process and the path, if still open. WORD is one
# of $held.
holding() {
    holder=${1%%:*}
    held_path=$(readlink "$iris_proc/$holder/fd/${1#*:}" 2>/dev/null) && start_of "$holder"
}

# chip_holders -> $held: processes that hold chips. Empty without devices.
chip_holders() {
    held=
    for each in "$iris_dev"/accel[0-9]* "$iris_dev"/vfio/[0-9]*; do
        if [ -e "$each" ]; then
            open_files "$iris_dev/(accel|vfio/)[0-9]+"
            return
        fi
    done
}

# listeners PORT -> $listening $held: listeners on this TCP port, any address; $held as far as visible.
listeners() {
    held=
    listening=$(cat "$iris_proc/net/tcp" "$iris_proc/net/tcp6" 2>/dev/null |
        LC_ALL=C awk -v port="$(printf ':%04X' "$1")" '
            $4 == "0A" && substr($2, length($2) - 4) == port { inodes = inodes (inodes ? "|" : "") $10 }
            END { print inodes }') || return
    [ -z "$listening" ] || open_files "socket:.($listening)."
}

# lacking -> $lacking $held: `chips` or `port`, if the attempt's settings need it and it isn't free; empty if
# all are free. False if unknown.
lacking() {
    lacking=
    [ -r "$iris_proc/self/stat" ] || return 0
    if [ "$exclusive" = 1 ]; then
        lacking=chips
        chip_holders || return
        [ -z "$held" ] || return 0
    fi
    for port in $ports; do
        lacking=port
        listeners "$port" || return
        [ -z "$listening" ] || return 0
    done
    lacking=
}

# await_devices HUNDREDTHS: wait until nothing is lacking; then remove a lock file that a killed program left.
# False on timeout, or if the attempt is being stopped. The working directory is the attempt's
# directory.
await_devices() {
    [ "$exclusive$ports" != 0 ] || return 0
    now
    wait_until=$((now + $1))
    until lacking && [ -z "$lacking" ]; do
        now
        [ "$now" -lt "$wait_until" ] && [ -e stop.idle ] && [ ! -e cancel ] || return
        end_leftovers
        nap 0.2
        sign
    done
    [ "$exclusive" != 1 ] || drop_lock
}

# end_leftovers: kill processes of $held with the marker of an ended attempt. Its end was recorded when no
# process of it was left, so they can't change its result.
end_leftovers() {
    for word in $held; do
        holding "$word" || continue
        marker_of "$holder"
        [ -n "$marker" ] && [ "$marker" != "$token" ] && is_over "../$marker" || continue
        signal KILL "$holder:$start"
    done
}

# is_over PATH: true if the attempt has ended, by its names, and has no wrapper any more.
is_over() {
    [ -d "$1" ] || { [ -f "$1" ] && return; }
    names "$1"
    [ -n "$x" ] || [ "$stop" = stop.done ] || return
    ! is_writer "$1/pid" "${1##*/}" && ! is_writer "$1/setup.pid" "${1##*/}"
}

# marker_of PID -> $marker: the attempt's token in its environment; empty if missing or unreadable.
marker_of() {
    marker=$(tr '\0' '\n' 2>/dev/null <"$iris_proc/$1/environ" |
        sed -n 's/^IRIS_ATTEMPT_TOKEN=\([0-9a-f]\{32\}\)$/\1/p' | head -n 1)
}

# tell_lacking: print why the attempt in the working directory is not started.
tell_lacking() {
    printf 'iris: not started: '
    case $lacking in
    chips) printf 'the chips of this host are held' ;;
    port) printf 'port %s is in use' "$port" ;;
    esac
    separator=' by'
    for word in $held; do
        holding "$word" || continue
        printf '%s process %s (%s)' "$separator" "$holder" "$(comm_of "$holder")"
        separator=,
        [ "$lacking" = port ] || printf ' on %s' "$held_path"
        marker_of "$holder"
        if [ -n "$marker" ]; then
            printf ' of attempt %s (%s here)' "$marker" "$(state_there "$marker")"
        else
            printf ' that iris did not start'
        fi
    done
    [ "$separator" = , ] || printf ' by a process that cannot be seen'
    printf '\n'
}

# state_there TOKEN: print the state of another attempt. Call it in a subshell: it changes the directory.
state_there() {
    state=unknown
    cd .. && [ -e "$1" ] && state_of "$1"
    printf '%s' "$state"
}

# comm_of PID: print the name of its program, with `?` for control and non-ASCII characters.
comm_of() {
    start_of "$1"
    comm=${stat_text#*'('}
    printf '%s' "${comm%')'*}" | LC_ALL=C tr -c '\040-\176' '?'
}

# drop_lock: remove libtpu's stale lock file: it stops the next program even if no process holds a chip.
# Call it after `lacking` has found no holder.
drop_lock() {
    lock_state
    [ "$lock" != stale ] || rm -f "$iris_lock" 2>/dev/null
    return 0
}

# lock_state -> $lock: none; foreign (no plain file, or another user's); held (a process has it open); stale.
lock_state() {
    lock=none
    [ -e "$iris_lock" ] || [ -L "$iris_lock" ] || return 0
    lock=foreign
    # shellcheck disable=SC2046,SC2012
    set -- $(LC_ALL=C ls -ldn "$iris_lock" 2>/dev/null)
    case $1 in -*) ;; *) return 0 ;; esac
    [ "$3" = "$(id -u)" ] || return 0
    lock=held
    lock_held=$held
    open_files "$iris_lock" && [ -z "$held" ] && lock=stale
    held=$lock_held
}
