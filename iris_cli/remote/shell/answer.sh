# The call `answer`: what was asked for from inside a task is answered there. The working directory is
# <root>/a.

# answer TOKEN ID TEXT: the answer is there whole or not at all. The request goes AFTER that: until then,
# whatever ends us, it is asked and answered once more. Into a directory of that name, `mv` would put it
# beside what is there, wherever that is.
answer() {
    for name in "$1" "$1/inbox" "$1/outbox"; do [ -d "$name" ] && [ ! -L "$name" ] || return 0; done
    [ ! -d "$1/inbox/$2" ] || return 0
    draft=$1/inbox/.$nonce.$2
    if printf '%s' "$3" 2>/dev/null >"$draft" && mv -f "$draft" "$1/inbox/$2" 2>/dev/null; then
        rm -f "$1/outbox/$2" 2>/dev/null
    else
        rm -f "$draft"
    fi
}
