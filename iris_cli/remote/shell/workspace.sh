# The call `prepare` for attempts with a workspace. The working directory is <root>/a.

# prepare_with WORKSPACE TOKEN CMD ENV SETUP SETTINGS: `prepare` if the workspace is on this host. If it is
# missing, do nothing for an ABSENT attempt; the answer names the missing workspace.
prepare_with() {
    workspace=$1
    shift
    if [ -d "$root/w/$workspace" ]; then
        touch "$root/w/$workspace" 2>/dev/null # the time of its last use
    else
        state_of "$1"
        [ "$state" != ABSENT ] || return
    fi
    prepare "$@"
}
