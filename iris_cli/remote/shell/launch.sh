# The calls `prepare` and `go`. The working directory is <root>/a. Races: docs/worker-protocol.md.
#
# A caller may die between any two steps, and several callers may prepare the same attempt at once, with equal
# arguments. A call that finds a step done continues with the next:
#   1. mkdir <token>             excludes the tombstone. Decides no winner, which could be dead.
#   2. write <file>.<nonce>      under names that no other call uses.
#   3. make `run`                decides the winner. It names the nonce of the other files, so `env` can't
#                                reappear after the wrapper has emptied it.
#   4. the set-up (see run.sh), or mv ready.pending ready: PREPARED.

# session_mask -> $mask: the umask of the session. Needs no process if /proc shows it.
session_mask() {
    mask=
    while [ -z "$mask" ] && read -r word rest; do
        [ "$word" != Umask: ] || mask=$rest
    done 2>/dev/null <"$iris_proc/self/status"
    case $mask in '' | *[!0-7]*) mask=$(umask) ;; esac
}

# prepare TOKEN CMD ENV SETUP SETTINGS: contents of the files, and the settings for `run`.
prepare() {
    if [ ! -e "$1" ] && lacks_any; then
        no_room "$1"
        return
    fi
    if [ -e "$1" ] ||
        ! mkdir "$1" "$1/work" "$1/output" "$1/outbox" "$1/inbox" "$1/endpoints" 2>/dev/null; then
        if [ ! -d "$1" ]; then
            [ -e "$1" ] || no_room "$1"
            return
        fi
        state_of "$1"
        [ "$state" = PREPARING ] && [ -z "$set_up" ] || return
        if [ -e "$1/cancel" ]; then
            refuse "$1" cancelled # the canceller may have died before recording it
            return
        fi
    fi
    eval "$5"
    [ -s "$1/run" ] || write_attempt "$@"
    if [ ! -s "$1/run" ]; then
        refuse "$1" nostart.disk
        return
    fi
    if [ -e "$1/ready" ]; then
        :
    elif [ -n "$4" ] || ! lacking || [ -n "$lacking" ]; then
        start "$1" setup # it waits for the devices
    else
        # An older version that died between two steps may have left neither name: refuse the attempt.
        mv "$1/ready.pending" "$1/ready" 2>/dev/null || [ -e "$1/ready" ] || refuse "$1" nostart.disk
    fi
    # A concurrent stop may have looked for secrets before they were written.
    [ ! -e "$1/cancel" ] || empty_secrets "$1"
}

# no_room TOKEN -> $no_room: its directory can't be made, or $lacks commands. Report NOSTART only if a
# tombstone excludes a later start; without a tombstone it is ABSENT.
no_room() {
    tombstone "$1"
    [ ! -f "$1" ] || no_room="$no_room $1"
}

# write_attempt TOKEN ...: steps 2 and 3.
write_attempt() {
    # Existing directories are reused.
    [ -d "$1/endpoints" ] ||
        mkdir "$1/work" "$1/output" "$1/outbox" "$1/inbox" "$1/endpoints" 2>/dev/null
    [ -d "$1/work" ] || return
    for name in x launch timeout setup-timeout told; do
        make_pending "$1/$name" pending || return
    done
    make_pending "$1/stop" idle || return
    for name in begin end; do printf '' >>"$1/reserve.$name" || return; done
    [ -e "$1/facts.pending" ] || printf '%1024s' '' >"$1/facts.pending" || return
    for name in out err signal; do printf '' >>"$1/$name" || return; done
    case $4$exclusive$ports in
    0) printf '' >"$1/ready" || return ;;
    *) make_pending "$1/ready" pending || return ;;
    esac
    printf '%s' "$2" >"$1/cmd.$nonce" && printf '%s' "$3" >"$1/env.$nonce" &&
        printf '%s' "$4" >"$1/setup.$nonce" &&
        printf '%s\nmask=%s nonce=%s\n%s\nrun_main "$@"\n' \
            "$library$wrapper_text" "$mask" "$nonce" "$5" >"$1/run.$nonce" && make_run "$1" && return
    rm -f "$1/cmd.$nonce" "$1/env.$nonce" "$1/setup.$nonce" "$1/run.$nonce"
}

# make_run TOKEN: step 3. False if another call has done it, or the disk is full. An empty `run` is being
# written, or its writer died: wait briefly, then replace it; any of several writers may be the last.
make_run() {
    text="# $nonce $boot
. \"\${0%/*}/run.$nonce\"
"
    for pause in 0.02 0.1; do
        ! claim "$1/run" "$text" || return 0
        [ ! -s "$1/run" ] || return 1
        nap "$pause"
    done
    printf '%s' "$text" 2>/dev/null >"$1/new.$nonce" && mv "$1/new.$nonce" "$1/run" 2>/dev/null
}

# make_pending FILE WORD: make FILE.WORD unless it was made before; it may have been renamed since.
make_pending() {
    for name in "$1" "$1".*; do [ ! -e "$name" ] || return 0; done
    printf '' >>"$1.$2"
}

# go TOKEN: start the attempt if it is PREPARED, in this boot, and not cancelled. The wrapper excludes other
# wrappers. Record the time BEFORE the start, which may fail without a trace.
go() {
    state_of "$1"
    [ "$state" = PREPARED ] && [ ! -e "$1/cancel" ] || return
    if [ "$asked" = - ]; then
        now
        make_empty "$1/go.$now"
    fi
    start "$1" start
    started="$started $1"
}

# start TOKEN MODE: run the attempt's `run`, detached. Shells ignore SIGINT and SIGQUIT in background
# processes, which inherit that; a task should receive them. So `setsid -f` forks if it can. busybox's can't,
# which setsid_kind finds out without a process.
start() {
    [ -n "$setsid" ] || setsid_kind
    if [ "$setsid" = other ]; then
        IRIS_ATTEMPT_TOKEN=$1 setsid -f sh "$PWD/$1/run" "$2" </dev/null >/dev/null 2>&1 && return
        setsid=own # or too old for the option
    fi
    (
        IRIS_ATTEMPT_TOKEN=$1
        export IRIS_ATTEMPT_TOKEN
        detach sh "$PWD/$1/run" "$2"
    ) </dev/null >/dev/null 2>&1 &
}

# setsid_kind -> $setsid: `own` if it is an applet of this shell's program (busybox).
setsid_kind() {
    setsid=other
    IFS=:
    for directory in $PATH; do [ ! -x "$directory/setsid" ] || break; done
    unset IFS
    # shellcheck disable=SC3013
    [ ! "$directory/setsid" -ef "$iris_proc/self/exe" ] 2>/dev/null || setsid=own
}

# await_starts: wait until the wrappers of $started have begun or ended, at most two seconds.
await_starts() {
    now
    until_when=$((now + 200))
    for pause in 0.03 0.05 0.1 0.2 0.4 0.4 0.4 0.4; do
        awaited=
        for each in $started; do
            for name in "$each"/begin.[0-9]*; do
                [ -e "$name" ] || [ ! -e "$each/x.pending" ] || awaited=1
            done
        done
        [ -n "$awaited" ] && [ "$now" -lt "$until_when" ] || return 0
        nap "$pause"
        now
    done
}
