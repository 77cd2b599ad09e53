# begin TOKEN FILE ARGUMENT: execute `sh FILE ARGUMENT` in a new session, with TOKEN as marker. If possible,
# `setsid -f` starts the process: a process that the shell starts in the background ignores SIGINT and
# SIGQUIT, and so would the task. busybox's setsid has no option -f.
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

# find_setsid -> $setsid: `exec` if setsid is part of this shell's program (busybox), otherwise `fork`.
find_setsid() {
    setsid=fork
    IFS=:
    for directory in $PATH; do [ ! -x "$directory/setsid" ] || break; done
    unset IFS
    # shellcheck disable=SC3013
    [ ! "$directory/setsid" -ef "$iris_proc/self/exe" ] 2>/dev/null || setsid=exec
}
