"""Checks of the event log for `iris doctor`, with a fix for each finding."""

import shlex
from collections import Counter
from collections.abc import Iterator
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
from iris_cli.ops.checks.findings import Finding, failure, failure_of, success, warning
from iris_cli.ops.cycle.compaction import LARGE_LOG, size_of_log
from iris_cli.ops.session import Progress, ProgressState

_MAX_PER_FIX = 10  # maximum findings with the same fix, because one flipped bit can damage thousands of lines
ONLY_HISTORY = "only history is lost (the snapshot has the state), but an upgrade of iris may need it"
_RESTORE_ARCHIVE = f"restore it into {{}} from a copy, or leave it: {ONLY_HISTORY}"
_FIX_OF_DAMAGE = "cp -a {directory} {copy}; iris log verify; iris log salvage  # then with --yes"
_FIXES = {
    FaultKind.TORN: _FIX_OF_DAMAGE,
    FaultKind.DAMAGED: _FIX_OF_DAMAGE,
    FaultKind.EDITED: "iris log salvage --yes  # restores the lines as they were committed",
    FaultKind.LOST: "restore a newer copy of {directory}, or accept the loss: iris log salvage --accept-loss",
    FaultKind.MISSING: "restore the missing segment into {archive}, or truncate the log before it: iris log salvage"
    "  # then with --yes",
    FaultKind.HEAD: "mv {head} {damaged_head}  # the next command writes a new one",
    FaultKind.NEWER: "pip install --upgrade iris-cli",
    FaultKind.FOREIGN: "restore the log of {directory}, or name its directory: iris --state-dir DIR",
}


def verify_with_progress(directory: Path, progress: Progress) -> VerifyReport:
    """Verify every line of archive and log, and show the progress. Raises the errors of `verify`."""
    scans: list[tuple[str, Scan]] = []

    def read_progress() -> ProgressState:
        file, scan = scans[-1]
        return f"reading {file}", *scan.progress

    with progress(read_progress):
        return verify(directory, lambda *scan: scans.append(scan), replayed=True)


def check_log(
    state: StateDir, large: int = LARGE_LOG, progress: Progress = lambda _: nullcontext()
) -> Iterator[Finding]:
    """Yield findings on the validity of every line of archive and log, and on a log of more than `large` bytes."""
    try:
        report = verify_with_progress(state.path, progress)
    except NotFoundError:
        yield success("log", "none yet")
        return
    except IrisError as error:
        yield failure_of("log", error)
        return
    only_archive = bool(report.findings) and is_only_history_lost(state, report)
    number_by_fix: Counter[str] = Counter()
    for fault in report.findings:
        file = f"{fault.file}, " if fault.file.startswith(ARCHIVE) else ""
        archive = shlex.quote(str(state.path / ARCHIVE))
        fix = _RESTORE_ARCHIVE.format(archive) if only_archive else fix_of(fault, state.path)
        number_by_fix[fix] += 1
        if number_by_fix[fix] <= _MAX_PER_FIX:
            yield failure("log", f"{file}{fault}", fix, ExitCode.LOG_DAMAGED)
    for fix, number in number_by_fix.items():
        if number > _MAX_PER_FIX:
            text = f"{number - _MAX_PER_FIX} more places, which `iris log verify` lists"
            yield failure("log", text, fix, ExitCode.LOG_DAMAGED)
    if report.ok:
        archived = f", including {count(report.segments, 'archived segment')}" if report.segments else ""
        yield success("log", f"{count(report.records, 'transaction')}{archived}, all valid")
    if report.unfinished is not None and report.ok:
        yield warning(
            "log", f"{report.unfinished}", "nothing to do: the next command that writes moves it aside"
        )
    if (size := size_of_log(state.path)) > large:
        yield warning("log", f"the log has {format_memory(size)}", "iris log compact")


def is_only_history_lost(state: StateDir, report: VerifyReport) -> bool:
    """Return True if only the archive is damaged, and the snapshot contains the state at the end of the archive."""
    if any(each.file == LOG and each.kind is not FaultKind.MISSING for each in report.findings):
        return False
    try:
        return state.load().damage is None
    except (IrisError, IllegalTransitionError):
        return False


def fix_of(fault: Fault, directory: Path) -> str:
    """Return the fix for a fault of the log in `directory`, in words."""
    return _FIXES[fault.kind].format(
        directory=shlex.quote(str(directory)),
        copy=shlex.quote(f"{directory}.copy"),
        archive=shlex.quote(str(directory / ARCHIVE)),
        head=shlex.quote(str(directory / HEAD)),
        damaged_head=shlex.quote(str(directory / f"{HEAD}.damaged")),
    )
