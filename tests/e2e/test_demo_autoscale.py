"""`make demo-autoscale` shows slices on demand, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.test_demo import mentioning, run

ROOT = Path(__file__).parents[2]


def demo(directory: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    start = (sys.executable, "-m", "tests.support.tpu_emulator.demo")
    paths = ":".join(filter(None, (env.get("PYTHONPATH"), str(ROOT))))
    return run(directory=directory, env={**env, "PYTHONPATH": paths}, start=start)


def test_the_demo_makes_loses_replaces_and_gives_back_slices_and_leaves_nothing(tmp_path: Path) -> None:
    """Also for who has a cluster already, and a proxy."""
    pytest.importorskip("google.cloud.tpu_v2")
    outside = {
        "IRIS_STATE_DIR": str(tmp_path / "of-another-cluster"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "no_proxy": "",
    }
    ran = demo(tmp_path, outside)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    words = ran.stdout.splitlines()
    steps = [
        "train (1 slice of v4-16) is served by scale group west",
        "eval/task-0 (tpu:v4-8) is served by scale group central",
        "requested slice west-",
        "assigned train/task-[0-1] to west-",
        ": PREEMPTED",
        "requested slice west-",
        "[0] rank 0, attempt 1, gs://west",
        "[1] rank 1, attempt 1, gs://west",
        "# The cloud's own books: ",
    ]
    for step in steps:
        found = [index for index, line in enumerate(words) if step in line]
        assert found, f"{step!r} is not in what comes after the step before: {ran.stdout}"
        words = words[found[0] + 1 :]
    assert ran.stdout.splitlines()[-1].endswith("left: none.")
    assert list(tmp_path.iterdir()) == []
    assert mentioning(str(tmp_path)) == []


def test_without_the_extra_it_says_what_to_type(tmp_path: Path) -> None:
    """As it is where nobody installed Google's client: the name leads nowhere."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['google.cloud'] = None\n")
    ran = demo(tmp_path, {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"})
    assert (ran.returncode, ran.stdout) == (1, "")
    wanted = 'error: this demo needs Google\'s client for TPUs: pip install "iris-cli[gcp]"'
    assert ran.stderr.splitlines() == [wanted]
