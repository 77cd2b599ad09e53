# What the program `iris` of a task can do beside `launch`.

# check_job TEXT: what begins with a dash is an option that isn't there.
check_job() { case $1 in '' | -*) refuse "${1:-an empty word} is no job" 'iris --help' ;; esac; }

status() {
    [ $# -le 1 ] || refuse 'status takes one job'
    [ $# -eq 0 ] || check_job "$1"
    reading=1
    ask status fields job "$1"
    answered "$id"
    if [ -n "$as_json" ]; then
        result
        return
    fi
    why=$(said result.job.why) display=$(said result.job.display)
    printf '%s\n' "$(said result.job.id)  ${display:-$(said result.job.state)}${why:+  $why}"
    printf '%s\n' "$flat" | awk "$task_lines"
}

# wait_jobs JOB... [--timeout TIME]: the worst end decides the exit code.
wait_jobs() {
    limit= jobs= ids= reading=1
    while [ $# -gt 0 ]; do
        case $1 in
        --timeout) time=$2 && [ $# -gt 1 ] || refuse '--timeout needs a value' ;;
        --timeout=*) time=${1#*=} ;;
        *)
            check_job "$1"
            case $IRIS_JOB_ID/ in
            "$1"/*) refuse "$1 can't be over before this task is, which is part of it" ;;
            esac
            jobs="$jobs $1" time=
            ;;
        esac
        if [ -n "$time" ]; then
            limit=$(awk -v "text=$time" "$seconds") || refuse "$time is not a time" 'write 90s, 10m or 2h'
            [ "$1" != --timeout ] || shift
        fi
        shift
    done
    [ -n "$jobs" ] || refuse 'there is no job to wait for'
    # BEFORE words are split: an id with a star in it must not become the name of a file.
    set -f
    for each in $jobs; do
        ask wait fields job "$each"
        ids="$ids $id"
    done
    until_when=$((${limit:+$(date +%s)} + ${limit:-0})) worst=0 timed_out=false documents=
    for id in $ids; do
        patience=
        if [ -n "$limit" ]; then
            patience=$((until_when - $(date +%s)))
            await "$id" "$patience" || {
                timed_out=true
                rm -f "$out/$id"
                continue
            }
        fi
        answered "$id"
        ended
    done
    [ -z "$as_json" ] || printf '{"schema_version":1,"jobs":[%s],"timed_out":%s}\n' "$documents" "$timed_out"
    [ "$timed_out" = false ] || tell 'the time is over and a job goes on'
    case $timed_out$worst in true*) exit 1 ;; *3) exit 1 ;; *2) exit 9 ;; *1) exit 8 ;; esac
}

# ended: how the job of the answer ended -> $worst, in the order of iris: KILLED, UNSCHEDULABLE, FAILED.
ended() {
    job=$(said result.job.id) state=$(said result.job.state) why=$(said result.job.why)
    case $state in FAILED) rank=3 ;; UNSCHEDULABLE) rank=2 ;; KILLED) rank=1 ;; *) rank=0 ;; esac
    [ "$rank" -le "$worst" ] || worst=$rank
    [ -n "$as_json" ] || printf '%s\n' "$job: $state${why:+: $why}"
    document="{\"job\":\"$job\",\"state\":\"$state\",\"reason\":$(quoted "$why")}"
    documents="$documents${documents:+,}$document"
}

cancel() {
    reason= jobs=
    while [ $# -gt 0 ]; do
        case $1 in
        --reason=*) reason=${1#*=} ;;
        --reason)
            [ $# -gt 1 ] || refuse '--reason needs a value'
            reason=$2
            shift
            ;;
        *)
            check_job "$1"
            jobs="$jobs $1"
            ;;
        esac
        shift
    done
    [ -n "$jobs" ] || refuse 'there is no job to cancel'
    set -f
    cancelled=
    for each in $jobs; do
        ask cancel fields job "$each" reason "$reason"
        answered "$id"
        if [ "$(said result.cancelled)" = true ]; then
            cancelled="$cancelled${cancelled:+,}\"$each\""
            [ -n "$as_json" ] || printf '%s\n' "cancelled $each"
        else
            tell "$each was over already"
        fi
    done
    [ -z "$as_json" ] || printf '{"schema_version":1,"cancelled":[%s]}\n' "$cancelled"
}

# logs JOB|TASK [--tail N|all] [--stream out|err|both] [--attempt N]
logs() {
    tail=20 streams='out err' attempt= what= reading=1
    [ -z "$as_json" ] || refuse 'the logs of the small iris are no JSON'
    while [ $# -gt 0 ]; do
        case $1 in
        --*=*) option=${1%%=*} value=${1#*=} ;;
        -*)
            [ $# -gt 1 ] || refuse "$1 needs a value, or is not for the inside of a task"
            option=$1 value=$2
            shift
            ;;
        *)
            check_job "$1"
            what=$1 option=
            ;;
        esac
        case $option in
        '') ;;
        --tail | -n) tail=$value ;;
        --attempt) attempt=$value ;;
        --stream)
            case $value in
            out | err) streams=$value ;;
            both) ;;
            *) refuse "--stream $value is neither out nor err nor both" ;;
            esac
            ;;
        *) refuse "the small iris of a task has no option $option" 'iris --help' ;;
        esac
        shift
    done
    case $tail in all) ;; '' | *[!0-9]*) refuse "--tail $tail is not a number of lines" ;; esac
    case $what in
    '') refuse 'there is no job or task whose logs are meant' ;;
    */task-[0-9]*) tasks=$what ;;
    *)
        ask status fields job "$what"
        answered "$id"
        tasks=$(printf '%s\n' "$flat" | awk '$1 ~ /^result[.]tasks[.][0-9]+[.]id$/ { print $2 }')
        ;;
    esac
    set -f
    for task in $tasks; do
        for stream in $streams; do stream_lines; done
    done
}

