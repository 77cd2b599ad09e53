"""The set-up command of scale groups: launched on each VM of a new slice as tasks are, before anything else runs there.

It is launched by a token that follows from the VM. So asking how it goes is launching it again: a call that is lost, an
invocation that is killed, and several at once make it run neither twice nor never.
"""

from __future__ import annotations

from collections.abc import Collection

from iris_cli.core.events.events import SliceSetUp
from iris_cli.core.evolve import Draft
from iris_cli.core.ids import clip
from iris_cli.core.lifecycle import slices, workers
from iris_cli.core.messages.observations import OVER, AttemptReport, RemoteState, WorkerReport
from iris_cli.core.model.slice import Slice
from iris_cli.ops.session import Session
from iris_cli.ops.set_up_token import token_of
from iris_cli.ops.workers.execute import worker_environment

_LAST_LINES = 3
_LONGEST = 240


def carry_on(session: Session, of: Collection[str] | None = None) -> None:
    """Set up the VMs that are well, see how those are that are being set up, and let slices join that are complete.

    `of`: the slices to look at, by name; None: all.
    """
    cluster, now = session.cluster, session.clock.now()
    due = [
        (each, vm)
        for each, vm in slices.set_ups_due(cluster)
        if (of is None or each.name in of)
        and not workers.left_alone(cluster, cluster.workers[each.workers[vm]], now, session.limits)
    ]
    if not due:
        return
    _ = session.runner  # made once, before any thread asks for it
    for batch in session.fan_out(due, lambda one: _launched(session, *one), what="setting up", noun="VM"):
        ended = [each for each in batch if each is not None]

        def rule(draft: Draft, ended: list[SliceSetUp] = ended) -> None:
            for each in ended:
                slices.set_up_ended(draft, each, session.limits)
            slices.joined(draft)

        session.decide(rule)


def _launched(session: Session, each: Slice, vm: int) -> SliceSetUp | None:
    """How it has ended on one VM. None: it has not, or nobody answered; then it is asked again later."""
    from iris_cli.remote.launch_request import LaunchRequest

    worker = session.cluster.workers[each.workers[vm]]
    request = LaunchRequest(
        token=token_of(worker.id, worker.incarnation),
        argv=("sh", "-c", each.setup),
        env=worker_environment(session, worker),
        timeout=session.limits.slice_boot_timeout,
    )
    try:
        seen = session.runner.prepare(
            session.target(worker), [request], boot_id=worker.boot_id, incarnation=worker.incarnation, go=True
        )
    except ValueError as unfit:
        return SliceSetUp(slice=each.name, vm=vm, error=clip(str(unfit), _LONGEST))
    reports = seen.attempts if isinstance(seen, WorkerReport) else ()
    over = next(
        (report for report in reports if report.token == request.token and report.state in OVER), None
    )
    if over is None:
        return None
    error = _error(over)
    return SliceSetUp(slice=each.name, vm=vm, error=error, log_tail=over.log_tail if error else "")


def _error(report: AttemptReport) -> str:
    """Why it counts for nothing, with the last lines of what it printed; "" if it succeeded."""
    if report.state is RemoteState.EXITED and report.exit_code == 0 and not report.cause:
        return ""
    code = f"exit {report.exit_code}" if report.exit_code is not None else report.state.value.lower()
    what = f"{code}, {report.cause}" if report.cause else code
    lines = [line.strip() for line in report.log_tail.splitlines() if line.strip()]
    return ": ".join([what, clip(" / ".join(lines[-_LAST_LINES:]), _LONGEST)] if lines else [what])
