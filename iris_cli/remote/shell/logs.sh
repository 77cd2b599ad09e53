# The call `logs`: L <offset> <size> <inode>, then the bytes.

# logs TOKEN STREAM OFFSET LIMIT: a negative offset counts from the end.
logs() {
    size=0 inode=0 offset=0
    if [ -z "$missing" ] && is_plain "$1/$2"; then
        # shellcheck disable=SC2046,SC2012
        set -- "$@" $(LC_ALL=C ls -ldin "$1/$2" 2>/dev/null)
        is_number "$5" && inode=$5
        is_number "${10}" && size=${10}
        offset=$3
        [ "$offset" -ge 0 ] || offset=$((size + offset))
        [ "$offset" -ge 0 ] || offset=0
        [ "$offset" -le "$size" ] || offset=$size
    fi
    line "L $offset $size $inode"
    [ "$offset" -ge "$size" ] || text "$(tail -c "+$((offset + 1))" "$1/$2" | head -c "$4" | encode)"
}
