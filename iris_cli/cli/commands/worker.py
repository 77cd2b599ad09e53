"""`iris worker ...`: probe, show, drain, taint, repair and forget workers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from iris_cli.cli import complete, consent
from iris_cli.cli.command_types import Context, WorkerName, argument, flag, option
from iris_cli.cli.commands.workers import workers
from iris_cli.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from iris_cli.core.model.worker import Worker
    from iris_cli.ops.session import Session
    from iris_cli.ops.workers.workers import ProbeResult


HELP = "Probe, drain, taint, uncordon or forget a worker."
EXAMPLES = """
iris worker show v5a-0
iris worker drain v5a-0 --reason "disk replaced on Monday"
iris worker uncordon v5a-0
"""
COMMANDS = {
    "show": """
iris worker show v5a-0
iris worker show v5a-0 --json
""",
    "probe": """
iris worker probe  # all of them
iris worker probe v5a-0 v5a-1
iris worker probe --accept-key v5a-0  # re-created host: show key, ask
""",
    "drain": """
iris worker drain v5a-0 v5a-1
iris worker drain v5a-0 --reason "disk replaced on Monday"
""",
    "uncordon": """
iris worker uncordon v5a-0
iris worker uncordon v5a-0 v5a-1
""",
    "taint": """
iris worker taint v5a-0 slow-disk  # only for --tolerate slow-disk
iris worker taint v5a-0 slow-disk --remove
""",
    "forget": """
iris worker forget v5a-0  # refused if in use
iris worker forget v5a-0 --dead --reason "deleted"  # reschedule its tasks
""",
    "unwedge": """
iris worker unwedge v5a-0  # show what holds the chips, ask
iris worker unwedge v5a-0 --yes
""",
}

Workers = Annotated[list[str], argument("WORKER...", "Worker ids.", complete.WORKER)]
Reason = Annotated[str, option("WORDS", "Reason, shown in the history.")]


class Drained(Struct, frozen=True):
    """The result of `iris worker drain`. `unchanged`: workers that were already draining."""

    draining: Sequence[str]
    unchanged: Sequence[str]


class Uncordoned(Struct, frozen=True):
    """The result of `iris worker uncordon`."""

    uncordoned: Sequence[str]
    unchanged: Sequence[str]


class Tainted(Struct, frozen=True):
    """The result of `iris worker taint`."""

    tainted: Sequence[str]
    unchanged: Sequence[str]


class Untainted(Struct, frozen=True):
    """The result of `iris worker taint --remove`."""

    untainted: Sequence[str]
    unchanged: Sequence[str]


class Forgotten(Struct, frozen=True):
    """The result of `iris worker forget`."""

    forgotten: Sequence[str]
    unchanged: Sequence[str]


_CHANGES = {kind.__struct_fields__[0]: kind for kind in (Drained, Uncordoned, Tainted, Untainted, Forgotten)}


def probe(
    iris: Context,
    workers: Annotated[
        list[str] | None, argument("[WORKER]...", "Worker ids (default: all).", complete.WORKER)
    ] = None,
    accept_key: Annotated[
        bool,
        flag(
            "--accept-key",
            "Trust the keys, boot ids and incarnations that the workers present. Without names: of all new workers.",
        ),
    ] = False,
    yes: Annotated[bool, flag("--yes", "Don't ask.")] = False,
) -> int:
    """Probe workers now, ignoring back-off."""
    from iris_cli.core.messages.observations import Silence
    from iris_cli.ops.workers import workers as operation
    from iris_cli.render import probes as render

    session = iris.session("iris worker probe")
    if accept_key:
        results = _accept_keys(iris, session, workers or [], yes=yes)
    else:
        results = operation.probe(session, workers or [])
    render.show_probes(iris.output, results)
    is_any_silent = any(isinstance(each.seen, Silence) for each in results)
    return ExitCode.UNREACHABLE if is_any_silent else ExitCode.OK


def _accept_keys(iris: Context, session: "Session", names: list[str], *, yes: bool) -> "list[ProbeResult]":
    """Accept host keys after consent: one question for all new workers, and one question for each known worker."""
    from iris_cli.ops.workers import workers

    new, known = workers.workers_without_key(session, iris.transport, names)
    if not new and not known:
        raise UsageError(
            "all workers have a host key on record",
            hint="for a re-created host: iris worker probe --accept-key WORKER",
        )
    results = _accept_new_keys(iris, session, new, yes=yes) if new else []
    return [*results, *(_accept_known_host(iris, session, worker.id, yes=yes) for worker in known)]


def _accept_new_keys(
    iris: Context, session: "Session", new: "list[Worker]", *, yes: bool
) -> "list[ProbeResult]":
    from iris_cli.core.messages.observations import Silence
    from iris_cli.ops.workers import workers
    from iris_cli.render import probes as render

    shown = workers.read_keys(session, iris.transport, new)
    silent = [workers.ProbeResult(each.key, each.worker) for each in shown if isinstance(each.key, Silence)]
    keys = [each for each in shown if not isinstance(each.key, Silence)]
    for line in render.host_key_lines(keys):
        (iris.output.message if yes else iris.output.warning)(line)
    if not keys:
        return silent
    which = "this key" if len(keys) == 1 else f"these {len(keys)} keys"
    consent.require(iris, f"Trust {which}?", yes=yes, action="accept", refusal="no key was accepted")
    return [*workers.accept_keys(session, iris.transport, keys), *silent]


def _accept_known_host(iris: Context, session: "Session", name: str, *, yes: bool) -> "ProbeResult":
    """Show host key, boot and incarnation of the host at a worker's address. Accept the host after consent."""
    from iris_cli.ops.names import find_worker
    from iris_cli.ops.workers import workers as operation
    from iris_cli.remote.transport import NoAnswer
    from iris_cli.render import probes as render

    worker = find_worker(session.view(), name)
    target = session.target(worker)
    try:
        presented = iris.transport.presented_key(target, session.limits.connect_timeout)
    except NoAnswer as silence:
        return operation.ProbeResult(silence.silence(worker.id), worker)
    known = [key.fingerprint for key in iris.transport.known_keys(target)]
    with iris.transport.trusting(worker.id, presented) as transport:
        host = operation.probe_unrecorded(iris.session("iris worker probe", transport), name)
    print_line = iris.output.message if yes else iris.output.warning
    print_line(
        f"{name} presents host key {presented.type} {presented.fingerprint} (recorded: {', '.join(known) or 'none'})"
    )
    for line in render.identity_lines(host):
        print_line(line)
    is_new = presented.fingerprint not in known or host.differs
    consent.require(
        iris, "Trust this key?", yes=yes or not is_new, action="accept", refusal="no key was accepted"
    )
    iris.transport.accept_keys({worker.id: presented})
    return operation.accept(session, host)


