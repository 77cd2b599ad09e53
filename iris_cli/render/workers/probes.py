"""What workers said of themselves."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import Silence, SilenceKind
from iris_cli.core.model.worker import WorkerCondition
from iris_cli.core.units import format_memory
from iris_cli.ops.workers.first_keys import Shown
from iris_cli.ops.workers.workers import Probed, Stranger
from iris_cli.render.console import Output
from iris_cli.render.fold import fold


class ProbedWorker(Struct, frozen=True, kw_only=True):
    """One worker. From `usable` on the fields are absent if it did not answer, `kind`, `detail`, `hint` if it did."""

    worker: WorkerId
    condition: WorkerCondition
    reason: str
    answered: bool
    kind: SilenceKind | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    usable: bool | UnsetType = UNSET
    cpu: float | UnsetType = UNSET
    memory: int | UnsetType = UNSET
    chips: int | UnsetType = UNSET
    gpus: int | UnsetType = UNSET
    warnings: Sequence[str] | UnsetType = UNSET


class ProbesDocument(Struct, frozen=True):
    """The result of `iris worker probe`."""

    workers: Sequence[ProbedWorker]


def show(output: Output, results: Sequence[Probed]) -> None:
    """One line for all that said the same, with the hint that mends it where there was no answer."""
    if output.as_json:
        output.document(ProbesDocument([_document(each) for each in results]))
        return
    alike: dict[tuple[str, bool, str, tuple[str, ...]], list[str]] = {}
    for each in results:
        is_silent = isinstance(each.seen, Silence)
        hint, warnings = (each.seen.hint, ()) if isinstance(each.seen, Silence) else ("", each.seen.warnings)
        alike.setdefault((_words(each), is_silent, hint, warnings), []).append(each.worker.id)
    for (words, is_silent, hint, warnings), workers in alike.items():
        (output.failed if is_silent else output.done)(f"{fold(workers)}: {words}")
        if hint:
            output.message(f"hint: {hint}")
        for warning in warnings:
            output.message(f"{fold(workers)}: {warning}")


def keys(shown: Sequence[Shown]) -> list[str]:
    """The host keys of workers, one below the other."""
    known = [(each.worker, each.key) for each in shown if not isinstance(each.key, Silence)]
    longest = max((len(worker.id) for worker, _ in known), default=0)
    furthest = max((len(worker.connection.host) for worker, _ in known), default=0)
    return [
        f"{worker.id:<{longest}}  {worker.connection.host:<{furthest}}  {key.type} {key.fingerprint}"
        for worker, key in known
    ]


def who(stranger: Stranger) -> list[str]:
    """Boot and incarnation of who answers now, beside those on record, and what it means to trust it."""
    worker, seen = stranger.worker, stranger.seen
    if isinstance(seen, Silence):
        return [f"{worker.id} does not say who it is: {seen.step}: {seen.detail}"]
    lines = [
        f"{worker.id} is up since boot {seen.boot_id}; on record: {worker.boot_id or 'none'}",
        f"{worker.id} is incarnation {seen.incarnation}; on record: {worker.incarnation or 'none'}",
    ]
    if stranger.over:
        ended = ", ".join(map(str, stranger.over))
        lines.append(f"nothing from before runs there any more: {ended} will be over")
    return lines


def silent(results: Sequence[Probed]) -> list[Probed]:
    """Those that did not answer."""
    return [each for each in results if isinstance(each.seen, Silence)]


def _words(probed: Probed) -> str:
    worker, seen = probed.worker, probed.seen
    if isinstance(seen, Silence):
        return f"{worker.condition.value}: {seen.step}: {seen.detail}"
    state = f"{worker.condition.value}: {worker.reason}" if worker.reason else worker.condition.value
    if worker.unschedulable:
        state = f"can't be used: {worker.reason}"
    chips = f", {worker.chips} chips" if worker.chips else ""
    return f"{state} ({worker.cpu:g} cores, {format_memory(worker.memory)}{chips})"


def _document(probed: Probed) -> ProbedWorker:
    worker, seen = probed.worker, probed.seen
    if isinstance(seen, Silence):
        return ProbedWorker(
            worker=worker.id,
            condition=worker.condition,
            reason=worker.reason,
            answered=False,
            kind=seen.kind,
            detail=seen.detail,
            hint=seen.hint,
        )
    return ProbedWorker(
        worker=worker.id,
        condition=worker.condition,
        reason=worker.reason,
        answered=True,
        usable=not worker.unschedulable,
        cpu=worker.cpu,
        memory=worker.memory,
        chips=worker.chips,
        gpus=worker.gpus,
        warnings=seen.warnings,
    )
