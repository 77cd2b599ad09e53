# The call `reap`: remove files of ended attempts. The directory <token> stays, with the records of the end:
# so no late call can start an attempt of that name. The working directory is <root>/a.

# reap TOKEN: remove files of an attempt without processes. May be interrupted and repeated at any step.
reap() {
    ! is_reaped "$1" || return 0
    state_of "$1"
    case $state in EXITED | NOSTART | CANCELLED | STOPPED | LOST) ;; *) return ;; esac
    ! holds_mounts "$1" && is_gone "$1" && cancel "$1" || return
    # BEFORE anything is removed: LOST follows from the other files.
    if [ -z "$x" ] && [ ! -e "$1/stop.done" ]; then
        mv "$1/stop.idle" "$1/stop.done" 2>/dev/null || make_empty "$1/stop.done" || return
    fi
    remove_groups "$1" "$1"
    (remove_files "$1")
}

# is_reaped TOKEN: true if only the directory with its records is left, or no directory exists.
is_reaped() {
    [ -d "$1" ] && [ ! -L "$1" ] || return 0
    for name in "$1"/* "$1"/.[!.]* "$1"/..?*; do
        is_kept "${name##*/}" || { [ ! -e "$name" ] && [ ! -L "$name" ]; } || return 1
    done
}

is_kept() { case $1 in x.pending) return 1 ;; x.* | cancel | stop.done) ;; *) return 1 ;; esac }

# holds_mounts TOKEN: true if a file system is mounted below the attempt's directory.
holds_mounts() {
    if [ -r "$iris_mounts" ]; then grep -qsE "/$1[/ ]" "$iris_mounts"; else mount | grep -qsE "/$1[/ ]"; fi
}

# remove_files TOKEN: call it in a subshell. Neither `cd -P` nor `find` follows a link.
remove_files() {
    cd -P . && here=$PWD && cd -P "./$1" && [ "$PWD" = "$here/$1" ] || return
    set --
    for name in * .[!.]* ..?*; do is_kept "$name" || set -- "$@" "./$name"; done
    [ $# -gt 0 ] || return
    find "$@" -xdev -type d ! -perm -700 -exec chmod u+rwx {} \;
    find "$@" -xdev ! -type d -exec rm -f {} +
    find "$@" -xdev -depth -type d -exec rmdir {} +
}

# reap_all TOKENS: reap in the background, also after the call, which must not wait for large trees.
reap_all() {
    [ -z "$missing" ] || return 0
    (
        trap '' HUP
        for each; do reap "$each"; done
    ) </dev/null >/dev/null 2>&1 &
    now
    until_when=$((now + 200))
    while start_of $! && [ "$now" -lt "$until_when" ]; do
        nap
        now
    done
}

# tell_reaped TOKENS: print K <token> for each reaped attempt.
tell_reaped() {
    for each; do
        if [ -n "$missing" ] || is_reaped "$each"; then line "K $each"; fi
    done
}
