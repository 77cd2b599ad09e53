# The call `usage`: sizes of attempts. Changes nothing. The working directory is <root>/a. Answer, for each
# attempt with files that `reap` would remove: U <token> <KiB>

# print_usage TOKENS: print the U lines. Runs `du` once for all attempts.
print_usage() {
    [ -z "$root_missing" ] || return 0
    for each; do
        shift
        is_reaped "$each" || set -- "$@" "./$each"
    done
    [ $# -gt 0 ] || return 0
    by_line usage_line "$(LC_ALL=C du -skx "$@" 2>/dev/null)"
}

# usage_line KIB PATH: print a U line for a line of `du`.
usage_line() {
    case $2 in ./*[!0-9a-f]* | '') return ;; esac
    is_number "$1" && line "U ${2#./} $1"
}
