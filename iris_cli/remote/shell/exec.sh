# The call `exec`: run a command of the operator, or end it.
#
# e/<token>/   caller (the pid, start and boot of this call), out (the beginning of the output), code (the
#              exit code), cancel (a request to end the command). No file may have the name `pid`, because
#              find_wrappers would take this call, and so its children, for processes of the command.
# The command has a token and a marker like an attempt, so that all its processes are found. The call `exec`
# ends the processes and removes the files, even if the caller has disconnected.

# run_command TOKEN TIMEOUT LIMIT DIRECTORY: run the command in DIRECTORY for at most TIMEOUT (hundredths of a
# second) and print the first LIMIT bytes of its output. The script of the call defines task_env and task_cmd.
run_command() {
    command_dir=$root/e/$1 work_dir=$4
    if [ -n "$root_missing" ] || [ ! -d "$work_dir" ]; then
        begin_frame
        line "X gone 0"
        return
    fi
    # If the caller disconnects, continue until the files are removed.
    trap : HUP INT TERM PIPE
    mkdir "$root/e" 2>/dev/null
    remove_dead_commands
    # If the directory exists, a call of stop_command came first.
    if mkdir "$command_dir" 2>/dev/null && cd "$command_dir"; then
        read_start $$ && printf '%s %s %s\n' $$ "$start" "$boot" >caller
        run_to_end "$1" "$2" "$3"
    fi
    code=
    [ -e code ] && read -r code <code
    is_code "$code" || code=none
    begin_frame
    line "X $code $timed_out"
    [ ! -s out ] || text "$(encode <out)"
    cd "$root" && remove_command "$1"
}

# remove_dead_commands: remove the files of killed calls. Keep a directory without `caller` for an hour,
# because its call may be about to write `caller`, or stop_command has made the directory.
remove_dead_commands() {
    for each in "$root"/e/*; do
        [ -d "$each" ] || continue
        if read_pid "$each/caller"; then
            [ "$pid_boot" != "$boot" ] || ! is_alive "$pid" "$pid_start" || continue
        else
            [ -n "$(find "$each" -prune -mmin +60 2>/dev/null)" ] || continue
        fi
        (cd "$root" && remove_command "${each##*/}")
    done
}

# run_to_end TOKEN TIMEOUT LIMIT -> $timed_out: run the command until it ends, is cancelled or times out. Then
# end its processes.
run_to_end() {
    (
        {
            (umask "$mask"; cd "$work_dir" && task_env "$dir" && task_cmd) </dev/null 2>&1
            printf '%s\n' "$?" >code.new
            mv code.new code
        } | {
            head -c "$3" >out
            cat >/dev/null
        }
    ) </dev/null >/dev/null 2>&1 &
    reader=$!
    now
    deadline=$((now + $2)) short_naps_until=$((now + 100))
    until [ -e code ] || [ -e cancel ]; do
        [ "$now" -lt "$deadline" ] || { timed_out=1 && break; }
        if [ "$now" -lt "$short_naps_until" ]; then nap 0.02; else nap 0.2; fi
        now
    done
    end_command "$1"
    # Wait at most two seconds, because a process that survives SIGKILL may keep the pipe open.
    wait_while 200 read_start "$reader"
}

# end_command TOKEN: send TERM to all processes of the command, and KILL two seconds later.
end_command() {
    (
        self_pid
        now
        kill_at=$((now + 200))
        end_processes "$1" keep "$self"
    )
}

update_kill_at() { :; } # called by end_processes: $kill_at stays the same

# stop_command TOKEN: end the command. If it has not started, make its directory, so that it can't start
# later.
stop_command() {
    [ -z "$root_missing" ] || return
    mkdir "$root/e" 2>/dev/null
    mkdir "$root/e/$1" 2>/dev/null && return
    cd "$root/e/$1" 2>/dev/null || return
    printf '' >cancel
    end_command "$1"
}

remove_command() {
    rm -f "e/$1/caller" "e/$1/out" "e/$1/code" "e/$1/code.new" "e/$1/cancel"
    rmdir "e/$1" 2>/dev/null
}
