# begin TOKEN FILE ARGUMENT: execute `sh FILE ARGUMENT` in a new session, with TOKEN as marker. Prefer
# `setsid -f`, because a background process of a shell ignores SIGINT and SIGQUIT, and so would the task.
begin() {
    [ -n "$setsid" ] || find_setsid
    if [ "$setsid" = fork ]; then
        IRIS_ATTEMPT_TOKEN=$1 setsid -f sh "$2" "$3" </dev/null >/dev/null 2>&1 && return
        setsid=exec # this setsid is too old for -f
    fi
    (
        IRIS_ATTEMPT_TOKEN=$1
        export IRIS_ATTEMPT_TOKEN
        detach sh "$2" "$3"
    ) </dev/null >/dev/null 2>&1 &
}

# find_setsid -> $setsid: `exec` if this shell and setsid are busybox (no `setsid -f`), otherwise `fork`.
find_setsid() {
    setsid=fork
    IFS=:
    for directory in $PATH; do [ ! -x "$directory/setsid" ] || break; done
    unset IFS
    # shellcheck disable=SC3013
    [ ! "$directory/setsid" -ef "$iris_proc/self/exe" ] 2>/dev/null || setsid=exec
}
