# The call `reap`: remove files of ended attempts. The directory <token> stays, with the record of the end, so
# that no late call can start the attempt. The working directory is <root>/a.

# reap TOKEN: remove files of an attempt without processes. The call can be interrupted at any step, and
# repeated.
reap() {
    ! is_reaped "$1" || return 0
    read_state "$1"
    case $state in EXITED | NOSTART | CANCELLED | STOPPED | LOST) ;; *) return ;; esac
    ! has_mounts "$1" && is_gone "$1" && cancel "$1" || return
    # Make stop.done BEFORE files are removed, because without the files the state LOST could no longer be
    # derived.
    if [ -z "$record" ] && [ ! -e "$1/stop.done" ]; then
        mv "$1/stop.idle" "$1/stop.done" 2>/dev/null || make_empty "$1/stop.done" || return
    fi
    remove_groups "$1" "$1"
    (remove_files "$1")
}

# is_reaped TOKEN: true if the attempt has no directory, or its directory contains only the record of the end.
is_reaped() {
    [ -d "$1" ] && [ ! -L "$1" ] || return 0
    for name in "$1"/* "$1"/.[!.]* "$1"/..?*; do
        is_end_record "${name##*/}" || { [ ! -e "$name" ] && [ ! -L "$name" ]; } || return 1
    done
}

is_end_record() { case $1 in x.pending) return 1 ;; x.* | cancel | stop.done) ;; *) return 1 ;; esac }

# has_mounts TOKEN: true if a file system is mounted below the attempt's directory.
has_mounts() {
    if [ -r "$iris_mounts" ]; then grep -qsE "/$1[/ ]" "$iris_mounts"; else mount | grep -qsE "/$1[/ ]"; fi
}

# remove_files TOKEN: call it in a subshell. `cd -P` and `find` follow no links.
remove_files() {
    cd -P . && parent=$PWD && cd -P "./$1" && [ "$PWD" = "$parent/$1" ] || return
    set --
    for name in * .[!.]* ..?*; do is_end_record "$name" || set -- "$@" "./$name"; done
    [ $# -gt 0 ] || return
    find "$@" -xdev -type d ! -perm -700 -exec chmod u+rwx {} \;
    find "$@" -xdev ! -type d -exec rm -f {} +
    find "$@" -xdev -depth -type d -exec rmdir {} +
}

# reap_all TOKENS: reap the attempts in the background, because the removal of large trees takes long.
reap_all() { [ -n "$root_missing" ] || run_in_background reap_each "$@"; }

reap_each() { for each; do reap "$each"; done; }

# print_reaped TOKENS: print K <token> for each reaped attempt.
print_reaped() {
    for each; do
        if [ -n "$root_missing" ] || is_reaped "$each"; then line "K $each"; fi
    done
}
