# The call `ship`: receive a packed workspace over stdin, as file descriptor 3, into w/<hash>/. The working
# directory is <root>/a. docs/worker-protocol.md lists the names.
#
# The last step, `mv <part>/<hash> .`, is one rename that fails if the name exists: any number of calls may
# run at once and end anywhere. w/<hash>.part.<pid>.<start>.<boot>/ belongs to one call; later calls
# remove parts of dead calls.

# ship HASH BYTES LIMIT PACKED MARK TOKENS: receive a workspace with this SHA-256 and BYTES bytes unpacked, if
# that is at most LIMIT. The caller sends PACKED bytes after MARK is printed. TOKENS wait for the workspace:
# if this worker can't receive it, they never start, and their `err` says why. A transfer that was cut off
# decides nothing.
ship() {
    hash=$1 bytes=$2 limit=$3 packed=$4 mark=$5
    shift 5
    cause= why=
    unset TAR_OPTIONS GZIP POSIXLY_CORRECT
    make_root && { [ -d "$root/w" ] || mkdir "$root/w" 2>/dev/null || [ -d "$root/w" ]; }
    if ! cd -P "$root/w" 2>/dev/null; then
        not_here disk "no directory can be made in $root"
    elif ! is_being_shipped && [ ! -d "$hash" ]; then
        take_in
    fi
    cd "$root/a" || exit 1
    [ -z "$cause" ] || for each; do deny "$each"; done
}

# not_here CAUSE WORDS -> $cause $why: why the workspace can't be received. Always false.
not_here() {
    cause=$1
    why="its workspace can't be had: $(printf '%s' "$2" | tr '\n' ' ')"
    return 1
}

# deny TOKEN: record that the attempt will never start.
deny() {
    if mkdir "$1" 2>/dev/null; then
        printf 'iris: not started: %s\n' "$why" 2>/dev/null >>"$1/err"
        refuse "$1" "nostart.$cause"
    elif [ ! -e "$1" ]; then
        no_room "$1"
    fi
}

# is_being_shipped: true if another call is receiving it, with recent progress. Remove parts of dead
# calls.
is_being_shipped() {
    busy=
    for each in *.part.*; do
        [ -d "$each" ] || continue
        if ! is_part_alive "$each"; then
            remove_tree "$each"
        elif [ "${each%%.*}" = "$hash" ] && is_fresh "$each"; then
            busy=1
        fi
    done
    [ -n "$busy" ]
}

# is_fresh PART: true if its call has written recently: a call whose client vanished may wait for hours.
is_fresh() { [ -n "$(find "$1" "$1/gz" "$1/tar" -prune -mmin -2 2>/dev/null)" ]; }

take_in() {
    ! lacks gzip tar || { not_here workspace "missing commands:$lacks" || return; }
    [ "$bytes" -le "$limit" ] ||
        { not_here workspace "$bytes bytes are more than the $limit that are allowed" || return; }
    has_room || return
    start_of $$
    part=$hash.part.$$.$start.$boot
    if mkdir "$part" "$part/$hash" 2>/dev/null; then
        receive && unpack && check && extract && put_in_place
    else
        not_here disk "no directory can be made in $root/w"
    fi
    remove_tree "$part"
}

# has_room: true if two of the packed file, the tar file and the tree fit; no more exist at a time.
has_room() {
    # shellcheck disable=SC2046
    set -- $(LC_ALL=C df -Pk . 2>/dev/null | tail -n 1)
    is_number "$4" || return 0
    needed=$((bytes / 512 + 1024))
    [ "$4" -ge "$needed" ] || not_here disk "$4 KiB are free in $root, $needed KiB are needed"
}

# gave_up STATUS SAID WORDS: record why a step failed; only the text in SAID tells a full disk.
gave_up() {
    case $1:$2 in
    *'No space left'* | *'uota exceeded'*) not_here disk "$2" ;;
    *) not_here workspace "$3" ;;
    esac
}

# receive: read the packed file. If the transfer was cut off, exit: the caller has gone.
receive() {
    printf '%s\n' "$mark"
    said=$(LC_ALL=C head -c "$packed" <&3 2>&1 >"$part/gz")
    status=$?
    length "$part/gz"
    [ "$length" != "$packed" ] || return 0
    case $said in
    '')
        remove_tree "$part"
        exit 1
        ;;
    *) gave_up $status "$said" "it can't be received: $said" ;;
    esac
}

# length FILE -> $length
length() {
    # shellcheck disable=SC2046
    set -- $(wc -c 2>/dev/null <"$1")
    length=$1
}

