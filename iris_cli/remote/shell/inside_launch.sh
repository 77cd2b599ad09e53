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
        case $option in
        --force | --spread | --keep-going | --fail-fast | --no-inherit-constraints | --wait | --no-schedule)
            [ "$option" = "$1" ] || refuse "$option takes no value"
            shifts=1
            ;;
        -*) [ "$shifts" -le $# ] || refuse "$option needs a value" ;;
        *) refuse "$option is no option" "put -- before the command: -- $option ..." ;;
        esac
        job_field || return
        shift "$shifts"
    done
    [ -z "$none" ] || [ -z "$some" ] || emit b inherit_constraints ''
    [ $# -gt 1 ] || refuse 'there is no command to run' 'iris launch [OPTIONS] -- COMMAND ...'
    shift
    for each; do emit a '' "$each"; done
}

# job_field: one field, from $option and $value.
job_field() {
    key=${option#--}
    while :; do case $key in *-*) key=${key%%-*}_${key#*-} ;; *) break ;; esac; done
    case $option in
    --name | --tpu | --gpu | --memory | --setup | --env-preset | --priority | --scheduling-timeout | \
        --timeout | --setup-timeout | --grace | --lease | --replace-lost | --signal | --array)
        emit t "$key" "$value"
        ;;
    --cpu | --replicas | --slices | --max-retries-failure | --max-retries-preemption | \
        --max-task-failures) emit n "$key" "$value" ;;
    -c | --constraint | --prefer)
        some=1
        case $option in --prefer) key=prefer ;; *) key=constraints ;; esac
        emit l "$key" "$value"
        ;;
    --tolerate | --after) emit l "$key" "$value" ;;
    --ports)
        for each in $(printf '%s' "$value" | tr , ' '); do emit l ports "$each"; done
        ;;
    --secret) emit l secrets "$value" ;;
    --workdir)
        pack "$value"
        emit w "$packed_as" "$packed_name"
        ;;
    --each-line) each_line "$value" ;;
    -e | --env) environment "$value" ;;
    --label)
        case $value in ?*=*) ;; *) refuse "--label $value is not NAME=VALUE" ;; esac
        emit m "labels:${value%%=*}" "${value#*=}"
        ;;
    --group-by) emit g '' "$value" ;;
    --force | --spread | --keep-going) emit f "$key" '' ;;
    --fail-fast) emit b keep_going '' ;;
    --no-inherit-constraints)
        none=1
        emit z constraints ''
        ;;
    --wait) wait_too=1 ;;
    --no-schedule) ;;
    --request-id)
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
