# Commands that a host must have. busybox has all of them.

# lacks COMMANDS -> $lacks: the missing commands, each after a blank. False if the host has all of them.
lacks() {
    lacks=
    for each; do
        command -v "$each" >/dev/null 2>&1 || lacks="$lacks $each"
    done
    [ -n "$lacks" ]
}

# lacks_any -> $lacks: missing commands that every worker needs. After it has found all of them, it doesn't
# search again.
lacks_any() {
    [ -z "$has_all" ] || return
    encoder=base64
    ! command -v openssl >/dev/null 2>&1 || encoder=openssl
    lacks awk cat chmod cp date dd df du env find grep head id ln ls mkdir mv od readlink rm rmdir sed sleep \
        sort stat tail touch tr wc xargs "$encoder" && return
    has_all=1
    return 1
}
has_all=
