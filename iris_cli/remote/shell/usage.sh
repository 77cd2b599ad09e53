# The call `usage`: how much room the files of attempts take. Changes nothing. The working directory is
# <root>/a. In the answer: U <token> <KiB>, for each that has any files but those that stay.

# tell_usage TOKENS: all in one process.
tell_usage() {
    [ -z "$missing" ] || return 0
    for each; do
        shift
        is_reaped "$each" || set -- "$@" "./$each"
    done
    [ $# -gt 0 ] || return 0
    by_line usage_line "$(LC_ALL=C du -skx "$@" 2>/dev/null)"
}

# usage_line KIB PATH: a line of `du`.
usage_line() {
    case $2 in ./*[!0-9a-f]* | '') return ;; esac
    is_number "$1" && line "U ${2#./} $1"
}
