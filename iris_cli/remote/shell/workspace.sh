# The call `prepare`, of attempts with a workspace. The working directory is <root>/a.

# prepare_with WORKSPACE TOKEN CMD ENV SETUP SETTINGS: as `prepare`, if the workspace is here. Nothing is done
# for an attempt that lacks it, and has not begun; the answer names what is lacking.
prepare_with() {
    workspace=$1
    shift
    if [ -d "$root/w/$workspace" ]; then
        touch "$root/w/$workspace" 2>/dev/null # which tells when it was last used
    else
        state_of "$1"
        [ "$state" != ABSENT ] || return
    fi
    prepare "$@"
}
