"""The sbatch command of one allocation, and the comment by which iris recognizes its jobs."""

from __future__ import annotations

from hashlib import sha256

from iris_cli.core import ScaleGroup
from iris_cli.core.messages.cloud import LABEL_PREFIX

_HOLD = "while :; do sleep 3600; done"


def default_directory(uid: str, name: str) -> str:
    """Return the default directory of iris on the nodes of an allocation. Unlike homes, /tmp is not shared by nodes."""
    return f"/tmp/iris-{uid}/{name}"  # noqa: S108 - the shell library checks its owner and makes it 0700


def build_comment(name: str, owner: str, group: str) -> str:
    """Return the comment of a slice's job: owner, scale group, and a hash that also depends on the slice's name."""
    token = sha256(f"{owner} {group} {name}".encode()).hexdigest()[:16]
    return f"{LABEL_PREFIX}{owner}:{group}:{token}"


def find_group(comment: str, name: str, owner: str) -> str | None:
    """Return the scale group in a comment; None if the job with this comment is not the owner's slice `name`."""
    group = comment.split(":")[1] if comment.count(":") == 2 else ""
    return group if comment == build_comment(name, owner, group) else None


def sbatch(name: str, owner: str, group: ScaleGroup, hold: str = _HOLD) -> list[str]:
    """Return the command that submits the allocation of one slice. `hold`: shell lines that keep the job running.

    Names are not unique in Slurm. With the dependency `singleton`, only one job with a name runs at a time.
    """
    options = group.template.slurm
    wanted = {
        "job-name": name,
        "comment": build_comment(name, owner, group.name),
        "dependency": "singleton",
        "nodes": str(options.nodes),
        "ntasks-per-node": "1",
        "chdir": "/",
        "output": "/dev/null",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "time": _time(options.time) if options.time else "",
        "gres": options.gres,
        "constraint": options.constraint,
    }
    return [
        "sbatch",
        "--parsable",
        "--no-requeue",
        *(f"--{key}={value}" for key, value in wanted.items() if value),
        *options.directives,
        f"--wrap=umask 077\n{hold}",
    ]


def _time(seconds: float) -> str:
    """Return a time limit as Slurm writes it: `1-02:03:04`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"
