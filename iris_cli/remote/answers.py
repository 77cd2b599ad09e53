"""Parse the lines of a frame into reports. A line outside the grammar invalidates the whole answer."""

import base64
import binascii
import re
from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct

from iris_cli.core import PREEMPTIBLE_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY, ZONE_ATTRIBUTE_KEY, Fact
from iris_cli.core.ids import RequestId, Token, WorkerId, is_request_id
from iris_cli.core.messages import observations
from iris_cli.core.messages.requests import MAX_REQUEST_BYTES
from iris_cli.remote.frames import NUMBER, Frame, add_facts, malformed_answer

MAX_TAIL = 8 << 10
MAX_TEXT = 32 << 10
MAX_COMMAND = 2 << 10
MAX_WARNINGS = 16 << 10
MAX_CLOCK = 253_402_300_799
"""The end of the year 9999, in seconds since the epoch."""
MAX_UPTIME = 100 * 366 * 86_400 * 100
"""One hundred years in hundredths of a second. Without /proc, uptime may count from 1970."""

_CLOCK = re.compile(rf"H ({NUMBER}) ({NUMBER})")
_ATTEMPT = re.compile(
    rf"A ([0-9a-f]{{32}}) ([A-Z]+) (-|{NUMBER}) (-|[a-z]+) (-|{NUMBER}) (-|{NUMBER}) ({NUMBER}) (-|{NUMBER})"
)
_MISSING_WORKSPACE = re.compile(r"W ([0-9a-f]{64})")
_AMOUNT = re.compile(rf"P (cpus|memory|disk_free) ({NUMBER})")
_COUNT = re.compile(r"P (chips|gpus) (0|[1-9][0-9]{0,3})")  # at most 9999, because iris lists each device
_TEXT = re.compile(
    r"V (gpu_variant|containment|accelerator-type|agent-worker-number|instance-id|worker-network-endpoints"
    r"|tpu-env|zone|preemptible|slurm-cgroup)"
)
_HOLDER = re.compile(rf"C ({NUMBER}) ({NUMBER}) (-|[0-9a-f]{{32}})")
_LOCK = re.compile(rf"F (none|held|stale|foreign) ({NUMBER})")
_MISSING_COMMAND = re.compile(r"N ([a-z0-9]{1,16})")
_TOKEN = re.compile(r"K ([0-9a-f]{32})")
_USAGE = re.compile(rf"U ([0-9a-f]{{32}}) ({NUMBER})")
_REQUEST = re.compile(rf"Q ([0-9a-f]{{32}}) ([A-Za-z0-9._-]{{1,64}}) ({NUMBER})")
_MORE_REQUESTS = re.compile(r"M ([0-9a-f]{32})")
_VARIABLE = re.compile(r"[A-Z_]{1,40}")

_PACKAGES = MappingProxyType(
    {"awk": "gawk", "find": "findutils", "grep": "grep", "sed": "sed", "xargs": "findutils"}
)
"""Debian packages of commands that are not part of coreutils."""
_MAX_MISSING = 64

_TOLERANCE = 60 * 100
"""Hundredths of a second by which an age may exceed the uptime, because the worker reads the uptime first."""


class Record(Struct, frozen=True):
    """A line of a frame, and the decoded bytes of the base64 lines that follow it."""

    line: str
    data: bytes


