"""Changes of a `cluster.yaml` in place: what was meant is there, and everything else is as it was, to the byte."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_cli.config.editing import SLICES, WORKERS, ClusterFile, Edit, apply_edits, unified_diff
from iris_cli.config.load import load_cluster_config
from iris_cli.config.yaml_text import NewHost, NewSlice, host_lines, slice_lines
from iris_cli.errors import ConfigError

PATH = Path("cluster.yaml")
NEW = NewSlice("new", "v4-8", ("10.9.9.9",), "us-central2-b", preemptible=True, incarnation="p 1 2026")
VALID = sorted((Path(__file__).parent / "valid" / "cluster").glob("*.yaml"))
EXAMPLE = Path(__file__).parents[2] / "cluster.example.yaml"


def edited(text: str, change: Callable[[ClusterFile], None], **addresses: tuple[str, ...]) -> str:
    """The text after a change, which must load and be what was meant."""
    file = ClusterFile(PATH, text.encode())
    change(file)
    assert file.by_hand == []
    data, _ = file.new_content(addresses)
    return data.decode()


def added(text: str) -> str:
    return edited(text, lambda file: file.add(SLICES, [slice_lines(NEW)]), new=("10.9.9.9",))


ENTRY = """\
- name: new
  type: v4-8
  hosts: [10.9.9.9]
  zone: us-central2-b
  preemptible: true
  incarnation: "p 1 2026"
