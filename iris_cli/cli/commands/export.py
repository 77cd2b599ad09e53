"""`iris export`: convert a job for Kubernetes or Slurm."""

from pathlib import Path
from typing import Annotated

from iris_cli.cli import complete
from iris_cli.cli.command_types import Context, argument, flag, option
from iris_cli.core.text import one_of

EXAMPLES = """
iris export train --to sbatch --out train.sbatch
iris export train.yaml --to jobset --image IMAGE --queue tpus > train-jobset.yaml
iris export train.yaml --to jobset --image IMAGE --strict  # or an error
"""


def export(
    iris: Context,
    what: Annotated[
        str, argument("JOB|JOBFILE", "Job, job file or job script; it need not be launched.", complete.JOB)
    ],
    to: Annotated[str, option("jobset|sbatch", "Target: a JobSet on Kubernetes, or Slurm.", "--to")],
    image: Annotated[str | None, option("IMAGE", "Container image of the pods (default: the job's).")] = None,
    queue: Annotated[str | None, option("NAME", "LocalQueue of Kueue, or partition of Slurm.")] = None,
    out: Annotated[Path | None, option("FILE", "Write to this file, replacing it.")] = None,
    strict: Annotated[bool, flag("--strict", "Fail if any field has no counterpart.")] = False,
) -> None:
    """Write a job as a JobSet or as a Slurm batch script.

    For Kubernetes with JobSet, or any Slurm. Fields without a counterpart are listed on stderr and in comments;
    docs/leaving.md has a table of all fields.
    """
    from iris_cli.ops.export.counterparts import Engine
    from iris_cli.ops.export.export import export as write
    from iris_cli.ops.export.source import defaults_of, from_file, from_state, is_job_file
    from iris_cli.render.export import show_export

    engine = Engine(one_of(to, Engine))
    if is_job_file(Path(what)):
        source = from_file(Path(what), defaults_of(iris))
    else:
        session = iris.session("iris export")
        source = from_state(session, what)
        iris.output.warnings(session.messages)
    exported = write(source, engine, image=image, queue=queue, strict=strict)
    if out is not None:
        from iris_cli.ops.setup.init import write_text

        write_text(out, exported.text, force=True)
    show_export(iris.output, exported, out)
