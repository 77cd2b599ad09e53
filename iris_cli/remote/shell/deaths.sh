# Facts about the end of a failed command, for the failure card. The wrapper gathers them when no process of
# the task is left, so that the task can't forge them. In the file `facts`: lines of
#   <kind> <proven|guess> <text>
# and a last line `.`. Kinds: memory (an OOM kill), killed (no OOM kill), crash (the kernel's line about a
# fault), disk, preempted, hardware. Proven: about a process of this task.
# Lines about processes that are certainly not of this task are omitted.
# The file is full of blanks beforehand and is overwritten: that needs no disk space.

# name_process: record the command's pid, which the kernel log names. Call it in the command's subshell.
name_process() {
    [ ! -r "$iris_proc/self/stat" ] || { self_pid && printf '%s\n' "$self" 2>/dev/null >task.pid; }
}

# gather CODE UPTIME -> $facts: for a command that began at UPTIME and ended with CODE.
gather() {
    facts=
    [ ! -L facts ] && [ ! -f facts ] || rm -f facts
    [ ! -e facts ] || return 0 # a directory made by the task
    [ "$1" != 0 ] || return 0
    process=
    [ ! -f task.pid ] || read -r process 2>/dev/null <task.pid
    is_number "$process" || process=0
    count_kills
    facts=$({
        printf 'others\n'
        command_numbers | tr -cd '0-9\n' # digits only, so that no text is parsed as the kernel's
        printf '\n'
        limited cat "$iris_proc/self/cgroup"
        printf '\nkernel\n'
        kernel_log
        printf '\ndisk\n'
        limited df -Pk /dev/shm /tmp . # the last guess counts
        ! metadata_server || [ "$(fetch preempted)" != TRUE ] || printf '\npreempted\n'
    } 2>/dev/null | weigh "$1" "$2")
    [ -n "$facts" ] || return 0
    if [ -L facts.pending ] || { [ -e facts.pending ] && [ ! -f facts.pending ]; }; then return; fi
    printf '%s\n.\n' "$facts" 2>/dev/null 1<>facts.pending && mv facts.pending facts 2>/dev/null
}

