# The call `prepare` for attempts with a workspace. The working directory is <root>/a.

# prepare_with WORKSPACE TOKEN CMD ENV SETUP SETTINGS: call `prepare`. If the attempt is ABSENT and this host
# lacks the workspace, name the workspace in the answer instead.
prepare_with() {
    workspace=$1
    shift
    if [ -d "$root/w/$workspace" ]; then
        touch "$root/w/$workspace" 2>/dev/null # the time of its last use
    else
        read_state "$1"
        [ "$state" != ABSENT ] || return
    fi
    prepare "$@"
}
