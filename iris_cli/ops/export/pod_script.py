"""The script of a container. It sets the rank's variables, runs the set-up, and starts the program.

This module also computes the names of the pods.
"""

from collections.abc import Iterator
from hashlib import sha256

from iris_cli.core import MAX_STRING, pattern
from iris_cli.ops.cycle.environment import JAX_PORT
from iris_cli.ops.export import shell
from iris_cli.ops.export.source import Source

TASK_DIR = "/iris"
"""Directory of the task. It is a volume that is deleted with the pod."""

_FIRST_PORT = 20_000  # all ports are free, because each pod has a separate address

MAX_LENGTH = 40
"""Maximum length of a JobSet's name. Pods add `-slice-9999-9999-` and five characters; their limit is 63."""

_LABEL = pattern(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_HASHED = pattern(r".*-[0-9a-f]{10}")
_LABEL_VALUE = pattern(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NOT_IN_LABEL = pattern(r"[^a-z0-9]+")


def dns_label(name: str) -> str:
    """Return a DNS label for the name, with at most `MAX_LENGTH` characters. Different names have different labels.

    A valid name is unchanged, unless it ends like a hash. All other names get a hash at the end.
    """
    if len(name) <= MAX_LENGTH and _LABEL.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = sha256(name.encode()).hexdigest()[:10]
    stem = _NOT_IN_LABEL.sub("-", name.lower())[: MAX_LENGTH - len(digest) - 2].strip("-")
    if not stem[:1].isalpha():
        stem = f"j{stem}"
    return f"{stem}-{digest}"


def is_label_value(text: str) -> bool:
    """Return True if the text is a valid label value. A valid value that is not empty is also a valid label name."""
    return _LABEL_VALUE.fullmatch(text) is not None


def replicated_job(source: Source) -> str:
    return "slice" if source.starts_together else "task"


def pod_fields(source: Source) -> dict[str, str]:
    """Return the environment variables that Kubernetes sets from fields of the pod, with the paths of the fields."""
    found = {
        "IRIS_WORKER_ID": "spec.nodeName",
        "IRIS_SLICE_INDEX": "metadata.annotations['jobset.sigs.k8s.io/job-index']",
    }
    if source.starts_together:
        attempt = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"
    else:
        attempt = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
    return {**found, "IRIS_ATTEMPT": attempt}


def hosts_length(source: Source, slices: int, pods: int) -> int:
    """Return the maximum size of IRIS_HOSTS in bytes."""
    name = dns_label(source.job.id)
    longest = f"{name}-{replicated_job(source)}-{slices - 1}-{pods - 1}.{name},"
    return len("IRIS_HOSTS=") + len(longest) * (slices * pods if source.starts_together else 1)


def script(source: Source, slices: int, pods: int) -> str:
    """Return the script. Its arguments are the set-up command if the job has one, then the words of the program."""
    return "\n".join(_lines(source, slices, pods)) + "\n"


def _lines(source: Source, slices: int, pods: int) -> Iterator[str]:
    job = source.job
    yield f"export IRIS_TASK_INDEX=$((IRIS_SLICE_INDEX * {pods} + JOB_COMPLETION_INDEX))"
    yield from _host_lines(source, slices, pods)
    tpu = job.resources.device_type == "tpu"
    name = f"{dns_label(job.id)}-{replicated_job(source)}"
    yield from shell.computed_exports(
        {
            "IRIS_TASK_ID": "$IRIS_JOB_ID/task-$IRIS_TASK_INDEX",
            "IRIS_SLICE": f"{name}-$IRIS_SLICE_INDEX" if tpu else "",
            "IRIS_HOSTS": "$IRIS_HOSTS",
            "IRIS_COORDINATOR_ADDRESS": f"$IRIS_FIRST:{JAX_PORT if tpu else _FIRST_PORT}",
            "IRIS_TASK_DIR": TASK_DIR,
            "IRIS_OUTPUT_DIR": f"{TASK_DIR}/output",
            "IRIS_WORKDIR": "$PWD",
            **shell.named_ports(job, str(_FIRST_PORT)),
        }
    )
    ranks = slices * pods if source.starts_together else 1
    yield f"IRIS_RANK={'$IRIS_TASK_INDEX' if source.starts_together else 0}"
    yield from shell.computed_exports(shell.rank_variables(job, ranks, slices))
    if job.indexes:
        yield from shell.array_index_lines(job.indexes)
    if source.lines:
        yield from shell.each_line_lines(source.lines)
    yield 'mkdir -p "$IRIS_OUTPUT_DIR" || exit'
    if job.setup:
        yield from ('/bin/sh -c "$1" || exit', "shift")
    yield 'exec "$@"'


def _host_lines(source: Source, slices: int, pods: int) -> Iterator[str]:
    """Yield lines that set IRIS_FIRST and IRIS_HOSTS to names of pods. If IRIS_HOSTS would be too long, it is empty."""
    name = dns_label(source.job.id)
    host = f"{name}-{replicated_job(source)}"
    if not source.starts_together:
        yield f"IRIS_FIRST={host}-$IRIS_SLICE_INDEX-$JOB_COMPLETION_INDEX.{name} IRIS_HOSTS=$IRIS_FIRST"
        return
    yield f"IRIS_FIRST={host}-0-0.{name} IRIS_HOSTS="
    if hosts_length(source, slices, pods) > MAX_STRING:
        return
    yield "IRIS_S=0"
    yield f'while [ "$IRIS_S" -lt {slices} ]; do'
    yield "    IRIS_P=0"
    yield f'    while [ "$IRIS_P" -lt {pods} ]; do'
    yield f"        IRIS_HOSTS=$IRIS_HOSTS,{host}-$IRIS_S-$IRIS_P.{name}"
    yield "        IRIS_P=$((IRIS_P + 1))"
    yield "    done"
    yield "    IRIS_S=$((IRIS_S + 1))"
    yield "done"
    yield "IRIS_HOSTS=${IRIS_HOSTS#,}"
