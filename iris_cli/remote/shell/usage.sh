# The call `usage`: sizes of the files of attempts. Changes nothing. The working directory is
# <root>/a. In the answer: U <token> <KiB>, for each attempt with files that `reap` would remove.

# tell_usage TOKENS: print the U lines; one `du` for all.
tell_usage() {
    [ -z "$missing" ] || return 0
    for each; do
        shift
        is_reaped "$each" || set -- "$@" "./$each"
    done
    [ $# -gt 0 ] || return 0
    by_line usage_line "$(LC_ALL=C du -skx "$@" 2>/dev/null)"
}

# usage_line KIB PATH: print a line of `du` as a U line.
usage_line() {
    case $2 in ./*[!0-9a-f]* | '') return ;; esac
    is_number "$1" && line "U ${2#./} $1"
}
