"""What a worker keeps for later attempts: workspaces, and what their set-ups have made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import CacheReport, Silence
from iris_cli.remote.answers import records_of
from iris_cli.remote.frames import Frame, broken
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_calls import WorkerCalls
from iris_cli.remote.worker_script import quote

if TYPE_CHECKING:
    from iris_cli.remote.output_calls import FilePiece

SHORTEST = 600.0
"""Seconds for which nothing goes: somebody may have been told to use it whom the caller knows nothing of."""

PACKED = "outbox/.packed"
"""Where a task puts what it has packed, in its directory."""

_PATIENCE = 30.0  # every file is looked at, maybe on a cold disk
_HASH = re.compile("[0-9a-f]{64}")
_SIZE = re.compile(r"S ([ws]/[0-9a-f]{64}) (0|[1-9][0-9]{0,14})")


class CacheCalls(WorkerCalls):
    """The part of the runner for caches, and for what tasks pack themselves."""

    def packed(self, target: Target, token: Token, workspace: str, offset: int) -> FilePiece | Silence:
        """A piece of the compressed tar file of that hash that an attempt has put into its outbox.

        As `OutputCalls.piece`. Raises ValueError for what is no hash.
        """
        from iris_cli.remote.output_calls import OutputCalls

        if _HASH.fullmatch(workspace) is None:
            raise ValueError(f"{workspace[:80]!r} is no hash")
        name = f"{PACKED}/{workspace}.tar.gz".encode()
        return OutputCalls(self).piece(target, token, name, offset)

    def caches(
        self,
        target: Target,
        *,
        boot_id: str,
        incarnation: str,
        keep: Sequence[str],
        unused_for: float,
        remove: bool = False,
    ) -> CacheReport | Silence:
        """How much room is taken there by what nobody has used for so many seconds (ten minutes at least).

        `keep` are the workspaces and set-ups (by hash and key) of attempts that live: they count as used. With `remove`
        all that goes, and the answer is what is left: a large one takes longer than this call, which may be repeated.
        Another host, or the same one after a reboot, does nothing. Raises ValueError for what is no hash.
        """
        wrong = [each for each in keep if _HASH.fullmatch(each) is None]
        if wrong:
            raise ValueError(f"{wrong[0][:80]!r} is no hash")
        minutes = int(max(unused_for, SHORTEST) // 60)
        step = f"caches {minutes} {quote(' '.join(keep))} {int(remove)}"
        step = f"if expect {quote(boot_id)} {quote(incarnation)}; then {step}; fi"
        call = [self.open_line(target), "unused=", step, "begin_frame", "tell_unused", "end_frame"]
        read = partial(_report, worker=target.worker)
        return self.ask(target, "caches", call, read, room=1 << 20, patience=_PATIENCE)


def _report(frame: Frame, worker: WorkerId) -> CacheReport:
    _, _, records = records_of(frame, 0)
    matches = [_SIZE.fullmatch(record.line) for record in records]
    sizes: dict[str, int] = {}
    for match in matches:
        if match is None:
            raise broken("the answer has a line that is about no cache")
        sizes[match[1]] = sizes.get(match[1], 0) + (int(match[2]) << 10)
    return CacheReport(
        worker=worker,
        boot_id=frame.boot_id,
        incarnation=frame.incarnation,
        sizes=tuple(sizes.items()),
    )
