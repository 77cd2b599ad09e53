# Start processes that outlive their call. On a node of a Slurm job, Slurm may kill all processes of a call
# when the call ends, so the holder (holder.sh) starts these processes. $holder is the directory of the
# holder, and empty on other workers.

# has_holder: true if the holder runs.
has_holder() {
    holder_pid= holder_start= holder_boot=
    [ -r "$holder/pid" ] && read -r holder_pid holder_start holder_boot 2>/dev/null <"$holder/pid" || return
    [ "$holder_boot" = "$boot" ] && is_alive "$holder_pid" "$holder_start" && [ -p "$holder/$holder_pid" ]
}

# hand_over TOKEN FILE ARGUMENT: send the holder a request to call `begin` with these arguments. TOKEN is `-`
# for a process of no attempt. False if there is no holder. Open the pipe for reading and writing, because
# opening it only for writing blocks if no process reads it. If the holder ends before it reads the request,
# the request is lost, and a later call repeats it.
hand_over() { has_holder && printf '%s %s %s\n' "$1" "$3" "$2" 2>/dev/null 1<>"$holder/$holder_pid"; }

# run_detached FUNCTION DIRECTORY ARGUMENTS: call a function of the library in a separate process, with
# DIRECTORY and the arguments. The holder starts the process. If no holder accepts the request, this call
# starts it, and sends it the library through a pipe, because the disk may be full. If Slurm kills it when the
# call ends, a later call starts it again.
run_detached() {
    routine=$1 directory=$2 quoted=
    shift 2
    for each; do quoted="$quoted '$each'"; done
    file=$directory/last.$nonce
    # Don't use the holder if an argument contains a quote, which would end the quoting.
    case $holder$* in
    '' | "$*" | *"'"*) ;;
    *)
        printf '{ rm -f "$0"\n%s\n%s "${0%%/*}"%s\n}\n' "$library" "$routine" "$quoted" \
            2>/dev/null >"$file" &&
            hand_over - "$file" - && return
        rm -f "$file"
        ;;
    esac
    (
        printf '%s\n%s "$@"\n}' "{
$library" "$routine" | detach sh -s "$directory" "$@"
    ) >/dev/null 2>&1 &
}
