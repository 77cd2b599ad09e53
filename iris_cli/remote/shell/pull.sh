# The calls `files`, `batch` and `piece`: read output files of attempts, for `iris pull`. They change nothing.
# The working directory is <root>/a. In the answer:
#   O <token> here|partial|link|gone  T: a line `<size> <mtime> <inode> <name>` for each file
#   N                                 T: names with line breaks in them, a NUL after each
#   B <names>                         T: the bytes of many files, concatenated
#   S same|changed                    T: a line `<size> <mtime> <inode>` for each, if equal before and after
#   F <offset> <size> <mtime> <inode> T: bytes of one file from the offset; all 0 if no such file
# Names are relative to a/<token>/; as arguments they end with a point, as a command substitution would remove
# final line breaks. Links are never followed.

if stat -c %s . >/dev/null 2>&1; then
    stat_option=-c stat_format='%s %Y %i'
    stat_name=' %n'
else
    stat_option=-f stat_format='%z %m %i'
    stat_name=' %N'
fi

# pour: write stdin as lines of the frame to fd 3; print their number. In awk: a shell is too slow.
pour() { encode | LC_ALL=C awk '{ print "T " $0 | "cat >&3" } END { close("cat >&3"); print NR }'; }

# poured COUNT -> $count: add the lines that `pour` has written.
poured() { is_number "$1" && count=$((count + $1)); }

# for_a_while COMMAND: run it for at most 40 s, longer than callers wait: opening a pipe that has replaced a
# file would block forever. Unlimited if the host has no `timeout`. busybox's `timeout` leaves a process
# for a second: with fd 3 it would keep the answer open.
for_a_while() {
    if timeout 1 true >/dev/null 2>&1 3>&-; then
        set -- timeout 40 "$@"
    fi
    "$@" 3>&-
}

# go_in TOKEN: change to its directory. False if its files are gone.
go_in() { [ -z "$missing" ] && [ ! -L "$1" ] && [ -d "$1/output" ] && cd "$1" 2>/dev/null; }

# files LIMIT TOKENS: list files, at most LIMIT bytes of lines and of names per attempt.
files() {
    exec 3>&1
    longest=$1
    shift
    for token; do
        if go_in "$token"; then
            tell_files "$token"
            cd ..
        else
            line "O $token gone"
        fi
    done
}

tell_files() {
    how=here
    find output -xdev -type d >/dev/null 2>&1 || how=partial
    [ ! -L output ] || how=link
    line "O $1 $how"
    poured "$(LC_ALL=C find out err output -xdev -type f ! -path '*
*' -exec stat "$stat_option" "$stat_format$stat_name" {} + 2>/dev/null | head -c "$longest" | pour)"
    line N
    poured "$(LC_ALL=C find output -xdev -type f -path '*
*' -print0 2>/dev/null | head -c "$longest" | pour)"
}

# is_inside PATH: true if it is a readable file, and no part of the path is a link.
is_inside() {
    is_plain "$1" || return 1
    way=$1
    while :; do
        case $way in */*) way=${way%/*} ;; *) return 0 ;; esac
        [ ! -L "$way" ] || return 1
    done
}

# batch TOKEN LIMIT NAMES: send many small files at once. If one changes meanwhile, the boundaries are unknown
# and the answer is `changed`.
batch() {
    exec 3>&1
    how=changed before=
    if go_in "$1"; then
        longest=$2
        shift 2
        whole=1
        for each; do
            shift
            set -- "$@" "${each%.}"
            is_inside "${each%.}" || whole=
        done
        [ -z "$whole" ] || send_all "$@"
    fi
    line "S $how"
    [ "$how" = changed ] || text "$(printf '%s\n' "$before" | encode)"
}

# send_all NAMES -> $how $before: send the bytes of the files.
send_all() {
    before=$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)
    line "B $#"
    poured "$(for_a_while cat "$@" 2>/dev/null | head -c "$longest" | pour)"
    [ "$before" = "$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)" ] && how=same
}

# piece TOKEN BLOCK COUNT NAME: send COUNT blocks of 64 KiB of one file. If a pipe replaces the file,
# `nonblock` reads no bytes; a dd without it blocks.
piece() {
    exec 3>&1
    name=${4%.} no_wait=iflag=nonblock
    dd "$no_wait" if=/dev/null count=0 >/dev/null 2>&1 || no_wait=ibs=65536
    if go_in "$1" && is_inside "$name"; then
        # shellcheck disable=SC2046
        set -- "$@" $(stat "$stat_option" "$stat_format" "$name" 2>/dev/null)
        line "F $(($2 * 65536)) ${5:-0} ${6:-0} ${7:-0}"
        poured "$(for_a_while dd "$no_wait" if="$name" bs=65536 skip="$2" count="$3" 2>/dev/null | pour)"
    else
        line "F 0 0 0 0"
    fi
}
