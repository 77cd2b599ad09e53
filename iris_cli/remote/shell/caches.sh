# The call `caches`: unused workspaces and set-ups in w/ and s/, and parts left by dead calls. In the
# answer: S <w|s>/<hash> <KiB>.

# unused MINUTES KEPT -> $unused: leftovers, and directories unused for MINUTES, except the hashes KEPT. The
# working directory is <root>.
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

# remove_unused: in the background, as the call must not wait for large trees. Rename everything BEFORE
# removing anything: other calls find a whole directory or nothing.
remove_unused() {
    gone=
    for each in $unused; do
        case $each in
        *.gone.* | *.part.*) gone="$gone $each" ;;
        *) ! mv "$each" "$each.gone.$nonce" 2>/dev/null || gone="$gone $each.gone.$nonce" ;;
        esac
    done
    (
        trap '' HUP
        for each in $gone; do remove_tree "$each"; done
    ) </dev/null >/dev/null 2>&1 &
    now
    until_when=$((now + 200))
    while start_of $! && [ "$now" -lt "$until_when" ]; do
        nap
        now
    done
}

# caches MINUTES KEPT REMOVE
caches() {
    [ -z "$missing" ] && cd "$root" || return 0
    unused "$1" "$2"
    if [ "$3" = 1 ]; then
        remove_unused
        unused "$1" "$2"
    fi
}

# tell_unused: print the S lines.
tell_unused() {
    [ -n "$unused" ] || return 0
    # shellcheck disable=SC2086
    by_line unused_line "$(LC_ALL=C du -skx $unused 2>/dev/null)"
}

# unused_line KIB PATH: print a line of `du` as an S line.
unused_line() {
    is_number "$1" && line "S ${2%%.*} $1"
}
