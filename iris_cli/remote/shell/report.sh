# The answer: a frame of short lines; the last line has their number.
#   H <clock, seconds> <uptime>                                      clock 0: not reported
#   A <token> <STATE> <code> <cause> <began> <ended> <bytes> <quiet> `-`: not known or none
#   T <base64>                                                       belongs to the line before
#   D <token>                                                        facts of its end (deaths.sh), as T
#   M <token>                                                        has ended, and left requests
# Times are in hundredths of a second, `began` and `ended` before the answer. Before it runs, `began` is the
# start of its set-up (PREPARING), the first order to start (PREPARED), or the last sign of life of its
# wrapper (LAUNCHING). `quiet` is the time since the last output of a running task.

# open_frame NONCE REMOTE_DIR CLUSTER WORKER -> $root $boot $incarnation; change to <root>/a, or set $missing
# if it doesn't exist.
open_frame() {
    nonce=$1
    root=$2/$3/$4
    count=0
    boot_id
    case $boot in '' | *[!A-Za-z0-9._-]*) boot=- ;; esac
    missing=
    read_incarnation
    # Without the attempts it can't know what it started: report a new incarnation.
    cd "$root/a" 2>/dev/null || missing=1 incarnation=-
}

# read_incarnation -> $incarnation, `-` if missing or damaged.
read_incarnation() {
    incarnation=-
    [ -f "$root/incarnation" ] && read -r incarnation 2>/dev/null <"$root/incarnation"
    case $incarnation in *[!0-9a-f]*) incarnation=- ;; esac
    [ ${#incarnation} -eq 32 ] || incarnation=-
}

begin_frame() {
    if [ -n "$untimed" ]; then clock=0; elif [ -n "$alone" ]; then boot_clock; else wall_clock; fi
    trap - EXIT # from here on only one answer, however this shell ends
    printf 'IRIS1 %s BEGIN %s %s\n' "$nonce" "$boot" "$incarnation"
    now
    line "H $clock $now"
}

end_frame() { printf 'IRIS1 %s END %s\n' "$nonce" "$count"; }

# expect BOOT INCARNATION: true if this is the boot and incarnation that the caller expects.
expect() { [ "$boot" = "$1" ] && [ "$incarnation" = "$2" ]; }

line() {
    printf '%s\n' "$1"
    count=$((count + 1))
}

# text BASE64: print it as T lines.
text() {
    for each in $1; do line "T $each"; done
}

# report TOKENS: print an A line for each; unless $terse, the end of the output of ended attempts. Unless
# $asking (all requests are sent), also an M line for ended attempts with requests.
report() {
    prove_claims "$@"
    ended_before=$proven # attempts that end later may have written since
    [ -n "$alone" ] || sizes "$@"
    now
    for token; do
        if [ -n "$missing" ]; then no_names; state=ABSENT; else state_of "$token"; fi
        renew
        case " $no_room " in *" $token "*) state=NOSTART x_cause=${lacks:+commands} ;; esac
        case $state$x_cause in NOSTART) x_cause=disk ;; esac
        # An invalid line would invalidate the whole answer: ignore invalid names of one directory.
        case $state in
        EXITED | CANCELLED) ;;
        NOSTART) if is_code "$end_code"; then x_code=$end_code; fi ;;
        *) x_code=- x_cause=- ;;
        esac
        case $state in
        PREPARED) began=$asked ;;
        LAUNCHING) began=$launched ;;
        PREPARING) [ -z "$set_up" ] || began=$pid_start ;; # same unit, if a number
        esac
        is_over=
        case $state in EXITED | CANCELLED | NOSTART | LOST | STOPPED) is_over=1 ;; *) ended=- ;; esac
        case "$is_over$alone $ended_before " in 1*" $token "*) ;; "1 "*) sizes "$token" ;; esac
        bytes_out=0 bytes_err=0 wrote=
        eval "bytes_out=\${out_$token:-0} bytes_err=\${err_$token:-0} wrote=\${wrote_$token:-}"
        ago "$began"
        began=$ago
        ago "$ended"
        case $began$ago in *-*) ;; *) [ "$ago" -le "$began" ] || ago=- ;; esac # an end before the start
        bytes=$((bytes_out + bytes_err))
        quiet_for
        line "A $token $state $x_code $x_cause $began $ago $bytes $quiet"
        [ -z "$is_over" ] || [ -n "$terse" ] || [ "$bytes" -eq 0 ] || text "$(tails "$token")"
        case $is_over$terse$alone:$state$x_code in 1:EXITED[1-9]* | 1:NOSTART*) tell_facts "$token" ;; esac
        [ "$x_cause" != commands ] || text "$(printf 'iris: not started: missing:%s\n' "$lacks" | encode)"
        [ -z "$is_over" ] || [ -n "$asking" ] || tell_left "$token"
    done
}

# tell_facts TOKEN: print D <token> with the facts of its wrapper, if any.
tell_facts() {
    is_plain "$1/facts" || return 0
    line "D $1"
    text "$(head -c 1024 "$1/facts" 2>/dev/null | encode)"
}

