# Facts about the end of a failed command, which `iris status` shows. The wrapper gathers them when no process
# of the task is left, so that the task can't forge them. Each command has a time limit, because it must not
# delay the record of the end. The file `facts` has lines
#   <kind> <proven|guess> <text>
# and a last line `.`. Kinds: memory (an OOM kill), killed (not by the OOM killer), crash (the kernel's line
# about a fault), disk, preempted, hardware. `proven` facts are about a process of this task. Kernel lines
# about processes of other tasks and other programs are omitted. facts.pending consists of blanks and is
# overwritten, because that needs no disk space.

# record_command_pid: write the pid of this subshell, which becomes the command, to task.pid. The kernel log
# names this pid.
record_command_pid() {
    [ ! -r "$iris_proc/self/stat" ] || { self_pid && printf '%s\n' "$self" 2>/dev/null >task.pid; }
}

# gather_facts CODE UPTIME -> $facts: facts about a command that began at UPTIME and ended with CODE.
gather_facts() {
    facts=
    [ ! -L facts ] && [ ! -f facts ] || rm -f facts
    [ ! -e facts ] || return 0 # a directory made by the task
    [ "$1" != 0 ] || return 0
    command_pid=
    [ ! -f task.pid ] || read -r command_pid 2>/dev/null <task.pid
    is_number "$command_pid" || command_pid=0
    count_kills
    facts=$({
        printf 'others\n'
        print_command_pids | tr -cd '0-9\n' # digits only: other text could look like a kernel line
        printf '\n'
        with_timeout 5 cat "$iris_proc/self/cgroup"
        printf '\nkernel\n'
        print_kernel_log
        printf '\ndisk\n'
        with_timeout 5 df -Pk /dev/shm /tmp . # if several are full, the last is reported
        ! metadata_server || [ "$(fetch preempted)" != TRUE ] || printf '\npreempted\n'
    } 2>/dev/null | derive_facts "$1" "$2")
    [ -n "$facts" ] || return 0
    if [ -L facts.pending ] || { [ -e facts.pending ] && [ ! -f facts.pending ]; }; then return; fi
    printf '%s\n.\n' "$facts" 2>/dev/null 1<>facts.pending && mv facts.pending facts 2>/dev/null
}

