"""The card of a failure: who failed first and its last words, where the others were, what is known of the cause."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.units import count
from iris_cli.ops.views.failure import Company, Explained, FailureCard
from iris_cli.render.layout import Renderable, Table, Text
from iris_cli.render.tables import block, facts, fold, text

MOST_GROUPS = 4
"""How many of the groups into which the others fall have a line, and how many child jobs."""


def failure_card(failure: FailureCard) -> list[Renderable]:
    """Who failed first and why, where, the last words of its log, the others, and a known cause."""
    where = f"{failure.attempt or failure.task}" + (f" on {failure.worker}" if failure.worker else "")
    card: list[Renderable] = [
        text(f"{failure.headline}: {failure.cause}", "bold red"),
        text("; ".join(filter(None, (", ".join(filter(None, (where, failure.retries))), failure.counts)))),
    ]
    if failure.setup:
        card.append(text(f"setup: {failure.setup}"))
    if failure.log_lines:
        from rich.padding import Padding

        card.append(Padding(block("\n".join(failure.log_lines), "dim"), (0, 0, 0, 2), expand=False))
    if failure.facts:
        card.append(facts([("proven" if fact.proven else "a guess", fact.text) for fact in failure.facts]))
    card += [text(line) for line in (*_others(failure), *_children(failure))]
    if failure.known is not None:
        card += [text(""), *_known(failure.known, failure)]
    return card


def next_line(command: str) -> Text:
    """What to type next."""
    return Text.assemble(("next: ", "dim"), text(command))


def _others(failure: FailureCard) -> Iterator[str]:
    """Nothing where all that could be said is that they were stopped: that goes without saying."""
    if not any(group.line or group.failed for group in failure.others):
        return
    for group in failure.others[:MOST_GROUPS]:
        yield _company(group)
    rest = failure.others[MOST_GROUPS:]
    if rest:
        yield f"{sum(len(group.tasks) for group in rest)} others ended in {len(rest)} other ways"


def _children(failure: FailureCard) -> Iterator[str]:
    for child in failure.children[:MOST_GROUPS]:
        yield f"its child {child.job} is {child.state}: {child.cause}"
    more = len(failure.children[MOST_GROUPS:]) + failure.more_children
    if more:
        yield f"and {count(more, 'more child job')} failed"


def _company(group: Company) -> str:
    """`3 others, task-[0-1,3], stopped in the same place: step 42`, `task-5 failed too, exit 1, at: ...`."""
    several = len(group.tasks) > 1
    names = fold(f"task-{task.index}" for task in group.tasks)
    who = f"{len(group.tasks)} others, {names}," if several else names
    how = f"also failed, {group.how}," if group.failed else group.how
    if group.same:
        return f"{who} {how} with the same last line"
    if not group.line:
        return f"{who} {how} without output"
    return f"{who} {how} {'in the same place' if several else 'at'}: {group.line}"


def _known(known: Explained, failure: FailureCard) -> Iterator[Text | Table]:
    who = "" if known.task == failure.task else f" of task-{known.task.index}"
    yield text(f"known cause{who}: {known.cause}", "bold yellow")
    said = known.line if known.line not in failure.cause else ""
    yield facts([("it says", said), ("fix", known.fix), ("source", known.source)])
