# Commands that a host must have. busybox has all of them.

# lacks COMMANDS -> $missing: the missing commands, each after a blank. False if the host has all of them.
lacks() {
    missing=
    for each; do
        command -v "$each" >/dev/null 2>&1 || missing="$missing $each"
    done
    [ -n "$missing" ]
}

# lacks_any -> $missing: missing commands that every worker needs. False if the host has all of them. Then
# later calls of this function don't search again.
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
