# The call `ship`: receive a packed workspace from file descriptor 3 (the call's stdin) into w/<hash>/. The
# working directory is <root>/a. docs/worker-protocol.md lists the files.
#
# Each call works in its own w/<hash>.part.<pid>.<start>.<boot>/. The last step, `mv <part>/<hash> .`, is one
# rename that fails if the name exists. So several calls can run at once, and each can be killed at any step.

# ship HASH BYTES LIMIT PACKED MARK TOKENS: receive a workspace. HASH and BYTES are the SHA-256 and the size
# of the tar file, which may have at most LIMIT bytes. The caller sends PACKED bytes after this call has
# printed MARK. The attempts TOKENS wait for the workspace. If this worker can't receive it, record that these
# attempts can't start, and write the reason to the `err` of each.
ship() {
    hash=$1 bytes=$2 limit=$3 packed=$4 mark=$5
    shift 5
    cause= reason=
    unset TAR_OPTIONS GZIP POSIXLY_CORRECT
    make_root && { [ -d "$root/w" ] || mkdir "$root/w" 2>/dev/null || [ -d "$root/w" ]; }
    if ! cd -P "$root/w" 2>/dev/null; then
        cannot_receive disk "no directory can be made in $root"
    elif ! is_being_shipped && [ ! -d "$hash" ]; then
        receive_workspace
    fi
    cd "$root/a" || exit 1
    [ -z "$cause" ] || for each; do refuse_start "$each"; done
}

# cannot_receive CAUSE WORDS -> $cause $reason: set the reason why the workspace can't be received. Always
# false.
cannot_receive() {
    cause=$1
    reason="its workspace can't be received: $(printf '%s' "$2" | tr '\n' ' ')"
    return 1
}

# refuse_start TOKEN: record that the attempt can't start.
refuse_start() {
    if mkdir "$1" 2>/dev/null; then
        printf 'iris: not started: %s\n' "$reason" 2>/dev/null >>"$1/err"
        refuse "$1" "nostart.$cause"
    elif [ ! -e "$1" ]; then
        refuse_to_prepare "$1"
    fi
}

# is_being_shipped: true if another call is receiving the workspace, with recent progress. Remove the parts of
# dead calls.
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

# is_fresh PART: true if the call that owns PART has written recently. A call whose client vanished may wait
# for hours.
is_fresh() { [ -n "$(find "$1" "$1/gz" "$1/tar" -prune -mmin -2 2>/dev/null)" ]; }

receive_workspace() {
    ! lacks gzip tar || { cannot_receive workspace "missing commands:$missing" || return; }
    [ "$bytes" -le "$limit" ] ||
        { cannot_receive workspace "$bytes bytes are more than the $limit that are allowed" || return; }
    has_space || return
    read_start $$
    part=$hash.part.$$.$start.$boot
    if mkdir "$part" "$part/$hash" 2>/dev/null; then
        receive && unpack && check_members && extract && move_into_place
    else
        cannot_receive disk "no directory can be made in $root/w"
    fi
    remove_tree "$part"
}

# has_space: true if the disk has room for two of these three: the packed file, the tar file and the tree. At
# most two of them exist at a time.
has_space() {
    # shellcheck disable=SC2046
    set -- $(LC_ALL=C df -Pk . 2>/dev/null | tail -n 1)
    is_number "$4" || return 0
    needed=$((bytes / 512 + 1024))
    [ "$4" -ge "$needed" ] || cannot_receive disk "$4 KiB are free in $root, $needed KiB are needed"
}

# step_failed STATUS MESSAGE WORDS: set the reason why a step failed. MESSAGE, the stderr of the step, shows
# if the disk is full. WORDS are the reason otherwise.
step_failed() {
    case $1:$2 in
    *'No space left'* | *'uota exceeded'*) cannot_receive disk "$2" ;;
    *) cannot_receive workspace "$3" ;;
    esac
}

# receive: read the packed file from the caller. If the transfer was cut off, exit, because the caller is
# gone.
receive() {
    printf '%s\n' "$mark"
    message=$(LC_ALL=C head -c "$packed" <&3 2>&1 >"$part/gz")
    status=$?
    measure "$part/gz"
    [ "$size" != "$packed" ] || return 0
    case $message in
    '')
        remove_tree "$part"
        exit 1
        ;;
    *) step_failed $status "$message" "the transfer failed: $message" ;;
    esac
}

# measure FILE -> $size: the size of FILE in bytes.
measure() {
    # shellcheck disable=SC2046
    set -- $(wc -c 2>/dev/null <"$1")
    size=$1
}

