# The call `pull`: read output files of attempts (list_files, send_batch or send_piece). It changes nothing.
# The working directory is <root>/a. Answer:
#   O <token> here|partial|link|gone  T: a line `<size> <mtime> <inode> <name>` for each file
#   N                                 T: names that contain newlines, a NUL after each
#   B <names>                         T: the bytes of many files, concatenated
#   S same|changed                    T: if no file has changed, a line `<size> <mtime> <inode>` for each
#   F <offset> <size> <mtime> <inode> T: bytes of one file from the offset on; all 0 if there is no such file
# Names are relative to a/<token>/. An argument NAME has a dot appended, because a command substitution would
# remove newlines at the end. Links are never followed.

if stat -c %s . >/dev/null 2>&1; then
    stat_option=-c stat_format='%s %Y %i'
    stat_name=' %n'
else
    stat_option=-f stat_format='%z %m %i'
    stat_name=' %N'
fi

# print_data: write stdin as T lines to fd 3, and print the number of these lines. A loop of the shell is too
# slow.
print_data() { encode | LC_ALL=C awk '{ print "T " $0 | "cat >&3" } END { close("cat >&3"); print NR }'; }

# add_lines COUNT: add the number of lines that `print_data` has written to the frame's $count.
add_lines() { is_number "$1" && count=$((count + $1)); }

# run_for_40_s COMMAND: run COMMAND for at most 40 s if the host has `timeout`, because opening a pipe that
# replaced a file blocks. File descriptor 3 is closed for COMMAND: busybox's `timeout` leaves a process for a
# second, which would keep the answer open.
run_for_40_s() {
    if timeout 1 true >/dev/null 2>&1 3>&-; then
        set -- timeout 40 "$@"
    fi
    "$@" 3>&-
}

# enter_attempt TOKEN: change to the attempt's directory. False if its files are gone.
enter_attempt() { [ -z "$root_missing" ] && [ ! -L "$1" ] && [ -d "$1/output" ] && cd "$1" 2>/dev/null; }

# list_files LIMIT TOKENS: list the files of the attempts. Each list has at most LIMIT bytes.
list_files() {
    exec 3>&1
    max_bytes=$1
    shift
    for token; do
        if enter_attempt "$token"; then
            print_files "$token"
            cd ..
        else
            line "O $token gone"
        fi
    done
}

print_files() {
    outcome=here
    find output -xdev -type d >/dev/null 2>&1 || outcome=partial
    [ ! -L output ] || outcome=link
    line "O $1 $outcome"
    add_lines "$(LC_ALL=C find out err output -xdev -type f ! -path "*$newline*" \
        -exec stat "$stat_option" "$stat_format$stat_name" {} + 2>/dev/null |
        head -c "$max_bytes" | print_data)"
    line N
    add_lines "$(LC_ALL=C find output -xdev -type f -path "*$newline*" -print0 2>/dev/null |
        head -c "$max_bytes" | print_data)"
}

# is_inside PATH: true for a readable regular file if no part of the path is a link.
is_inside() {
    is_plain "$1" || return 1
    parent=$1
    while :; do
        case $parent in */*) parent=${parent%/*} ;; *) return 0 ;; esac
        [ ! -L "$parent" ] || return 1
    done
}

# send_batch TOKEN LIMIT NAMES: send many small files at once, at most LIMIT bytes. If one of the files
# changes, it is unknown where each file begins, and the answer is `changed`.
send_batch() {
    exec 3>&1
    outcome=changed before=
    if enter_attempt "$1"; then
        max_bytes=$2
        shift 2
        is_valid=1
        for each; do
            shift
            set -- "$@" "${each%.}"
            is_inside "${each%.}" || is_valid=
        done
        [ -z "$is_valid" ] || send_all "$@"
    fi
    line "S $outcome"
    [ "$outcome" = changed ] || text "$(printf '%s\n' "$before" | encode)"
}

# send_all NAMES -> $outcome $before: send the files. $outcome is `same` if no file has changed. $before has
# a line with size, mtime and inode for each file.
send_all() {
    before=$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)
    line "B $#"
    add_lines "$(run_for_40_s cat "$@" 2>/dev/null | head -c "$max_bytes" | print_data)"
    [ "$before" = "$(stat "$stat_option" "$stat_format" "$@" 2>/dev/null)" ] && outcome=same
}

# send_piece TOKEN BLOCK COUNT NAME: send COUNT blocks of 64 KiB of one file, from the number BLOCK on. If a
# pipe replaces the file, dd with `nonblock` reads nothing. A dd without that option blocks until the time
# limit.
send_piece() {
    exec 3>&1
    name=${4%.} no_wait=iflag=nonblock
    dd "$no_wait" if=/dev/null count=0 >/dev/null 2>&1 || no_wait=ibs=65536
    if enter_attempt "$1" && is_inside "$name"; then
        # shellcheck disable=SC2046
        set -- "$@" $(stat "$stat_option" "$stat_format" "$name" 2>/dev/null)
        line "F $(($2 * 65536)) ${5:-0} ${6:-0} ${7:-0}"
        add_lines "$(run_for_40_s dd "$no_wait" if="$name" bs=65536 skip="$2" count="$3" 2>/dev/null |
            print_data)"
    else
        line "F 0 0 0 0"
    fi
}
