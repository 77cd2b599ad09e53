"""Findings of `iris doctor`. Each finding has a level and a fix."""

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from iris_cli.errors import ExitCode, IrisError

_ROOT_CAUSES = (ExitCode.CONFIG, ExitCode.LOG_DAMAGED, ExitCode.NOT_WRITABLE, ExitCode.UNREACHABLE)
"""Exit codes of failures that may cause other failures, in the order in which to fix them."""


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works, but needs attention
    FAIL = "fail"


class Finding(Struct, frozen=True, kw_only=True):
    """One finding of `iris doctor` about `subject`, and its fix."""

    OMITTED: ClassVar = ("code", "hidden_if_ok")
    level: Level
    subject: str
    text: str
    fix: str = ""
    code: ExitCode = ExitCode.FAILED  # exit code of a failure
    hidden_if_ok: bool = False  # tables omit the finding if it is OK


def success(subject: str, text: str, *, hidden_if_ok: bool = False) -> Finding:
    return Finding(level=Level.OK, subject=subject, text=text, hidden_if_ok=hidden_if_ok)


def warning(subject: str, text: str, fix: str = "") -> Finding:
    return Finding(level=Level.WARN, subject=subject, text=text, fix=fix)


def failure(subject: str, text: str, fix: str = "", code: ExitCode = ExitCode.FAILED) -> Finding:
    return Finding(level=Level.FAIL, subject=subject, text=text, fix=fix, code=code)


def failure_of(subject: str, error: IrisError) -> Finding:
    """Return the finding for an error that ended a check."""
    return failure(subject, error.message, error.hint, error.exit_code)


def exit_code(findings: Iterable[Finding]) -> ExitCode:
    """Return 0 if nothing failed, otherwise the code of the failure to fix first."""
    codes = {finding.code for finding in findings if finding.level is Level.FAIL}
    if not codes:
        return ExitCode.OK
    return next((code for code in _ROOT_CAUSES if code in codes), ExitCode.FAILED)
