# The call `caches`: report or remove unused workspaces in w/ and set-ups in s/. Answer: S <w|s>/<hash> <KiB>

# find_unused MINUTES KEPT -> $unused: workspaces and set-ups unused for MINUTES, except those with a hash in
# KEPT; and directories that killed calls left. The working directory is <root>.
find_unused() {
    unused=
    for each in w/* s/*; do
        [ -d "$each" ] && [ ! -L "$each" ] || continue
        case ${each#?/} in
        *.gone.*) ;;
        *.part.*) ! is_part_alive "$each" || continue ;;
        *[!0-9a-f]*) continue ;;
        *)
            case " $2 " in *" ${each#?/} "*) continue ;; esac
            [ -n "$(find "$each" -prune -mmin "+$1" 2>/dev/null)" ] || continue
            ;;
        esac
        unused="$unused $each"
    done
}

# remove_unused: remove the directories $unused in the background. Rename each directory BEFORE a file in it
# is removed, so that other calls find a complete directory or none.
remove_unused() {
    removed=
    for each in $unused; do
        case $each in
        *.gone.* | *.part.*) removed="$removed $each" ;;
        *) ! mv "$each" "$each.gone.$nonce" 2>/dev/null || removed="$removed $each.gone.$nonce" ;;
        esac
    done
    # shellcheck disable=SC2086
    run_in_background remove_trees $removed
}

# caches MINUTES KEPT REMOVE -> $unused: see `find_unused`. If REMOVE is 1, remove the unused directories
# first; then $unused contains those that are left.
caches() {
    [ -z "$root_missing" ] && cd "$root" || return 0
    find_unused "$1" "$2"
    if [ "$3" = 1 ]; then
        remove_unused
        find_unused "$1" "$2"
    fi
}

print_unused() {
    [ -n "$unused" ] || return 0
    # shellcheck disable=SC2086
    by_line unused_line "$(LC_ALL=C du -skx $unused 2>/dev/null)"
}

# unused_line KIB PATH: print an S line for a line of `du`.
unused_line() {
    is_number "$1" && line "S ${2%%.*} $1"
}
