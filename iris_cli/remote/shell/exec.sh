# The call `exec`: a command of the operator, beside the tasks; and the one that ends it.
#
# e/<token>/   by (the process that sees to it), out (the beginning of what it printed), code (when it has
#              ended), cancel (when it shall end)
# The command has the marker of an attempt, under a token of its own: so whatever it leaves behind is found,
# and it is none of a task's processes. Both are done in here, so that a caller who goes away leaves nothing.

# run_command TOKEN TIMEOUT LIMIT DIRECTORY: TIMEOUT in hundredths of a second; the first LIMIT bytes of what
# it prints are kept. task_env and task_cmd come with the call.
run_command() {
    place=$root/e/$1 where=$4
    if [ -n "$missing" ] || [ ! -d "$where" ]; then
        begin_frame
        line "X gone 0"
        return
    fi
    # Nobody may be there to be told: go on all the same.
    trap : HUP INT TERM PIPE
    mkdir "$root/e" 2>/dev/null
    clear_dead
    # Whoever wanted to end it may have been here first.
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

# clear_dead: what those left who were killed. Where nobody is named he may be about to be, or it was ended
# before it came: that is kept for an hour.
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

# keep_going TOKEN TIMEOUT LIMIT -> $timed: until it has ended, or must; then end whatever it has left.
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
    # What withstands SIGKILL is waited for by nobody.
    now
    until_when=$((now + 200))
    while is_running "$reader" && [ "$now" -lt "$until_when" ]; do
        nap 0.02
        now
    done
}

is_running() { start_of "$1"; }

# end_command TOKEN: TERM, and two seconds later KILL, to whatever carries its marker.
end_command() {
    (
        self_pid
        now
        kill_at=$((now + 200))
        end_all "$1" keep "$self"
    )
}

when_to_kill() { :; }

# stop_command TOKEN: whether it is there, or comes later.
stop_command() {
    [ -z "$missing" ] || return
    mkdir "$root/e" 2>/dev/null
    mkdir "$root/e/$1" 2>/dev/null && return
    cd "$root/e/$1" 2>/dev/null || return
    printf '' >cancel
    end_command "$1"
}

# clear_command TOKEN: what is left of it in files.
clear_command() {
    rm -f "e/$1/by" "e/$1/out" "e/$1/code" "e/$1/code.new" "e/$1/cancel"
    rmdir "e/$1" 2>/dev/null
}
