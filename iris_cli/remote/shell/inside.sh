# The program `iris` of a task whose host has no other one: it stands at the end of PATH (see launch.sh).
#   iris launch|status|wait|cancel|logs|register-endpoint ...       with the words and exit codes of `iris`
# Requests go to outbox/<id>, answers come to inbox/<id>, one JSON object each (see core/requests.py).
# Beside a shell it needs the usual small tools, among them awk and od, and for logs base64 or openssl.
#
# Text becomes JSON by way of od, so that no awk has to know what a character is. What isn't UTF-8 is refused.

usage_text='usage: iris launch [OPTIONS] -- COMMAND... | status [JOB] | wait JOB... | cancel JOB...
| logs JOB|TASK | register-endpoint NAME PORT
This is the small iris of a task, for hosts without Python: options as those of iris launch, --json, --quiet.'

# main WORDS: global options may stand anywhere before `--`.
main() {
    unset CDPATH IFS POSIXLY_CORRECT
    LC_ALL=C
    export LC_ALL
    as_json= quiet= behind= checking= request_id= reading= patience=300 left=$#
    while [ "$left" -gt 0 ]; do
        word=$1 left=$((left - 1))
        shift
        case $behind$word in
        --json) as_json=1 ;;
        -q | --quiet) quiet=1 ;;
        --no-color | -v | --verbose) ;;
        --config | --config=* | --state-dir | --state-dir=* | --lock-timeout | --lock-timeout=*)
            fail 2 "${word%%=*} is for the iris of an operator: this one only works inside its task" ''
            ;;
        --)
            behind=1
            set -- "$@" "$word"
            ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    task_directory
    word=$1
    [ $# -eq 0 ] || shift
    case $word in
    launch) launch "$@" ;;
    status) status "$@" ;;
    wait) wait_jobs "$@" ;;
    cancel) cancel "$@" ;;
    logs) logs "$@" ;;
    register-endpoint) register_endpoint "$@" ;;
    '' | help | --help | -h) printf '%s\n' "$usage_text" ;;
    *) fail 2 "$word is not for the inside of a task" 'iris --help; the operator has the whole iris' ;;
    esac
}

# fail CODE MESSAGE HINT
fail() {
    printf '%s\n' "error: $2" | tr -d '\000-\011\013-\037\177' >&2
    [ -z "$3" ] || printf '%s\n' "hint: $3" | tr -d '\000-\011\013-\037\177' >&2
    exit "$1"
}

task_directory() {
    out=$IRIS_TASK_DIR/outbox in=$IRIS_TASK_DIR/inbox
    [ -n "$IRIS_TASK_DIR" ] && [ -d "$out" ] && [ -d "$in" ] ||
        fail 2 'IRIS_TASK_DIR names no directory of a task' 'this iris only works inside a task'
}

# emit KIND KEY VALUE: one field of a request, to the builder; nothing in the first pass, which only checks.
# Kinds: t text, n number, l item of a list, m entry of a mapping (KEY is key:name), f true, b false, z empty
# list, g group_by, w workspace (KEY is hash, bytes, files), a argument of the command.
emit() { [ -n "$checking" ] || printf '%s\0%s\0%s\0' "$1" "$2" "$3"; }

# ask OP EMITTER WORDS -> $id: write the request. $request_id names it, if it is set.
ask() {
    op=$1 emitter=$2
    shift 2
    checking=1
    "$emitter" "$@" || exit 2
    checking=
    id=$request_id
    [ -n "$id" ] || new_id
    [ ! -e "$in/$id" ] || return 0
    umask 077
    "$emitter" "$@" | od -An -v -tx1 | awk -v "op=$op" "$builder" >"$out/.$id.$$" || {
        code=$?
        rm -f "$out/.$id.$$"
        [ "$code" = 3 ] || fail 10 "can't write to $out" "df -h $out"
        exit 2
    }
    mv "$out/.$id.$$" "$out/$id" || fail 10 "can't write to $out" "df -h $out"
}

# new_id -> $id: of nanoseconds, or of seconds where `date` knows nothing better, and of chance.
new_id() {
    id=$(date +%s%N)
    case $id in ???????????????????) ;; *) id=$(date +%s)000000000 ;; esac
    case $id in *[!0-9]*) id=$(date +%s)000000000 ;; esac
    id=0$id-$(od -An -N8 -tx1 /dev/urandom | tr -cd 0-9a-f)
}

# await ID SECONDS: until the answer is there; false after so many seconds, if there is a limit.
await() {
    begun=$(date +%s) turns=0
    until [ -e "$in/$1" ]; do
        [ -z "$2" ] || [ $(($(date +%s) - begun)) -lt "$2" ] || return 1
        turns=$((turns + 1))
        if [ "$turns" -lt 50 ]; then sleep 0.1 2>/dev/null || sleep 1; else sleep 1; fi
    done
}

# answered ID -> $answer $flat: a `path value` for each value of the answer. A refusal ends the program.
answered() {
    await "$1" "$patience" || {
        [ -z "$reading" ] || rm -f "$out/$1"
        fail 7 'no answer for 5m: does nobody poll this cluster?' \
            "run \`iris loop start\` on the operator's machine"
    }
    answer=$(cat "$in/$1")
    rm -f "$out/$1"
    [ "$1" = "$request_id" ] || rm -f "$in/$1"
    flat=$(printf '%s\n' "$answer" | awk "$parser") || fail 1 "the answer can't be read" ''
    [ "$(said ok)" = true ] || fail "$(said error.exit_code)" "$(said error.message)" "$(said error.hint)"
}

# said PATH: one value of the answer.
said() {
    printf '%s\n' "$flat" |
        awk -v "path=$1 " 'index($0, path) == 1 { print substr($0, length(path) + 1) }'
}

# result: what was asked for, as a document of iris.
result() {
    rest=${answer#'{"v":1,"ok":true,"result":{'}
    case $rest in '}'*) printf '{"schema_version":1%s\n' "${rest%'}'}" ;;
    *) printf '{"schema_version":1,%s\n' "${rest%'}'}" ;; esac
}

# quoted TEXT: as JSON.
quoted() { printf 'q\0\0%s\0' "$1" | od -An -v -tx1 | awk -v op= "$builder"; }

tell() { [ -n "$quiet" ] || printf '%s\n' "$1" >&2; }

# fields KEY VALUE ...: those that are not empty.
fields() {
    while [ $# -gt 1 ]; do
        case $1=$2 in
        *=) ;;
        offset=* | port=* | attempt=*) emit n "$1" "$2" ;;
        *) emit t "$1" "$2" ;;
        esac
        shift 2
    done
}
