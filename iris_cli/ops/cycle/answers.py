"""Validate the content of worker answers, and turn the answer to a probe into an event with facts about the worker.

An implausible answer counts as silence. The package `remote` has already checked the form of the answer.
"""

import math
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from iris_cli.config.schema import HostConfig
from iris_cli.core import Cluster, Token, Worker, WorkerId, build_worker_attributes, constraints, count
from iris_cli.core.events.events import WorkerUpdated
from iris_cli.core.ids import is_request_id
from iris_cli.core.messages.observations import (
    AnswerHeader,
    AttemptReport,
    ProbeReport,
    ReapReport,
    RemoteState,
    Silence,
    SilenceKind,
    WorkerReport,
)
from iris_cli.core.messages.requests import MAX_REQUEST_BYTES
from iris_cli.core.topology import lookup
from iris_cli.ops.session import Session

if TYPE_CHECKING:
    from iris_cli.remote.task_runner import LogChunk

T = TypeVar("T")

MAX_TEXT = 64 << 10  # characters of a log tail, or of all text in a probe
NOT_IN_LOG = "not in the log"
MAX_UPTIME = 100 * 366 * 86400.0  # seconds; a larger uptime or age is invalid
MAX_CPUS, MAX_DEVICES, MAX_MEMORY = 1 << 16, 1 << 10, 1 << 60
_MAX_ID_LENGTH = 64
_CLOCK_SLACK = 5.0  # maximum seconds between two readings of a worker's clock for one answer

MAX_REQUESTS = 16  # maximum requests of one attempt in one answer


class LogChunks(AnswerHeader, frozen=True, kw_only=True):
    """Log chunks read on a worker. They contain no information about the states of attempts."""

    chunks: "tuple[LogChunk, ...]"


class WorkspaceFetch(AnswerHeader, frozen=True, kw_only=True):
    """Result of fetching a task's workspace into the state directory. `problem`: why it failed; '' after a success."""

    problem: str = ""


class SilentError(Exception):
    """A worker did not answer."""

    def __init__(self, silence: Silence) -> None:
        super().__init__(silence.detail)
        self.silence = silence


def answered(answer: T | Silence) -> T:
    """Return the answer. Raises SilentError if the worker did not answer."""
    if isinstance(answer, Silence):
        raise SilentError(answer)
    return answer


Observation = WorkerReport | ProbeReport | ReapReport | LogChunks | WorkspaceFetch | Silence


def validate(answer: Observation, worker: WorkerId, tokens: frozenset[Token]) -> Observation:
    """Return the answer of `worker` to a call about the attempts `tokens`; a Silence if the answer is implausible."""
    problem = next(_problems(answer, worker, tokens), None)
    if problem is None:
        return answer
    return Silence(
        worker=worker, kind=SilenceKind.PROTOCOL, step="answer", detail=f"implausible answer: {problem}"
    )


def _problems(answer: Observation, worker: WorkerId, tokens: frozenset[Token]) -> Iterator[str]:
    """Yield the reasons why an answer is implausible. The reasons do not quote the answer, which may be hostile."""
    if answer.worker != worker:
        yield "it is about another worker"
    if isinstance(answer, Silence):
        return
    if not all(_is_id(text) for text in (answer.boot_id, answer.incarnation)):
        yield "its boot id or incarnation is malformed"
    if isinstance(answer, LogChunks | WorkspaceFetch):
        return
    if not (_is_time(answer.clock) and _is_time(answer.uptime)):
        yield "its clock is invalid"
    elif isinstance(answer, ProbeReport):
        yield from _probe_problems(answer)
    elif isinstance(answer, ReapReport):
        if not tokens.issuperset(answer.tokens):
            yield "it names attempts it was not asked about"
    else:
        yield from _report_problems(answer, tokens)


def _report_problems(answer: WorkerReport, tokens: frozenset[Token]) -> Iterator[str]:
    reported = [report.token for report in answer.attempts]
    if len(set(reported)) != len(reported):
        yield "it names an attempt twice"
    if not tokens.issuperset(reported):
        yield "it names attempts it was not asked about"
    for report in answer.attempts:
        yield from _attempt_problems(report, answer.uptime)
    yield from _request_problems(answer, tokens)


def _request_problems(answer: WorkerReport, tokens: frozenset[Token]) -> Iterator[str]:
    counts = Counter(each.token for each in answer.requests)
    if not tokens.issuperset((*counts, *answer.asking)):
        yield "it has requests it was not asked for"
    elif max(counts.values(), default=0) > MAX_REQUESTS:
        yield "an attempt has too many requests"
    elif len({(each.token, each.id) for each in answer.requests}) != len(answer.requests):
        yield "an attempt used a request id twice"
    elif any(
        not is_request_id(each.id) or len(each.data or b"") > MAX_REQUEST_BYTES for each in answer.requests
    ):
        yield "a request is malformed"


