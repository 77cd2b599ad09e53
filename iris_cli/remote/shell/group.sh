# Control groups (version 2). If allowed, a task's processes get a group of their own, which they can't leave
# by forking twice, in a new session or with an empty environment. The wrapper and its watchdogs stay
# outside.
#
# The group is <our group>/iris-<token>; a/<token>/group has its path. Groups are optional.

# our_group -> $our_group: the directory of this process's group, writable or not.
our_group() {
    our_group=
    [ -r "$iris_proc/self/cgroup" ] || return
    groups=$iris_sys/fs/cgroup
    [ ! -e "$groups/unified/cgroup.procs" ] || groups=$groups/unified # hybrid with version 1
    while IFS=: read -r _ controllers path; do
        [ -n "$controllers" ] || our_group=$groups${path%/}
    done <"$iris_proc/self/cgroup"
    case $our_group in '' | */..*) return 1 ;; esac
}

# can_group: true if we may make groups below our own and enter them.
can_group() { our_group && [ -w "$our_group" ] && [ -w "$our_group/cgroup.procs" ]; }

# group_home -> $home: the parent of the attempts' groups. memory.sh replaces it for a memory limit.
group_home() { home=$our_group; }

# make_group -> $group $own_group: the group of the attempt in the working directory; empty if none. Write its
# path down first, for later calls. This process keeps it in $own_group, whatever the task does to the file.
make_group() {
    group= own_group=
    can_group && group_home && printf '%s\n' "$home/iris-$token" 2>/dev/null >group || return 0
    mkdir "$home/iris-$token" 2>/dev/null
    group_of . "$token"
    own_group=$group
}

# group_of DIRECTORY TOKEN -> $group: the attempt's group if a file in DIRECTORY names it; otherwise
# unchanged. Paths of other groups are ignored.
group_of() {
    named=
    case $own_group in *"/iris-$2") group=$own_group && return ;; esac
    [ -f "$1/group" ] && read -r named 2>/dev/null <"$1/group"
    case $named in
    *..*) ;;
    "$iris_sys/fs/cgroup"*"/iris-$2") [ ! -d "$named" ] || group=$named ;;
    esac
    return 0
}

# limited_of DIRECTORY TOKEN -> $limited: the group of version 1's memory controller, in the same way.
limited_of() {
    case $limited in *"/iris-$2") return ;; esac
    limited= named=
    [ -f "$1/limited" ] && read -r named 2>/dev/null <"$1/limited"
    case $named in
    *..*) ;;
    "$iris_sys/fs/cgroup/memory/"*"/iris-$2" | "$iris_sys/fs/cgroup/memory/iris-$2") limited=$named ;;
    esac
    return 0
}

# enter_group: move this process, and its future children, into $group. False if that fails.
enter_group() {
    [ -z "$limited" ] || printf 0 2>/dev/null >"$limited/cgroup.procs"
    [ -z "$group" ] || printf 0 2>/dev/null >"$group/cgroup.procs"
}

# is_populated -> $populated: 1 if processes live in $group, 0 if not, empty if unknown. The kernel's answer
# is atomic: a chain of processes, each of which forks and ends, could escape any number of scans.
is_populated() {
    populated=
    [ -n "$group" ] && [ -r "$group/cgroup.events" ] || return
    while read -r word rest; do
        [ "$word" != populated ] || populated=$rest
    done 2>/dev/null <"$group/cgroup.events"
    [ "$populated" = 1 ]
}

# kill_group: kill all of $group at once, if the kernel supports it.
kill_group() { [ ! -e "$group/cgroup.kill" ] || printf 1 2>/dev/null >"$group/cgroup.kill"; }

# remove_groups DIRECTORY TOKEN: remove $group, and the group for its memory.
remove_groups() {
    remove_group "$group"
    limited_of "$1" "$2"
    [ -z "$limited" ] || remove_group "$limited"
}

# remove_group GROUP: remove a group without processes, and the groups in it.
remove_group() {
    [ -d "$1" ] || return 0
    for below in "$1"/*/; do remove_group "${below%/}"; done
    rmdir "$1" 2>/dev/null
}
