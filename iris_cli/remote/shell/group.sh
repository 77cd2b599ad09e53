# Control groups (version 2). On hosts where this user may make groups, each task gets its own group. No
# process leaves its group by forking twice, starting a session or emptying its environment. The wrapper and
# its watchdogs are not in the task's group.
#
# The task's group is iris-<token> in the group of the wrapper. The file a/<token>/group contains its path.

# our_group -> $our_group: the directory of the group of this process. False if unknown.
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

can_make_group() { our_group && [ -w "$our_group" ] && [ -w "$our_group/cgroup.procs" ]; }

# parent_group -> $parent_group: the parent of the attempts' groups. memory.sh replaces this function.
parent_group() { parent_group=$our_group; }

# make_group -> $group $own_group: make a group for the attempt in the working directory. Both variables
# contain its path, or are empty if this user can't make a group. Write the path to the file `group` first,
# for later calls. The task can change that file but not $own_group.
make_group() {
    group= own_group=
    can_make_group && parent_group && printf '%s\n' "$parent_group/iris-$token" 2>/dev/null >group || return 0
    mkdir "$parent_group/iris-$token" 2>/dev/null
    find_group . "$token"
    own_group=$group
}

# find_group DIRECTORY TOKEN -> $group: the attempt's group, if the file `group` in DIRECTORY contains the
# path of a group with the name iris-TOKEN. Otherwise $group is unchanged.
find_group() {
    group_path=
    case $own_group in *"/iris-$2") group=$own_group && return ;; esac
    [ -f "$1/group" ] && read -r group_path 2>/dev/null <"$1/group"
    case $group_path in
    *..*) ;;
    "$iris_sys/fs/cgroup"*"/iris-$2") [ ! -d "$group_path" ] || group=$group_path ;;
    esac
    return 0
}

# find_v1_group DIRECTORY TOKEN -> $v1_group: the attempt's group in version 1's memory controller if the
# file `limited` in DIRECTORY contains the path of that group, otherwise empty.
find_v1_group() {
    case $v1_group in *"/iris-$2") return ;; esac
    v1_group= group_path=
    [ -f "$1/limited" ] && read -r group_path 2>/dev/null <"$1/limited"
    case $group_path in
    *..*) ;;
    "$iris_sys/fs/cgroup/memory/"*"/iris-$2" | "$iris_sys/fs/cgroup/memory/iris-$2") v1_group=$group_path ;;
    esac
    return 0
}

# enter_group: move this process into $group and $v1_group. False if that fails.
enter_group() {
    [ -z "$v1_group" ] || printf 0 2>/dev/null >"$v1_group/cgroup.procs"
    [ -z "$group" ] || printf 0 2>/dev/null >"$group/cgroup.procs"
}

# is_populated -> $populated: 1 if processes live in $group, 0 if not, empty if unknown. The kernel's answer
# is atomic, while processes that fork and end one after another could escape any number of scans.
is_populated() {
    populated=
    [ -n "$group" ] && [ -r "$group/cgroup.events" ] || return
    while read -r word rest; do
        [ "$word" != populated ] || populated=$rest
    done 2>/dev/null <"$group/cgroup.events"
    [ "$populated" = 1 ]
}

kill_group() { [ ! -e "$group/cgroup.kill" ] || printf 1 2>/dev/null >"$group/cgroup.kill"; }

remove_groups() {
    remove_group "$group"
    find_v1_group "$1" "$2"
    [ -z "$v1_group" ] || remove_group "$v1_group"
}

# remove_group GROUP: remove a group without processes, and the groups in it.
remove_group() {
    [ -d "$1" ] || return 0
    for below in "$1"/*/; do remove_group "${below%/}"; done
    rmdir "$1" 2>/dev/null
}