# prove_claims TOKENS -> $proven: prove the ends that names claim, all in one search.
prove_claims() {
    proven= claims=
    [ -z "$missing$alone" ] || return 0
    for token; do
        if [ -e "$token/x.pending" ] && [ ! -e "$token/stop.done" ]; then continue; fi
        claims="$claims $token"
    done
    # shellcheck disable=SC2086
    [ -z "$claims" ] || prove $claims
}

# tell_left TOKEN: print M <token> if requests are left.
tell_left() {
    for name in "$1"/outbox/[A-Za-z0-9_]*; do
        ! is_request "$name" || {
            line "M $1"
            return
        }
    done
}

# is_request FILE: true if name and file type are valid for a request.
is_request() {
    case ${1##*/} in *[!A-Za-z0-9._-]*) return 1 ;; esac
    [ ${#1} -le 104 ] && is_plain "$1" # a token, /outbox/ and at most 64 characters
}

# renew: renew the lease of $token if this call is $renewing. An expired lease has another name.
renew() {
    case $renewing$lease in
    1lease.[0-9]*) mv "$token/$lease" "$token/lease.$now" 2>/dev/null ;;
    esac
}

# ago UPTIME -> $ago: the time since UPTIME; `-` if unknown or of another boot.
ago() {
    ago=-
    [ "$pid_boot" = "$boot" ] && is_number "$1" || return
    ago=$((now - $1))
    [ "$ago" -ge 0 ] || ago=0
}

# quiet_for -> $quiet: the time since the task's last output, or since its start; `-` if it doesn't run
# or the time is unknown.
quiet_for() {
    quiet=-
    case $alone$state in RUNNING | ORPHANED) ;; *) return ;; esac
    is_number "$wrote" || quiet=$began
    [ "$clock" -gt 0 ] && is_number "$wrote" || return 0
    quiet=0
    [ "$wrote" -ge "$clock" ] || quiet=$(((clock - wrote) * 100))
}

# sizes TOKENS -> $out_<token> $err_<token> $wrote_<token>: with one process, two for BSD's stat.
sizes() {
    [ -z "$missing" ] || return 0
    for token; do
        shift
        if has_output "$token"; then set -- "$@" "$token/out" "$token/err"; fi
    done
    [ $# -gt 0 ] || return 0
    files=$(LC_ALL=C stat -c '%f %s %Y %n' "$@" 2>/dev/null)
    [ -n "$files" ] || files=$(LC_ALL=C stat -f '%Xp %z %m %N' "$@" 2>/dev/null)
    by_line size_line "$files"
}

# by_line FUNCTION TEXT: call it with the words of each line.
by_line() {
    IFS='
'
    for each in $2; do
        unset IFS
        # shellcheck disable=SC2086
        "$1" $each
    done
    unset IFS
}

# has_output TOKEN: true if it has output.
has_output() { [ -s "$1/out" ] || [ -s "$1/err" ]; }

# tell_time TOKENS -> $untimed: 1 if none has output: the wall clock may cost a process.
tell_time() {
    for token; do ! has_output "$token" || return 0; done
    untimed=1
}

# size_line MODE SIZE SECONDS NAME: parse a line of `stat`. MODE is hexadecimal: 8... is a plain file.
size_line() {
    case $1:$4 in 8???:*/out | 8???:*/err) ;; *) return ;; esac
    case ${4%/*} in *[!0-9a-f]*) return ;; esac
    is_number "$2" && eval "${4##*/}_${4%/*}=$2"
    is_number "$3" || return 0
    eval "wrote=\${wrote_${4%/*}:-0}"
    [ "$3" -le "$wrote" ] || eval "wrote_${4%/*}=$3"
}

# tails TOKEN: print the end of its output: 4 KiB in total, at least 1 KiB of `out`. `err` is last: it mostly
# has the cause.
tails() {
    of_err=$bytes_err of_out=$bytes_out
    [ "$of_out" -le 1024 ] || of_out=1024
    [ "$of_err" -le $((4096 - of_out)) ] || of_err=$((4096 - of_out))
    of_out=$((4096 - of_err))
    # Output written after `sizes` must not displace the beginning of a short text.
    [ "$bytes_err" -eq 0 ] || [ "$bytes" -gt 4096 ] || of_err=4096
    is_plain "$1/out" || of_out=0
    is_plain "$1/err" || of_err=0
    [ "$bytes_out" -gt 0 ] || of_out=0
    case "$of_out $of_err" in
    "0 0") ;;
    *" 0") tail -c "$of_out" "$1/out" 2>/dev/null | encode ;;
    "0 "*) tail -c "$of_err" "$1/err" 2>/dev/null | encode ;;
    *) { tail -c "$of_out" "$1/out" && tail -c "$of_err" "$1/err"; } 2>/dev/null | encode ;;
    esac
}

# is_plain FILE: true for a readable plain file: reading a pipe would block forever.
is_plain() { [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ]; }
