# For an attempt with an image (settings: $image $gpus): run the program in a docker or podman container named
# iris-<token>. The wrapper's command is the client of docker or podman. The container shares the process ids,
# network and shared memory of the host. So a search finds the container's processes by the marker, and the
# program is not process 1, which would ignore signals.
#
# The set-up writes the file `runtime`: docker or podman, and the user in the container. The wrapper moves it
# to <root>/c/<token> BEFORE it starts the client. From then on the attempt counts as ended only if the
# runtime has no container of that name. The container has no access to that file.

# have_runtime -> $runtime: docker or podman, the first that works without a password. False if neither does.
have_runtime() {
    problems=
    for runtime in docker podman; do
        message='not installed'
        if ! command -v timeout >/dev/null 2>&1; then
            message='timeout is not installed'
        elif command -v "$runtime" >/dev/null 2>&1; then
            message=$(runtime_user 2>&1) &&
                printf '%s %s\n' "$runtime" "$message" 2>/dev/null >runtime && return
        fi
        problems="$problems; $runtime: ${message##*"$newline"}"
    done
    printf 'iris: not started: no container runtime can be used: %s\n' "${problems#; }" 2>/dev/null >>err
    return 1
}

# runtime_user: print the user (<uid>:<gid>) in the container whose files belong to this user on the host, and
# `limits` if the runtime can limit memory. False if the runtime fails. In podman and rootless docker this
# user is root in the container. Without a memory limit don't run `podman info`: it takes 0.2 s or more,
# because it asks the package manager for versions. `podman ps` could fail while another container is removed.
runtime_user() {
    case $runtime$memory_limit in
    docker*) message='server={{.ServerVersion}} {{.SecurityOptions}} memory={{.MemoryLimit}}' ;;
    podman)
        message=$(with_timeout 30 podman image exists iris 2>&1)
        case $? in 0 | 1) printf 0:0 && return ;; esac # it works, whether there is such an image or not
        printf '%s' "${message:-no answer}"
        return 1
        ;;
    podman*) message='server={{.Version.Version}} {{.Host.CgroupControllers}}' ;;
    esac
    message=$(with_timeout 30 "$runtime" info -f "$message" 2>&1)
    case $message in
    *server=[0-9]*) ;;
    *) printf '%s' "${message:-no answer}" && return 1 ;;
    esac
    case $runtime$message in
    podman* | *name=rootless*) printf 0:0 ;;
    *) printf '%s:%s' "$(id -u)" "$(id -g)" ;;
    esac
    case $message in *memory=true* | *[\[\ ]memory[\ \]]*) printf ' limits' ;; esac
}

# have_image: pull the image unless the host has it. If the pull fails, write the runtime's message to `err`.
have_image() {
    "$runtime" image inspect "$image" >/dev/null 2>&1 && return
    message=$("$runtime" pull -q "$image" 2>&1 >/dev/null) && return
    printf 'iris: not started: %s pull %s failed:\n%s\n' "$runtime" "$image" "$message" 2>/dev/null >>err
    return 1
}

# run_task: replaces run_task of run.sh. task_cmd appends options for the variables, the image and the
# command. The library's variables are used BEFORE task_env, which may override them.
run_task() {
    mkdir ../../c 2>/dev/null
    read -r runtime user _ <runtime && mv runtime "../../c/$token" 2>/dev/null || return 125
    set -- "$runtime" run --name "iris-$token" --pull never --entrypoint '' --user "$user" --userns host \
        --pid host --network host --log-driver none --security-opt label=disable -v /dev/shm:/dev/shm \
        -v "$dir:$dir" -w "$dir/work"
    program=${dir%/a/*}/bin/iris
    [ ! -f "$program" ] || set -- "$@" -v "$program:/usr/local/bin/iris:ro"
    if [ "$user" != 0:0 ]; then
        for each in $(id -G); do set -- "$@" --group-add "$each"; done
        set -- "$@" -e "HOME=$dir/work" -e "USER=$(id -un)" # the image may not define them
    fi
    if [ "$exclusive" = 1 ]; then
        for each in "$iris_dev"/accel[0-9]* "$iris_dev"/vfio/*; do
            [ ! -e "$each" ] || set -- "$@" --device "$each"
        done
        locked=$(ulimit -l) # memory for the chips' DMA
        is_number "$locked" && locked=$((locked * 1024)) || locked=-1
        set -- "$@" --ulimit "memlock=$locked:$locked"
    fi
    [ ! -t 0 ] || set -- "$@" -it --detach-keys ctrl-^,ctrl-_ # the default contains Ctrl-P, which shells use
    [ -z "$limit" ] || set -- "$@" --memory "${limit}b" --memory-swap "${limit}b" # swap included
    case $gpus$runtime in
    1docker) set -- "$@" --gpus all ;;
    1podman) set -- "$@" --device nvidia.com/gpu=all ;;
    esac
    umask "$mask" && cd work && task_env "$dir" && task_cmd "$@"
}

# make_group and limit_memory: replace those of group.sh and memory.sh. The runtime makes the container's
# group, and limits its memory if it can.
make_group() { group= own_group=; }
limit_memory() {
    read -r _ _ abilities 2>/dev/null <runtime
    case $abilities$memory_limit in limits[1-9]*) limit=$memory_limit ;; esac
}

# is_by_signal CODE -> $killed $container_id: replaces is_by_signal of run.sh. Always false, because a
# client's exit code 128+n doesn't prove a signal. After a failure, query the runtime BEFORE the container is
# removed: $killed is `true` after an OOM kill. The kernel's lines about the container's group contain
# $container_id.
is_by_signal() {
    killed=
    [ "$1" != 0 ] || return
    read -r runtime _ 2>/dev/null <"../../c/$token"
    # shellcheck disable=SC2046
    set -- $(with_timeout 30 "$runtime" inspect -f '{{.State.OOMKilled}} {{.Id}}' "iris-$token" 2>/dev/null)
    killed=${1-} container_id=${2-}
    return 1
}

count_kills() {
    own_kills=0 shared_kills=0
    [ "$killed" != true ] || own_kills=1
}