def drain(iris: Context, workers: Workers, reason: Reason = "") -> None:
    """Stop placing tasks on workers; running tasks continue."""
    from iris_cli.ops.workers import workers as operation

    _print_changes(
        iris, "draining", operation.drain(iris.session("iris worker drain"), workers, reason), workers
    )


def uncordon(iris: Context, workers: Workers) -> None:
    """End drain, quarantine and cool-down."""
    from iris_cli.ops.workers import workers as operation

    _print_changes(
        iris, "uncordoned", operation.uncordon(iris.session("iris worker uncordon"), workers), workers
    )


def taint(
    iris: Context,
    worker: WorkerName,
    name: Annotated[str, argument("NAME", "Name of the taint.")],
    remove: Annotated[bool, flag("--remove", "Remove the taint.")] = False,
) -> None:
    """Reserve a worker for jobs that tolerate the taint."""
    from iris_cli.ops.workers import workers as operation

    changed = operation.taint(iris.session("iris worker taint"), worker, name, remove=remove)
    done, unchanged = ("untainted", f"has no taint {name}") if remove else ("tainted", "")
    _print_changes(iris, done, [worker] if changed else [], [worker], unchanged)


def forget(
    iris: Context,
    worker: WorkerName,
    dead: Annotated[bool, flag("--dead", "Declare that the worker has no live processes.")] = False,
    reason: Reason = "",
) -> None:
    """Remove a worker from the cluster. With --dead its attempts end, and their tasks are placed on other workers."""
    from iris_cli.ops.workers import workers as operation

    session = iris.session("iris worker forget")
    forgotten = operation.forget(session, worker, dead=dead, reason=reason)
    _print_changes(iris, "forgotten", [forgotten], [worker])
    if forgotten in session.hosts and not iris.output.as_json:
        iris.output.message(f"{worker} is still in cluster.yaml: a cycle registers it again")


def unwedge(
    iris: Context,
    worker: WorkerName,
    yes: Annotated[bool, flag("--yes", "Stop the processes without asking.")] = False,
) -> int:
    """Show what holds a worker's chips; stop it on request.

    Also shows processes that iris does not own.
    """
    from iris_cli.ops.workers import unwedge as operation
    from iris_cli.render import probes as render

    session = iris.session("iris worker unwedge")
    found, after = operation.find_obstacles(session, worker), None
    if not iris.output.as_json and not (iris.output.quiet and yes):
        render.show_wedge(iris.output, found)
    if found.clearable and consent.is_given(iris, render.stop_question(found), yes=yes, action="stop"):
        after = operation.clear(session, found)
        if not iris.output.as_json:
            render.show_cleared(iris.output, found, after)
    if iris.output.as_json:
        iris.output.document(render.wedge_document(found, after))
    return ExitCode.FAILED if after is not None and after.obstacles else ExitCode.OK


def _print_changes(
    iris: Context, done: str, changed: Sequence[str], requested: Sequence[str], unchanged: str = ""
) -> None:
    """Print the changed and the unchanged workers. `unchanged`: the words for these (default: `already {done}`)."""
    others = [each for each in dict.fromkeys(requested) if each not in changed]
    if iris.output.as_json:
        iris.output.document(_CHANGES[done](changed, others))
        return
    for each in changed:
        iris.output.done(f"{each}: {done}")
    for each in others:
        iris.output.message(f"{each}: {unchanged or f'already {done}'}")


def show(iris: Context, worker: WorkerName) -> None:
    """Show a worker's hardware, condition and tasks."""
    from iris_cli.ops.views import inventory
    from iris_cli.render.workers import show_worker

    show_worker(iris.output, inventory.show(iris.session("iris worker show"), worker))


HIDDEN: dict[str, Callable[..., object]] = {
    "list": workers,
    "cordon": drain,
    "undrain": uncordon,
    "resume": uncordon,
}
"""Hidden aliases of commands: their names in kubectl and Slurm."""
