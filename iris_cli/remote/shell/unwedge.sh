# The answer to `unwedge`. Set by the caller: $keep $known $cleared, lists of tokens; $evicted (see evict.sh).
#   F <none|held|stale|foreign> <unseen>      the lock file; number of processes that can't be inspected
#   C <pid> <start> <token, or ->             T: the devices it holds, and on the next lines its command
#   A ...                                     as in every answer, without the end of its output

# tell_holders: print the holders of chips, and processes of $evicted that still live.
tell_holders() {
    chip_holders || no_list
    lock_state
    [ "$lock" != stale ] || [ -z "$held" ] || lock=held
    unseen
    line "F $lock $unseen"
    kept=
    # Find their attempts also without the marker, which they may have hidden.
    self_pid
    [ -z "$held$evicted" ] || kept_processes "$keep" "$self" || no_list
    pids=' '
    for word in $held; do
        case $pids in *" ${word%%:*} "*) continue ;; esac
        pids="$pids${word%%:*} "
        devices_of "${word%%:*}"
        [ -z "$devices" ] || tell_holder "${word%%:*}" "$devices"
    done
    for word in $evicted; do
        case $word in "$boot":*) word=${word#*:} ;; *) continue ;; esac
        case $pids in *" ${word%%:*} "*) continue ;; esac
        ! is_alive "${word%%:*}" "${word#*:}" || tell_holder "${word%%:*}" ""
    done
}

# no_list: exit without an answer: a partial list would mislead.
no_list() {
    printf 'the processes of this host cannot be listed\n' >&2
    exit 1
}

# devices_of PID -> $devices: the devices of $held that the process holds, checked again.
devices_of() {
    devices=
    for each in $held; do
        [ "${each%%:*}" = "$1" ] && holding "$each" || continue
        case $held_path in "$iris_dev"/accel[0-9]* | "$iris_dev"/vfio/[0-9]*) ;; *) continue ;; esac
        devices="$devices $held_path"
    done
}

# tell_holder PID DEVICES: print its C line.
tell_holder() {
    start_of "$1" || return
    marker_of "$1"
    case " $kept" in *" $1:$start="*)
        marker=${kept##*" $1:$start="}
        marker=${marker%% *}
        ;;
    esac
    line "C $1 $start ${marker:--}"
    text "$({
        printf '%s\n' "$2"
        command_of "$1"
    } | encode)"
}

# command_of PID: print the beginning of its command line, or the name of its program.
command_of() {
    words=$(tr '\0' ' ' 2>/dev/null <"$iris_proc/$1/cmdline" | head -c 500)
    printf '%s' "${words:-$(comm_of "$1")}"
}

# unseen -> $unseen: number of processes that can't be inspected. Kernel threads hold nothing.
unseen() {
    unseen=0
    for each in "$iris_proc"/[0-9]*; do
        if [ -r "$each/fd" ] || ! start_of "${each##*/}"; then continue; fi
        # shellcheck disable=SC2086
        set -- ${stat_text##*) }
        [ "${each##*/}" = 2 ] || [ "$2" = 2 ] || unseen=$((unseen + 1))
    done
}

# tell_strangers: report $cleared, and other attempts on this host that are not in $keep and not stopped,
# unless they have ended and are $known.
tell_strangers() {
    terse=1 strangers=
    for each in *; do
        [ ${#each} -eq 32 ] && [ -z "$missing" ] && [ -d "$each" ] || continue
        case $each in *[!0-9a-f]*) continue ;; esac
        case " $keep $cleared " in *" $each "*) continue ;; esac
        names "$each"
        [ "$stop" != stop.done ] || continue
        case " $known " in *" $each "*) [ -z "$x" ] || continue ;; esac
        strangers="$strangers $each"
    done
    asking=1 # no lines about requests
    # shellcheck disable=SC2086
    report $cleared $strangers
}