# unpack: check size and hash; never write more than the expected size.
unpack() {
    said=$(bounded gzip -dc 2>&1 <"$part/gz" >"$part/tar")
    status=$?
    rm -f "$part/gz"
    length "$part/tar"
    [ "$status" = 0 ] && [ "$length" = "$bytes" ] ||
        { gave_up $status "$said" "it doesn't unpack to $bytes bytes: $said" || return; }
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$part/tar")
    elif command -v shasum >/dev/null 2>&1; then
        sum=$(shasum -a 256 <"$part/tar")
    elif command -v openssl >/dev/null 2>&1; then
        sum=$(openssl dgst -sha256 -r <"$part/tar")
    else
        not_here workspace "there is no sha256sum, shasum or openssl here: install coreutils" || return
    fi
    [ "${sum%% *}" = "$hash" ] || not_here workspace "what came has another SHA-256 than $hash"
}

# bounded COMMAND...: run it with file sizes limited to that of the archive.
bounded() {
    ulimit -f $((bytes / 512 + 2)) 2>/dev/null
    LC_ALL=C "$@"
}

# check: validate members before extraction, by two lists of the archive: the first has only names, so that
# the second can be parsed whatever its columns contain. A newline in a name or a target only adds lines to
# a list, which are checked, too.
#
# A link's target is checked as text: `..` only at the beginning, at most as many as directories above the
# link, none of which is a link. So chains of such links stay inside, too.
check() {
    said=$( (LC_ALL=C tar -tf "$part/tar" >"$part/names" && LC_ALL=C tar -tvf "$part/tar" >"$part/list") 2>&1)
    status=$?
    # A message without a failure means that tar changed a name.
    [ "$status" = 0 ] && [ -z "$said" ] ||
        { gave_up $status "$said" "it is no good tar file: $said" || return; }
    # shellcheck disable=SC2016
    fault=$(LC_ALL=C awk '
function no(words) { print words; done = 1; exit }
function ends_with(text, end) { return substr(text, length(text) - length(end)) == " " end }
function is_inside(target, depth, parts, count, at, inner) {
    count = split(target, parts, "/")
    if (target ~ /^\//) return 0
    for (at = 1; at <= count; at++) {
        if (parts[at] != "..") { if (parts[at] != "" && parts[at] != ".") inner = 1 }
        else if (inner || --depth < 0) return 0
    }
    return count > 0
}
FILENAME ~ /names$/ { names[++known] = $0; next }
{
    name = names[++seen]
    arrow = index($0, " -> ")
    kind = substr($0, 1, 1)
    if (kind !~ /[-dl]/) no("a member is no file, directory or symbolic link: " $0)
    if (substr($0, 2, 9) !~ /^[-rwx]+$/) no("a member has permissions that none may have: " $0)
    if (kind == "l") {
        target = substr($0, arrow + 4)
        if (!arrow || index(target, " -> ")) no("a link is ambiguous: " $0)
        if (!ends_with(substr($0, 1, arrow - 1), name)) no("a link is ambiguous: " $0)
    } else if (arrow || !ends_with($0, name)) no("a member is a hard link, or ambiguous: " $0)
    sub(/\/$/, "", name)
    if (name == "" || ("/" name "/") ~ /\/\.?\.?\//) no("a member is outside: " $0)
    if (kind == "l" && !is_inside(target, split(name, unused, "/") - 1)) no("a link leads outside: " $0)
    if (kind == "l") links[name] = 1
    times[name]++
    all[seen] = name
}
END {
    if (done) exit
    if (seen != known) no("its lists contradict each other")
    for (at = 1; at <= seen; at++) {
        name = all[at]
        if (name in links && times[name] > 1) no("a link and something else have the same name: " name)
        while (match(name, /\/[^\/]*$/)) {
            name = substr(name, 1, RSTART - 1)
            if (name in links) no("a member is behind a link: " all[at])
        }
    }
}' "$part/names" "$part/list" 2>&1) || fault="it can't be checked: $fault"
    rm -f "$part/names" "$part/list"
    [ -z "$fault" ] || not_here workspace "$fault"
}

# extract: extract into $part, and check the result: a sparse file can be larger than its archive.
extract() {
    said=$(cd "$part/$hash" && bounded tar -xof ../tar 2>&1)
    status=$?
    rm -f "$part/tar"
    [ "$status" = 0 ] || { gave_up $status "$said" "it can't be extracted: $said" || return; }
    fault=$(find "$part/$hash" ! -type f ! -type d ! -type l 2>&1)
    total=$(find "$part/$hash" -type f -exec ls -ldn {} + |
        LC_ALL=C awk '/^-/ { total += $5 } END { printf "%.0f", total }')
    [ -z "$fault" ] && [ "$total" -le "$bytes" ] || not_here workspace "it is more than its archive: $fault"
}

# put_in_place: sync all files BEFORE the rename: the name survives a power cut.
put_in_place() {
    chmod -R u=rX,go= "$part/$hash" && chmod u+w "$part/$hash" ||
        { not_here workspace "its permissions can't be set" || return; }
    { sync -f "$part" || sync; } 2>/dev/null
    mv "$part/$hash" . 2>/dev/null
    [ -d "$hash" ] || { not_here disk "it can't be moved to its place" || return; }
    chmod u-w "$hash" 2>/dev/null
    return 0
}
