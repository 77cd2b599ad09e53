# `iris launch --workdir DIR` inside a task: packs it into outbox/.packed/<sha256>.tar.gz, byte for byte as
# the whole iris does: sorted names, no owners, one time for all, files that are programs or not, links that
# stay inside. No `tar` could be trusted with that, so awk makes the headers, and cat puts them before the
# files.

# pack DIRECTORY -> $packed_as (hash, bytes, files) $packed_name. In the first pass only, which checks.
pack() {
    [ -n "$checking" ] || return 0
    for each in find sort stat xargs split gzip; do
        command -v "$each" >/dev/null 2>&1 || no_pack "there is no $each here"
    done
    directory=$(cd -P -- "$1" 2>/dev/null && pwd) || no_pack "$1 is no directory"
    check_directory
    draft=$out/.packed/.draft.$$
    trap clear_draft EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$out/.packed" && mkdir "$draft" && ln -s "$directory" "$draft/d" ||
        fail 10 "can't write to $out" "df -h $out"
    (cd "$draft/d/." && list_files) >"$draft/names" || no_pack "$1 can't be read"
    (cd "$draft" && LC_ALL=C awk "$archiver" names | tr '\001' '\000' | split -a 5 -b 512 - h) ||
        fail 10 "can't write to $out" "df -h $out"
    fault=$(cat "$draft/fault" 2>/dev/null)
    [ -z "$fault" ] || no_pack "$1 $fault"
    put_together "$1"
    clear_draft
    trap - EXIT INT TERM
}

no_pack() { refuse "--workdir: $1" 'submit it by the Python client, or name another directory'; }

clear_draft() {
    find "$draft" -type f -exec rm -f {} + 2>/dev/null
    rm -f "$draft/d"
    rmdir "$draft" 2>/dev/null
}

