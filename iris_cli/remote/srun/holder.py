"""The holder steps of a Slurm job: one per node, which start the processes that must outlive a call."""

from __future__ import annotations

from iris_cli.remote.worker_script import directory_word, holder_text, quote

_STEP = 'srun --job-name=iris-holder --overlap --nodelist="$node" --nodes=1 --ntasks=1 --mem=0'


def holder_script(remote_dir: str) -> str:
    """Return the lines of a batch script that keep a holder step running on each node, until the job ends.

    A step that ends is started again after a pause, which doubles up to 32 s because Slurm limits the number of steps
    of a job (MaxStepCount). `remote_dir` as in a connection. Raises ValueError for another user's home.
    """
    program = f"{holder_text()}hold {directory_word(remote_dir)}"
    return f"""\
holder={quote(program)}
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    pause=1
    while :; do
        {_STEP} --chdir=/ --quiet --input=none /bin/sh -c "$holder" </dev/null
        sleep "$pause"
        [ "$pause" -ge 32 ] || pause=$((pause * 2))
    done &
done
wait
"""
