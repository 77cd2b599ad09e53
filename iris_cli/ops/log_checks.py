"""What a check-up says of the event log: each verdict with what to type about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from iris_cli.core.units import count, format_memory
from iris_cli.errors import ExitCode, IrisError, NotFoundError
from iris_cli.journal.layout import ARCHIVE, HEAD
from iris_cli.journal.scan import Fault, FaultKind
from iris_cli.journal.state_dir import StateDir
from iris_cli.journal.verify import verify
from iris_cli.ops.compaction import LARGE, size_of_log
from iris_cli.ops.findings import Finding, failed_by, failure, fine, warning


def check_log(state: StateDir, large: int = LARGE) -> Iterator[Finding]:
    """Whether every line of archive and log can be believed, whether it goes as far as HEAD says, and its size."""
    try:
        verdict = verify(state.path)
    except NotFoundError:
        yield fine("log", "there is none yet")
        return
    except IrisError as error:
        yield failed_by("log", error)
        return
    for fault in verdict.findings:
        place = f"{fault.file}, " if fault.file.startswith(ARCHIVE) else ""
        yield failure("log", f"{place}{fault}", fix_of(fault, state.path), ExitCode.LOG_DAMAGED)
    if verdict.ok:
        archived = f", with {count(verdict.segments, 'segment')} of its archive" if verdict.segments else ""
        yield fine("log", f"{count(verdict.records, 'transaction')}{archived}, all sound")
    if verdict.unfinished is not None:
        yield warning(
            "log", f"{verdict.unfinished}", "nothing to do: the next command that writes sets it aside"
        )
    if (size := size_of_log(state.path)) > large:
        yield warning("log", f"it has {format_memory(size)}", "iris log compact")


def fix_of(fault: Fault, directory: Path) -> str:
    """What to type about a finding."""
    return _FIXES[fault.kind](directory)


def _path(directory: Path, name: str = "") -> str:
    return shlex.quote(str(directory / name if name else directory))


def _damaged(directory: Path) -> str:
    copy = shlex.quote(f"{directory}.copy")
    return f"cp -a {_path(directory)} {copy}; iris log verify; iris log salvage (it asks for --yes)"


_FIXES: dict[FaultKind, Callable[[Path], str]] = {
    FaultKind.TORN: _damaged,
    FaultKind.DAMAGED: _damaged,
    FaultKind.LOST: lambda directory: (
        f"put the newer copy of {_path(directory)} back; or go on without what is lost: "
        "iris log salvage --accept-loss"
    ),
    FaultKind.MISSING: lambda directory: (
        f"put what is missing back into {_path(directory, ARCHIVE)}; or go on with what comes before it: "
        "iris log salvage (it asks for --yes)"
    ),
    FaultKind.HEAD: lambda directory: (
        f"mv {_path(directory, HEAD)} {_path(directory, HEAD + '.damaged')}: the next command makes it anew"
    ),
    FaultKind.NEWER: lambda _: "pip install --upgrade iris-cli",
    FaultKind.FOREIGN: lambda directory: (
        f"put the log that belongs to {_path(directory)} back, or name its directory: iris --state-dir DIR"
    ),
}
