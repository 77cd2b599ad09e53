# Requests of tasks: files in their outboxes, reported by a poll. The working directory is <root>/a. Answer:
#   Q <token> <id> <bytes>      a request; T: its text, unless it is larger than 64 KiB
#   M <token>                   the attempt has more requests

# print_requests TOKENS: print the first 16 requests of each attempt in the order of their names, until the
# answer has 256 KiB of requests. Omit $known_requests, words of the form <token>/<id>.
print_requests() {
    [ -z "$root_missing" ] || return 0
    # shellcheck disable=SC2034
    LC_ALL=C room=262144
    for token; do
        sent=0
        [ -d "$token/outbox" ] && [ ! -L "$token/outbox" ] || continue
        for name in "$token"/outbox/[A-Za-z0-9_]*; do
            is_request "$name" || continue
            case " $known_requests " in *" $token/${name##*/} "*) continue ;; esac
            if [ "$sent" -ge 16 ] || [ "$room" -le 0 ]; then
                line "M $token"
                break
            fi
            print_request "$token ${name##*/}" "$name"
        done
    done
}

# print_request TOKEN_AND_ID FILE -> $sent $room: print a request unless it was removed, and add 1 to $sent.
print_request() {
    bytes=$(wc -c 2>/dev/null <"$2") || return 0
    bytes=$((bytes))
    sent=$((sent + 1))
    line "Q $1 $bytes"
    [ "$bytes" -le 65536 ] || return 0
    room=$((room - bytes - 1024))
    text "$(head -c 65536 "$2" | encode)"
}
