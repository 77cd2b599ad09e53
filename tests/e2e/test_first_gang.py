"""Somebody who has only the README and TPU VMs gets to a gang's logs, and from a failure to its cause."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from iris_cli.cli.app import run
from iris_cli.core.topology import lookup
from tests.support.newcomer import Newcomer
from tests.support.pages import Step, rewritten, same, steady
from tests.support.sshd import SshLab

pytestmark = pytest.mark.ssh

PAGE = Path(__file__).parents[2] / "docs" / "first-gang.md"
SAMPLES = Path(__file__).parents[1] / "cli" / "cluster_import" / "samples"
LISTS = Path(__file__).parent / "newcomer"


@pytest.fixture
def ann(ssh_lab: SshLab, tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path / "ann", ssh_lab)


SHAPES = ("one_slice", "rest_page", "external", "generations")
TYPES = {"v4-32": "v4a", "v6e-8": "v6e-eval", "v2-8": "v2"}
"""Slices by their type: a gang and a single host of gcloud, a single host of the API. The page has a v5litepod-16."""
MORE_TYPES = {"v5litepod-16": "v5e-b", "v5p-32": "v5p-train", "v3-32": "v3", "v6e-16": "v6e-asked"}


@pytest.mark.parametrize(
    "types", [TYPES, pytest.param(TYPES | MORE_TYPES, marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_lists_of_each_shape_lead_to_the_logs_of_gangs(
    ann: Newcomer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    types: dict[str, str],
) -> None:
    """Of gcloud and of the API, single hosts and gangs, of every generation of TPUs; addresses inside and outside."""
    lists = [SAMPLES / f"{shape}.json" for shape in SHAPES]
    ann.settle(lists, servers=4)
    ann.live_there(monkeypatch)
    together = ann.place / "tpus.json"
    together.write_text("".join(each.read_text() for each in lists))

    def iris(*words: str) -> str:
        capsys.readouterr()
        assert run(list(words)) == 0, capsys.readouterr()
        return capsys.readouterr().out

    iris("cluster", "import", "--from", "tpus.json", "--yes")
    iris("cluster", "import", "--from", "tpus.json", "--address", "external", "--yes", "v6e-asked")
    iris("config", "validate")
    used = [f"{name}-{number}" for tpu, name in types.items() for number in range(vms_of(tpu))]
    iris("worker", "probe", "--accept-key", "--yes", *used)
    jobs = [f"on-{each}" for each in types]
    for job, tpu in zip(jobs, types, strict=True):
        iris("launch", "--no-schedule", "--name", job, "--tpu", tpu, "--", "sh", "-c", "echo up")
    iris("wait", *jobs)
    for job, tpu in zip(jobs, types, strict=True):
        ranks = vms_of(tpu)
        assert iris("logs", job) == (f"[0-{ranks - 1}] up\n" if ranks > 1 else "up\n"), job


def vms_of(tpu: str) -> int:
    known = lookup(tpu)
    assert known is not None
    return known.vms


def test_the_page_is_what_happens(ann: Newcomer) -> None:
    """IRIS_REWRITE=1 writes the page anew: read the diff before it is committed."""
    ann.loop = "auto"
    ann.settle([LISTS / "tpus.json"], servers=5)
    differences: list[str] = []

    def act(step: Step) -> str:
        if step.aside:
            verb, what = step.aside.split()
            {"hold": ann.hold, "release": ann.release, "settle": ann.settle_job, "wait": ann.wait}[verb](what)
            return ""
        shown = ann.types(step.typed, *(step.answers or "y"))
        if not same(step.shown, shown):
            before, after = (steady(text).splitlines() for text in (step.shown, shown))
            differences.extend(
                [f"$ {step.typed}", *difflib.unified_diff(before, after, "page", "now", lineterm="")]
            )
        return shown

    try:
        page = rewritten(PAGE.read_text(encoding="utf-8"), act)
    finally:
        ann.types("iris loop stop")
    if "IRIS_REWRITE" in os.environ:
        PAGE.write_text(page, encoding="utf-8")
        return
    assert not differences, "\n".join(differences)