print_command_pids() {
    set --
    for each in ../*/task.pid; do
        [ ! -f "$each" ] || [ -L "$each" ] || [ ! -r "$each" ] || set -- "$@" "$each"
    done
    [ $# -eq 0 ] || with_timeout 5 cat "$@"
}

print_kernel_log() {
    with_timeout 5 dmesg || with_timeout 5 journalctl -k -b -n 1000 --no-pager -o short-monotonic
}

# derive_facts CODE UPTIME: print facts from the gathered text (stdin). Kernel lines contain names that
# processes choose. So a line is recognized by its beginning, and is a proof only if it has a pid of this
# task. A line with that pid that is older than the command is about another process: it proves nothing. The
# clock of the kernel log is not adjusted: allow for 0.1 % (NTP adjusts a clock by at most 0.05 % for long).
# It also stops in suspend: if the host may have been suspended, the time of a line is ignored.
derive_facts() {
    count_suspends
    LC_ALL=C awk -v code="$1" -v from="$2" -v command="$command_pid" -v own="$own_kills" -v limit="$limit" \
        -v group="${container_id:-/iris-$token/}" -v shared="$shared_kills" -v suspends="$suspends" '
        function add(kind, proof, text) {
            gsub(/[^ -~]/, "?", text)
            if (found[kind] !~ /^proven/)
                found[kind] = proof " " substr(text, 1, 240)
        }
        function number_in(pattern) {
            match(line, pattern)
            part = substr(line, RSTART, RLENGTH)
            gsub(/[^0-9]/, "", part)
            return part
        }
        function kills_in_words(count) { return count " OOM kill" (count > 1 ? "s" : "") }
        # is_foreign: true if the process belongs to another task or to no task. A container that the task
        # started has another group. After an OOM kill in the container the task mostly exits with 137.
        function is_foreign(pid) {
            if (pid == command || !(pid in others || pid in place)) return 0
            if (pid in others || place[pid] ~ /\/iris-[0-9a-f]+\//) return !(pid in ours)
            if (wrapper_group == "" || index(place[pid], wrapper_group) == 1) return 0
            return code != 137 || place[pid] ~ /\/session-[^\/]+[.]scope\//
        }
        /^(others|kernel|disk|preempted)$/ { section = $0 }
        section == "others" && /^[0-9]+$/ { others[$0] = 1 }
        section == "others" && (/^[0-9]+:([^:]*,)?memory(,[^:]*)?:/ || (/^0::/ && wrapper_group == "")) {
            wrapper_group = $0
            sub(/^[0-9]+:[^:]*:/, "", wrapper_group)
            sub(/\/*$/, "/", wrapper_group)
        }
        section == "preempted" {
            add("preempted", "proven", "the metadata server announced that the VM is preempted")
        }
        section == "disk" && $4 == "0" && $2 > 0 && NF >= 6 {
            add("disk", "guess", $6 " has no space left (" $2 " KiB in total) as the task ended")
        }
        section == "kernel" && match($0, /^\[ *[0-9]+\.[0-9]+\] /) {
            at = substr($0, 2, RLENGTH - 3) + 0
            if (!seen++) first = at
            recent = at * 100 >= from - 100
            may_be_late = suspends > 0 || at * 100 >= from * 0.999 - 100
            # Of the earlier lines, which are thousands, only those about OOM kills count.
            if (!may_be_late && !index($0, "Killed process ") && !index($0, "oom-kill:")) next
            crashed = code > 128 && code !~ /^(129|130|131|137|143)$/
            line = substr($0, RLENGTH + 1)
            sub(/^[^ ]+ kernel: /, "", line)
            if (line ~ /^oom-kill:.*,pid=[0-9]+,uid=[0-9]+$/ && match(line, /,task_memcg=[^,]*,/)) {
                where = substr(line, RSTART + 12, RLENGTH - 13) "/"
                sub(/,uid=[0-9]+$/, "", line)
                victim = number_in("[0-9]+$") # after the name, which the process chooses
                if (recent) place[victim] = where
                if (index(where, group)) ours[victim] = 1
                if (match(line, /,oom_memcg=[^,]*,/) && index(substr(line, RSTART, RLENGTH - 1) "/", group))
                    over_limit[victim] = 1 # of its own group
            }
            if (line ~ /^((Memory cgroup out|Out) of memory[^:]*: )?Killed process [0-9]+ /) {
                kills += recent
                victim = number_in("Killed process [0-9]+ ")
                if (limit > 0 && victim in over_limit) logged++
                if (victim in ours || (victim == command && (recent || (code == 137 && may_be_late))))
                    add("memory", "proven", "kernel: " line)
                else if (victim == command) is_unclear = 1
                else if (recent && !is_foreign(victim)) add("memory", "guess", "kernel: " line)
            } else if (line ~ /^(traps: )?.*[^0-9][0-9]+\]:? (segfault at |general protection|trap )/) {
                fault = "[^0-9][0-9]+[]]:? (segfault at |general protection|trap )"
                victim = number_in(fault)
                # A process chooses its name, so a second match may be in a name and proves nothing.
                is_only_match = !match(substr(line, RSTART + 1), fault)
                if (victim == command && is_only_match && code > 128 && may_be_late)
                    add("crash", "proven", "kernel: " line)
                else if (recent && crashed && !is_foreign(victim) && !names_command) {
                    add("crash", "guess", "kernel: " line)
                    names_command = index(line, "[" command "]")
                }
            } else if (!recent) {
                next
            } else if (line ~ /Hardware Error|AER: .*Uncorrect|severity=Uncorrect|critical temperature/ ||
                line ~ /emperature above threshold|I\/O error, dev |EXT4-fs error|filesystem read-only/ ||
                line ~ /^(accel|apex|gasket|google|tpu|vfio-pci)[^:]*: .*([Ee]rror|[Ff]ail|[Tt]imed out)/ ||
                line ~ /^(accel|apex|gasket|google|tpu|vfio-pci)[^:]*: .*([Tt]imeout|[Tt]hermal|[Tt]hrottl)/)
                add("hardware", "guess", "kernel: " line)
        }
        END {
            if (!own) own = logged # docker and podman may not report an OOM kill
            counts = "its control group counts " kills_in_words(own)
            if (own > 0 && limit > 0) {
                size = limit % 1048576 ? limit " bytes" : sprintf("%dMiB", limit / 1048576)
                found["memory"] = "proven " counts " at its limit of " size " (--memory)"
            } else if (own > 0)
                add("memory", "proven", counts)
            else if (shared > 0 && !("memory" in found) && (code == 137 || !seen || first * 100 > from))
                add("memory", "guess",
                    "a shared control group counted " kills_in_words(shared) " while it ran")
            kills += own + shared
            if (code == 137 && seen && first * 100 <= from && !kills && !is_unclear && !("memory" in found))
                add("killed", "proven",
                    "not out of memory: no OOM kill in the kernel log since the task began")
            for (kind in found) print kind " " found[kind]
        }'
}

# count_suspends -> $suspends: how often this host was suspended since its boot. At least 1 if it can be
# suspended but does not count it (before Linux 5.4).
count_suspends() {
    suspends=0 states=
    if [ -r "$iris_sys/power/suspend_stats/success" ]; then
        read -r suspends <"$iris_sys/power/suspend_stats/success"
    elif [ -r "$iris_sys/power/state" ]; then
        read -r states <"$iris_sys/power/state"
        [ -z "$states" ] || suspends=1
    fi
}

# oom_kills GROUP FILE -> $oom_kills: the number of OOM kills in the group; empty if unknown.
oom_kills() {
    oom_kills=
    [ -r "$1/$2" ] || return
    while read -r word count; do
        [ "$word" = oom_kill ] && is_number "$count" && oom_kills=$count
    done <"$1/$2"
}

# find_counter -> $counting_group $counter $is_own: the control group that counts OOM kills of this attempt,
# and the file with the number; $is_own is 1 if the group has no other processes. The group is the attempt's,
# the nearest group above that with a counter (version 2), or the group of version 1's memory controller.
find_counter() {
    counter=memory.events is_own=
    if [ -n "$v1_group" ]; then
        counting_group=$v1_group counter=memory.oom_control is_own=1
        return
    fi
    counting_group=$group
    [ -n "$counting_group" ] || { our_group && counting_group=$our_group; }
    [ -z "$group" ] || [ ! -r "$group/$counter" ] || is_own=1
    while [ -n "$counting_group" ] && [ ! -r "$counting_group/$counter" ]; do
        case $counting_group in
        "$iris_sys/fs/cgroup"*/*) counting_group=${counting_group%/*} ;;
        *) counting_group= ;;
        esac
    done
    [ -n "$counting_group" ] || { v1_parent && counting_group=$v1_parent counter=memory.oom_control; }
    return 0
}

# v1_parent -> $v1_parent: the group of this process in version 1's memory controller. False if it is in none.
v1_parent() {
    v1_parent=
    [ -r "$iris_proc/self/cgroup" ] || return
    while IFS=: read -r _ controllers path; do
        case ,$controllers, in *,memory,*) v1_parent=$iris_sys/fs/cgroup/memory${path%/} ;; esac
    done <"$iris_proc/self/cgroup"
    [ -n "$v1_parent" ]
}

# count_kills_before -> $kills_before: read the number of OOM kills BEFORE the command starts.
count_kills_before() {
    find_counter
    oom_kills "$counting_group" "$counter"
    kills_before=$oom_kills
}

# count_kills -> $own_kills $shared_kills: OOM kills since `count_kills_before`.
count_kills() {
    own_kills=0 shared_kills=0
    oom_kills "$counting_group" "$counter"
    [ -n "$oom_kills" ] && [ "$oom_kills" -gt "${kills_before:-0}" ] || return 0
    if [ -n "$is_own" ]; then
        own_kills=$((oom_kills - ${kills_before:-0}))
    else
        shared_kills=$((oom_kills - ${kills_before:-0}))
    fi
}
