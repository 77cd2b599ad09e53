# The call `logs`. For each file: L <offset> <size> <inode>, then the bytes. After the inode `@<mtime>` if
# requested and known; `gzip` if the bytes are compressed.

# logs TOKEN STREAM OFFSET LIMIT [dated]: print at most LIMIT bytes. A negative OFFSET counts from the end.
logs() {
    size=0 inode=0 offset=0 written=
    if [ -z "$missing" ] && is_plain "$1/$2"; then
        [ -z "${5-}" ] || written_at "$1/$2"
        # shellcheck disable=SC2046,SC2012
        set -- "$1" "$2" "$3" "$4" $(LC_ALL=C ls -ldin "$1/$2" 2>/dev/null)
        is_number "$5" && inode=$5
        is_number "${10}" && size=${10}
        offset=$3
        [ "$offset" -ge 0 ] || offset=$((size + offset))
        [ "$offset" -ge 0 ] || offset=0
        [ "$offset" -le "$size" ] || offset=$size
    fi
    # Output of tasks is repetitive: gzip shrinks it to about a fifth.
    if [ $((size - offset)) -ge 4096 ] && [ "$4" -ge 4096 ] && can_pack; then
        line "L $offset $size $inode$written gzip"
        text "$(tail -c "+$((offset + 1))" "$1/$2" | head -c "$4" | gzip -1 | encode)"
    else
        line "L $offset $size $inode$written"
        [ "$offset" -ge "$size" ] || text "$(tail -c "+$((offset + 1))" "$1/$2" | head -c "$4" | encode)"
    fi
}

# written_at FILE -> $written: ` @<mtime>`, empty if unknown.
written_at() {
    mtime=$(stat -c %Y "$1" 2>/dev/null || stat -f %m "$1" 2>/dev/null)
    if is_number "$mtime"; then written=" @$mtime"; fi
}

# can_pack: true if gzip works on this host.
can_pack() {
    [ -n "$packs" ] || packs=$(printf x | gzip -1 2>/dev/null | gzip -d 2>/dev/null)
    [ "$packs" = x ] || { packs=no && return 1; }
}
packs=