def worker_report(
    frame: Frame,
    worker: WorkerId,
    tokens: Sequence[Token],
    expected: tuple[str, str] | None = None,
    workspaces: Sequence[str] = (),
    with_requests: Sequence[Token] = (),
) -> observations.WorkerReport:
    """Return the worker's report on exactly these tokens.

    If boot id and incarnation of the host are not the `expected` ones, the answer must be empty. The report lists which
    of `workspaces` (hashes) the worker lacks, and the requests of the attempts in `with_requests`. Raises NoAnswer.
    """
    clock, uptime, records = parse_records(frame, MAX_REQUEST_BYTES if with_requests else MAX_TAIL)
    is_other_host = expected is not None and (frame.boot_id, frame.incarnation) != expected
    facts: dict[Token, tuple[Fact, ...]] = {}
    records = [record for record in records if not add_facts(facts, record.line, record.data, tokens)]
    requests, asking, records = _split_requests(records, with_requests, tokens)
    lacking = _missing_workspaces(records, workspaces) if workspaces and not is_other_host else []
    attempts = tuple(_attempt(record, uptime, facts) for record in records[: len(records) - len(lacking)])
    if sorted(attempt.token for attempt in attempts) != ([] if is_other_host else sorted(tokens)) or facts:
        raise malformed_answer("the answer is about other attempts")
    return observations.WorkerReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        clock=clock,
        uptime=uptime / 100,
        attempts=attempts,
        lacking=tuple(lacking),
        requests=requests,
        asking=asking,
    )


def _split_requests(
    records: list[Record], with_requests: Sequence[Token], tokens: Sequence[Token]
) -> tuple[tuple[observations.OutboxFile, ...], tuple[Token, ...], list[Record]]:
    """Split the records into requests, attempts with more requests, and all other records."""
    found: dict[tuple[str, str], observations.OutboxFile] = {}
    asking: dict[Token, None] = {}
    others = []
    for record in records:
        if match := _REQUEST.fullmatch(record.line):
            size, token = int(match[3]), Token(match[1])
            if token not in with_requests or match.group(1, 2) in found or not is_request_id(match[2]):
                raise malformed_answer("the answer has an unexpected request")
            if size <= MAX_REQUEST_BYTES and len(record.data) < size:
                continue  # the request was deleted while it was read, because another process has answered it
            data = record.data if size <= MAX_REQUEST_BYTES else None
            found[token, match[2]] = observations.OutboxFile(
                token=token, id=RequestId(match[2]), size=size, data=data
            )
        elif match := _MORE_REQUESTS.fullmatch(record.line):
            asking[Token(match[1])] = None
        else:
            others.append(record)
    if not set(tokens).issuperset(asking):
        raise malformed_answer("the answer is about other attempts")
    ordered = sorted(found.values(), key=lambda each: (each.token, each.id))
    return tuple(ordered), tuple(asking), others


def _missing_workspaces(records: Sequence[Record], workspaces: Sequence[str]) -> list[str]:
    matches = [_MISSING_WORKSPACE.fullmatch(record.line) for record in records if not record.data]
    found = [match[1] for match in matches if match is not None]
    if len(set(found)) != len(found) or not set(found) <= set(workspaces):
        raise malformed_answer("the answer is about other workspaces")
    return found


def unwedge_report(
    frame: Frame, worker: WorkerId, keep: Sequence[Token], cleared: Sequence[Token]
) -> observations.UnwedgeReport:
    """Return the answer to `unwedge`, with the attempts `cleared`, but no attempt of `keep`. Raises NoAnswer."""
    _, uptime, records = parse_records(frame, MAX_COMMAND)
    lock = _LOCK.fullmatch(records[0].line) if records and not records[0].data else None
    if lock is None:
        raise malformed_answer("the answer does not begin with the lock file")
    holders, attempts = [], []
    for record in records[1:]:
        if match := _HOLDER.fullmatch(record.line):
            holders.append(_holder(frame.boot_id, match, record.data))
        else:
            attempts.append(_attempt(record, uptime))
    tokens = [attempt.token for attempt in attempts]
    if len({*tokens, *keep}) != len(tokens) + len(set(keep)) or not set(tokens).issuperset(cleared):
        raise malformed_answer("the answer is about other attempts")
    if len({holder.pid for holder in holders}) != len(holders):
        raise malformed_answer("the answer names a process twice")
    return observations.UnwedgeReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        holders=tuple(holders),
        attempts=tuple(attempts),
        lock=observations.LockFile(lock[1]),
        unseen=int(lock[2]),
    )


