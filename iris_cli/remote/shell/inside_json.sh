# JSON in awk, for inside.sh. Works in mawk, gawk, busybox awk and the one true awk; a character is a byte
# there (LC_ALL=C).

# builder: hexadecimal bytes of od -> one request. Fields end with a zero byte; they are kind, key, value in
# turn.
builder='
BEGIN {
    for (i = 32; i < 127; i++) ascii[i] = sprintf("%c", i)
    ascii[34] = "\\\""
    ascii[92] = "\\\\"
    low = 128
    high = 191
}
{
    for (f = 1; f <= NF; f++) take(number($f))
}
END {
    if (failed) exit failed
    if (need) fail("it ends within a character: that is not UTF-8 text")
    for (i = 1; i <= keys; i++) {
        k = key[i]
        if (k in list) v = "[" list[k] "]"
        else if (k in map) v = "{" entries(k) "}"
        else v = scalar[k]
        job = job (i > 1 ? "," : "") "\"" k "\":" v
    }
    if (op == "submit") job = "\"job\":{" job "}"
    request = "{\"v\":1,\"op\":\"" op "\"" (job == "" ? "" : ",") job "}"
    if (length(request) > 65535) fail("the request takes more than 65536 bytes: put the data into a file")
    if (op != "") print request
}
function number(hex, digits) {
    digits = "0123456789abcdef"
    return 16 * index(digits, substr(hex, 1, 1)) + index(digits, substr(hex, 2, 1)) - 17
}
function fail(words) {
    print "error: " words | "cat 1>&2"
    failed = 3
    exit 3
}
function take(b) {
    if (need) {
        if (b < low || b > high) fail("byte " b " is not where it is UTF-8 text")
        code = code * 64 + b - 128
        low = 128
        high = 191
        if (--need == 0) add(escaped(code))
    } else if (b == 0) {
        field(text piece)
        text = piece = ""
    } else if (b < 128) {
        add(b < 32 || b == 127 ? sprintf("\\u%04x", b) : ascii[b])
    } else {
        begin(b)
    }
}
function begin(b) {
    if (b < 194 || b > 244) fail("byte " b " is in no UTF-8 text")
    need = b < 224 ? 1 : b < 240 ? 2 : 3
    code = b - (b < 224 ? 192 : b < 240 ? 224 : 240)
    if (b == 224) low = 160
    if (b == 237) high = 159
    if (b == 240) low = 144
    if (b == 244) high = 143
}
function add(more) {
    piece = piece more
    if (length(piece) > 500) {
        text = text piece
        piece = ""
    }
}
function escaped(c) {
    if (c < 65536) return sprintf("\\u%04x", c)
    c -= 65536
    return sprintf("\\u%04x\\u%04x", 55296 + int(c / 1024), 56320 + c % 1024)
}
function field(t) {
    if (++fields % 3 == 1) kind = t
    else if (fields % 3 == 2) name = t
    else put(kind, name, t)
}
function known(k) {
    if (!(k in have)) key[++keys] = k
    have[k] = 1
}
function put(kind, k, v, at) {
    if (kind == "q") printf "\"%s\"", v
    else if (kind == "m") entry(k, v)
    else if (kind == "a") item("command", v)
    else if (kind == "l") item(k, v)
    else {
        if (kind == "w") {
            split(k, at, " ")
            v = "{\"hash\":\"" at[1] "\",\"size\":" at[2] ",\"files\":" at[3] ",\"name\":\"" v "\"}"
            k = "workspace"
        }
        if (kind == "g") v = "{\"group_by\":\"" v "\"}"
        if (kind == "t") v = "\"" v "\""
        if (kind == "f") v = "true"
        if (kind == "b") v = "false"
        if (kind == "z") v = "[]"
        if (kind == "n") v = numeric(k, v)
        if (kind == "g") k = "coscheduling"
        if (kind != "z" || !(k in list)) {
            known(k)
            scalar[k] = v
        }
    }
}
function item(k, v) {
    known(k)
    if (k in list) list[k] = list[k] ",\"" v "\""
    else list[k] = "\"" v "\""
}
function entry(k, v, at, n) {
    at = index(k, ":")
    n = substr(k, at + 1)
    k = substr(k, 1, at - 1)
    known(k)
    if (!((k, n) in value)) names[k, ++map[k]] = n
    value[k, n] = v
}
function entries(k, i, n, all) {
    for (i = 1; i <= map[k]; i++) {
        n = names[k, i]
        all = all (i > 1 ? "," : "") "\"" n "\":\"" value[k, n] "\""
    }
    return all
}
function numeric(k, v) {
    if (v ~ /^[.]/) v = "0" v
    if (v !~ /^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$/) {
        gsub(/_/, "-", k)
        fail("--" k ": that is not a number")
    }
    return v
}
'

