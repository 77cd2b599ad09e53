# The calls `prepare` and `go`. The working directory is <root>/a.
#
# How an attempt is prepared, so that its caller may die between any two steps, and any number of callers may
# do it at the same time (all of them send the same, for the token names the attempt):
#   1. mkdir <token>             excludes the tombstone. It doesn't say who goes on: the winner may be dead.
#   2. mkdir <token>/n.<nonce>   everything is written there, where no other call writes.
#   3. ln n.<nonce>/run run      THE step: one winner, ever, and `run` is complete. Nothing counted before.
#   4. mv n.<nonce>/* .          of the winner, whose nonce is in `run`. Anybody may do it, each file moves
#                                once: so `env` can't come back after the wrapper has removed it.
#   5. the set-up, or            Its runner takes `setup.pid` (see run.sh). It waits for devices, too.
#      mv ready.pending ready    once: PREPARED. Nothing else says so.
# A call that finds a step done goes on with the next one.

# prepare TOKEN CMD ENV SETUP SETTINGS: texts of the files, and of the settings in `run`.
prepare() {
    if [ ! -e "$1" ] && lacks_any; then
        no_room "$1"
        return
    fi
    if ! make_directory "$1"; then
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
    if [ ! -e "$1/run" ]; then
        (write_attempt "$@")
        if [ ! -e "$1/run" ]; then
            refuse "$1" nostart.disk
            return
        fi
    fi
    move_in "$1"
    if [ ! -e "$1/cmd" ] || [ ! -e "$1/setup" ]; then
        refuse "$1" nostart.disk # even a rename may need room
        return
    fi
    eval "$5"
    if [ -s "$1/setup" ] || ! lacking || [ -n "$lacking" ]; then
        start "$1" setup # what is lacking may be let go: that is waited for there
    else
        mv "$1/ready.pending" "$1/ready" 2>/dev/null
    fi
    # A stop that came meanwhile has looked for secrets already.
    [ ! -e "$1/cancel" ] || rm -f "$1/env" "$1"/n.*/env
}

# make_directory TOKEN: the first one by way of `env`, which tells whether it knows the option that `start`
# likes to use. Where it doesn't, or the directory is there, the second command says so.
make_directory() {
    if [ -z "$defaults" ] && env --default-signal=INT,QUIT mkdir "$1" 2>/dev/null; then
        defaults='env --default-signal=INT,QUIT'
    else
        mkdir "$1" 2>/dev/null
    fi
}

# no_room TOKEN -> $no_room: not even its directory can be made, or $lacks commands. Say NOSTART only if a
# tombstone keeps it from starting later, when that is mended; without one it just isn't there yet.
no_room() {
    tombstone "$1"
    [ ! -f "$1" ] || no_room="$no_room $1"
}

# write_attempt TOKEN ...: steps 2 and 3. In a subshell.
write_attempt() {
    cd "$1" || exit 1
    new=n.$nonce
    # Those that are there already are as good as new ones.
    mkdir "$new" work output outbox inbox endpoints 2>/dev/null
    [ -d "$new" ] && [ -d work ] || exit 1
    for name in x launch begin end timeout setup-timeout ready told; do
        make_pending "$name" "$name.pending" || exit 1
    done
    make_pending stop stop.idle || exit 1
    printf '' >>out && printf '' >>err && printf '' >>signal || exit 1
    written=
    printf '%s' "$2" >"$new/cmd" && printf '%s' "$3" >"$new/env" && printf '%s' "$4" >"$new/setup" &&
        printf '# %s %s\n%s\nmask=%s\n%s\nrun_main "$@"\n' \
            "$nonce" "$boot" "$library" "$mask" "$5" >"$new/run" && written=1
    [ -n "$written" ] && ln "$new/run" run 2>/dev/null && return
    rm -f "$new/cmd" "$new/env" "$new/setup" "$new/run"
    rmdir "$new"
}

# make_pending KIND FILE: unless it has been made, and maybe renamed, before.
make_pending() {
    for name in "$1" "$1".*; do [ ! -e "$name" ] || return 0; done
    printf '' >>"$2"
}

# move_in TOKEN: step 4.
move_in() {
    read -r _ new _ <"$1/run" || return
    new=$1/n.$new
    [ -d "$new" ] || return
    mv "$new/cmd" "$new/env" "$new/setup" "$1" 2>/dev/null
    rm -f "$new/run"
    rmdir "$new" 2>/dev/null
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
# what is ignored stays ignored; a task should get them as usual where that can be had.
start() {
    if [ -z "$defaults" ]; then
        defaults=env
        env --default-signal=INT,QUIT true 2>/dev/null && defaults='env --default-signal=INT,QUIT'
    fi
    (
        IRIS_ATTEMPT_TOKEN=$1
        export IRIS_ATTEMPT_TOKEN
        # shellcheck disable=SC2086
        detach $defaults sh "$PWD/$1/run" "$2"
    ) </dev/null >/dev/null 2>&1 &
}

# await_starts: until the wrappers of $started have begun or ended, at most two seconds.
await_starts() {
    now
    until_when=$((now + 200))
    for each in $started; do
        while [ -e "$each/begin.pending" ] && [ -e "$each/x.pending" ] && [ "$now" -lt "$until_when" ]; do
            nap 0.02
            now
        done
    done
}
