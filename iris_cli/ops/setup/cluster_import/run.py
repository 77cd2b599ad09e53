"""An import from its beginning to the moment where somebody says yes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.config.editing.cluster_file import ClusterFile
from iris_cli.config.editing.marked import Edit, unified_diff
from iris_cli.config.schema import ClusterConfig
from iris_cli.errors import ConfigError, IrisError, NotWritableError
from iris_cli.ops.setup import init
from iris_cli.ops.setup.cluster_import.found import Found
from iris_cli.ops.setup.cluster_import.plan import Addresses, Plan, plan_changes, plan_new


def read_file(path: Path) -> bytes:
    """A file as it is. Raises NotWritableError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotWritableError(f"{path} can't be read: {error.strerror or error}") from error


def replace_config(path: Path, before: bytes, after: bytes) -> None:
    """Replace a file atomically; it keeps its permissions and owner, and a link to it stays a link.

    Raises IrisError if it was changed meanwhile, NotWritableError.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        known = target.stat()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(after)
            file.flush()
            with suppress(PermissionError):  # to give a file away takes more than to write it
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
            os.fsync(file.fileno())
        if target.read_bytes() != before:
            raise IrisError(f"{path} was changed meanwhile: nothing was written", hint="run it again")
        os.replace(draft, target)
    except OSError as error:
        raise NotWritableError(f"{path} can't be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


class Proposal(Struct, frozen=True, kw_only=True):
    """What is to be written, and what that would say. `before` is None where there is no file yet.

    `by_hand` is what has to be written by a person instead; then nothing else is to be written either.
    """

    path: Path
    plan: Plan
    diff: tuple[str, ...]
    before: bytes | None
    after: bytes
    config: ClusterConfig
    by_hand: tuple[str, ...] = ()

    def write(self) -> None:
        """Raises UsageError, IrisError, NotWritableError."""
        if self.before is None:
            init.write_text(self.path, self.after.decode("utf-8"))
        else:
            replace_config(self.path, self.before, self.after)


def propose(path: Path, found: Found, wanted: Addresses | None, *, prune: bool, home: Path) -> Proposal:
    """What an import of this would make of a file. Raises ConfigError where that would not be valid."""
    return _change(path, found, wanted, prune=prune) if path.exists() else _new(path, found, wanted, home)


def _change(path: Path, found: Found, wanted: Addresses | None, *, prune: bool) -> Proposal:
    data = read_file(path)
    file = ClusterFile(path, data)
    plan = plan_changes(file, found, wanted, prune=prune)
    by_hand = tuple(file.by_hand)
    after, config = (data, file.config) if by_hand else file.outcome(plan.addresses, plan.labels)
    diff = () if by_hand else tuple(file.diff())
    return Proposal(path=path, plan=plan, diff=diff, before=data, after=after, config=config, by_hand=by_hand)


def _new(path: Path, found: Found, wanted: Addresses | None, home: Path) -> Proposal:
    plan = plan_new(found, wanted)
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


def refused(proposal: Proposal) -> ConfigError:
    """What to tell where a person has to write."""
    return ConfigError(
        f"{proposal.path} is written in a way that can't be changed safely: nothing was written",
        problems=proposal.by_hand,
        hint="write this by hand, and run it again",
    )
