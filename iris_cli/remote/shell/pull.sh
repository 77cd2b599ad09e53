# The calls `files`, `batch` and `piece`: what attempts have written, for `iris pull`. They change nothing.
# The working directory is <root>/a. In the answer:
#   O <token> here|partial|link|gone  T: a line `<size> <mtime> <inode> <name>` for each file
#   N                                 T: names with line breaks in them, a NUL behind each
#   B <names>                         T: the bytes of many files, one after the other
#   S same|changed                    T: a line `<size> <mtime> <inode>` for each, if before as after
#   F <offset> <size> <mtime> <inode> T: bytes of one file from there on; all 0 if there is none
# Names begin at a/<token>/, and come with a point behind them, for a command substitution would cut off their
# line breaks. Links are never followed.

if stat -c %s . >/dev/null 2>&1; then
    stat_option=-c stat_format='%s %Y %i'
    stat_name=' %n'
else
    stat_option=-f stat_format='%z %m %i'
    stat_name=' %N'
fi

# pour: stdin in lines of the frame, straight to fd 3; prints how many. A shell would take long for so many.
pour() { encode | LC_ALL=C awk '{ print "T " $0 | "cat >&3" } END { close("cat >&3"); print NR }'; }

# poured COUNT: what `pour` has printed counts.
poured() { is_number "$1" && count=$((count + $1)); }

# for_a_while COMMAND: ends it where it takes longer than anybody waits for the answer: whoever opens a pipe
# that has taken the place of a file waits for ever. Where there is no `timeout`, nobody ends it. busybox's
# `timeout` leaves a process behind for a second: with fd 3 it would keep the whole answer open.
for_a_while() {
    if timeout 1 true >/dev/null 2>&1 3>&-; then
        set -- timeout 40 "$@"
    fi
    "$@" 3>&-
}

# go_in TOKEN: go to its directory, if its files are there.
go_in() { [ -z "$missing" ] && [ ! -L "$1" ] && [ -d "$1/output" ] && cd "$1" 2>/dev/null; }

# files LIMIT TOKENS: at most LIMIT bytes of lines and of names for each.
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

# is_inside PATH: whether it is a file that can be read, and no link leads there.
is_inside() {
    is_plain "$1" || return 1
    way=$1
    while :; do
        case $way in */*) way=${way%/*} ;; *) return 0 ;; esac
        [ ! -L "$way" ] || return 1
    done
}

# batch TOKEN LIMIT NAMES: many small files at once. Where one changes meanwhile nobody knows which bytes are
# whose.
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

# send_all NAMES -> $how $before
send_all() {
    before=$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)
    line "B $#"
    poured "$(for_a_while cat "$@" 2>/dev/null | head -c "$longest" | pour)"
    [ "$before" = "$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)" ] && how=same
}

# piece TOKEN BLOCK COUNT NAME: so many blocks of 64 KiB of one file. A pipe may take its place in between: it
# has no bytes, where dd can be told not to wait for some.
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
