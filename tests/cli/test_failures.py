"""What is said of an error, and when the traceback is."""

from __future__ import annotations

import pytest

from iris_cli.cli import failures
from iris_cli.errors import ExitCode


def fault() -> Exception:
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fault_of_ours_shows_where_it_happened_if_asked(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.report(failures.unexpected(fault()), verbose=verbose) is ExitCode.FAILED
    said = capsys.readouterr().err
    assert "error: internal error: ZeroDivisionError" in said
    assert ("_ = 1 // 0" in said) is verbose
