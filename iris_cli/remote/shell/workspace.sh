# The call `prepare` for attempts with a workspace. The working directory is <root>/a.

# prepare_with WORKSPACE TOKEN CMD ENV SETUP SETTINGS: call `prepare`, but not for an ABSENT attempt if this
# host lacks the workspace; the answer then names it.
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
