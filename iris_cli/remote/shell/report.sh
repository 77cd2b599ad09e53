# The answer of a call is a frame of short lines. The last line has their number.
#   H <clock, seconds> <uptime>                                      clock 0: not reported
#   A <token> <STATE> <code> <cause> <began> <ended> <bytes> <quiet> `-`: unknown or none
#   T <base64>                                                       data of the line before it
#   D <token>                                                        T: facts about the end (deaths.sh)
#   M <token>                                                        the attempt has ended and left requests
# Times are in hundredths of a second; `began` and `ended` are ages. Before the command begins, `began` is the
# age of its set-up (PREPARING), of the first call `go` (PREPARED), or of the last sign of life of its wrapper
# (LAUNCHING). `quiet` is the time since the last output of a running task.

# open_frame NONCE REMOTE_DIR CLUSTER WORKER -> $root $boot $incarnation $root_missing: change to <root>/a;
# $root_missing is 1 if it does not exist.
open_frame() {
    nonce=$1
    root=$2/$3/$4
    count=0
    boot_id
    case $boot in '' | *[!A-Za-z0-9._-]*) boot=- ;; esac
    root_missing=
    read_incarnation
    # Without <root>/a the worker has lost its record of attempts: report no incarnation.
    cd "$root/a" 2>/dev/null || root_missing=1 incarnation=-
}

# read_incarnation -> $incarnation: `-` if missing or damaged.
read_incarnation() {
    incarnation=-
    [ -f "$root/incarnation" ] && read -r incarnation 2>/dev/null <"$root/incarnation"
    is_token "$incarnation" || incarnation=-
}

# is_token TEXT: true for 32 hexadecimal digits.
is_token() {
    case $1 in *[!0-9a-f]*) return 1 ;; esac
    [ ${#1} -eq 32 ]
}

begin_frame() {
    if [ -n "$no_clock" ]; then clock=0; elif [ -n "$cannot_fork" ]; then boot_clock; else wall_clock; fi
    trap - EXIT # so that stop_without_fork prints no second answer
    printf 'IRIS1 %s BEGIN %s %s\n' "$nonce" "$boot" "$incarnation"
    now
    line "H $clock $now"
}

end_frame() { printf 'IRIS1 %s END %s\n' "$nonce" "$count"; }

# is_intended_host BOOT INCARNATION: true if both are those of this host.
is_intended_host() { [ "$boot" = "$1" ] && [ "$incarnation" = "$2" ]; }

# line TEXT: print a line of the frame.
line() {
    printf '%s\n' "$1"
    count=$((count + 1))
}

# text BASE64: print the text as T lines.
text() {
    for each in $1; do line "T $each"; done
}

# report TOKENS: print an A line for each attempt. For an ended attempt also print its last output and facts
# (unless $terse is 1), and an M line if it has left requests (unless $skip_requests_left is 1).
report() {
    prove_claims "$@"
    ended_before=$proven # for these, the sizes read next are final
    [ -n "$cannot_fork" ] || read_sizes "$@"
    now
    for token; do
        if [ -n "$root_missing" ]; then clear_names; state=ABSENT; else read_state "$token"; fi
        renew_lease
        case " $not_prepared " in *" $token "*) state=NOSTART record_cause=${missing:+commands} ;; esac
        case $state$record_cause in NOSTART) record_cause=disk ;; esac
        # Print exit codes only in these states, because a task may have forged the names, and one invalid
        # line invalidates the whole answer.
        case $state in
        EXITED | CANCELLED) ;;
        NOSTART) # a set-up that took too long has no exit code of its own
            ! is_code "$end_code" || [ -e "$token/setup-timeout" ] || record_code=$end_code
            ;;
        *) record_code=- record_cause=- ;;
        esac
        case $state in
        PREPARED) began=$first_go ;;
        LAUNCHING) began=$launched ;;
        PREPARING) [ -z "$has_setup" ] || began=$pid_start ;; # pid_start is in hundredths, too
        esac
        is_final=
        case $state in EXITED | CANCELLED | NOSTART | LOST | STOPPED) is_final=1 ;; *) ended=- ;; esac
        case "$is_final$cannot_fork $ended_before " in 1*" $token "*) ;; "1 "*) read_sizes "$token" ;; esac
        bytes_out=0 bytes_err=0 last_write=
        eval "bytes_out=\${out_$token:-0} bytes_err=\${err_$token:-0} last_write=\${wrote_$token:-}"
        compute_age "$began"
        began=$age
        compute_age "$ended"
        case $began$age in *-*) ;; *) [ "$age" -le "$began" ] || age=- ;; esac # not before the start
        bytes=$((bytes_out + bytes_err))
        compute_quiet
        line "A $token $state $record_code $record_cause $began $age $bytes $quiet"
        [ -z "$is_final" ] || [ -n "$terse" ] || [ "$bytes" -eq 0 ] || text "$(print_tail "$token")"
        case $is_final$terse$cannot_fork:$state$record_code in
        1:EXITED[1-9]* | 1:NOSTART*) print_facts "$token" ;;
        esac
        [ "$record_cause" != commands ] ||
            text "$(printf 'iris: not started: missing:%s\n' "$missing" | encode)"
        [ -z "$is_final" ] || [ -n "$skip_requests_left" ] || print_requests_left "$token"
    done
}