# parser: one answer -> a line for each value: its path, a blank, and the value. What can't be seen, or would
# change what is, stays as it is escaped.
parser='
{ s = s $0 }
END {
    p = 1
    n = length(s)
    value("")
    if (bad || p <= n) exit 1
}
function value(path, c, k, i) {
    c = substr(s, p, 1)
    if (bad) return
    if (c == "{" || c == "[") {
        p++
        k = c == "{" ? "}" : "]"
        if (substr(s, p, 1) == k) {
            p++
            return
        }
        i = 0
        do {
            if (c == "{") {
                name = string()
                p++
            } else name = i++
            value(path == "" ? name : path "." name)
            p++
        } while (!bad && substr(s, p - 1, 1) == ",")
        if (substr(s, p - 1, 1) != k) bad = 1
    } else if (c == "\"") {
        print path " " string()
    } else if (match(substr(s, p, 40), /^[-+0-9.a-zA-Z]+/)) {
        print path " " substr(s, p, RLENGTH)
        p += RLENGTH
    } else bad = 1
}
function string(chunk, found, c) {
    if (substr(s, p++, 1) != "\"") bad = 1
    while (!bad && p <= n) {
        chunk = substr(s, p, 4096)
        match(chunk, /^[^"\\]*/)
        found = found substr(chunk, 1, RLENGTH)
        p += RLENGTH
        if (RLENGTH == length(chunk)) continue
        if (substr(s, p, 1) == "\"") {
            p++
            return found
        }
        found = found unescaped()
    }
    bad = 1
    return found
}
function unescaped(c, code) {
    c = substr(s, p + 1, 1)
    p += 2
    if (c == "\"" || c == "\\" || c == "/") return c
    if (c == "t") return " "
    if (c == "n") return shown(9166)
    if (c != "u") return kept(c == "r" ? 13 : c == "b" ? 8 : 12)
    code = hexadecimal(substr(s, p, 4))
    p += 4
    if (code >= 55296 && code < 56320 && substr(s, p, 2) == "\\u") {
        code = 65536 + (code - 55296) * 1024 + hexadecimal(substr(s, p + 2, 4)) - 56320
        p += 6
    }
    return shown(code)
}
function hexadecimal(digits, i, sum) {
    for (i = 1; i <= 4; i++) sum = sum * 16 + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
    return sum
}
function shown(c) {
    if (c > 31 && c < 127) return sprintf("%c", c)
    if (c < 160 || c == 1564 || (c >= 8203 && c <= 8207) || (c >= 8232 && c <= 8238)) return kept(c)
    if ((c >= 8294 && c <= 8297) || (c >= 55296 && c < 57344) || c == 65279) return kept(c)
    if (c < 2048) return sprintf("%c%c", 192 + int(c / 64), 128 + c % 64)
    if (c < 65536) return sprintf("%c%c%c", 224 + int(c / 4096), 128 + int(c / 64) % 64, 128 + c % 64)
    return sprintf("%c%c", 240 + int(c / 262144), 128 + int(c / 4096) % 64) \
        sprintf("%c%c", 128 + int(c / 64) % 64, 128 + c % 64)
}
function kept(c) {
    return sprintf(c < 256 ? "\\x%02x" : "\\u%04x", c)
}
'

# task_lines: the tasks of an answer and where they listen, one in a line.
task_lines='
index($1, "result.tasks.") == 1 || index($1, "result.endpoints.") == 1 {
    split($1, parts, ".")
    what = parts[2]
    i = parts[3] + 0
    if (i >= many[what]) many[what] = i + 1
    v = $0
    sub(/^[^ ]* /, "", v)
    said[what, i, parts[4]] = v == "null" ? "" : v
}
END {
    for (i = 0; i < many["tasks"]; i++) {
        display = said["tasks", i, "display"]
        line = said["tasks", i, "id"] "  " (display != "" ? display : said["tasks", i, "state"])
        if (said["tasks", i, "worker"] != "") line = line "  " said["tasks", i, "worker"]
        if (said["tasks", i, "why"] != "") line = line "  " said["tasks", i, "why"]
        print line
    }
    for (i = 0; i < many["endpoints"]; i++) {
        line = said["endpoints", i, "task"] "  " said["endpoints", i, "name"] "  "
        print line said["endpoints", i, "address"] ":" said["endpoints", i, "port"]
    }
}
'

# seconds: `text`, such as 1h30m, in whole seconds.
seconds='
BEGIN {
    per["s"] = 1
    per["m"] = 60
    per["h"] = 3600
    per["d"] = 86400
    if (text ~ /^[0-9]+([.][0-9]+)?$/) text = text "s"
    if (text == "" || text !~ /^([0-9]+([.][0-9]+)?(ms|s|m|h|d))+$/) exit 1
    while (match(text, /^[0-9.]+/)) {
        many = substr(text, 1, RLENGTH) + 0
        text = substr(text, RLENGTH + 1)
        unit = substr(text, 1, 2) == "ms" ? "ms" : substr(text, 1, 1)
        sum += unit == "ms" ? many / 1000 : many * per[unit]
        text = substr(text, length(unit) + 1)
    }
    whole = int(sum)
    printf "%d\n", (sum > whole ? whole + 1 : whole)
}
'