def _attempt_problems(report: AttemptReport, uptime: float) -> Iterator[str]:
    since_boot = uptime + _CLOCK_SLACK if uptime else math.inf
    ages = [age for age in (report.started_ago, report.ended_ago) if age is not None]
    if not _is_time(report.last_output_ago or 0.0):
        yield "the output time of an attempt is invalid"
    if not all(_is_time(age) for age in ages):
        yield "the start or end time of an attempt is invalid"
    elif any(age > since_boot for age in ages):
        yield "an attempt started or ended before the host booted"
    elif report.state is RemoteState.EXITED and len(ages) == 2 and ages[1] > ages[0] + _CLOCK_SLACK:
        yield "an attempt ended before it started"
    if not report.is_consistent:
        yield f"contradictory facts about an attempt that is {report.state}"
    if report.output_bytes < 0 or not _is_text(report.log_tail):
        yield "the output of an attempt is malformed"
    if len({fact.kind for fact in report.facts}) != len(report.facts) or not all(
        _is_text(fact.text) for fact in report.facts
    ):
        yield "the facts about an attempt are malformed"


def _probe_problems(answer: ProbeReport) -> Iterator[str]:
    if not (
        0 <= answer.cpus <= MAX_CPUS and 0 <= answer.chips <= MAX_DEVICES and 0 <= answer.gpus <= MAX_DEVICES
    ):
        yield "no host has so many cores or devices"
    if not all(0 <= size <= MAX_MEMORY for size in (answer.memory, answer.disk_free)):
        yield "no host has so much memory or disk"
    words = [answer.gpu_variant, *answer.warnings, *(text for pair in answer.metadata for text in pair)]
    if not _is_text("\n".join(words)):
        yield "its facts are not text"


def _is_id(text: str) -> bool:
    return len(text) <= _MAX_ID_LENGTH and text.isascii() and text.isprintable()


def _is_time(seconds: float) -> bool:
    return 0 <= seconds <= MAX_UPTIME  # also false for NaN


def _is_text(text: str) -> bool:
    return len(text) <= MAX_TEXT and not any("\ud800" <= char <= "\udfff" for char in text)


def set_up_token(worker: WorkerId, incarnation: str) -> Token:
    """Return the token of the set-up on a worker of a slice. The token is computed, so the log need not record it."""
    return Token(sha256(f"set-up of {worker} {incarnation}".encode()).hexdigest()[:32])


def worker_facts(session: Session, cluster: Cluster, report: ProbeReport) -> WorkerUpdated:
    """Return the facts to record for a worker that answered a probe."""
    worker = cluster.workers[report.worker]
    host = session.hosts.get(worker.id)
    declared = dict(host.attributes) if host is not None else worker.attributes_without_taints
    probed: dict[str, object] = {constraints.PREEMPTIBLE_ATTRIBUTE_KEY: "false", **dict(report.metadata)}
    if report.gpus:
        probed[constraints.DEVICE_TYPE_ATTRIBUTE_KEY] = "gpu"
        probed[constraints.DEVICE_VARIANT_ATTRIBUTE_KEY] = report.gpu_variant or "unknown"
    built = build_worker_attributes(probed, declared)
    accelerator = built.get(constraints.TPU_TOPOLOGY_ATTRIBUTE_KEY)
    topology = lookup(str(accelerator.value)) if accelerator is not None else None
    return WorkerUpdated(
        worker=worker.id,
        connection=host.connection if host is not None else worker.connection,
        attributes=dict(built),
        cpu=host.cpu if host is not None and host.cpu is not None else float(report.cpus),
        memory=host.memory if host is not None and host.memory is not None else report.memory,
        chips=report.chips or (topology.chips_per_vm if topology is not None else 0),
        gpus=_gpus(host, report),
        boot_id=report.boot_id,
        incarnation=report.incarnation,
        declared=host.fingerprint if host is not None else worker.declared,
        containment=report.containment,
        vm=dict(report.metadata).get("instance-id", ""),
        refusal=_refusal(cluster, worker, report, built.errors),
    )


def _refusal(cluster: Cluster, worker: Worker, report: ProbeReport, errors: tuple[str, ...]) -> str:
    """Return the reasons why the worker can't be used, or "" if it can be used."""
    reasons = [text.removeprefix("refused: ") for text in report.warnings if text.startswith("refused: ")]
    for other in cluster.workers.values():
        if other.id != worker.id and other.incarnation and other.incarnation == report.incarnation:
            reasons.append(f"same host as {other.id}: two workers share one iris directory")
            break
    set_up = set_up_token(worker.id, report.incarnation)
    unknown = cluster.unknown_tokens(token for token in report.tokens if token != set_up)
    if unknown:
        reasons.append(
            f"{count(len(unknown), 'attempt')} {NOT_IN_LOG} (was the state directory restored, or is a copy in use?): "
            f"iris worker unwedge {worker.id} stops them"
        )
    return "; ".join((*errors, *reasons))


def _gpus(host: HostConfig | None, report: ProbeReport) -> int:
    declared = host.device if host is not None else None
    if declared is None:
        return report.gpus
    return {"gpu": declared.count, "cpu": 0}.get(declared.kind, report.gpus)