print_facts() {
    is_plain "$1/facts" || return 0
    line "D $1"
    text "$(head -c 1024 "$1/facts" 2>/dev/null | encode)"
}

# prove_claims TOKENS -> $claims $proven: the attempts whose file names say that they ended, and those of them
# that have no processes. Search once for all attempts.
prove_claims() {
    proven= claims= claiming=
    [ -z "$root_missing$cannot_fork" ] || return 0
    for token; do
        if [ -e "$token/x.pending" ] && [ ! -e "$token/stop.done" ]; then continue; fi
        claiming="$claiming $token"
    done
    # shellcheck disable=SC2086
    [ -z "$claiming" ] || prove $claiming
    claims=$claiming
}

print_requests_left() {
    for name in "$1"/outbox/[A-Za-z0-9_]*; do
        ! is_request "$name" || {
            line "M $1"
            return
        }
    done
}

# is_request FILE: true if FILE is a plain file with the name of a request.
is_request() {
    case ${1##*/} in *[!A-Za-z0-9._-]*) return 1 ;; esac
    [ ${#1} -le 104 ] && is_plain "$1" # a token, /outbox/ and at most 64 characters
}

# renew_lease: renew the lease of $token if $renew_leases is 1 and the lease has not expired.
renew_lease() {
    case $renew_leases$lease in
    1lease.[0-9]*) mv "$token/$lease" "$token/lease.$now" 2>/dev/null ;;
    esac
}

# compute_age UPTIME -> $age: the time since UPTIME; `-` if unknown or in another boot.
compute_age() {
    age=-
    [ "$pid_boot" = "$boot" ] && is_number "$1" || return
    age=$((now - $1))
    [ "$age" -ge 0 ] || age=0
}

# compute_quiet -> $quiet: the time since the task's last output, or since its begin if it has no output. It
# is `-` if the task does not run or the time is unknown.
compute_quiet() {
    quiet=-
    case $cannot_fork$state in RUNNING | ORPHANED) ;; *) return ;; esac
    is_number "$last_write" || quiet=$began
    [ "$clock" -gt 0 ] && is_number "$last_write" || return 0
    quiet=0
    [ "$last_write" -ge "$clock" ] || quiet=$(((clock - last_write) * 100))
}

# read_sizes TOKENS -> $out_<token> $err_<token> $wrote_<token>: sizes of the streams, and time of the last
# write. Runs `stat` once, or twice on BSD.
read_sizes() {
    [ -z "$root_missing" ] || return 0
    for token; do
        shift
        if has_output "$token"; then set -- "$@" "$token/out" "$token/err"; fi
    done
    [ $# -gt 0 ] || return 0
    files=$(LC_ALL=C stat -c '%f %s %Y %n' "$@" 2>/dev/null)
    [ -n "$files" ] || files=$(LC_ALL=C stat -f '%Xp %z %m %N' "$@" 2>/dev/null)
    by_line read_size "$files"
}

# by_line FUNCTION TEXT: call FUNCTION with the words of each line.
by_line() {
    IFS=$newline
    for each in $2; do
        unset IFS
        # shellcheck disable=SC2086
        "$1" $each
    done
    unset IFS
}

has_output() { [ -s "$1/out" ] || [ -s "$1/err" ]; }

# set_no_clock TOKENS -> $no_clock: 1 if there are attempts, and none has output. Then the answer needs no
# clock, which may cost a process. Without attempts it does: files may be deleted next.
set_no_clock() {
    [ $# -gt 0 ] || return 0
    for token; do ! has_output "$token" || return 0; done
    no_clock=1
}

# read_size MODE SIZE SECONDS NAME: parse a line of `stat`. MODE is hexadecimal: 8... is a plain file.
read_size() {
    case $1:$4 in 8???:*/out | 8???:*/err) ;; *) return ;; esac
    is_token "${4%/*}" || return
    is_number "$2" && eval "${4##*/}_${4%/*}=$2"
    is_number "$3" || return 0
    eval "last_write=\${wrote_${4%/*}:-0}"
    [ "$3" -le "$last_write" ] || eval "wrote_${4%/*}=$3"
}

# print_tail TOKEN: print the end of the attempt's output: at most 4 KiB, of which `out` gets 1 KiB, or more
# if `err` is short. `err` is last, because it mostly contains the cause of a failure.
print_tail() {
    tail_err=$bytes_err tail_out=$bytes_out
    [ "$tail_out" -le 1024 ] || tail_out=1024
    [ "$tail_err" -le $((4096 - tail_out)) ] || tail_err=$((4096 - tail_out))
    tail_out=$((4096 - tail_err))
    # Print output that fits from its beginning, even if it has grown after `read_sizes`.
    [ "$bytes_err" -eq 0 ] || [ "$bytes" -gt 4096 ] || tail_err=4096
    is_plain "$1/out" || tail_out=0
    is_plain "$1/err" || tail_err=0
    [ "$bytes_out" -gt 0 ] || tail_out=0
    case "$tail_out $tail_err" in
    "0 0") ;;
    *" 0") tail -c "$tail_out" "$1/out" 2>/dev/null | encode ;;
    "0 "*) tail -c "$tail_err" "$1/err" 2>/dev/null | encode ;;
    *) { tail -c "$tail_out" "$1/out" && tail -c "$tail_err" "$1/err"; } 2>/dev/null | encode ;;
    esac
}

# is_plain FILE: true for a readable plain file: reading a pipe would block forever.
is_plain() { [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ]; }
