# The call `exec`: run an operator's command next to the tasks; and the call that ends it.
#
# e/<token>/   by (the process that runs it), out (the beginning of its output), code (its exit code),
#              cancel (a request to end it)
# The command has a marker like an attempt, with a token of its own: so its leftover processes are found, and
# are not a task's. The worker ends and cleans up, so that a caller that disconnects leaves nothing.

# run_command TOKEN TIMEOUT LIMIT DIRECTORY: TIMEOUT in hundredths of a second; keep the first LIMIT bytes of
# output. The call defines task_env and task_cmd.
run_command() {
    place=$root/e/$1 where=$4
    if [ -n "$missing" ] || [ ! -d "$where" ]; then
        begin_frame
        line "X gone 0"
        return
    fi
    # Continue to the clean-up even if the caller has disconnected.
    trap : HUP INT TERM PIPE
    mkdir "$root/e" 2>/dev/null
    clear_dead
    # If the directory exists, the command was cancelled before it came.
    if mkdir "$place" 2>/dev/null && cd "$place"; then
        start_of $$ && printf '%s %s %s\n' $$ "$start" "$boot" >by
        keep_going "$1" "$2" "$3"
    fi
    code=
    [ -e code ] && read -r code <code
    is_code "$code" || code=none
    begin_frame
    line "X $code $timed"
    [ ! -s out ] || text "$(encode <out)"
    cd "$root" && clear_command "$1"
}

# clear_dead: remove directories of killed calls. Without `by`, the call may be starting, or was cancelled
# before it came: keep those for an hour.
clear_dead() {
    for each in "$root"/e/*; do
        [ -d "$each" ] || continue
        if read_pid "$each/by"; then
            [ "$pid_boot" != "$boot" ] || ! is_alive "$pid" "$pid_start" || continue
        else
            [ -n "$(find "$each" -prune -mmin +60 2>/dev/null)" ] || continue
        fi
        (cd "$root" && clear_command "${each##*/}")
    done
}

# keep_going TOKEN TIMEOUT LIMIT -> $timed: run it to its end, a cancel or the timeout; end its processes.
keep_going() {
    (
        {
            (umask "$mask"; cd "$where" && task_env "$dir" && task_cmd) </dev/null 2>&1
            printf '%s\n' "$?" >code.new
            mv code.new code
        } | {
            head -c "$3" >out
            cat >/dev/null
        }
    ) </dev/null >/dev/null 2>&1 &
    reader=$!
    now
    until_when=$((now + $2)) soon=$((now + 100))
    until [ -e code ] || [ -e cancel ]; do
        [ "$now" -lt "$until_when" ] || { timed=1 && break; }
        if [ "$now" -lt "$soon" ]; then nap 0.02; else nap 0.2; fi
        now
    done
    end_command "$1"
    # Do not wait longer for processes that survive SIGKILL.
    now
    until_when=$((now + 200))
    while is_running "$reader" && [ "$now" -lt "$until_when" ]; do
        nap 0.02
        now
    done
}

is_running() { start_of "$1"; }

# end_command TOKEN: send TERM, and KILL two seconds later, to all processes with its marker.
end_command() {
    (
        self_pid
        now
        kill_at=$((now + 200))
        end_all "$1" keep "$self"
    )
}

when_to_kill() { :; }

# stop_command TOKEN: end the command, or prevent its start if it comes later.
stop_command() {
    [ -z "$missing" ] || return
    mkdir "$root/e" 2>/dev/null
    mkdir "$root/e/$1" 2>/dev/null && return
    cd "$root/e/$1" 2>/dev/null || return
    printf '' >cancel
    end_command "$1"
}

# clear_command TOKEN: remove its files.
clear_command() {
    rm -f "e/$1/by" "e/$1/out" "e/$1/code" "e/$1/code.new" "e/$1/cancel"
    rmdir "e/$1" 2>/dev/null
}
