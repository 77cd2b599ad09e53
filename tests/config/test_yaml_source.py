"""The YAML that is read: small, strict, and the same with both of PyYAML's parsers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_cli.config import yaml_source
from iris_cli.config.job_file import load_job_file
from iris_cli.config.load import load_cluster_config
from iris_cli.config.yaml_source import Node, Report, read_yaml
from iris_cli.errors import ConfigError


@pytest.fixture(params=["SafeLoader", "CSafeLoader"], autouse=True)
def _both_parsers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = getattr(yaml, request.param, None)
    if loader is None:
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_source, "_LOADER", loader)


def read(tmp_path: Path, content: str | bytes) -> Node:
    path = tmp_path / "some.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    report = Report(path)
    node = read_yaml(path, report)
    report.raise_if_any()
    assert node is not None
    return node


def problem(tmp_path: Path, content: str | bytes) -> str:
    """The first problem, without the name of the file."""
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, content)
    return refused.value.problems[0].removeprefix(f"{tmp_path / 'some.yaml'}:")


def plain(node: Node) -> object:
    if isinstance(node.value, tuple):
        return [plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    return node.value


VALUES: list[tuple[str, object]] = [
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("8", 8),
    ("-8", -8),
    ("0", 0),
    ("1.5", 1.5),
    (".5", 0.5),
    ("1e3", 1000.0),
    *((text, text) for text in ("yes", "no", "on", "off", "y", "n", "017", "0o17", "0x1f", "1_000", "1:30")),
    *((text, text) for text in ("12:30:45", "2026-11-20", ".inf", "-.inf", ".nan", "1e999", "1.2.3", "=")),
    *((f"'{text}'", text) for text in ("true", "8", "null", "")),
    ('"a\\tb"', "a\tb"),
    ("a-w-[0-3]", "a-w-[0-3]"),
    ("9" * 2000, "9" * 2000),
]


def test_only_booleans_null_and_decimal_numbers_are_not_text(tmp_path: Path) -> None:
    for written, value in VALUES:
        found = plain(read(tmp_path, f"key: {written}\n"))
        assert found == {"key": value}
        assert isinstance(found, dict)
        assert type(found["key"]) is type(value)


def test_every_value_knows_its_line_and_its_text(tmp_path: Path) -> None:
    root = read(tmp_path, "a: 1\nb:\n  - x\n  - version:\n      1.10\n")
    assert isinstance(root.value, dict)
    assert root.value["a"].line == 1
    items = root.value["b"].value
    assert isinstance(items, tuple)
    assert [item.line for item in items] == [3, 4]
    assert isinstance(items[1].value, dict)
    version = items[1].value["version"]
    assert (version.line, version.value, version.text) == (4, 1.1, "1.10")


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path, start: str, end: str) -> None:
    content = start + end.join(["a: x", "b:", "  - y", ""])
    assert plain(read(tmp_path, content)) == {"a": "x", "b": ["y"]}


def test_block_text_is_kept(tmp_path: Path) -> None:
    assert plain(read(tmp_path, "a: |\n  one\n  two\n")) == {"a": "one\ntwo\n"}


INVALID = [
    (b"", "1: the file is empty"),
    (b"# only a comment\n", "1: the file is empty"),
    (b"\x7fELF\x02\x01\x01", "1: control character (U+007F)"),
    (b"a: b\nc: \x00\n", "2: control character (U+0000)"),
    (b"a: b\nc: \xff\xfe\n", "2: not UTF-8 text"),
    ("a: b\n".encode("utf-16"), "1: not UTF-8 text"),
    (b"a: \x1b[31m\n", "1: control character (U+001B)"),
    (b"a: " + b"x" * (1 << 20), "1: larger than 1 MiB"),
    (b"[" * 100, "1: nested deeper than 40 levels"),
    (b"{a: " * 100, "1: nested deeper than 40 levels"),
    (b"".join(b"  " * depth + b"a:\n" for depth in range(100)), "41: nested deeper than 40 levels"),
    (b"- " * 100, "1: nested deeper than 40 levels"),
    (b"a: [b\n", "2: not valid YAML"),
    (b"a: b: c\n", "1: not valid YAML"),
    (b"a: @b\n", "1: not valid YAML"),
    (b"a: 'b\n", "2: not valid YAML"),
    (b"a: b\n\tc: d\n", "2: not valid YAML"),
    (b"a: &x b\n", "1: anchors are not supported"),
    (b"a: *x\n", "1: aliases are not supported"),
    (b"a: !!str b\n", "1: tags are not supported"),
    (b"a: !local [b]\n", "1: tags are not supported"),
    (b"!!set {a, b}\n", "1: tags are not supported"),
    (b"a: 1\na: 2\n", "2: 'a' is set twice, first on line 1"),
    (b"a: 1\n'a': 2\n", "2: 'a' is set twice, first on line 1"),
    (b"8: 1\n8: 2\n", "2: '8' is set twice, first on line 1"),
    (b"<<: {a: b}\n", "1: merge keys are not supported"),
    (b"a: b\n---\nc: d\n", "2: a second document starts on this line"),
]


def test_invalid_yaml_is_rejected_with_its_line(tmp_path: Path) -> None:
    for content, said in INVALID:
        found = problem(tmp_path, content)
        assert found.startswith(said), (content[:24], found)


@pytest.mark.parametrize(
    "_both_parsers", ["CSafeLoader" if hasattr(yaml, "CSafeLoader") else "SafeLoader"], indirect=True
)
def test_a_file_with_too_many_values_is_rejected(tmp_path: Path) -> None:
    assert problem(tmp_path, b"a: [" + b"x, " * 100_000 + b"]") == "1: more than 100000 values"


def test_an_alias_bomb_is_rejected_before_expansion(tmp_path: Path) -> None:
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert problem(tmp_path, "\n".join(levels)).startswith("1: anchors are not supported")


def test_a_file_that_is_not_there_a_directory_and_a_pipe_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("none", "no such file"),
        ("", "not a regular file"),
        ("pipe", "not a regular file"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_cluster_config(tmp_path / name)
        assert refused.value.problems[0].endswith(said)


words = st.sampled_from(
    ["workers", "slices", "command", "name", "a", "h-[0-3]", "1", "true", ": ", "- ", "\n", "  "]
)
signs = st.sampled_from("[]{},:?|>&*!%@`'\"#-~")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=200).map(str.encode)
    | st.binary(max_size=200)
    | st.lists(words | signs).map("".join).map(str.encode)
)
def test_no_file_makes_anything_but_a_value_or_a_config_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(content)
    for load in (load_cluster_config, load_job_file):
        with contextlib.suppress(ConfigError):
            load(path)


def test_a_hostile_number_of_problems_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("".join(f"workerz{n}: x\n" for n in range(2_000)))
    with pytest.raises(ConfigError) as refused:
        load_cluster_config(path)
    assert refused.value.message == f"{path} has 2000 problems"
    assert len(refused.value.problems) == 101
    assert refused.value.problems[-1] == f"{path}: and 1900 more"


def test_problems_are_one_line_each_whatever_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text('"a\\nb\\e[31m": 1\nworkers: [{id: "x\\ny", host: "h\\nk"}]\nslices: [{type: "v\\n4"}]\n')
    with pytest.raises(ConfigError) as refused:
        load_cluster_config(path)
    assert len(refused.value.problems) == 6
    assert all(problem.isprintable() for problem in refused.value.problems)
