# What calls about workspaces have in common.

# tell_workspaces HASHES: W <hash> for each that isn't here.
tell_workspaces() {
    for each; do [ -d "$root/w/$each" ] || line "W $each"; done
}

# is_part_alive NAME: whether the call that receives a workspace there is still at it.
is_part_alive() {
    part_owner=${1#*.part.}
    part_pid=${part_owner%%.*}
    part_owner=${part_owner#*.}
    [ "${part_owner#*.}" = "$boot" ] && is_alive "$part_pid" "${part_owner%%.*}"
}

# remove_tree PATH: a relative one. `find` follows no link.
remove_tree() {
    [ -d "$1" ] && [ ! -L "$1" ] || return 0
    find "./$1" -xdev -type d ! -perm -700 -exec chmod u+rwx {} +
    find "./$1" -xdev ! -type d -exec rm -f {} +
    find "./$1" -xdev -depth -type d -exec rmdir {} +
} 2>/dev/null
