# begin MARKER FILE ARGUMENT: execute `sh FILE ARGUMENT`, detached, with MARKER, the token of an attempt. A
# shell makes its background processes ignore SIGINT and SIGQUIT, which the task would inherit. So `setsid
# -f` starts the process, not the shell. busybox's setsid has no option -f.
begin() {
    [ -n "$setsid" ] || setsid_kind
    if [ "$setsid" = other ]; then
        IRIS_ATTEMPT_TOKEN=$1 setsid -f sh "$2" "$3" </dev/null >/dev/null 2>&1 && return
        setsid=own # or it is too old for -f
    fi
    (
        IRIS_ATTEMPT_TOKEN=$1
        export IRIS_ATTEMPT_TOKEN
        detach sh "$2" "$3"
    ) </dev/null >/dev/null 2>&1 &
}

# setsid_kind -> $setsid: `own` if setsid is part of this shell's program (busybox), else `other`.
setsid_kind() {
    setsid=other
    IFS=:
    for directory in $PATH; do [ ! -x "$directory/setsid" ] || break; done
    unset IFS
    # shellcheck disable=SC3013
    [ ! "$directory/setsid" -ef "$iris_proc/self/exe" ] 2>/dev/null || setsid=own
}