# unpack: decompress the packed file, and check size and hash of the tar file.
unpack() {
    message=$(run_bounded gzip -dc 2>&1 <"$part/gz" >"$part/tar")
    status=$?
    rm -f "$part/gz"
    measure "$part/tar"
    [ "$status" = 0 ] && [ "$size" = "$bytes" ] ||
        { step_failed $status "$message" "it doesn't unpack to $bytes bytes: $message" || return; }
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$part/tar")
    elif command -v shasum >/dev/null 2>&1; then
        sum=$(shasum -a 256 <"$part/tar")
    elif command -v openssl >/dev/null 2>&1; then
        sum=$(openssl dgst -sha256 -r <"$part/tar")
    else
        cannot_receive workspace "sha256sum, shasum and openssl are missing: install coreutils" || return
    fi
    [ "${sum%% *}" = "$hash" ] || cannot_receive workspace "the received file has another SHA-256 than $hash"
}

# run_bounded COMMAND...: run COMMAND, which can't write a file larger than the archive.
run_bounded() {
    ulimit -f $((bytes / 512 + 2)) 2>/dev/null
    LC_ALL=C "$@"
}

# check_members: validate the members before extraction, from two lists of the archive. The first list has
# only the names, which are needed to parse the second list, which has details. A newline in a name or target
# adds lines, which are checked like all others.
#
# A link's target is checked as text. It may begin with `..`, at most once for each directory above the link,
# and these directories must not be links. So a chain of links also stays in the workspace.
check_members() {
    message=$({
        LC_ALL=C tar -tf "$part/tar" >"$part/names" && LC_ALL=C tar -tvf "$part/tar" >"$part/list"
    } 2>&1)
    status=$?
    # A message without a failure means that tar changed a name.
    [ "$status" = 0 ] && [ -z "$message" ] ||
        { step_failed $status "$message" "it is not a valid tar file: $message" || return; }
    # shellcheck disable=SC2016
    problem=$(LC_ALL=C awk '
function reject(words) { print words; done = 1; exit }
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
    if (kind !~ /[-dl]/) reject("a member is no file, directory or symbolic link: " $0)
    if (substr($0, 2, 9) !~ /^[-rwx]+$/) reject("a member has forbidden permissions: " $0)
    if (kind == "l") {
        target = substr($0, arrow + 4)
        if (!arrow || index(target, " -> ")) reject("a link or its target contains \" -> \": " $0)
        if (!ends_with(substr($0, 1, arrow - 1), name)) reject("a link or its target contains \" -> \": " $0)
    } else if (arrow || !ends_with($0, name)) \
        reject("a hard link, or a name with \" -> \" or that tar changed: " $0)
    sub(/\/$/, "", name)
    if (name == "" || ("/" name "/") ~ /\/\.?\.?\//) reject("a path leaves the workspace: " $0)
    if (kind == "l" && !is_inside(target, split(name, unused, "/") - 1)) \
        reject("a link leaves the workspace: " $0)
    if (kind == "l") links[name] = 1
    times[name]++
    all[seen] = name
}
END {
    if (done) exit
    if (seen != known) reject("tar lists it differently in two passes")
    for (at = 1; at <= seen; at++) {
        name = all[at]
        if (name in links && times[name] > 1) reject("a link and something else have the same name: " name)
        while (match(name, /\/[^\/]*$/)) {
            name = substr(name, 1, RSTART - 1)
            if (name in links) reject("a path contains a symbolic link: " all[at])
        }
    }
}' "$part/names" "$part/list" 2>&1) || problem="it can't be checked: $problem"
    rm -f "$part/names" "$part/list"
    [ -z "$problem" ] || cannot_receive workspace "$problem"
}

# extract: extract the tar file into $part, and check the result: a sparse file can be larger than its
# archive.
extract() {
    message=$(cd "$part/$hash" && run_bounded tar -xof ../tar 2>&1)
    status=$?
    rm -f "$part/tar"
    [ "$status" = 0 ] || { step_failed $status "$message" "it can't be extracted: $message" || return; }
    problem=$(find "$part/$hash" ! -type f ! -type d ! -type l 2>&1)
    total=$(find "$part/$hash" -type f -exec ls -ldn {} + |
        LC_ALL=C awk '/^-/ { total += $5 } END { printf "%.0f", total }')
    [ -z "$problem" ] && [ "$total" -le "$bytes" ] ||
        cannot_receive workspace "it is larger than its archive, or has special files: $problem"
}

# move_into_place: rename the tree to w/<hash>. Sync the files BEFORE that, because after a power cut the name
# could exist without their contents.
move_into_place() {
    chmod -R u=rX,go= "$part/$hash" && chmod u+w "$part/$hash" ||
        { cannot_receive workspace "its permissions can't be set" || return; }
    { sync -f "$part" || sync; } 2>/dev/null
    mv "$part/$hash" . 2>/dev/null
    [ -d "$hash" ] || { cannot_receive disk "it can't be moved to its place" || return; }
    chmod u-w "$hash" 2>/dev/null
    return 0
}
