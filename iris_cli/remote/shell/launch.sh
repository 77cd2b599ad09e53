# The calls `prepare` and `go`. The working directory is <root>/a. Races: docs/worker-protocol.md.
#
# A caller may die between any two steps, and any number of callers may prepare the same attempt at once: all
# of them send the same. A call that finds a step done continues with the next:
#   1. mkdir <token>             excludes the tombstone. It names no winner, who may be dead.
#   2. write <file>.<nonce>      under names that no other call uses.
#   3. make `run`                THE step: one winner. It names the nonce of the other files, so `env` can't
#                                come back after the wrapper has emptied it.
#   4. the set-up (see run.sh), or mv ready.pending ready: PREPARED.

# session_mask -> $mask: the umask of the session. Costs no process where the kernel shows it.
session_mask() {
    mask=
    while [ -z "$mask" ] && read -r word rest; do
        [ "$word" != Umask: ] || mask=$rest
    done 2>/dev/null <"$iris_proc/self/status"
    case $mask in '' | *[!0-7]*) mask=$(umask) ;; esac
}

# prepare TOKEN CMD ENV SETUP SETTINGS: texts of the files, and of the settings in `run`.
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
            refuse "$1" cancelled # whoever cancelled it may have died before saying so
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
        start "$1" setup # what is lacking may be let go: that is waited for there
    else
        # An earlier version, which died between two steps, has left neither name: that can't be completed.
        mv "$1/ready.pending" "$1/ready" 2>/dev/null || [ -e "$1/ready" ] || refuse "$1" nostart.disk
    fi
    # A stop that came meanwhile has looked for secrets already.
    [ ! -e "$1/cancel" ] || empty_secrets "$1"
}

# no_room TOKEN -> $no_room: not even its directory can be made, or $lacks commands. Say NOSTART only if a
# tombstone keeps it from starting later, when that is mended; without one it just isn't there yet.
no_room() {
    tombstone "$1"
    [ ! -f "$1" ] || no_room="$no_room $1"
}

# write_attempt TOKEN ...: steps 2 and 3.
write_attempt() {
    # Those that are there already are as good as new ones.
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

# make_run TOKEN: step 3. False if another call has done it, or there is no room. An empty `run` is one that a
# call is just writing, or died while it did: that is replaced, and it is all the same who does that last.
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

# make_pending FILE WORD: FILE.WORD, unless it has been made, and maybe renamed, before.
make_pending() {
    for name in "$1" "$1".*; do [ ! -e "$name" ] || return 0; done
    printf '' >>"$1.$2"
}

# go TOKEN: only what is PREPARED, in this boot, and not cancelled. The wrapper itself makes sure that it is
# the only one. BEFORE that: since when it has been told, for nothing may come of it, not even a process.
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

# start TOKEN MODE: `run` of the attempt, detached. Shells ignore SIGINT and SIGQUIT in the background, and
# what is ignored stays ignored; a task should get them as usual. So `setsid` goes to the background by itself
# where it can. That of busybox can't, which is known without a process.
start() {
    [ -n "$setsid" ] || setsid_kind
    if [ "$setsid" = other ]; then
        IRIS_ATTEMPT_TOKEN=$1 setsid -f sh "$PWD/$1/run" "$2" </dev/null >/dev/null 2>&1 && return
        setsid=own # or as good as that: an old one doesn't know the option
    fi
    (
        IRIS_ATTEMPT_TOKEN=$1
        export IRIS_ATTEMPT_TOKEN
        detach sh "$PWD/$1/run" "$2"
    ) </dev/null >/dev/null 2>&1 &
}

# setsid_kind -> $setsid: `own` if it is the program of this shell.
setsid_kind() {
    setsid=other
    IFS=:
    for directory in $PATH; do [ ! -x "$directory/setsid" ] || break; done
    unset IFS
    # shellcheck disable=SC3013
    [ ! "$directory/setsid" -ef "$iris_proc/self/exe" ] 2>/dev/null || setsid=own
}

# await_starts: until the wrappers of $started have begun or ended, at most two seconds.
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
