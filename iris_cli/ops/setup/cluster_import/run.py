"""Write an import to cluster.yaml, and record in the log that old VMs of re-created slices are gone."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field

from iris_cli.config.editing import ClusterFile, Edit, unified_diff
from iris_cli.config.schema import ClusterConfig
from iris_cli.core import AttemptId, Cluster, WorkerId
from iris_cli.core.lifecycle import identity
from iris_cli.errors import ConfigError, IrisError, NotWritableError
from iris_cli.ops.cycle import observe
from iris_cli.ops.cycle.cycle import send_stops
from iris_cli.ops.session import Session
from iris_cli.ops.setup import init
from iris_cli.ops.setup.cluster_import.nodes import SourceContent
from iris_cli.ops.setup.cluster_import.plan import Addresses, Plan, Recreated, plan_changes, plan_new


class OldMachine(Struct, frozen=True, kw_only=True):
    """A worker whose machine was replaced. `attempts` end with the machine.

    `kept_for`: an attempt placed on the worker since then. If it is set, the worker is not forgotten, and no attempt
    counts as ended.
    """

    OMITTED: ClassVar = ("reason",)
    worker: WorkerId
    reason: str
    ended_attempts: tuple[AttemptId, ...] = field(default=(), name="attempts")
    kept: AttemptId | None = field(default=None, name="kept_for")


def old_machines(cluster: Cluster, recreated: Sequence[Recreated]) -> list[OldMachine]:
    """Return the workers of these slices that are in the log."""
    return [
        _old_machine(cluster, worker, each)
        for each in recreated
        for worker in each.workers
        if worker in cluster.workers or worker in cluster.ghosts
    ]


def _old_machine(cluster: Cluster, worker: WorkerId, recreated: Recreated) -> OldMachine:
    live = tuple(cluster.workers[worker].claims) if worker in cluster.workers else ()
    ghosts = [ghost.attempt for ghost in cluster.ghosts.get(worker, ())]
    created_at = recreated.created_at
    reason = f"slice {recreated.name} {recreated.how}"
    for attempt_id in (*live, *ghosts):
        if created_at is None or cluster.attempt(attempt_id).assigned_at >= created_at:
            return OldMachine(worker=worker, reason=reason, kept=attempt_id)
    return OldMachine(worker=worker, reason=reason, ended_attempts=live)


def forget(session: Session, recreated: Sequence[Recreated]) -> list[OldMachine]:
    """Record that the old VMs without a `kept` attempt are gone. Return these VMs."""
    recorded: list[OldMachine] = []
    with session.transaction() as draft:
        for each in old_machines(draft.cluster, recreated):  # the log may have changed since the prompt
            if each.kept is None:
                jobs = dict.fromkeys(attempt_id.task.job for attempt_id in each.ended_attempts)
                identity.remove_machine(draft, each.worker, each.reason)
                observe.settle(session, draft, jobs)
                recorded.append(each)
    send_stops(session)
    return recorded


def ended_jobs(machines: Sequence[OldMachine]) -> Iterator[str]:
    yield from dict.fromkeys(str(attempt.task.job) for each in machines for attempt in each.ended_attempts)


def replace_config(path: Path, before: bytes, after: bytes) -> None:
    """Replace a file atomically. Permissions and owner are kept. If `path` is a link, its target is replaced.

    Raises NotWritableError, and IrisError if the content of the file is no longer `before`.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        status = target.stat()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(after)
            file.flush()
            with suppress(PermissionError):  # only root may change the owner
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            os.fsync(file.fileno())
        if target.read_bytes() != before:
            raise IrisError(f"{path} has changed: nothing was written", hint="run the import again")
        os.replace(draft, target)
    except OSError as error:
        raise NotWritableError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


class Proposal(Struct, frozen=True, kw_only=True):
    """A proposed cluster.yaml. `before` and `after` are the contents of the file; `before` is None for a new file.

    `by_hand`: edits that iris can't make safely, so that the user must make them. If it is not empty, nothing is
    written.
    """

    path: Path
    plan: Plan
    diff: tuple[str, ...]
    before: bytes | None
    after: bytes
    config: ClusterConfig
    by_hand: tuple[str, ...] = ()

    def write(self) -> None:
        """Write the file. Raises UsageError, IrisError, NotWritableError."""
        if self.before is None:
            init.write_text(self.path, self.after.decode("utf-8"))
        else:
            replace_config(self.path, self.before, self.after)


def propose(
    path: Path, source: SourceContent, address_kind: Addresses | None, *, prune: bool, home: Path
) -> Proposal:
    """Return the proposed file after an import. Raises ConfigError if the file would be invalid."""
    if path.exists():
        return _propose_change(path, source, address_kind, prune=prune)
    return _propose_new_file(path, source, address_kind, home)


def _propose_change(
    path: Path, source: SourceContent, address_kind: Addresses | None, *, prune: bool
) -> Proposal:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotWritableError(f"{path} can't be read: {error.strerror or error}") from error
    file = ClusterFile(path, data)
    plan = plan_changes(file, source, address_kind, prune=prune)
    by_hand = tuple(file.by_hand)
    after, config = (data, file.config) if by_hand else file.new_content(plan.addresses, plan.labels)
    diff = () if by_hand else tuple(file.diff())
    return Proposal(path=path, plan=plan, diff=diff, before=data, after=after, config=config, by_hand=by_hand)


def _propose_new_file(
    path: Path, source: SourceContent, address_kind: Addresses | None, home: Path
) -> Proposal:
    plan = plan_new(source, address_kind)
    slices, hosts = tuple(plan.new_slices), tuple(plan.new_hosts)
    names = [each.host for each in hosts if not each.user] + [each.hosts[0] for each in slices]
    user, key = init.guess_login(names, home, for_cloud=any(each.incarnation for each in slices))
    cluster = init.NewCluster(
        name=init.default_name(path.absolute().parent), hosts=hosts, slices=slices, user=user, key=key
    )
    text = init.compose(cluster)
    config = init.check_text(path, text)
    diff = tuple(unified_diff("", [Edit(0, 0, text)], path.name)) if slices or hosts else ()
    return Proposal(path=path, plan=plan, diff=diff, before=None, after=text.encode("utf-8"), config=config)


def edit_error(proposal: Proposal) -> ConfigError:
    return ConfigError(
        f"{proposal.path} can't be edited safely: nothing was written",
        problems=proposal.by_hand,
        hint="write these changes by hand, then run the import again",
    )