# command_numbers: print the recorded pids of the commands of all attempts.
command_numbers() {
    set --
    for each in ../*/task.pid; do
        [ ! -f "$each" ] || [ -L "$each" ] || [ ! -r "$each" ] || set -- "$@" "$each"
    done
    [ $# -eq 0 ] || limited cat "$@"
}

# kernel_log: print the kernel log, if this user may read it.
kernel_log() { limited dmesg || limited journalctl -k -b -n 1000 --no-pager -o short-monotonic; }

# weigh CODE UPTIME: print facts from the gathered text. A kernel line may contain the name of any process of
# the host. So a line counts by its beginning, and as a proof only with a pid of this task. With that pid
# its time is ignored: the clock of the log is not adjusted, and stops in suspend.
weigh() {
    LC_ALL=C awk -v code="$1" -v from="$2" -v process="$process" -v group="${container_id:-/iris-$token/}" \
        -v own="$own_kills" -v shared="$shared_kills" -v limit="$limit" '
        function told(kind, proof, text) {
            gsub(/[^ -~]/, "?", text)
            if (found[kind] !~ /^proven/)
                found[kind] = proof " " substr(text, 1, 240)
        }
        function number(pattern) {
            match(line, pattern)
            part = substr(line, RSTART, RLENGTH)
            gsub(/[^0-9]/, "", part)
            return part
        }
        # elsewhere: true if the process is not of this task. A container of the task has another group;
        # the task itself then mostly exits with 137.
        function elsewhere(pid) {
            if (pid == process || !(pid in others || pid in place)) return 0
            if (pid in others || place[pid] ~ /\/iris-[0-9a-f]+\//) return !(pid in ours)
            if (home == "" || index(place[pid], home) == 1) return 0
            return code != 137 || place[pid] ~ /\/session-[^\/]+[.]scope\//
        }
        /^(others|kernel|disk|preempted)$/ { section = $0 }
        section == "others" && /^[0-9]+$/ { others[$0] = 1 }
        section == "others" && (/^[0-9]+:([^:]*,)?memory(,[^:]*)?:/ || (/^0::/ && home == "")) {
            home = $0
            sub(/^[0-9]+:[^:]*:/, "", home)
            sub(/\/*$/, "/", home)
        }
        section == "preempted" {
            told("preempted", "proven", "the metadata server announced that the VM is preempted")
        }
        section == "disk" && $4 == "0" && $2 > 0 && NF >= 6 {
            told("disk", "guess", $6 " has no space left (" $2 " KiB in total) as the task ended")
        }
        section == "kernel" && match($0, /^\[ *[0-9]+\.[0-9]+\] /) {
            at = substr($0, 2, RLENGTH - 3) + 0
            if (!seen++) first = at
            late = at * 100 >= from - 100
            crashed = code > 128 && code !~ /^(129|130|131|137|143)$/
            line = substr($0, RLENGTH + 1)
            sub(/^[^ ]+ kernel: /, "", line)
            if (line ~ /^oom-kill:.*,pid=[0-9]+,uid=[0-9]+$/ && match(line, /,task_memcg=[^,]*,/)) {
                where = substr(line, RSTART + 12, RLENGTH - 13) "/"
                sub(/,uid=[0-9]+$/, "", line)
                victim = number("[0-9]+$") # after the name, which the process chooses
                if (late) place[victim] = where
                if (index(where, group)) ours[victim] = 1
            }
            if (line ~ /^((Memory cgroup out|Out) of memory[^:]*: )?Killed process [0-9]+ /) {
                kills += late
                victim = number("Killed process [0-9]+ ")
                if (victim in ours || (victim == process && (late || code == 137)))
                    told("memory", "proven", "kernel: " line)
                else if (late && !elsewhere(victim)) told("memory", "guess", "kernel: " line)
            } else if (line ~ /^(traps: )?.*[^0-9][0-9]+\]:? (segfault at |general protection|trap )/) {
                fault = "[^0-9][0-9]+[]]:? (segfault at |general protection|trap )"
                victim = number(fault)
                # A process chooses its name: a second match may be in a name, so it proves nothing.
                once = !match(substr(line, RSTART + 1), fault)
                if (victim == process && once && code > 128) told("crash", "proven", "kernel: " line)
                else if (late && crashed && !elsewhere(victim) && !named) {
                    told("crash", "guess", "kernel: " line)
                    named = index(line, "[" process "]")
                }
            } else if (!late) {
                next
            } else if (line ~ /Hardware Error|AER: .*Uncorrect|severity=Uncorrect|critical temperature/ ||
                line ~ /emperature above threshold|I\/O error, dev |EXT4-fs error|filesystem read-only/ ||
                line ~ /^(accel|apex|gasket|google|tpu|vfio-pci)[^:]*: .*([Ee]rror|[Ff]ail|[Tt]imed out)/ ||
                line ~ /^(accel|apex|gasket|google|tpu|vfio-pci)[^:]*: .*([Tt]imeout|[Tt]hermal|[Tt]hrottl)/)
                told("hardware", "guess", "kernel: " line)
        }
        END {
            counts = "its control group counts " own " OOM kills"
            if (own > 0 && limit > 0) {
                size = limit % 1048576 ? limit " bytes" : sprintf("%dMiB", limit / 1048576)
                found["memory"] = "proven " counts " at its limit of " size " (--memory)"
            } else if (own > 0)
                told("memory", "proven", counts)
            else if (shared > 0 && !("memory" in found) && (code == 137 || !seen || first * 100 > from))
                told("memory", "guess", "a shared control group counted " shared " OOM kills while it ran")
            kills += own + shared
            if (code == 137 && seen && first * 100 <= from && !kills && !("memory" in found))
                told("killed", "proven",
                    "not out of memory: no OOM kill in the kernel log since the task began")
            for (kind in found) print kind " " found[kind]
        }'
}

# oom_kills GROUP FILE -> $oom_kills: the number of OOM kills in the group; empty if
# unknown.
oom_kills() {
    oom_kills=
    [ -r "$1/$2" ] || return
    while read -r word count; do
        [ "$word" = oom_kill ] && is_number "$count" && oom_kills=$count
    done <"$1/$2"
}

# memory_group -> $place $counter $is_own: the group and file that count OOM kills of this attempt; $is_own if
# it counts no other processes. The attempt's group, the nearest group above it with a counter (version 2),
# or the group of version 1's memory controller.
memory_group() {
    counter=memory.events is_own=
    if [ -n "$limited" ]; then
        place=$limited counter=memory.oom_control is_own=1
        return
    fi
    place=$group
    [ -n "$place" ] || { our_group && place=$our_group; }
    [ -z "$group" ] || [ ! -r "$group/$counter" ] || is_own=1
    while [ -n "$place" ] && [ ! -r "$place/$counter" ]; do
        case $place in "$iris_sys/fs/cgroup"*/*) place=${place%/*} ;; *) place= ;; esac
    done
    [ -n "$place" ] || { memory_controller && counter=memory.oom_control; }
    return 0
}

# memory_controller -> $place: our group of version 1's memory controller, empty if none.
memory_controller() {
    place=
    [ -r "$iris_proc/self/cgroup" ] || return
    while IFS=: read -r _ controllers path; do
        case ,$controllers, in *,memory,*) place=$iris_sys/fs/cgroup/memory${path%/} ;; esac
    done <"$iris_proc/self/cgroup"
    [ -n "$place" ]
}

# begin_counting -> $kills_before: count OOM kills BEFORE the command.
begin_counting() {
    memory_group
    oom_kills "$place" "$counter"
    kills_before=$oom_kills
}

# count_kills -> $own_kills $shared_kills: OOM kills since `begin_counting`.
count_kills() {
    own_kills=0 shared_kills=0
    oom_kills "$place" "$counter"
    [ -n "$oom_kills" ] && [ "$oom_kills" -gt "${kills_before:-0}" ] || return 0
    if [ -n "$is_own" ]; then
        own_kills=$((oom_kills - ${kills_before:-0}))
    else
        shared_kills=$((oom_kills - ${kills_before:-0}))
    fi
}
