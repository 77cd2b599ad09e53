"""What a command of the operator printed, on the terminal: lines as those of logs, hostile text made visible."""

from __future__ import annotations

import pytest

from iris_cli.core.ids import JobId, TaskId, WorkerId
from iris_cli.ops.workers.execute import CommandResult
from iris_cli.remote.command_calls import CommandEnd
from iris_cli.render.console import Output
from iris_cli.render.logs.log_lines import show_executed


def places(said: bytes, count: int = 2) -> list[CommandResult]:
    return [
        CommandResult(
            worker=WorkerId(f"w{index}"),
            task=TaskId(JobId("train"), index),
            end=CommandEnd(exit_code=0, output=said),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"one\ntwo", "[0-1] one\n[0-1] two\n"),
        (b"\n\n", "[0-1] \n[0-1] \n"),
        (b"", ""),
        (b"10%\r50%\r100%\nwindows\r\n", "[0-1] 100%\n[0-1] windows\n"),
        ("a\u2028b\x85c\x0cd\n".encode(), "[0-1] a\\u2028b\\x85c\\x0cd\n"),
        (b"\x1b[31mred\x1b[0m \x1b[2J\xff\n", "[0-1] red \\x1b[2J\ufffd\n"),
    ],
    ids=["lines", "empty lines", "nothing", "carriage returns", "line ends of Unicode", "escapes"],
)
def test_output_is_shown_in_the_lines_that_the_program_wrote(
    said: bytes, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_executed(Output(), places(said))
    assert capsys.readouterr().out == shown
