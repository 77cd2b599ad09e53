# Processes that outlive their call. On a node of a Slurm job, Slurm may kill the processes of a call when it
# ends: they are handed over to the holder (holder.sh). $holder is its directory, empty on other workers.

# has_holder: true if a holder runs on this node.
has_holder() {
    holder_pid= holder_start= holder_boot=
    [ -r "$holder/pid" ] && read -r holder_pid holder_start holder_boot 2>/dev/null <"$holder/pid" || return
    [ "$holder_boot" = "$boot" ] && is_alive "$holder_pid" "$holder_start" && [ -p "$holder/$holder_pid" ]
}

# hand_over MARKER FILE ARGUMENT: let the holder `begin` it. False if there is no holder. Opened for both
# directions, a pipe without a reader blocks no call: if the holder ends now, the request is lost, and
# the caller finds nothing started.
hand_over() { has_holder && printf '%s %s %s\n' "$1" "$3" "$2" 2>/dev/null 1<>"$holder/$holder_pid"; }

# outlive FUNCTION DIRECTORY ARGUMENTS: call a function of the library with DIRECTORY and the arguments, in a
# process of its own. It gets the library through a pipe: the disk may be full. Without a holder that can
# take it, it lives only as long as this call may: a later call starts another one.
outlive() {
    what=$1 where=$2 words=
    shift 2
    for each; do words="$words '$each'"; done
    file=$where/last.$nonce
    case $holder$* in
    '' | "$*" | *"'"*) ;;
    *)
        printf '{ rm -f "$0"\n%s\n%s "${0%%/*}"%s\n}\n' "$library" "$what" "$words" 2>/dev/null >"$file" &&
            hand_over - "$file" - && return
        rm -f "$file"
        ;;
    esac
    (
        printf '%s\n%s "$@"\n}' "{
$library" "$what" | detach sh -s "$where" "$@"
    ) >/dev/null 2>&1 &
}
