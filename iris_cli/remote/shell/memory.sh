# For an attempt with a memory limit: the kernel limits the memory of all its processes together to
# $memory_limit bytes. On a host that can't enforce the limit, the task runs without a limit.

# parent_group -> $parent_group: replaces parent_group of group.sh. Find the nearest group, from the group of
# this process upwards, whose subgroups can have a limit. In version 2, such a group can't have processes.
# Without a group to which this user can write, return the group of this process.
parent_group() {
    parent_group=$our_group above=$our_group
    while [ -r "$above/cgroup.subtree_control" ]; do
        controllers= # `read` fails on an empty file
        read -r controllers <"$above/cgroup.subtree_control"
        case " $controllers " in
        *" memory "*)
            [ ! -w "$above" ] || [ ! -w "$above/cgroup.procs" ] || parent_group=$above
            return 0
            ;;
        esac
        case $above in "$iris_sys/fs/cgroup"*/*) above=${above%/*} ;; *) return 0 ;; esac
    done
    return 0
}

# limit_memory -> $limit $v1_group: replaces limit_memory of run.sh. $limit is the enforced limit in bytes,
# empty if the host can't enforce it; $v1_group is the attempt's group in version 1 if it enforces the
# limit. In version 2 an OOM kill ends all processes of the task, because a program that lost one of its
# processes might hang.
limit_memory() {
    limit= v1_group=
    if [ -n "$group" ] && set_memory "$group/memory.max"; then
        set_file "$group/memory.swap.max" 0
        set_file "$group/memory.oom.group" 1
        return 0
    fi
    v1_parent && [ -w "$v1_parent/cgroup.procs" ] && [ -e "$v1_parent/memory.limit_in_bytes" ] || return 0
    printf '%s\n' "$v1_parent/iris-$token" 2>/dev/null >limited || return 0
    mkdir "$v1_parent/iris-$token" 2>/dev/null
    find_v1_group . "$token"
    if [ -n "$v1_group" ] && set_memory "$v1_group/memory.limit_in_bytes"; then
        set_file "$v1_group/memory.memsw.limit_in_bytes" "$memory_limit" # swap included
    else
        v1_group=
    fi
    return 0
}

# set_memory FILE -> $limit: write the limit to FILE. False if that fails.
set_memory() { set_file "$1" "$memory_limit" && limit=$memory_limit; }

# set_file FILE TEXT: write TEXT. False if FILE does not exist or the kernel rejects TEXT.
set_file() { [ -w "$1" ] && printf '%s' "$2" 2>/dev/null >"$1"; }
