# What calls about workspaces have in common.

# tell_workspaces HASHES: W <hash> for each that isn't here.
tell_workspaces() {
    for each; do [ -d "$root/w/$each" ] || line "W $each"; done
}

# remove_tree PATH: a relative one. `find` follows no link.
remove_tree() {
    [ -d "$1" ] && [ ! -L "$1" ] || return 0
    find "./$1" -xdev -type d ! -perm -700 -exec chmod u+rwx {} +
    find "./$1" -xdev ! -type d -exec rm -f {} +
    find "./$1" -xdev -depth -type d -exec rmdir {} +
} 2>/dev/null
