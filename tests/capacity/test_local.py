"""Local slices: real processes, found and ended whatever became of whoever made them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_cli.capacity.provider import ProviderError
from iris_cli.core.messages.cloud import CloudState, Refusal
from iris_cli.demo.provider import LocalProvider
from tests.capacity.conftest import Place, local
from tests.support.desk import ShiftedClock
from tests.support.scale import scale_group
from tests.support.waiting import until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with local(tmp_path) as place:
        yield place


def alive(pid: int) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip() not in ("", "Z", "Zs")


def wait_until_gone(pid: int) -> None:
    until(lambda: not alive(pid))


def hosts_of(path: Path) -> list[int]:
    import json

    return [int(pid) for pid in json.loads((path / "pids").read_text())]


def test_a_slice_one_of_whose_hosts_has_ended_has_stopped(here: Place, tmp_path: Path) -> None:
    here.provider().create("west-1", here.group)
    first, _ = hosts_of(tmp_path / "slices" / "west-1")
    os.kill(first, signal.SIGKILL)
    wait_until_gone(first)
    [there] = here.provider().list()
    assert (there.state, there.detail) == (CloudState.STOPPED, "1 of 2 hosts have ended")


def test_deleting_ends_its_hosts_with_all_that_lives_there_and_leaves_nothing(
    here: Place, tmp_path: Path
) -> None:
    here.provider().create("west-1", here.small_group)
    own = tmp_path / "slices" / "west-1"
    home = own / "hosts" / "west-1-0" / "home"
    if not Path("/proc/self/environ").exists():
        pytest.skip("the system does not show environments")
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    there = subprocess.Popen(command, env={**os.environ, "HOME": str(home)})
    elsewhere = subprocess.Popen(command, env={**os.environ, "HOME": f"{own}-of-somebody"})
    pids = hosts_of(own)
    try:
        here.provider().delete("west-1")
        for pid in pids:
            wait_until_gone(pid)
        assert [path.name for path in (tmp_path / "slices").iterdir()] == [".iris-local-slices"]
        assert there.wait(60) == -signal.SIGKILL
        assert elsewhere.poll() is None
    finally:
        for process in (there, elsewhere):
            process.kill()
            process.wait()


def test_a_request_that_was_killed_half_way_is_listed_and_can_be_deleted(here: Place, tmp_path: Path) -> None:
    """Its hosts end by themselves if nobody told them what to be; those that were told are ended by their pids."""
    script = (
        "import os, signal; from pathlib import Path; from iris_cli.demo import processes, provider\n"
        "from tests.support.scale import scale_group\n"
        "from iris_cli.core.model.worker import Connection\n"
        "told = processes.configure_host\n"
        "def tell(process, settings, **how):\n"
        "    told(process, settings, **how)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "processes.configure_host = tell\n"
        f"group = scale_group('west', 'v4-16', connection=Connection(host='', key={str(tmp_path / 'id_ed25519')!r}))\n"
        f"provider.LocalProvider(Path({str(tmp_path / 'slices')!r}), 'us', 'us-west4-a').create('west-1', group)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    [there] = here.provider().list()
    assert there.state is CloudState.CREATING
    told, untold = hosts_of(tmp_path / "slices" / "west-1")
    wait_until_gone(untold)
    here.provider().delete("west-1")
    wait_until_gone(told)
    assert here.provider().list() == ()


def test_one_that_is_half_made_for_long_has_failed(here: Place, tmp_path: Path) -> None:
    here.provider().create("west-1", here.small_group)
    (tmp_path / "slices" / "west-1" / "slice.json").unlink()
    assert [each.state for each in here.provider().list()] == [CloudState.CREATING]
    later = ShiftedClock()
    later.ahead = 61.0
    assert [(each.state, each.detail) for each in here.provider(clock=later).list()] == [
        (CloudState.FAILED, "creation was interrupted")
    ]


@pytest.mark.parametrize(("tpu", "words"), [("v9-16", "v9-16 is not known"), ("v4-16", "ssh: {key: ...}")])
def test_what_can_not_be_made_is_refused(tmp_path: Path, tpu: str, words: str) -> None:
    with pytest.raises(ProviderError, match=re.escape(words)) as refused:
        LocalProvider(tmp_path, "us", "us-west4-a").create("west-1", scale_group("west", tpu))
    assert refused.value.refusal is Refusal.INVALID
    assert list(tmp_path.iterdir()) == []