# check_directory: what only the whole iris can choose from, and what nobody means.
check_directory() {
    packed_name=${directory##*/}
    home=$(cd -P -- "${HOME:-/}" 2>/dev/null && pwd)
    task=$(cd -P -- "$IRIS_TASK_DIR" && pwd)
    case $directory in /*) ;; *) no_pack "$directory is a relative path" ;; esac
    case $directory in / | "$home") no_pack "$directory is more than a workspace" ;; esac
    case $task/ in "$directory"/*) no_pack "$directory holds the directories of this task" ;; esac
    [ ! -e "$directory/.irisignore" ] ||
        no_pack "$directory has an .irisignore, which the small iris can't read"
    above=$directory
    while [ -n "$above" ]; do
        [ ! -e "$above/.git" ] || no_pack "$above is of git, which the small iris can't ask"
        above=${above%/*}
    done
    odd=$(find "$directory" -name '*[[:cntrl:]]*' 2>/dev/null | head -n 1)
    [ -z "$odd" ] || no_pack "$directory holds names with control characters"
}

# list_files: of the working directory: programs, sizes, links, and all names in order.
list_files() {
    if stat -c %s . >/dev/null 2>&1; then set -- -c 'f %s %n'; else set -- -f 'f %z %N'; fi
    find . -name .git -prune -o -type f -perm -100 -print | sed 's/^/x /'
    find . -name .git -prune -o -type f -exec stat "$@" {} + || return
    find . -name .git -prune -o -type l -print | while IFS= read -r each; do
        printf 'l %s\nt %s\n' "$each" "$(readlink "$each")"
    done
    find . -name .git -prune -o \( -type f -o -type l \) -print | sort | sed 's/^/n /'
}

# put_together WORD: the archive, if no file has changed meanwhile.
put_together() {
    while read -r each; do head -c "$each" /dev/zero >"$draft/p$each"; done <"$draft/pads"
    (cd "$draft" && tr '\n' '\000' <list | xargs -0 cat >tar) &&
        (cd "$draft/d/." && list_files) >"$draft/again" ||
        fail 10 "can't write to $out, or read $directory" "df -h $out"
    read -r size files <"$draft/size"
    bytes=$(($(wc -c <"$draft/tar")))
    [ "$bytes" = "$size" ] && [ -z "$(cmp "$draft/names" "$draft/again" 2>&1)" ] ||
        no_pack "$1 changed while it was being packed"
    if command -v sha256sum >/dev/null 2>&1; then
        sum=$(sha256sum <"$draft/tar")
    elif command -v shasum >/dev/null 2>&1; then
        sum=$(shasum -a 256 <"$draft/tar")
    else
        sum=$(openssl dgst -sha256 -r <"$draft/tar" 2>/dev/null)
    fi
    sum=${sum%% *}
    [ ${#sum} -eq 64 ] || no_pack 'there is no sha256sum, shasum or openssl here'
    gzip -c <"$draft/tar" >"$draft/gz" && mv "$draft/gz" "$out/.packed/$sum.tar.gz" ||
        fail 10 "can't write to $out" "df -h $out"
    packed_as="$sum $bytes $files"
}

# each_line FILE: its lines.
each_line() {
    [ -f "$1" ] && [ -r "$1" ] || refuse "--each-line: $1 can't be read"
    [ $(($(wc -c <"$1"))) -le 65536 ] ||
        refuse "--each-line: $1 takes more than 65536 bytes" 'submit several jobs'
    [ -s "$1" ] || refuse "--each-line: $1 has no lines"
    [ "$(tr -d '\000' <"$1" | wc -c)" -eq "$(wc -c <"$1")" ] || refuse "--each-line: $1 holds a NUL byte"
    mark=$(printf '\357\273\277') first=1 end=$(printf '\r')
    while IFS= read -r each || [ -n "$each" ]; do
        [ -z "$first" ] || each=${each#"$mark"}
        first=
        emit l each_line "${each%"$end"}"
    done <"$1"
}

# archiver: the lists of `list_files` -> the headers, with \1 for each zero byte. Beside it makes these files:
# `list`, of what is to be put together; `pads`, the lengths of the gaps; `size`; `fault`, if it can't be.
archiver='
function fail(words) {
    print words >"fault"
    failed = 1
    exit
}
function octal(n, count, text) {
    while (count-- > 0) {
        text = n % 8 text
        n = int(n / 8)
    }
    return text zero
}
function fill(text, count) { return text substr(zeros, 1, count - length(text)) }
function show(block, i, letters, n) {
    n = blocks++
    for (i = 0; i < 5; i++) {
        letters = substr("abcdefghijklmnopqrstuvwxyz", n % 26 + 1, 1) letters
        n = int(n / 26)
    }
    print "h" letters >"list"
    printf "%s", block
}
function header(prefix, name, mode, size, kind, target, start, end, sum, i) {
    start = fill(name, 100) octal(mode, 7) octal(0, 7) octal(0, 7) octal(size, 11) octal(946684800, 11)
    end = kind fill(target, 100) "ustar" zero "00" fill("", 80) fill(prefix, 155) fill("", 12)
    sum = 256
    for (i = 1; i <= 148; i++) sum += code[substr(start, i, 1)]
    for (i = 1; i <= 356; i++) sum += code[substr(end, i, 1)]
    show(start octal(sum, 6) " " end)
}
function long(kind, text) {
    text = text zero
    header("", "././@LongLink", 420, length(text), kind, "")
    for (; text != ""; text = substr(text, 513)) show(fill(substr(text, 1, 512), 512))
}
function cut_of(name, at) {
    for (at = length(name) - 100; at <= 156; at++)
        if (at > 1 && substr(name, at, 1) == "/") return at < length(name) ? at : 0
    return 0
}
function is_inside(target, depth, parts, count, at, inner) {
    count = split(target, parts, "/")
    if (target == "" || target ~ /^\//) return 0
    for (at = 1; at <= count; at++) {
        if (parts[at] != "..") { if (parts[at] != "" && parts[at] != ".") inner = 1 }
        else if (inner || --depth < 0) return 0
    }
    return 1
}
function entry(mode, size, kind, to, prefix, last, at, depth, unused) {
    prefix = ""
    last = name
    if (length(name) > 100) {
        if (at = cut_of(name)) {
            prefix = substr(name, 1, at - 1)
            last = substr(name, at + 1)
        } else {
            long("L", name)
            last = substr(name, 1, 100)
        }
    }
    if (kind == "2" && length(to) > 100) long("K", to)
    header(prefix, last, mode, size, kind, substr(to, 1, 100))
}
BEGIN {
    zero = sprintf("%c", 1)
    for (i = 2; i < 256; i++) code[sprintf("%c", i)] = i
    zeros = zero
    while (length(zeros) < 512) zeros = zeros zeros
    printf "" >"list"
    printf "" >"pads"
}
/^x / { program[substr($0, 3)] = 1 }
/^f / { bytes_of[substr($0, length($2) + 4)] = $2 }
/^l / { link = substr($0, 3) }
/^t / { target[link] = substr($0, 3) }
/^n / {
    path = substr($0, 3)
    name = substr($0, 5)
    files++
    if (index(name " " target[path], " -> ")) fail("holds a name with an arrow: " name)
    if (path in bytes_of) {
        entry(path in program ? 493 : 420, bytes_of[path], "0", "")
        total += bytes_of[path]
        if (total > 1073741824) fail("is more than 1 GiB")
        gap = (512 - bytes_of[path] % 512) % 512
        print "d/" name >"list"
        if (gap) {
            print "p" gap >"list"
            if (!(gap in gaps)) print gap >"pads"
            gaps[gap] = 1
            total += gap
        }
    } else {
        if (!is_inside(target[path], split(name, unused, "/") - 1))
            fail("holds a link that leads out of it: " name)
        entry(511, 0, "2", target[path])
    }
    if (files > 20000) fail("holds more than 20000 files")
}
END {
    if (failed) exit
    if (!files) fail("holds nothing to ship")
    show(zeros)
    show(zeros)
    print total + 512 * blocks, files >"size"
}
'
