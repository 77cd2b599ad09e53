# The call `caches`: report or remove unused workspaces in w/ and set-ups in s/. Answer: S <w|s>/<hash> <KiB>

# unused MINUTES KEPT -> $unused: directories unused for MINUTES, except the hashes KEPT, and directories left
# by dead calls. The working directory is <root>.
unused() {
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

# remove_unused: remove $unused in the background. Rename all directories BEFORE a file is removed, so that
# other calls find a whole directory or none.
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

# caches MINUTES KEPT REMOVE -> $unused: see `unused`. If REMOVE is 1, remove these directories first.
caches() {
    [ -z "$root_missing" ] && cd "$root" || return 0
    unused "$1" "$2"
    if [ "$3" = 1 ]; then
        remove_unused
        unused "$1" "$2"
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
