# The call `probe`: facts about this host.
#   P <key> <number>        V <key>, then the text        K <token>        N <missing command>

# probe REMOTE_DIR CLUSTER WORKER
probe() {
    root=$1/$2/$3
    # BEFORE anything is written: a step without its command would look like a full disk.
    ! lacks_any || return
    if ! on_network_disk "$1"; then
        if make_root; then
            take_incarnation
            put_program
        else
            refuse_to_write
        fi
    fi
    demands
}

# survey REMOTE_DIR CLUSTER WORKER: gather the facts and refusals of a probe. Writes nothing.
survey() {
    root=$1/$2/$3
    ! lacks_any || return
    if ! on_network_disk "$1"; then
        existing "$root"
        [ -w "$place" ] || refuse_to_write
    fi
    demands
}

refuse_to_write() {
    refusal "can't write below $root; is the disk full, or set remote_dir to another directory"
}

# demands: check other requirements of a host.
demands() {
    can_search ||
        refusal "grep here can't search the environment of processes: install GNU grep or a newer busybox"
    [ "$boot" != - ] || refusal "this host doesn't say when it was booted"
    leaves_sessions_alone
}

# tell_probe: print the lines of the answer.
tell_probe() {
    for each in $lacks; do line "N $each"; done
    machine
    accelerators
    containment
    metadata
    for name in "$root"/a/*; do
        name=${name##*/}
        [ ${#name} -eq 32 ] || continue
        case $name in *[!0-9a-f]*) continue ;; esac
        # Omit stopped attempts and tombstones: they are settled.
        [ ! -d "$root/a/$name" ] || [ -e "$root/a/$name/stop.done" ] || line "K $name"
    done
}

number() { ! is_number "$2" || line "P $1 $2"; }

named() {
    [ -n "$2" ] || return 0
    line "V $1"
    text "$(printf '%s' "$2" | encode)"
}

# refusal TEXT, caution TEXT -> $cautions: kept until the frame is open.
refusal() { caution "refused: $1"; }
caution() {
    cautions="$cautions$1
"
}

