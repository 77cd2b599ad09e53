# Functions for the calls that prepare, receive and remove workspaces.

# print_missing_workspaces HASHES: print W <hash> for each workspace that this host lacks.
print_missing_workspaces() {
    for each; do [ -d "$root/w/$each" ] || line "W $each"; done
}

# is_part_alive NAME: true if the call that receives a workspace in NAME, <hash>.part.<owner>, still runs.
is_part_alive() {
    part_owner=${1#*.part.}
    part_pid=${part_owner%%.*}
    part_owner=${part_owner#*.}
    [ "${part_owner#*.}" = "$boot" ] && is_alive "$part_pid" "${part_owner%%.*}"
}

remove_trees() { for each; do remove_tree "$each"; done; }

# remove_tree PATH: remove a directory with its contents. PATH is relative. `find` follows no links.
remove_tree() {
    [ -d "$1" ] && [ ! -L "$1" ] || return 0
    find "./$1" -xdev -type d ! -perm -700 -exec chmod u+rwx {} +
    find "./$1" -xdev ! -type d -exec rm -f {} +
    find "./$1" -xdev -depth -type d -exec rmdir {} +
} 2>/dev/null
