"""Paths in the traceback of a rank on a real host, whose home directory is unknown on this machine."""

from __future__ import annotations

import sys

import pytest

from iris_cli.errors import ExitCode
from tests.support.site import Site

pytestmark = pytest.mark.ssh

PROGRAM = """def step():
    raise ValueError("loss is nan in " + __import__("os").getcwd())
step()
"""


def test_a_traceback_on_a_real_host_has_relative_paths(slice_of_one: Site) -> None:
    site = slice_of_one
    (site.directory / "code").mkdir()
    (site.directory / "code/train.py").write_text(PROGRAM)
    program = f"cd $IRIS_WORKDIR; exec {sys.executable} $PWD/train.py"
    launch = ("launch", "--name", "train", "--tpu", "v4-8", "--workdir", str(site.directory / "code"))
    site.iris(*launch, "--wait", "--", "sh", "-c", program, code=ExitCode.FAILED)
    first = site.iris("status", "train", "--json").json()["failure"]["task"]
    lines = site.iris("logs", first, "--stream", "err").out.splitlines()
    assert '  File "train.py", line 3, in <module>' in lines
    assert lines[-1] == "ValueError: loss is nan in ."
    card = site.iris("status", "train").out
    assert '  File "train.py", line 3, in <module>' in card
    assert "/a/" not in card
    raw = site.iris("logs", first, "--stream", "err", "--raw").out
    assert raw.count("/a/") >= 3
    kept = site.iris("logs", first, "--stream", "err", "--json").json()
    assert [line["text"] for line in kept["tasks"][0]["lines"]] == raw.splitlines()
