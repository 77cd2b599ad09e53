# The call `caches`: what is kept in w/ and s/ for nobody, and what those have left there who died. In the
# answer: S <w|s>/<hash> <KiB>.

# unused MINUTES KEPT -> $unused: what nobody has used for so long, but for what is KEPT. The working
# directory is <root>.
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

# remove_unused: beside the call, which must not wait for large trees. BEFORE anything is removed all of it
# loses its name: whoever comes next finds all of it or nothing, however long others take to go.
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

# tell_unused
tell_unused() {
    [ -n "$unused" ] || return 0
    # shellcheck disable=SC2086
    by_line unused_line "$(LC_ALL=C du -skx $unused 2>/dev/null)"
}

# unused_line KIB PATH: a line of `du`.
unused_line() {
    is_number "$1" && line "S ${2%%.*} $1"
}