# existing DIRECTORY -> $place: the directory, or its nearest existing parent.
existing() {
    place=$1
    while [ ! -d "$place" ] && [ "$place" != / ] && [ -n "$place" ]; do
        case $place in */*) place=${place%/*} ;; *) place=. ;; esac
    done
    place=${place:-/}
}

# on_network_disk DIRECTORY: true, with a refusal, for a network file system: hosts that share it would mix up
# their attempts. Call it BEFORE writing.
on_network_disk() {
    existing "$1"
    # shellcheck disable=SC2046
    set -- $(cd "$place" 2>/dev/null && LC_ALL=C df -P . 2>/dev/null | tail -n 1)
    source=$1 kind=
    shift $(($# ? $# - 1 : 0))
    if [ -r "$iris_mounts" ]; then
        while read -r _ mount_point mount_kind _; do
            [ "$mount_point" = "$1" ] && kind=$mount_kind
        done <"$iris_mounts"
    else
        case $source in *:/* | //*) kind=nfs ;; esac
    fi
    case $kind in
    nfs* | cifs | smb* | afs | ceph | gfs* | ocfs2 | lustre | gpfs | beegfs | glusterfs | ncpfs | fuse.*)
        [ "$kind" != fuse.fuse-overlayfs ] || return 1
        refusal "network file system ($kind) at $place; set remote_dir to a local disk of the worker"
        ;;
    *) return 1 ;;
    esac
}

# take_incarnation -> $incarnation. Write a new file, then link it: concurrent probes agree on one. Do not
# replace a damaged file: another probe may have just replaced it.
take_incarnation() {
    read_incarnation
    [ "$incarnation" = - ] || return 0
    random
    written=
    printf '%s\n' "$random" 2>/dev/null >"$root/new.$nonce" && read -r written <"$root/new.$nonce"
    [ ${#written} -ne 32 ] || ln "$root/new.$nonce" "$root/incarnation" 2>/dev/null
    rm -f "$root/new.$nonce"
    read_incarnation
    if [ "$incarnation" != - ]; then
        return
    elif [ -e "$root/incarnation" ]; then
        refusal "$root/incarnation is damaged; remove it on the worker"
    else
        refusal "can't write $root/incarnation; is the disk full, or without hard links"
    fi
}

# put_program: install the `iris` program for tasks unless up to date. It is optional.
put_program() {
    [ "$(cat "$root/bin/iris" 2>/dev/null)" != "$program" ] || return 0
    new=$root/bin/new.$nonce
    {
        mkdir -p "$root/bin" && printf '%s\n' "$program" >"$new" &&
            chmod 700 "$new" && mv "$new" "$root/bin/iris"
    } 2>/dev/null || rm -f "$new"
}

# random -> $random: 32 hexadecimal digits.
random() { random=$(od -An -v -N16 -tx1 /dev/urandom | tr -cd 0-9a-f); }

machine() {
    cpus=$({ nproc || getconf _NPROCESSORS_ONLN || sysctl -n hw.logicalcpu; } 2>/dev/null)
    number cpus "$cpus"
    memory=
    if [ -r "$iris_proc/meminfo" ]; then
        while read -r word size _; do
            [ "$word" != MemTotal: ] || memory=$((size * 1024))
        done <"$iris_proc/meminfo"
    else
        memory=$(sysctl -n hw.memsize 2>/dev/null)
    fi
    number memory "$memory"
    existing "$root"
    # shellcheck disable=SC2046
    set -- $(cd "$place" && LC_ALL=C df -Pk . 2>/dev/null | tail -n 1)
    is_number "$4" && number disk_free $(($4 * 1024))
}

# how_many FILES -> $found: the number of existing files.
how_many() {
    found=0
    for each; do [ ! -e "$each" ] || found=$((found + 1)); done
}

accelerators() {
    tpus_on_bus
    how_many "$iris_dev"/accel[0-9]*
    # vfio serves any passed-through device: if the bus is visible, it must show a TPU.
    if [ "$found" -eq 0 ] && { [ "$tpus" -gt 0 ] || [ -z "$bus" ]; }; then
        how_many "$iris_dev"/vfio/[0-9]*
    fi
    [ "$found" -gt 0 ] || found=$tpus
    number chips "$found"
    how_many "$iris_proc"/driver/nvidia/gpus/*
    variant=
    if [ "$found" -gt 0 ]; then
        for each in "$iris_proc"/driver/nvidia/gpus/*/information; do
            while IFS=: read -r word rest; do
                [ "$word" != Model ] || variant=$rest
            done 2>/dev/null <"$each"
        done
    elif [ -e "$iris_dev/nvidiactl" ] || [ -e "$iris_dev/dxg" ]; then
        gpus=$(nvidia-smi -L 2>/dev/null | grep '^GPU ')
        found=$(printf '%s' "$gpus" | grep -c '^GPU ')
        variant=${gpus#*: }
        variant=${variant%% (*}
    fi
    number gpus "$found"
    named gpu_variant "$variant"
}

# containment: how this host contains a task's processes. Try it: permissions do not imply success.
containment() {
    contained=session
    group=
    if can_group && mkdir "$our_group/iris-$nonce" 2>/dev/null; then
        group=$our_group/iris-$nonce
        (enter_group) && contained=cgroup
        remove_group "$group"
    fi
    named containment "$contained"
}

# tpus_on_bus -> $tpus, and $bus if the bus is visible. Reading these never disturbs a running job. The
# vendor (Google) also makes network cards and disks.
tpus_on_bus() {
    tpus=0 bus=
    for each in "$iris_sys"/bus/pci/devices/*; do
        vendor= device=
        [ -r "$each/vendor" ] && read -r vendor <"$each/vendor" && read -r device <"$each/device" || continue
        bus=1
        [ "$vendor" = 0x1ae0 ] || continue
        case $device in 0x0027 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076) tpus=$((tpus + 1)) ;; esac
    done
}

# metadata: print values of a Google VM's metadata server. Unknown values are omitted.
metadata() {
    metadata_server || return 0
    now
    patience=$((now + 500))
    for each in attributes/accelerator-type attributes/agent-worker-number attributes/instance-id \
        attributes/worker-network-endpoints attributes/tpu-env zone scheduling/preemptible; do
        said=$(fetch "$each" 2>/dev/null)
        [ ${#said} -gt 16384 ] || named "${each##*/}" "$said"
        now
        if [ "$now" -ge "$patience" ]; then
            # Refuse instead of answering in part: a missing value has a meaning.
            refusal "the metadata server is slow to answer; probe again"
            return
        fi
    done
}