def _holder(boot_id: str, match: re.Match[str], data: bytes) -> observations.ChipHolder:
    devices, _, command = data.decode("utf-8", "replace").partition("\n")
    return observations.ChipHolder(
        boot_id=boot_id,
        pid=int(match[1]),
        start=int(match[2]),
        devices=tuple(devices.split()),
        command=command,
        token=None if match[3] == "-" else Token(match[3]),
    )


def reap_report(frame: Frame, worker: WorkerId, tokens: Sequence[Token]) -> observations.ReapReport:
    """Return the answer to `reap`: those of the tokens that have no files left. Raises NoAnswer."""
    clock, uptime, records = parse_records(frame, 0)
    matches = [_TOKEN.fullmatch(record.line) for record in records]
    found = [Token(match[1]) for match in matches if match is not None]
    if len(found) != len(records) or len(set(found)) != len(found) or not set(found) <= set(tokens):
        raise malformed_answer("the answer is about other attempts")
    return observations.ReapReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        clock=clock,
        uptime=uptime / 100,
        tokens=tuple(found),
    )


def usage_report(frame: Frame, worker: WorkerId, tokens: Sequence[Token]) -> observations.UsageReport:
    """Return the answer to `usage`: disk usage of these tokens in bytes. Raises NoAnswer."""
    _, _, records = parse_records(frame, 0)
    matches = [_USAGE.fullmatch(record.line) for record in records]
    sizes = {Token(match[1]): int(match[2]) << 10 for match in matches if match is not None}
    if len(sizes) != len(records) or not set(sizes) <= set(tokens):
        raise malformed_answer("the answer is about other attempts")
    return observations.UsageReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        sizes=tuple(sizes.items()),
    )


def probe_report(frame: Frame, worker: WorkerId) -> observations.ProbeReport:
    """Return the answer to `probe`. Raises NoAnswer."""
    clock, uptime, records = parse_records(frame, MAX_TEXT)
    amounts: dict[str, int] = {}
    texts: dict[str, str] = {}
    warnings: list[str] = []
    tokens: list[Token] = []
    missing: list[str] = []
    for record in records:
        text = record.data.decode("utf-8", "replace").strip()
        if record.line == "V warning":
            warnings.append(text)
        elif (match := _TEXT.fullmatch(record.line)) and match[1] not in texts:
            texts[match[1]] = text
        elif (
            (match := _AMOUNT.fullmatch(record.line) or _COUNT.fullmatch(record.line))
            and not text
            and match[1] not in amounts
        ):
            amounts[match[1]] = int(match[2])
        elif (match := _TOKEN.fullmatch(record.line)) and not text:
            tokens.append(Token(match[1]))
        elif (match := _MISSING_COMMAND.fullmatch(record.line)) and not text and len(missing) < _MAX_MISSING:
            missing.append(match[1])
        else:
            raise malformed_answer("the answer has an unexpected line")
    if missing:
        packages = sorted({_PACKAGES.get(name, "coreutils") for name in missing})
        hint = f"install {', '.join(packages)} on the worker, or busybox"
        warnings.insert(0, f"refused: missing commands: {', '.join(missing)}; {hint}")
    if len(set(tokens)) != len(tokens) or sum(map(len, warnings)) > MAX_WARNINGS:
        raise malformed_answer("the answer is too long")
    gpu_variant = texts.pop("gpu_variant", "")
    containment = texts.pop("containment", "")
    if containment not in ("", "cgroup", "session"):
        raise malformed_answer("unknown containment")
    return observations.ProbeReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        cpus=amounts.get("cpus", 0),
        memory=amounts.get("memory", 0),
        disk_free=amounts.get("disk_free", 0),
        chips=amounts.get("chips", 0),
        gpus=amounts.get("gpus", 0),
        gpu_variant=gpu_variant,
        containment=containment,
        clock=clock,
        uptime=uptime / 100,
        metadata=_metadata(texts),
        tokens=tuple(tokens),
        warnings=tuple(warnings),
    )


