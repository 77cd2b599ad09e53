# The call `logs`. Answer, for each file: L <offset> <size> <inode> [@<mtime>] [gzip], then its bytes,
# compressed if `gzip` is present.

# logs TOKEN STREAM OFFSET LIMIT [dated]: print at most LIMIT bytes. A negative OFFSET counts from the end.
# `dated` adds the mtime.
logs() {
    size=0 inode=0 offset=0 mtime_word=
    if [ -z "$root_missing" ] && is_plain "$1/$2"; then
        [ -z "${5-}" ] || read_mtime "$1/$2"
        # shellcheck disable=SC2046,SC2012
        set -- "$1" "$2" "$3" "$4" $(LC_ALL=C ls -ldin "$1/$2" 2>/dev/null)
        is_number "$5" && inode=$5
        is_number "${10}" && size=${10}
        offset=$3
        [ "$offset" -ge 0 ] || offset=$((size + offset))
        [ "$offset" -ge 0 ] || offset=0
        [ "$offset" -le "$size" ] || offset=$size
    fi
    if [ $((size - offset)) -ge 4096 ] && [ "$4" -ge 4096 ] && can_gzip; then
        line "L $offset $size $inode$mtime_word gzip"
        text "$(tail -c "+$((offset + 1))" "$1/$2" | head -c "$4" | gzip -1 | encode)"
    else
        line "L $offset $size $inode$mtime_word"
        [ "$offset" -ge "$size" ] || text "$(tail -c "+$((offset + 1))" "$1/$2" | head -c "$4" | encode)"
    fi
}

# read_mtime FILE -> $mtime_word: ` @<mtime>`, empty if unknown.
read_mtime() {
    mtime=$(stat -c %Y "$1" 2>/dev/null || stat -f %m "$1" 2>/dev/null)
    if is_number "$mtime"; then mtime_word=" @$mtime"; fi
}

can_gzip() {
    [ -n "$gzip_works" ] || gzip_works=$(printf x | gzip -1 2>/dev/null | gzip -d 2>/dev/null)
    [ "$gzip_works" = x ] || { gzip_works=no && return 1; }
}
gzip_works=
