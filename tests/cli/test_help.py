"""`--help` of every command: short, with examples that can be typed as they stand."""

from __future__ import annotations

import shlex

import pytest
import typer

from iris_cli.cli import tree
from iris_cli.cli.command_types import WORDS_AFTER_DASHES, Group, example_lines, panel_of
from iris_cli.cli.job_options import parse_request
from iris_cli.errors import UsageError
from tests.support.command_lines import commands, parsed, root

EVERY = dict(commands())
EXAMPLES = [(path, line) for path, command in EVERY.items() for line in example_lines(command.epilog)]


def test_every_command_has_two_to_four_examples() -> None:
    counts = {path: len(list(example_lines(command.epilog))) for path, command in EVERY.items()}
    assert {path: count for path, count in counts.items() if not 2 <= count <= 4} == {}


def test_every_example_parses_and_belongs_to_its_command() -> None:
    for path, line in EXAMPLES:
        assert (
            len(line) <= 78 or "  # " not in line
        )  # in 80 columns; a command alone is as long as it must be
        if shlex.split(line, comments=True) == ["iris"] or "iris" not in line.split():
            continue  # the tool alone; or what reads the file that the example before it wrote
        context = parsed(line)
        assert f"{context.command_path} ".startswith(f"{path} "), line
        if context.info_name == "launch":
            parse_request(context.params, context.meta.get(WORDS_AFTER_DASHES, ()))


def test_what_can_not_be_typed_is_found() -> None:
    for line in (
        "iris stauts",
        "iris status --nmae x",
        "iris log verfy",
        "iris cancel --stat x",
        "iris logs train --rank x",
    ):
        with pytest.raises((typer.TyperException, UsageError)):
            parsed(line)


def test_in_a_list_of_commands_each_takes_one_line_of_80_columns() -> None:
    for group in (command for command in EVERY.values() if isinstance(command, Group)):
        listed = group.commands
        room = 80 - 6 - max(map(len, listed))
        assert [name for name in listed if len(listed[name].get_short_help_str(1_000)) > room] == []


def test_every_option_with_a_value_names_it() -> None:
    for path, each in ((path, each) for path, command in EVERY.items() for each in command.params):
        takes_none = getattr(each, "is_flag", False) or each.name in ("install_completion", "show_completion")
        assert takes_none or each.metavar, f"{path}: {each.name}"


@pytest.mark.parametrize("columns", [80, 60])
def test_help_fits_the_terminal_and_breaks_no_line_inside_a_word(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    bad = []
    for path, command in EVERY.items():
        text = command.get_help(command.make_context(path, [], resilient_parsing=True))
        lines = text.partition("Examples:")[0].splitlines()
        bad += [f"{path}: {line}" for line in lines if len(line) > columns or line.endswith("-")]
    assert bad == []


def test_the_options_of_launch_are_in_groups_and_none_is_left_over() -> None:
    launch = EVERY["iris launch"]
    text = launch.get_help(launch.make_context("launch", [], resilient_parsing=True))
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    groups = list(dict.fromkeys(panel_of(each) for each in launch.params if panel_of(each)))
    assert headings == ["Arguments", *groups, "Options", "Examples"]
    assert groups[0] == "Resources and tasks"
    left_over = [each.name for each in launch.params if not panel_of(each)]
    assert left_over == ["jobfile"]


def test_a_command_with_more_than_ten_options_has_them_in_groups() -> None:
    many = [path for path, command in EVERY.items() if len(command.params) > 10]
    assert "iris launch" in many
    assert [path for path in many if path != "iris" and not any(map(panel_of, EVERY[path].params))] == []


def test_the_first_page_has_every_command_once_and_before_the_options() -> None:
    listed = [name for names in tree.Root.sections.values() for name in names]
    assert sorted(listed) == sorted(root().commands)
    text = root().get_help(root().make_context("iris", ["status"]))
    assert text.index("Jobs:") < text.index("Options:") < text.index("Examples:")


@pytest.mark.parametrize(
    ("alias", "name"), [("cordon", "drain"), ("undrain", "uncordon"), ("resume", "uncordon")]
)
def test_words_of_other_tools_are_hidden_aliases(alias: str, name: str) -> None:
    group = root().commands["worker"]
    assert group.commands[alias].callback.__wrapped__ is group.commands[name].callback.__wrapped__
    assert group.commands[alias].hidden
    assert parsed(f"iris worker {alias} v5a-0").params == parsed(f"iris worker {name} v5a-0").params


def test_the_list_of_workers_is_found_under_worker_too() -> None:
    group = root()
    alias = group.commands["worker"].commands["list"]
    assert alias.callback.__wrapped__ is group.commands["workers"].callback.__wrapped__
    assert alias.hidden


def test_who_looks_for_the_logs_of_a_job_in_the_event_log_is_led_to_them() -> None:
    with pytest.raises(UsageError) as refused:
        parsed("iris log train")
    assert refused.value.hint == "did you mean 'iris logs train'?"