"""


def indented(columns: int) -> str:
    return "".join(f"{' ' * columns}{line}\n" for line in ENTRY.splitlines())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cluster: {name: a}\n", f"cluster: {{name: a}}\n\nslices:\n{indented(2)}"),
        ("cluster: {name: a}", f"cluster: {{name: a}}\n\nslices:\n{indented(2)}".rstrip("\n")),
        ("cluster: {name: a}\n# end\n...\n", f"cluster: {{name: a}}\n\nslices:\n{indented(2)}# end\n...\n"),
        ("slices:\nworkers: []\n", f"slices:\n{indented(2)}workers: []\n"),
        ("slices: [] # none\nworkers: []\n", f"slices:  # none\n{indented(2)}workers: []\n"),
        ("slices: ~\n", f"slices: \n{indented(2)}"),
        (
            "slices:\n- {name: a, type: v4-8, hosts: h}  # it\n  # its own\n\n# of others\nworkers:\n",
            "slices:\n- {name: a, type: v4-8, hosts: h}  # it\n  # its own\n"
            f"{ENTRY}\n# of others\nworkers:\n",
        ),
        (
            "slices:\n    -   name: a\n        type: v4-8\n        hosts:\n        - h",
            f"slices:\n    -   name: a\n        type: v4-8\n        hosts:\n        - h\n{indented(4)}".rstrip(
                "\n"
            ),
        ),
    ],
)
def test_a_slice_is_added_behind_the_others(before: str, after: str) -> None:
    assert added(before) == after


def test_line_ends_and_marks_stay_as_they_are() -> None:
    text = "\ufeffslices:\r\n  - name: a\r\n    type: v4-8\r\n    hosts: [h]\r\n"
    assert added(text) == text + indented(2).replace("\n", "\r\n")


HOSTS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
OTHER = ("10.0.0.1", "10.0.0.9", "10.0.0.3", "10.0.0.4")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]", "[10.0.0.1, 10.0.0.9, 10.0.0.3, 10.0.0.4]"),
        (
            "[10.0.0.1:22, '10.0.0.2:2222', 10.0.0.3, 10.0.0.4]",
            '[10.0.0.1:22, "10.0.0.9:2222", 10.0.0.3, 10.0.0.4]',
        ),
        (
            "\n      - 10.0.0.1  # one\n      - {host: 10.0.0.2, port: 7}  # two\n      - 10.0.0.3\n      - 10.0.0.4",
            "\n      - 10.0.0.1  # one\n      - {host: 10.0.0.9, port: 7}  # two\n      - 10.0.0.3\n      - 10.0.0.4",
        ),
        ("10.0.0.[1-4]  # all", "[10.0.0.1, 10.0.0.9, 10.0.0.3, 10.0.0.4]  # all"),
        ("\n    - 10.0.0.[1-4]", "\n    - 10.0.0.1\n    - 10.0.0.9\n    - 10.0.0.3\n    - 10.0.0.4"),
    ],
)
def test_addresses_are_changed_in_the_way_they_are_written(before: str, after: str) -> None:
    frame = "slices:\n  - name: a\n    type: v4-32\n    hosts: {}\n    env: {{A: b}} # kept\n"

    def change(file: ClusterFile) -> None:
        file.set_addresses(file.entries[0], OTHER)

    assert edited(frame.format(before), change, a=OTHER) == frame.format(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- {name: a, type: v4-8, hosts: h}", '- {name: a, type: v4-8, hosts: h, incarnation: "p 1"}'),
        (
            "- {name: a, type: v4-8, hosts: h,  # x\n     }",
            '- {name: a, type: v4-8, hosts: h, incarnation: "p 1",  # x\n     }',
        ),
        (
            "- hosts: h  # x\n    name: a\n    type: v4-8",
            '- hosts: h  # x\n    incarnation: "p 1"\n    name: a\n    type: v4-8',
        ),
        (
            "- incarnation: o # x\n    hosts: h\n    name: a\n    type: v4-8",
            '- incarnation: "p 1" # x\n    hosts: h\n    name: a\n    type: v4-8',
        ),
    ],
)
def test_what_an_entry_says_is_changed_or_added(before: str, after: str) -> None:
    def change(file: ClusterFile) -> None:
        file.set_value(file.entries[0], "incarnation", "p 1")

    assert edited(f"slices:\n  {before}\n", change) == f"slices:\n  {after}\n"


def test_an_entry_is_removed_with_the_comments_in_it() -> None:
    b = "\n  # of b\n  - {name: b, type: v4-8, hosts: i}\n"
    text = f"slices:\n  # of a\n  - name: a\n    hosts: h\n    type: v4-8\n    # in a\n{b}"

    def first(file: ClusterFile) -> None:
        file.remove(file.entries[0])

    without = edited(text, first)
    assert without == f"slices:\n  # of a\n{b}"
    assert edited(without, first) == "slices:\n  # of a\n\n  # of b\n"


@pytest.mark.parametrize(
    "text",
    [
        "{cluster: {name: a}}\n",
        "slices: [{name: a, type: v4-8, hosts: h}]\n",
        "slices: [\n  # none\n]\n",
    ],
)
def test_what_can_not_be_changed_safely_is_left_to_a_person(text: str) -> None:
    file = ClusterFile(PATH, text.encode())
    file.add(SLICES, [slice_lines(NEW)])
    assert file.edits == []
    assert "  - name: new" in file.by_hand


def test_a_change_that_turns_out_otherwise_is_refused() -> None:
    file = ClusterFile(
        PATH, b"slices:\n  - {name: a, type: v4-8, hosts: h}\n  - {name: b, type: v4-8, hosts: i}\n"
    )
    file.set_addresses(file.entries[0], ["j"])
    with pytest.raises(ConfigError, match="safely"):
        file.new_content({"a": ("k",)})
    place = file.text.index("hosts: i") + 7
    file.edits.append(Edit(place, place + 1, "z"))
    with pytest.raises(ConfigError, match="safely"):
        file.new_content({"a": ("j",)})


@pytest.mark.parametrize("path", [*VALID, EXAMPLE], ids=lambda path: path.name)
def test_every_valid_file_takes_a_slice_and_a_worker_and_loses_not_a_byte(path: Path) -> None:
    file = ClusterFile(path, path.read_bytes())
    file.add(SLICES, [slice_lines(NEW)])
    file.add(WORKERS, [host_lines(NewHost("new-worker", "10.9.9.8"))])
    if file.by_hand:
        return
    data, config = file.new_content({"new": ("10.9.9.9",), "new-worker": ("10.9.9.8",)})
    lines = data.decode("utf-8-sig").split("\n")
    kept = [line for line in difflib.ndiff(file.text.split("\n"), lines) if line.startswith("- ")]
    assert all("[]" in line or line.strip() == "-" for line in kept)
    assert len(config.hosts) == len(file.config.hosts) + 2


# Any file at all

NAMES = st.sampled_from(["a", "b-1", "v4.x", "Z_9"])
COMMENTS = st.sampled_from(["", "", "  # why", " #: {x", "  # - name: no"])
LINES = st.sampled_from(["", "\n", "# about\n", "    # deep\n", "\n# one\n\n# two\n"])
ENDS = st.sampled_from(
    ["", "\n", "\n\n# end\n", "\nremote_dir: ~/x # y\n", "\ndefaults:\n  env: {A: 'b: #c'}\n"]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A valid file, as somebody might write it."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=4))
    column = draw(st.sampled_from([0, 2, 5]))
    gap = draw(st.sampled_from([1, 3]))
    text = (
        draw(LINES) + draw(st.sampled_from(["", "cluster: {name: x}  # ä\n"])) + f"slices:{draw(COMMENTS)}\n"
    )
    for number, name in enumerate(names):
        dash = " " * column + "-" + " " * gap
        pairs = [
            f"name: {name}",
            "type: v4-8",
            draw(st.sampled_from(["hosts: h{}", "hosts: [h{}]", "hosts: [ 'h{}' ]"])),
        ]
        pairs = draw(st.permutations([each.format(number) for each in pairs]))
        if draw(st.booleans()):
            text += dash + "{" + ", ".join(pairs) + "}" + draw(COMMENTS)
        else:
            text += dash + f"{draw(COMMENTS)}\n{' ' * len(dash)}".join(pairs) + draw(COMMENTS)
        text += "\n" + (draw(LINES) if number < len(names) - 1 else "")
    text = text.removesuffix("\n") + draw(ENDS)
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@settings(deadline=None, max_examples=60)
@given(text=files(), data=st.data())
def test_nothing_changes_outside_the_entries_that_are_touched(text: str, data: st.DataObject) -> None:
    file = ClusterFile(PATH, text.encode())
    chosen = data.draw(st.sampled_from(file.entries))
    what = data.draw(st.sampled_from(["address", "text", "remove", "add"]))
    start = text.rindex("\n", 0, chosen.node.start)
    if what == "address":
        file.set_addresses(chosen, ["other"])
    elif what == "text":
        file.set_value(chosen, "incarnation", "p: {1} #2")
    elif what == "remove":
        file.remove(chosen)
    else:
        file.add(SLICES, [slice_lines(NEW)])
        start = max(each.node.end for each in file.entries)
    after, config = file.new_content({chosen.name: ("other",)} if what == "address" else {})
    new = after.decode()
    assert new.startswith(text[:start])
    kept = next((text[each.node.start :] for each in file.entries if each.node.start > chosen.node.end), "")
    assert what == "add" or new.endswith(kept)
    assert len(config.hosts) == len(file.entries) + {"add": 1, "remove": -1}.get(what, 0)


@settings(deadline=None, max_examples=40)
@given(text=files(), data=st.data())
def test_a_diff_makes_of_the_old_file_the_new_one(text: str, data: st.DataObject) -> None:
    file = ClusterFile(PATH, text.replace("\r", "").encode())
    for entry in (each for each in file.entries if data.draw(st.booleans())):
        file.set_value(entry, "incarnation", "p 1")
        file.set_addresses(entry, [f"other-{entry.name}"])
    if data.draw(st.booleans()):
        file.add(SLICES, [slice_lines(NEW)])
        file.add(WORKERS, [host_lines(NewHost("w", "10.9.9.8"))])
    assert patched(file.text, file.diff()) == file.new_text()


def patched(text: str, diff: list[str]) -> str:
    """What `patch` would make of a text, at no other place than the one that the diff names."""
    old = text.split("\n")
    new: list[str] = []
    at = 0
    for number, line in enumerate(diff[2:], start=2):
        sign, said = line[0], line[1:]
        if sign == "@":
            first, count = line.split()[1][1:].split(",")
            start = int(first) - (count != "0")
            new += old[at:start]
            at = start
            assert (
                line.split()[2]
                == f"+{len(new) + (line.split()[2].split(',')[1] != '0')},{line.split(',')[-1][:-3]}"
            )
        if sign in " -":
            assert old[at] == said, diff
            at += 1
        if sign in " +":
            new.append(said)
        if sign == "\\" and diff[number - 1][0] == "+":
            return "\n".join(new)
    return "\n".join(new + old[at:])


def test_a_diff_is_the_one_that_everybody_knows() -> None:
    old = "".join(f"{number}\n" for number in range(40))
    edits = [Edit(0, 2, "x\n"), Edit(20, 20, "between\n"), Edit(old.index("30"), old.index("31"), "")]
    expected = difflib.unified_diff(
        old.splitlines(), apply_edits(old, edits).splitlines(), "name", "name", lineterm=""
    )
    assert unified_diff(old, edits, "name") == list(expected)


def test_an_entry_is_known_by_what_the_file_says_of_it() -> None:
    a = "{name: a, type: v5e-8, hosts: h, attributes: {zone: z-a}, incarnation: p 1 2}"
    text = f"slices:\n  - {a}\nworkers:\n  - {{id: w, host: i, tpu: v4-8}}\n  - {{id: x, host: j}}\n"
    one, w, x = ClusterFile(PATH, text.encode()).entries
    assert (one.kind, one.name, one.type, one.addresses, one.incarnation) == (
        SLICES,
        "a",
        "v5litepod-8",
        ("h",),
        "p 1 2",
    )
    assert (w.kind, w.type, x.type) == (WORKERS, "v4-8", "")


def test_an_incarnation_is_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("slices:\n  - {name: a, type: v4-8, hosts: h, incarnation: [1]}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster_config(path)
    assert "slices[0].incarnation: must be text" in caught.value.problems[0]
