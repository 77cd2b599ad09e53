# The answer to `unwedge`. The call sets $keep $ended_in_log $attempts_to_stop, lists of tokens, and
# $processes_to_end (see evict.sh).
#   F <none|held|stale|foreign> <unseen>      libtpu's lock file; number of processes that can't be inspected
#   C <pid> <start> <token, or ->             T: a line with the devices that it holds, then its command
#   A ...                                     as in every answer, but without the output of the attempt

# print_holders: print the F line, the holders of chips, and processes of $processes_to_end that still live.
print_holders() {
    chip_holders || fail_without_list
    lock_state
    [ "$lock" != stale ] || [ -z "$holders" ] || lock=held
    count_unseen
    line "F $lock $unseen"
    kept=
    # Some of the processes may belong to the attempts in $keep, but hide the marker.
    self_pid
    [ -z "$holders$processes_to_end" ] || kept_processes "$keep" "$self" || fail_without_list
    pids=' '
    for word in $holders; do
        case $pids in *" ${word%%:*} "*) continue ;; esac
        pids="$pids${word%%:*} "
        find_devices "${word%%:*}"
        [ -z "$devices" ] || print_holder "${word%%:*}" "$devices"
    done
    for word in $processes_to_end; do
        case $word in "$boot":*) word=${word#*:} ;; *) continue ;; esac
        case $pids in *" ${word%%:*} "*) continue ;; esac
        ! is_alive "${word%%:*}" "${word#*:}" || print_holder "${word%%:*}" ""
    done
}

# fail_without_list: exit without an answer, because a partial list would mislead.
fail_without_list() {
    printf 'the processes of this host cannot be listed\n' >&2
    exit 1
}

# find_devices PID -> $devices: those devices in $holders that the process still holds.
find_devices() {
    devices=
    for each in $holders; do
        [ "${each%%:*}" = "$1" ] && check_holder "$each" || continue
        case $device in "$iris_dev"/accel[0-9]* | "$iris_dev"/vfio/[0-9]*) ;; *) continue ;; esac
        devices="$devices $device"
    done
}

# print_holder PID DEVICES: print a C line.
print_holder() {
    read_start "$1" || return
    read_marker "$1"
    case " $kept" in *" $1:$start="*)
        marker=${kept##*" $1:$start="}
        marker=${marker%% *}
        ;;
    esac
    line "C $1 $start ${marker:--}"
    text "$({
        printf '%s\n' "$2"
        print_command "$1"
    } | encode)"
}

# print_command PID: print the beginning of its command line; if that is empty, the name of its program.
print_command() {
    words=$(tr '\0' ' ' 2>/dev/null <"$iris_proc/$1/cmdline" | head -c 500)
    printf '%s' "${words:-$(print_program_name "$1")}"
}

# count_unseen -> $unseen: number of processes that can't be inspected. Kernel threads don't count.
count_unseen() {
    unseen=0
    for each in "$iris_proc"/[0-9]*; do
        if [ -r "$each/fd" ] || ! read_start "${each##*/}"; then continue; fi
        # shellcheck disable=SC2086
        set -- ${stat_text##*) }
        [ "${each##*/}" = 2 ] || [ "$2" = 2 ] || unseen=$((unseen + 1))
    done
}

# print_unknown: report $attempts_to_stop and all other attempts on this host, except stopped attempts,
# attempts in $keep, and attempts that have ended on this host and in the log.
print_unknown() {
    terse=1 unknown=
    for each in *; do
        is_token "$each" && [ -z "$root_missing" ] && [ -d "$each" ] || continue
        case " $keep $attempts_to_stop " in *" $each "*) continue ;; esac
        read_names "$each"
        [ "$stop" != stop.done ] || continue
        case " $ended_in_log " in *" $each "*) [ -z "$record" ] || continue ;; esac
        unknown="$unknown $each"
    done
    skip_requests_left=1
    # shellcheck disable=SC2086
    report $attempts_to_stop $unknown
}
