# The calls `prepare` and `go`. The working directory is <root>/a. Races: docs/worker-protocol.md.
#
# A call may be killed between any two steps, and several calls may prepare the same attempt at once, with
# equal arguments. A call that finds a step done continues with the next step:
#   1. mkdir <token>             After this step no call can make a tombstone.
#   2. write <file>.<nonce>      Each call has its own nonce.
#   3. make `run`                One call wins, and `run` contains the nonce of its files. So no later
#                                call can replace an `env` that the wrapper has emptied.
#   4. start the set-up (run.sh), or rename ready.pending to ready: the attempt is PREPARED.

# session_mask -> $mask: the umask of the session. Reading it from /proc needs no process.
session_mask() {
    mask=
    while [ -z "$mask" ] && read -r word rest; do
        [ "$word" != Umask: ] || mask=$rest
    done 2>/dev/null <"$iris_proc/self/status"
    case $mask in '' | *[!0-7]*) mask=$(umask) ;; esac
}

# prepare TOKEN CMD ENV SETUP SETTINGS: prepare an attempt. CMD, ENV and SETUP are the contents of `cmd`,
# `env` and `setup`, SETTINGS are the settings in `run`.
prepare() {
    if [ ! -e "$1" ] && lacks_any; then
        refuse_to_prepare "$1"
        return
    fi
    if [ -e "$1" ] ||
        ! mkdir "$1" "$1/work" "$1/output" "$1/outbox" "$1/inbox" "$1/endpoints" 2>/dev/null; then
        if [ ! -d "$1" ]; then
            [ -e "$1" ] || refuse_to_prepare "$1"
            return
        fi
        read_state "$1"
        [ "$state" = PREPARING ] && [ -z "$has_setup" ] || return
        if [ -e "$1/cancel" ]; then
            refuse "$1" cancelled # the call that made `cancel` may have been killed
            return
        fi
    fi
    eval "$5"
    [ -s "$1/run" ] || write_attempt "$@"
    if [ ! -s "$1/run" ]; then
        refuse "$1" nostart.disk
        return
    fi
    if [ ! -e "$1/ready" ]; then
        if [ -n "$4" ] || ! check_devices || [ -n "$in_use" ]; then
            start "$1" setup # also waits for the devices
        else
            mv "$1/ready.pending" "$1/ready" 2>/dev/null
        fi
    fi
    # A concurrent stop may have emptied the secrets before this call wrote them.
    [ ! -e "$1/cancel" ] || empty_secrets "$1"
}

# refuse_to_prepare TOKEN -> $not_prepared: make a tombstone, because the directory can't be made or commands
# are missing. Append the token to $not_prepared: `report` then prints NOSTART. If the tombstone can't be
# made, the state stays ABSENT, and a later call may start the attempt.
refuse_to_prepare() {
    make_tombstone "$1"
    [ ! -f "$1" ] || not_prepared="$not_prepared $1"
}

# write_attempt TOKEN ...: steps 2 and 3 for the arguments of `prepare`.
write_attempt() {
    # An earlier call may have made some of the directories.
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

# make_run TOKEN: step 3. False if another call has made `run`, or if the disk is full. If `run` is empty, the
# call that made it is about to fill it or was killed. Then wait briefly, and replace the file.
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

# make_pending FILE WORD: make the file FILE.WORD, unless FILE or any FILE.* exists: FILE.WORD may have been
# renamed.
make_pending() {
    for name in "$1" "$1".*; do [ ! -e "$name" ] || return 0; done
    printf '' >>"$1.$2"
}

# go TOKEN: start the attempt if it is PREPARED in this boot and not cancelled. Record the time BEFORE the
# start, which may fail without a trace. Several wrappers may start, but only one executes the command.
go() {
    read_state "$1"
    [ "$state" = PREPARED ] && [ ! -e "$1/cancel" ] || return
    if [ "$first_go" = - ]; then
        now
        make_empty "$1/go.$now"
    fi
    start "$1" start || return 0
    started="$started $1"
}

# start TOKEN MODE: execute the attempt's `run` with the argument MODE (run.sh) in a new session.
start() {
    if [ -n "$holder" ]; then hand_over "$1" "$PWD/$1/run" "$2"; else begin "$1" "$PWD/$1/run" "$2"; fi
}

# await_starts: wait until the attempts in $started have begun or ended, for at most two seconds.
await_starts() {
    now
    deadline=$((now + 200))
    for pause in 0.03 0.05 0.1 0.2 0.4 0.4 0.4 0.4; do
        awaited=
        for each in $started; do
            for name in "$each"/begin.[0-9]*; do
                [ -e "$name" ] || [ ! -e "$each/x.pending" ] || awaited=1
            done
        done
        [ -n "$awaited" ] && [ "$now" -lt "$deadline" ] || return 0
        nap "$pause"
        now
    done
}
