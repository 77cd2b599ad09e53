"""Checks of the event log: each verdict with its fix."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from iris_cli.core.evolve import IllegalTransitionError
from iris_cli.core.units import count, format_memory
from iris_cli.errors import ExitCode, IrisError, NotFoundError
from iris_cli.journal.layout import ARCHIVE, HEAD, LOG
from iris_cli.journal.log.position import Fault, FaultKind
from iris_cli.journal.log.scan import Scan
from iris_cli.journal.log.verify import VerifyReport, verify
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.checks.findings import Finding, failed_by, failure, fine, warning
from iris_cli.ops.cycle.compaction import LARGE, size_of_log
from iris_cli.ops.progress import Far, Progress

_ALIKE = 10  # findings shown per fix: one flipped bit in compressed bytes damages thousands of lines


def verified(directory: Path, progress: Progress) -> VerifyReport:
    """Verify every line of archive and log with a progress line. Raises the errors of `verify`."""
    begun: list[tuple[str, Scan]] = []

    def how_far() -> Far:
        file, scan = begun[-1]
        return f"reading {file}", *scan.progress

    with progress(how_far):
        return verify(directory, lambda *scan: begun.append(scan), replayed=True)


def check_log(
    state: StateDir, large: int = LARGE, progress: Progress = lambda _: nullcontext()
) -> Iterator[Finding]:
    """Yield findings on the validity of every line of archive and log, its length against HEAD, and its size."""
    try:
        verdict = verified(state.path, progress)
    except NotFoundError:
        yield fine("log", "none yet")
        return
    except IrisError as error:
        yield failed_by("log", error)
        return
    spared = bool(verdict.findings) and only_history_is_lost(state, verdict)
    alike: Counter[str] = Counter()
    for fault in verdict.findings:
        place = f"{fault.file}, " if fault.file.startswith(ARCHIVE) else ""
        fix = _SPARED.format(_path(state.path, ARCHIVE)) if spared else fix_of(fault, state.path)
        alike[fix] += 1
        if alike[fix] <= _ALIKE:
            yield failure("log", f"{place}{fault}", fix, ExitCode.LOG_DAMAGED)
    for fix, number in alike.items():
        if number > _ALIKE:
            what = f"{number - _ALIKE} more places, which `iris log verify` lists"
            yield failure("log", what, fix, ExitCode.LOG_DAMAGED)
    if verdict.ok:
        archived = f", with {count(verdict.segments, 'segment')} of its archive" if verdict.segments else ""
        yield fine("log", f"{count(verdict.records, 'transaction')}{archived}, all valid")
    if verdict.unfinished is not None and verdict.ok:
        yield warning(
            "log", f"{verdict.unfinished}", "nothing to do: the next command that writes moves it aside"
        )
    if (size := size_of_log(state.path)) > large:
        yield warning("log", f"it has {format_memory(size)}", "iris log compact")


def only_history_is_lost(state: StateDir, verdict: VerifyReport) -> bool:
    """Return True if only the archive is damaged and the snapshot has its result."""
    if any(each.file == LOG and each.kind is not FaultKind.MISSING for each in verdict.findings):
        return False
    try:
        return state.load().damage is None
    except (IrisError, IllegalTransitionError):
        return False


ONLY_HISTORY = "only history is lost (the snapshot has the state), unless iris is upgraded"
_SPARED = f"restore it into {{}} from a copy, or leave it: {ONLY_HISTORY}"


def fix_of(fault: Fault, directory: Path) -> str:
    """Return the fix for a finding."""
    return _FIXES[fault.kind](directory)


def _path(directory: Path, name: str = "") -> str:
    return shlex.quote(str(directory / name if name else directory))


def _damaged(directory: Path) -> str:
    copy = shlex.quote(f"{directory}.copy")
    return f"cp -a {_path(directory)} {copy}; iris log verify; iris log salvage  # then with --yes"


_FIXES: dict[FaultKind, Callable[[Path], str]] = {
    FaultKind.TORN: _damaged,
    FaultKind.DAMAGED: _damaged,
    FaultKind.EDITED: lambda _: "iris log salvage --yes  # restores the lines as they were committed",
    FaultKind.LOST: lambda directory: (
        f"restore the newer copy of {_path(directory)}, or accept the loss: iris log salvage --accept-loss"
    ),
    FaultKind.MISSING: lambda directory: (
        f"restore the missing segment into {_path(directory, ARCHIVE)}, or truncate the log before it: "
        "iris log salvage  # then with --yes"
    ),
    FaultKind.HEAD: lambda directory: (
        f"mv {_path(directory, HEAD)} {_path(directory, HEAD + '.damaged')}: the next command writes a new one"
    ),
    FaultKind.NEWER: lambda _: "pip install --upgrade iris-cli",
    FaultKind.FOREIGN: lambda directory: (
        f"restore the log of {_path(directory)}, or name its directory: iris --state-dir DIR"
    ),
}
