# What tasks ask for from inside: the files of their outboxes, in the frame of a poll. The working directory
# is <root>/a.
#   Q <token> <id> <bytes>      a request, with its text behind it unless it is too large to be one
#   M <token>                   it has more of them
# The owner of a task could always hold us up here, as he could end us: he does so to nobody but himself.

# tell_requests TOKENS: of each the first 16 by name, less those in $held, each `<token>/<id>`; of all of them
# no more than fits into one answer.
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

# tell_request WORDS FILE: counts it in $told and $room. What has gone meanwhile is not told.
tell_request() {
    bytes=$(wc -c 2>/dev/null <"$2") || return 0
    bytes=$((bytes))
    told=$((told + 1))
    line "Q $1 $bytes"
    [ "$bytes" -le 65536 ] || return 0
    room=$((room - bytes - 1024))
    text "$(head -c 65536 "$2" | encode)"
}
