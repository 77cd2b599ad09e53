# The call `probe`: facts about this host. Answer:
#   P <key> <number>        V <key>, then its text        K <attempt's token>        N <missing command>

# probe REMOTE_DIR CLUSTER WORKER -> $warnings: make the worker's directory, and check the host.
probe() {
    root=$1/$2/$3
    if [ -n "$holder" ] && ! is_taken "$1" && ! has_holder; then
        printf 'no holder step runs on this node\n' >&2
        exit 3
    fi
    # Check the commands BEFORE anything is written, because without them the disk would look full.
    ! lacks_any || return
    if ! on_network_disk "$1"; then
        if is_taken "$1"; then
            add_refusal "another user may control $1; set remote_dir to another directory"
        elif make_root; then
            ensure_incarnation
            install_program
        else
            refuse_to_write
        fi
    fi
    check_requirements
}

# is_taken REMOTE_DIR: true if another user made REMOTE_DIR or a directory above it. Only the default
# directory on nodes of Slurm is checked, because every user can guess its name and write to the directory
# above it. Call is_taken BEFORE anything is written.
is_taken() {
    case $1 in
    */iris-*/*) mkdir -p "$1" 2>/dev/null && ! is_ours "$1" ;;
    *) return 1 ;;
    esac
}

# inspect REMOTE_DIR CLUSTER WORKER -> $warnings: check the host like `probe`, but write nothing.
inspect() {
    root=$1/$2/$3
    ! lacks_any || return
    if ! on_network_disk "$1"; then
        find_nearest "$root"
        [ -w "$nearest" ] || refuse_to_write
    fi
    check_requirements
}

refuse_to_write() {
    add_refusal "can't write below $root: free disk space, or set remote_dir to another directory"
}

check_requirements() {
    can_search ||
        add_refusal "grep can't search the environment of processes: install GNU grep or a newer busybox"
    [ "$boot" != - ] || add_refusal "this host has no boot id"
    check_logind
}

print_probe() {
    for each in $missing; do line "N $each"; done
    print_machine
    print_accelerators
    print_containment
    print_slurm_job
    print_metadata
    for name in "$root"/a/*; do
        name=${name##*/}
        # Omit tombstones and stopped attempts, for which nothing is left to do.
        ! is_token "$name" || [ ! -d "$root/a/$name" ] || [ -e "$root/a/$name/stop.done" ] || line "K $name"
    done
}

print_number() { ! is_number "$2" || line "P $1 $2"; }

print_value() {
    [ -n "$2" ] || return 0
    line "V $1"
    text "$(printf '%s' "$2" | encode)"
}

# add_refusal TEXT, add_warning TEXT: append a line to $warnings, which the call prints later.
add_refusal() { add_warning "refused: $1"; }
add_warning() { warnings=$warnings$1$newline; }

