# The call `answer`: write the answer to a request into the task's inbox. The working directory is <root>/a.

# answer TOKEN ID TEXT: write the answer atomically, THEN remove the request: if this call is killed between
# these steps, a later call answers the request again. If ID is a directory, do nothing, because `mv` would
# move the answer into that directory.
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
