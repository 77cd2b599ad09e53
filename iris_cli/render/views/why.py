"""Print the answers of `iris why`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from iris_cli.core import TPU_NAME_ATTRIBUTE_KEY, JobId, count, group_pairs
from iris_cli.core.constraint_syntax import format_constraint
from iris_cli.ops.views.why import LiveAttempt, Wait, Why
from iris_cli.render import layout, tables
from iris_cli.render.console import Output
from iris_cli.render.views.job_tables import failure_card
from iris_cli.render.workers import worker_tables

if TYPE_CHECKING:
    from iris_cli.core.scheduling import Explanation


def show_why(output: Output, why: Why) -> None:
    """Print the answer. With --quiet print only the first reason."""
    output.view(why, why.messages, [_short_answer(why)], lambda: _parts(why, output.width))


def _short_answer(why: Why) -> str:
    reasons = [wait.prospect for wait in why.waits]
    refuses = why.worker.worker.refuses if why.worker else ()
    candidates = (*refuses, *why.occupied, *reasons, why.cause, *(each.worker for each in why.places))
    return next(filter(None, candidates), why.display)


def _parts(why: Why, width: int) -> Iterator[layout.Renderable]:
    yield from tables.banner(why.messages, why.cycles)
    if why.worker is not None:
        yield from worker_tables(why.worker, tables.cycle_words(why.cycles, why.at), width, why.occupied)
        return
    cause = "" if why.display.endswith(why.cause) else why.cause
    yield layout.Text.assemble(
        tables.text(why.subject, "bold"), "  ", tables.state(why.display), "  ", tables.text(cause)
    )
    yield tables.cycle_words(why.cycles, why.at)
    yield from (tables.text(words) for words in (why.overdue, why.quiet, why.retry) if words)
    for wait in why.waits:
        yield tables.text("")
        yield from _wait(why, wait)
    if why.places:
        yield tables.text("")
        only = ("WORKER", "STATE", "TASK", "FOR", "NOTE") if width < tables.NARROW else ()
        yield tables.table(
            ("WORKER", "STATE", "TASK", "SINCE (UTC)", "FOR", "NOTE"), _attempt_rows(why.places), only=only
        )
        yield from (
            tables.text(chosen, "dim")
            for chosen in dict.fromkeys(each.chosen for each in why.places)
            if chosen
        )
    if why.failure is not None:
        yield tables.text("")
        yield from failure_card(why.failure)
    if why.next:
        yield tables.text("")
        yield tables.next_line(why.next)


def _wait(why: Why, wait: Wait) -> Iterator[layout.Renderable]:
    who = "" if len(why.waits) == 1 else f"{tables.fold(f'task-{task.index}' for task in wait.tasks)}: "
    if wait.explanation is None:
        ready, then, follows = wait.prospect.partition("; ")
        where = f" for {tables.fold(wait.will_go_to)}" if wait.will_go_to else ""
        yield tables.text(f"{who}{ready}{where}{then}{follows}", "green")
        return
    for reason in wait.explanation.reasons:
        yield tables.text(f"{who}{reason.text}", "yellow")
    expected = ("expected start", tables.expected_words(wait.expected_start, why.at))
    yield tables.facts([*_findings(wait.explanation, why.inherited), expected, ("demand", wait.demand)])


def _findings(found: "Explanation", inherited: Mapping[str, JobId]) -> Iterator[tuple[str, str]]:
    """Yield the facts behind the reasons, as pairs of label and text."""
    from iris_cli.core.scheduling.explain.wording import format_amount, rejection_words

    with_device = ""
    if found.equipped < found.workers:
        yield "requested device", f"met by {found.equipped} of {count(found.workers, 'worker')}"
        with_device = " with this device"
    for each in found.constraints:
        typed = format_constraint(each.constraint)
        source = f", inherited from {inherited[typed]}" if typed in inherited else ""
        yield typed, f"met by {each.satisfied} of {count(each.workers, 'worker')}{with_device}{source}"
    for dimension in found.dimensions:
        if dimension.lacking:
            met = dimension.workers - dimension.lacking
            workers = f"{met} of {count(dimension.workers, 'worker')}{with_device}"
            yield f"needs {format_amount(dimension.kind, dimension.need)}", f"{workers} have enough free"
    if found.group_by:
        largest = (
            f"; largest: {found.largest[0]} with {count(found.largest[1], 'worker')}" if found.largest else ""
        )
        noun = "slices" if found.group_by == TPU_NAME_ATTRIBUTE_KEY else f"{found.group_by} groups"
        yield noun, f"{found.groups_found}{with_device}{largest}"
    rejected = (f"{count(number, 'worker')}: {rejection_words(kind)}" for kind, number in found.refused)
    yield "rejected", "; ".join(rejected)
    for taker in found.behind:
        yield "behind", f"{taker} on {tables.fold(taker.workers)}"
    obstacles: list[tuple[str, str]] = []
    for near in found.near_misses:
        who = tables.fold(near.lacking)
        named = near.name.endswith(f" {who}") or near.text.startswith((f"{who}: ", f"{who} "))
        lacks = ", ".join(filter(None, ("" if named else who, near.text)))
        obstacles.append((near.name, rejection_words(near.kind, lacks)))
    for names, obstacle in tables.group_by_text(obstacles):
        unit, _, first = names[0].rpartition(" ")
        folded = tables.fold((first, *(name.removeprefix(f"{unit} ") for name in names[1:])))
        yield "near miss", f"{unit}{'s' if len(names) > 1 else ''} {folded}: {obstacle}"
    if found.more_near_misses:
        yield "near miss", f"{found.more_near_misses} more"
    for hint in found.hints:
        yield "hint", hint
    if found.change is not None:
        yield found.change.label, found.change.text


def _attempt_rows(attempts: tuple[LiveAttempt, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each attempt; above FOLD_ABOVE, a row for all attempts in the same state."""
    is_folded = len(attempts) > tables.FOLD_ABOVE
    alike = group_pairs(((each.state, each.doubt) if is_folded else each.attempt, each) for each in attempts)
    for group in alike.values():
        yield (
            tables.fold(each.worker for each in group),
            group[0].state,
            tables.fold(f"task-{each.attempt.task.index}" for each in group),
            tables.time_range([each.since_at for each in group]),
            tables.duration_range([each.age for each in group]),
            group[0].doubt,
        )
