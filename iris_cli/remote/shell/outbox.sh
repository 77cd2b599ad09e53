# Requests of tasks: files in their outboxes, sent in the frame of a poll. The working directory
# is <root>/a.
#   Q <token> <id> <bytes>      a request, followed by its text unless it is too large
#   M <token>                   the attempt has more requests
# A task could delay this call, as it could kill it: both run as the same user, who harms only himself.

# tell_requests TOKENS: print the first 16 requests per attempt by name, except those in $held (words
# `<token>/<id>`), and in total as many as fit into one answer.
tell_requests() {
    [ -z "$missing" ] || return 0
    # shellcheck disable=SC2034
    LC_ALL=C room=262144
    for token; do
        told=0
        [ -d "$token/outbox" ] && [ ! -L "$token/outbox" ] || continue
        for name in "$token"/outbox/[A-Za-z0-9_]*; do
            is_request "$name" || continue
            case " $held " in *" $token/${name##*/} "*) continue ;; esac
            if [ "$told" -ge 16 ] || [ "$room" -le 0 ]; then
                line "M $token"
                break
            fi
            tell_request "$token ${name##*/}" "$name"
        done
    done
}

# tell_request WORDS FILE -> $told $room: print a request, unless it has been removed.
tell_request() {
    bytes=$(wc -c 2>/dev/null <"$2") || return 0
    bytes=$((bytes))
    told=$((told + 1))
    line "Q $1 $bytes"
    [ "$bytes" -le 65536 ] || return 0
    room=$((room - bytes - 1024))
    text "$(head -c 65536 "$2" | encode)"
}