# find_nearest DIRECTORY -> $nearest: DIRECTORY if it exists, otherwise the nearest directory above it that
# exists.
find_nearest() {
    nearest=$1
    while [ ! -d "$nearest" ] && [ "$nearest" != / ] && [ -n "$nearest" ]; do
        case $nearest in */*) nearest=${nearest%/*} ;; *) nearest=. ;; esac
    done
    nearest=${nearest:-/}
}

# on_network_disk DIRECTORY: true if DIRECTORY is on a network file system. Then add a refusal, because hosts
# that share the directory would confuse their attempts. Call on_network_disk BEFORE anything is written.
on_network_disk() {
    find_nearest "$1"
    # shellcheck disable=SC2046
    set -- $(cd "$nearest" 2>/dev/null && LC_ALL=C df -P . 2>/dev/null | tail -n 1)
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
        add_refusal "network file system ($kind) at $nearest; set remote_dir to a local disk of the worker"
        ;;
    *) return 1 ;;
    esac
}

# ensure_incarnation -> $incarnation: read the incarnation, or choose a new one. A new incarnation is written
# to a separate file, which is then linked to the name `incarnation`, so that concurrent probes agree. A
# damaged file is not replaced, because another probe may have just replaced it.
ensure_incarnation() {
    read_incarnation
    [ "$incarnation" = - ] || return 0
    random=$(od -An -v -N16 -tx1 /dev/urandom | tr -cd 0-9a-f)
    written=
    printf '%s\n' "$random" 2>/dev/null >"$root/new.$nonce" && read -r written <"$root/new.$nonce"
    [ ${#written} -ne 32 ] || ln "$root/new.$nonce" "$root/incarnation" 2>/dev/null
    rm -f "$root/new.$nonce"
    read_incarnation
    if [ "$incarnation" != - ]; then
        return
    elif [ -e "$root/incarnation" ]; then
        add_refusal "$root/incarnation is damaged; remove it on the worker"
    else
        add_refusal "can't write $root/incarnation: the disk is full, or has no hard links"
    fi
}

# install_program: install the program `iris` for tasks unless it is up to date. Ignores failures.
install_program() {
    [ "$(cat "$root/bin/iris" 2>/dev/null)" != "$program" ] || return 0
    new=$root/bin/new.$nonce
    {
        mkdir -p "$root/bin" && printf '%s\n' "$program" >"$new" &&
            chmod 700 "$new" && mv "$new" "$root/bin/iris"
    } 2>/dev/null || rm -f "$new"
}

print_machine() {
    cpus=$({ nproc || getconf _NPROCESSORS_ONLN || sysctl -n hw.logicalcpu; } 2>/dev/null)
    print_number cpus "$cpus"
    memory=
    if [ -r "$iris_proc/meminfo" ]; then
        while read -r word size _; do
            [ "$word" != MemTotal: ] || memory=$((size * 1024))
        done <"$iris_proc/meminfo"
    else
        memory=$(sysctl -n hw.memsize 2>/dev/null)
    fi
    print_number memory "$memory"
    find_nearest "$root"
    # shellcheck disable=SC2046
    set -- $(cd "$nearest" && LC_ALL=C df -Pk . 2>/dev/null | tail -n 1)
    is_number "$4" && print_number disk_free $(($4 * 1024))
}

count_existing() {
    found=0
    for each; do [ ! -e "$each" ] || found=$((found + 1)); done
}

print_accelerators() {
    tpus_on_bus
    count_existing "$iris_dev"/accel[0-9]*
    # Other devices also use vfio, so count it only if a TPU is on the bus, or the bus is not visible.
    if [ "$found" -eq 0 ] && { [ "$tpus" -gt 0 ] || [ -z "$bus" ]; }; then
        count_existing "$iris_dev"/vfio/[0-9]*
    fi
    [ "$found" -gt 0 ] || found=$tpus
    print_number chips "$found"
    count_existing "$iris_proc"/driver/nvidia/gpus/*
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
    print_number gpus "$found"
    print_value gpu_variant "$variant"
}

# print_containment: print `cgroup` if tasks get control groups, otherwise `session`. The permissions of the
# directories don't show that, so make a group and enter it.
print_containment() {
    contained=session
    group=
    if can_make_group && mkdir "$our_group/iris-$nonce" 2>/dev/null; then
        group=$our_group/iris-$nonce
        (enter_group) && contained=cgroup
        remove_group "$group"
    fi
    print_value containment "$contained"
}

# tpus_on_bus -> $tpus $bus: the number of TPUs on the PCI bus; 1 if the bus is visible. Reading these files
# never disturbs a job. Network cards and disks may be devices of the same vendor (Google).
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

# print_slurm_job: print the Slurm job whose control group contains this process and would contain its tasks.
# In version 1, Slurm tracks processes by the controller `freezer`. In version 2, print nothing if tasks get
# separate groups, because they leave the group of the step.
print_slurm_job() {
    while IFS=: read -r _ controllers path; do
        case $controllers:$path in
        :*slurm*/job_*/step_* | freezer:*/slurm*/job_*/step_*)
            [ -n "$controllers" ] || [ "$contained" != cgroup ] || continue
            path=${path#*/job_}
            print_value slurm-cgroup "${path%%/*}"
            return
            ;;
        esac
    done 2>/dev/null <"$iris_proc/self/cgroup"
}

# print_metadata: print the values that a Google VM's metadata server has.
print_metadata() {
    metadata_server || return 0
    now
    deadline=$((now + 500))
    for each in attributes/accelerator-type attributes/agent-worker-number attributes/instance-id \
        attributes/worker-network-endpoints attributes/tpu-env zone scheduling/preemptible; do
        value=$(fetch "$each" 2>/dev/null)
        [ ${#value} -gt 16384 ] || print_value "${each##*/}" "$value"
        now
        if [ "$now" -ge "$deadline" ]; then
            # Refuse the host, because the missing values of a partial answer would mislead.
            add_refusal "the metadata server is slow to answer; probe again"
            return
        fi
    done
}
