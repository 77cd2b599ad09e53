"""The background loop, and whoever else runs cycles."""

from __future__ import annotations

from iris_cli.config.schema import Mode
from iris_cli.core.ids import JobId
from iris_cli.journal.files.runners import LOOP, LoopOrder, Runner
from iris_cli.ops.views.cycles import Cycles, with_invalid_configuration
from iris_cli.render.console import Output
from iris_cli.render.cycles import show_loop, show_started, show_stopped
from tests.render.pictures.picture import Picture, Show

_LOG = [
    "2027-01-15T08:00:00.000Z iris 0.1.0 runs cycles, pid 4711",
    "2027-01-15T08:00:01.120Z assigned train/task-[0-3] to v5a-[0-3]",
]
_RUNS = Cycles(by=LOOP, pid=4711, last=3.0, next=7.0, interval=10.0)
_STOPPED = LoopOrder(
    turn="f00d", stopped=True, by="me@laptop iris loop stop", since="2027-01-15T08:00:00.000Z"
)


def _shown(cycles: Cycles, order: LoopOrder = LoopOrder(), mode: Mode = Mode.AUTO) -> Show:  # noqa: B008 - frozen
    def show(output: Output) -> None:
        log = _LOG if cycles.by == LOOP else []
        show_loop(output, cycles, order, mode=mode, log=log, killed_at_logout=cycles.late)

    return show


_LACKS = Cycles(
    by=LOOP,
    pid=4711,
    last=3.0,
    next=7.0,
    interval=10.0,
    troubles=(
        "secret wandb_token of train is not in the loop's environment; run `iris loop start` in a shell that has it",
    ),
    missing={JobId("train"): ["wandb_token"]},
)

_PROBLEM = "cluster.yaml:3: loop: 'of' is neither auto nor off"
_REFUSES = Cycles(
    by=LOOP,
    pid=4711,
    last=3.0,
    next=7.0,
    interval=10.0,
    troubles=("cluster.yaml is invalid (1 problem), nothing is placed: iris config validate",),
)


def _shown_invalid(cycles: Cycles) -> Show:
    def show(output: Output) -> None:
        seen, log = with_invalid_configuration(cycles), _LOG if cycles.by else []
        show_loop(output, seen, LoopOrder(), mode=None, invalid=_PROBLEM, log=log, killed_at_logout=False)

    return show


PICTURES = {
    "loop-show": Picture(line="iris loop show", show=_shown(_RUNS)),
    "loop-show-starting": Picture(
        line="iris loop show", show=_shown(Cycles(by=LOOP, next=10.0, interval=10.0))
    ),
    "loop-show-lacks": Picture(line="iris loop show", show=_shown(_LACKS)),
    "loop-show-late": Picture(
        line="iris loop show", show=_shown(Cycles(by=LOOP, pid=4711, last=7200.0, interval=10.0, late=True))
    ),
    "loop-show-elsewhere": Picture(
        line="iris loop show",
        show=_shown(Cycles(by=LOOP, pid=4711, last=3.0, next=7.0, interval=10.0, host="bastion")),
    ),
    "loop-show-cron": Picture(
        line="iris loop show",
        show=_shown(Cycles(by="cron", last=41.0, next=19.0, interval=60.0), mode=Mode.OFF),
    ),
    "loop-show-stopped": Picture(line="iris loop show", show=_shown(Cycles(last=720.0), _STOPPED)),
    "loop-show-invalid": Picture(line="iris loop show", show=_shown_invalid(_REFUSES)),
    "loop-show-invalid-alone": Picture(line="iris loop show", show=_shown_invalid(Cycles(last=720.0))),
    "loop-start": Picture(
        line="iris loop start",
        show=lambda output: show_started(output, Runner(kind=LOOP, pid=4711)),
    ),
    "loop-start-idle": Picture(line="iris loop start", show=lambda output: show_started(output, None)),
    "loop-stop": Picture(
        line="iris loop stop",
        show=lambda output: show_stopped(output, Runner(kind=LOOP, pid=4711)),
    ),
    "loop-stop-none": Picture(line="iris loop stop", show=lambda output: show_stopped(output, None)),
}
