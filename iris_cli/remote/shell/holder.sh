# The holder: a step of a Slurm job, one per node, that starts processes for calls (handover.sh). It runs as
# long as the job. The processes belong to its step. Its directory has the file `pid` with its pid, start time
# and boot id, and a pipe named <pid>. Each request in the pipe is a line TOKEN ARGUMENT FILE (see `begin`).

# hold REMOTE_DIR: run as the holder of this node. Returns only after an error.
hold() {
    umask 077
    mkdir -p "$1" 2>/dev/null
    is_ours "$1" || { printf 'iris: another user may control %s\n' "$1" >&2 && return 1; }
    directory=$1/holder.$SLURM_JOB_ID.$SLURMD_NODENAME
    forget_slurm
    mkdir "$directory" 2>/dev/null
    cd "$directory" || return
    [ ! -r pid ] || ! read -r old _ <pid || rm -f "./$old" # the pipe of a holder that was killed
    mkfifo "$$" && exec 4<>"./$$" || return
    boot_id
    read_start $$ && printf '%s %s %s\n' $$ "$start" "$boot" >new && mv new pid && cd / || return
    while :; do
        IFS= read -r request <&4 || { nap 1 && continue; }
        rest=${request#* }
        begin "${request%% *}" "${rest#* }" "${rest%% *}" 4<&-
    done
}

# forget_slurm: unset the variables of the holder's step, because a task could mistake the step's rank and
# nodes for its own. Also unset LC_ALL, which comes from the command that submitted the job.
forget_slurm() {
    unset LC_ALL
    for name in $(env | sed -n -e 's/^\(SLURM[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(PMI[A-Z0-9_]*\)=.*/\1/p'); do
        case $name in SLURM_CONF | SLURM_JOB_ID) ;; *) unset "$name" ;; esac
    done
}
