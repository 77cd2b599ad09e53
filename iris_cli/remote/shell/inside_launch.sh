# `iris launch` inside a task: its options, one for each field of a request.

launch() {
    wait_too= request_id= packed_as=
    ask submit job_fields "$@"
    answered "$id"
    [ -z "$packed_as" ] || rm -f "$out/.packed/${packed_as%% *}.tar.gz"
    job=$(said result.job)
    request_id=
    if [ -z "$as_json" ]; then
        printf '%s\n' "$job"
    elif [ -z "$wait_too" ]; then
        result
    fi
    [ -z "$wait_too" ] || wait_jobs "$job"
}

# job_fields WORDS: the options of `iris launch`, and what is behind `--`.
job_fields() {
    none= some=
    while [ $# -gt 0 ]; do
        case $1 in
        --) break ;;
        --*=*) option=${1%%=*} value=${1#*=} shifts=1 ;;
        -[ce]?*)
            value=${1#-?} shifts=1
            option=${1%"$value"}
            ;;
        *) option=$1 value=$2 shifts=2 ;;
        esac
        option_kind "$option"
        case $kind in
        on | off | none | wait_too | ignored)
            [ "$option" = "$1" ] || refuse "$option takes no value"
            shifts=1
            ;;
        *)
            case $option in
            -*) ;;
            *) refuse "$option is no option" "put -- before the command: -- $option ..." ;;
            esac
            [ "$shifts" -le $# ] || refuse "$option needs a value"
            ;;
        esac
        job_field || return
        shift "$shifts"
    done
    [ -z "$none" ] || [ -z "$some" ] || emit b inherit_constraints ''
    [ $# -gt 1 ] || refuse 'there is no command to run' 'iris launch [OPTIONS] -- COMMAND ...'
    shift
    for each; do emit a '' "$each"; done
}

# option_kind OPTION: how its value is read, in $kind, and the field that it says, in $key.
# What comes before is written from the table of job fields: see job_option_kinds.
option_kind() {
    job_option_kind "$1" && return
    case $1 in
    --no-inherit-constraints) kind=none ;;
    --wait) kind=wait_too ;;
    --no-schedule) kind=ignored ;;
    --request-id) kind=request_id ;;
    *) kind=unknown ;;
    esac
}

# job_field: one field, from $option, $kind, $key and $value.
job_field() {
    case $kind in
    text) emit t "$key" "$value" ;;
    number) emit n "$key" "$value" ;;
    list) emit l "$key" "$value" ;;
    constraints)
        some=1
        emit l "$key" "$value"
        ;;
    ports)
        for each in $(printf '%s' "$value" | tr , ' '); do emit l "$key" "$each"; done
        ;;
    directory)
        pack "$value"
        emit w "$packed_as" "$packed_name"
        ;;
    lines) each_line "$value" ;;
    variables) environment "$value" ;;
    labels)
        case $value in ?*=*) ;; *) refuse "$option $value is not NAME=VALUE" ;; esac
        emit m "$key:${value%%=*}" "${value#*=}"
        ;;
    group) emit g '' "$value" ;;
    on) emit f "$key" '' ;;
    off) emit b "$key" '' ;;
    none)
        none=1
        emit z constraints ''
        ;;
    wait_too) wait_too=1 ;;
    ignored) ;;
    request_id)
        case $value in '' | .* | -* | *[!A-Za-z0-9._-]*) refuse "$value can't be a request id" ;; esac
        [ ${#value} -le 64 ] || refuse 'a request id has 64 characters at most'
        request_id=$value
        ;;
    *) refuse "the small iris of a task has no option $option" 'iris --help' ;;
    esac
}

# refuse MESSAGE HINT
refuse() { fail 2 "$1" "$2"; }

# environment NAME=VALUE, or NAME of a variable that is here.
environment() {
    case ${1%%=*} in
    '' | [0-9]* | *[!A-Za-z0-9_]*) refuse "--env ${1%%=*} can't be the name of a variable" ;;
    esac
    case $1 in *=*) emit m "env:${1%%=*}" "${1#*=}" ;;
    *)
        eval "value=\${$1-} there=\${$1+1}"
        [ -n "$there" ] || refuse "--env $1: there is no such variable here" "write --env $1=VALUE"
        emit m "env:$1" "$value"
        ;;
    esac
}
