# The call `prepare` for attempts with a workspace. The working directory is <root>/a.

# prepare_with WORKSPACE TOKEN CMD ENV SETUP SETTINGS: call `prepare`, unless the attempt is ABSENT and this
# host lacks the workspace. Then the answer names the workspace (print_missing_workspaces).
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
