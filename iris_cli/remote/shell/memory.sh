# For an attempt with a memory limit, after its setting memory_limit (in bytes): the kernel enforces it for
# all its processes together. A host that can't enforce it runs the task without a limit.

# Replaces group_home of group.sh: our own group or the first above it whose subgroups can have a limit. In
# version 2, a group with processes in it can't give its subgroups a limit.
group_home() {
    home=$our_group above=$our_group
    while [ -r "$above/cgroup.subtree_control" ]; do
        controllers= # `read` fails on an empty file
        read -r controllers <"$above/cgroup.subtree_control"
        case " $controllers " in
        *" memory "*)
            [ ! -w "$above" ] || [ ! -w "$above/cgroup.procs" ] || home=$above
            return 0
            ;;
        esac
        case $above in "$iris_sys/fs/cgroup"*/*) above=${above%/*} ;; *) return 0 ;; esac
    done
    return 0
}

# limit_memory -> $limit: the enforced limit in bytes, empty if none; $limited: the group of version 1. In
# version 2 an OOM kill ends the whole task: a program that lost one of its processes might hang.
limit_memory() {
    limit= limited=
    if [ -n "$group" ] && set_memory "$group/memory.max"; then
        set_file "$group/memory.swap.max" 0
        set_file "$group/memory.oom.group" 1
        return 0
    fi
    memory_controller && [ -w "$place/cgroup.procs" ] && [ -e "$place/memory.limit_in_bytes" ] || return 0
    printf '%s\n' "$place/iris-$token" 2>/dev/null >limited || return 0
    mkdir "$place/iris-$token" 2>/dev/null
    limited_of . "$token"
    if [ -n "$limited" ] && set_memory "$limited/memory.limit_in_bytes"; then
        set_file "$limited/memory.memsw.limit_in_bytes" "$memory_limit" # swap included
    else
        limited=
    fi
    return 0
}

# set_memory FILE -> $limit.
set_memory() { set_file "$1" "$memory_limit" && limit=$memory_limit; }

# set_file FILE TEXT: false if there is no such file, or the kernel rejects the text.
set_file() { [ -w "$1" ] && printf '%s' "$2" 2>/dev/null >"$1"; }