# stream_lines: of $stream of $task; of long ones only what is in the last 64 KiB, if a number is asked for.
stream_lines() {
    if [ "$tail" = all ]; then
        offset=0 size=1
        while [ "$offset" -lt "$size" ]; do
            log_piece "$offset"
            decoded | harmless
            offset=$((offset + length))
            [ "$length" -gt 0 ] || break
        done
    else
        log_piece -65536
        decoded | tail -n "$tail" | harmless
    fi
}

# log_piece OFFSET -> $data $length $size
log_piece() {
    ask logs fields task "$task" stream "$stream" offset "$1" attempt "$attempt"
    answered "$id"
    data=$(said result.data) size=$(said result.size)
    length=$((${#data} / 4 * 3))
    case $data in *==) length=$((length - 2)) ;; *=) length=$((length - 1)) ;; esac
}

decoded() {
    if command -v base64 >/dev/null 2>&1; then
        printf '%s' "$data" | base64 -d
    else
        printf '%s\n' "$data" | openssl base64 -d -A
    fi
}

# harmless: a program's words are no orders to a terminal.
harmless() { tr -d '\000-\010\013-\037\177'; }

register_endpoint() {
    op=register_endpoint
    for each; do [ "$each" != --remove ] || op=remove_endpoint; done
    ask "$op" endpoint_fields "$@"
    answered "$id"
    [ -z "$as_json" ] || result
}

# endpoint_fields NAME [PORT] [--metadata NAME=VALUE]... [--remove]
endpoint_fields() {
    name= port=
    while [ $# -gt 0 ]; do
        case $1 in
        --remove) ;;
        --metadata | --metadata=*)
            if [ "$1" = --metadata ]; then value=$2 && shift; else value=${1#*=}; fi
            case $value in ?*=*) ;; *) refuse "--metadata $value is not NAME=VALUE" ;; esac
            [ "$op" != register_endpoint ] || emit m "metadata:${value%%=*}" "${value#*=}"
            ;;
        -*) refuse "the small iris of a task has no option $1" 'iris --help' ;;
        *) if [ -z "$name" ]; then name=$1; else port=$1; fi ;;
        esac
        shift
    done
    [ -n "$name" ] || refuse 'the endpoint has no name' 'iris register-endpoint NAME PORT'
    [ "$op" != register_endpoint ] || [ -n "$port" ] || refuse 'the endpoint has no port'
    fields name "$name" port "$port"
}