def _metadata(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata server's values. Some missing values are taken from the variables in `tpu-env`."""
    tpu_env = _variables(values.pop("tpu-env", ""))
    fallbacks = {
        "accelerator-type": "ACCELERATOR_TYPE",
        "agent-worker-number": "WORKER_ID",
        TPU_NAME_ATTRIBUTE_KEY: "NODE_ID",
        ZONE_ATTRIBUTE_KEY: "ZONE",
    }
    found = {key: tpu_env.get(name, "") for key, name in fallbacks.items()}
    found |= {key: text for key, text in values.items() if text}
    zone = found[ZONE_ATTRIBUTE_KEY]  # projects/1/zones/us-central2-b
    found[ZONE_ATTRIBUTE_KEY] = zone.rpartition("/")[2]
    if PREEMPTIBLE_ATTRIBUTE_KEY in found:
        found[PREEMPTIBLE_ATTRIBUTE_KEY] = found[PREEMPTIBLE_ATTRIBUTE_KEY].lower()
    return tuple(sorted((key, text) for key, text in found.items() if text))


def _variables(text: str) -> dict[str, str]:
    """Parse lines like `NODE_ID: 'v5e-a'`."""
    found = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        value = value.strip().removeprefix("'").removesuffix("'")
        if _VARIABLE.fullmatch(name) and "'" not in value:
            found[name] = value
    return found


def parse_records(frame: Frame, longest: int) -> tuple[float, int, list[Record]]:
    """Return clock (seconds), uptime (hundredths) and records, each with at most `longest` bytes. Raises NoAnswer."""
    # A line of data begins with "T " and belongs to the line before it. No line contains a tab.
    first, *grouped = (each.partition("\t") for each in frame.text.replace("\nT ", "\t").split("\n"))
    match = _CLOCK.fullmatch(first[0])
    if match is None or int(match[1]) > MAX_CLOCK or int(match[2]) > MAX_UPTIME:
        raise malformed_answer("the answer has an invalid time")
    if first[1]:
        raise malformed_answer("the answer has unexpected data")
    records = [Record(line, _decode(data.replace("\t", ""), longest)) for line, _, data in grouped]
    return float(match[1]), int(match[2]), records


def _decode(encoded: str, longest: int) -> bytes:
    if len(encoded) > longest * 4 // 3 + 8:
        raise malformed_answer("the answer has too much data")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise malformed_answer("the answer's data is malformed") from error
    if len(data) > longest:
        raise malformed_answer("the answer has too much data")
    return data


def _attempt(
    record: Record, uptime: int, facts: dict[Token, tuple[Fact, ...]] | None = None
) -> observations.AttemptReport:
    """Parse the report of an attempt, and move its facts from `facts` into the report."""
    match = _ATTEMPT.fullmatch(record.line)
    if match is None or match[2] not in observations.RemoteState.__members__:
        raise malformed_answer("the answer has an unexpected line")
    if len(record.data) > MAX_TAIL:
        raise malformed_answer("the answer has too much data")
    times = [int(match[group]) for group in (5, 6) if match[group] != "-"]
    if max(times, default=0) > uptime + _TOLERANCE:
        raise malformed_answer("the answer has a time before the host's boot")
    quiet = _seconds(match[8])
    if quiet is not None:  # a task can change file times, so accept at most the time since its start
        quiet = min(quiet, min([*times, uptime]) / 100)
    report = observations.AttemptReport(
        token=Token(match[1]),
        state=observations.RemoteState(match[2]),
        exit_code=None if match[3] == "-" else int(match[3]),
        cause="" if match[4] == "-" else match[4],
        started_ago=_seconds(match[5]),
        ended_ago=_seconds(match[6]),
        last_output_ago=quiet,
        output_bytes=int(match[7]),
        log_tail=record.data.decode("utf-8", "replace"),
        facts=facts.pop(Token(match[1]), ()) if facts else (),
    )
    if not report.is_consistent or times != sorted(times, reverse=True):
        raise malformed_answer(f"the answer is contradictory about an attempt that is {report.state}")
    return report


def _seconds(hundredths: str) -> float | None:
    return None if hundredths == "-" else int(hundredths) / 100
