# What a start needs for itself: the chips of the host, and the port on which a gang meets. Who holds them.
# Without root only one's own processes can be looked into.

# open_files PATTERN -> $held: who has a file open whose path matches the pattern (of awk), as words
# <pid>:<descriptor>, one for each process and path. False if that can't be told.
#
# What is behind a descriptor may be named by anybody, line ends included: so this may be wrong about whose it
# is, and whoever is to be named or ended is looked at once more, by `holding`.
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

# holding WORD -> $holder $held_path, and $start of that process: what it has open there still. WORD is one
# of $held.
holding() {
    holder=${1%%:*}
    held_path=$(readlink "$iris_proc/$holder/fd/${1#*:}" 2>/dev/null) && start_of "$holder"
}

# chip_holders -> $held. No device, no holder.
chip_holders() {
    held=
    for each in "$iris_dev"/accel[0-9]* "$iris_dev"/vfio/[0-9]*; do
        if [ -e "$each" ]; then
            open_files "$iris_dev/(accel|vfio/)[0-9]+"
            return
        fi
    done
}

# listeners PORT -> $listening, and $held as far as can be seen: who listens on that TCP port, on any address.
listeners() {
    held=
    listening=$(cat "$iris_proc/net/tcp" "$iris_proc/net/tcp6" 2>/dev/null |
        LC_ALL=C awk -v port="$(printf ':%04X' "$1")" '
            $4 == "0A" && substr($2, length($2) - 4) == port { inodes = inodes (inodes ? "|" : "") $10 }
            END { print inodes }') || return
    [ -z "$listening" ] || open_files "socket:.($listening)."
}

# lacking -> $lacking: `chips` or `port`, which the settings of the attempt ask for and which isn't free, and
# $held; empty if nothing is. False if that can't be told.
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

# await_devices HUNDREDTHS: until nothing is lacking; then a lock file that a killed program left is dropped,
# too. False if it took longer than that, or the attempt is being stopped. The working directory is that of
# the attempt.
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

# end_leftovers: of $held, what carries the marker of an attempt of ours that is over. Its end was recorded
# when nothing of it was left, so this is none of it any more.
end_leftovers() {
    for word in $held; do
        holding "$word" || continue
        marker_of "$holder"
        [ -n "$marker" ] && [ "$marker" != "$token" ] && is_over "../$marker" || continue
        signal KILL "$holder:$start"
    done
}

# is_over PATH: whether the attempt has ended, by its names, and has no wrapper any more.
is_over() {
    [ -d "$1" ] || { [ -f "$1" ] && return; }
    names "$1"
    [ -n "$x" ] || [ "$stop" = stop.done ] || return
    ! is_writer "$1/pid" "${1##*/}" && ! is_writer "$1/setup.pid" "${1##*/}"
}

# marker_of PID -> $marker: the attempt in its environment; empty if there is none, or it can't be seen.
marker_of() {
    marker=$(tr '\0' '\n' 2>/dev/null <"$iris_proc/$1/environ" |
        sed -n 's/^IRIS_ATTEMPT_TOKEN=\([0-9a-f]\{32\}\)$/\1/p' | head -n 1)
}

# tell_lacking: why the attempt in the working directory is not started.
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

# state_there TOKEN: prints the state of another attempt. In a subshell: it goes to where tokens are names.
state_there() {
    state=unknown
    cd .. && [ -e "$1" ] && state_of "$1"
    printf '%s' "$state"
}

# comm_of PID: prints the name of its program, without what could mislead a terminal.
comm_of() {
    start_of "$1"
    comm=${stat_text#*'('}
    printf '%s' "${comm%')'*}" | LC_ALL=C tr -c '\040-\176' '?'
}

# drop_lock: the lock file of the TPU library stops the next program even when nobody holds a chip any more.
# BEFORE: `lacking` has found nobody.
drop_lock() {
    lock_state
    [ "$lock" != stale ] || rm -f "$iris_lock" 2>/dev/null
    return 0
}

# lock_state -> $lock: none; foreign (no plain file, or not ours); held (somebody has it open); stale.
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
