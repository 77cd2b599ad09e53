# Control groups (version 2). Where we may make one, what a task starts is in a group of its own: nothing
# leaves it by forking twice, in a session of its own or with an empty environment. The wrapper and its
# watchdogs stay outside.
#
# The group is <our own>/iris-<token>, and a/<token>/group says where that is. All works without it, too.

# our_group -> $our_group: the directory of the group that we are in, whether or not we may change it.
our_group() {
    our_group=
    [ -r "$iris_proc/self/cgroup" ] || return
    groups=$iris_sys/fs/cgroup
    [ ! -e "$groups/unified/cgroup.procs" ] || groups=$groups/unified # beside those of version 1
    while IFS=: read -r _ controllers path; do
        [ -n "$controllers" ] || our_group=$groups${path%/}
    done <"$iris_proc/self/cgroup"
    case $our_group in '' | */..*) return 1 ;; esac
}

# can_group: whether we may make groups below our own and enter them.
can_group() { our_group && [ -w "$our_group" ] && [ -w "$our_group/cgroup.procs" ]; }

# group_home -> $home: where the groups of attempts are made. An attempt with a memory limit may have another.
group_home() { home=$our_group; }

# make_group -> $group, of the attempt in the working directory; empty if there is none. Its name is written
# down first: whoever finds a process in it knows where to look. We know it, whatever the task makes of that.
make_group() {
    group= own_group=
    can_group && group_home && printf '%s\n' "$home/iris-$token" 2>/dev/null >group || return 0
    mkdir "$home/iris-$token" 2>/dev/null
    group_of . "$token"
    own_group=$group
}

# group_of DIRECTORY TOKEN -> $group: the attempt's, if a file there names it; otherwise $group stays. A name
# that isn't ours is none.
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

# limited_of DIRECTORY TOKEN -> $limited: the group of the memory controller of version 1 in the same way.
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

# enter_group: this process, and what it starts from now on. False if $group can't be entered.
enter_group() {
    [ -z "$limited" ] || printf 0 2>/dev/null >"$limited/cgroup.procs"
    [ -z "$group" ] || printf 0 2>/dev/null >"$group/cgroup.procs"
}

# is_populated -> $populated: 1 if processes live in $group, 0 if not, empty if unknown. The kernel answers
# for one instant: a chain of processes, each of which forks and ends, may hide from any number of looks.
is_populated() {
    populated=
    [ -n "$group" ] && [ -r "$group/cgroup.events" ] || return
    while read -r word rest; do
        [ "$word" != populated ] || populated=$rest
    done 2>/dev/null <"$group/cgroup.events"
    [ "$populated" = 1 ]
}

# kill_group: all of $group at once, where the kernel can do that.
kill_group() { [ ! -e "$group/cgroup.kill" ] || printf 1 2>/dev/null >"$group/cgroup.kill"; }

# remove_groups DIRECTORY TOKEN: $group, and the group for its memory.
remove_groups() {
    remove_group "$group"
    limited_of "$1" "$2"
    [ -z "$limited" ] || remove_group "$limited"
}

# remove_group GROUP: it is empty, and so are those in it.
remove_group() {
    [ -d "$1" ] || return 0
    for below in "$1"/*/; do remove_group "${below%/}"; done
    rmdir "$1" 2>/dev/null
}
