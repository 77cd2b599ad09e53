"""Truncated scripts do nothing; and rules for the shell library."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from msgspec import to_builtins

from iris_cli.core.messages.observations import ChipHolder, RemoteState
from iris_cli.remote import worker_script as worker_script_module
from iris_cli.remote.command_calls import CommandRequest
from iris_cli.remote.output_calls import LogPiece
from iris_cli.remote.transport import Script, ScriptResult, Target
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import ProbedHost
from tests.support.archives import archive, ordinary, shipment
from tests.support.local_transport import LocalTransport
from tests.support.waiting import PATIENCE
from tests.support.worker_host import WorkerHost, is_alive, marked, start_ticks

STEPS = {"dash": 1597, "busybox": 4799, "bash": 4799}  # bash reads slowly
"""Bytes between two cuts. As many cuts are in the last bytes, at each byte."""


class Recorder(LocalTransport):
    """Keeps scripts without running them."""

    def run(self, target: Target, script: Script) -> ScriptResult:
        self.scripts.append(script.text)
        return ScriptResult(stdout=b"", stderr=b"", status=1)


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that some scripts would end."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def scripts_of_every_call(host: WorkerHost, tmp_path: Path, bystander: int) -> list[bytes]:
    recorder = Recorder(tmp_path / "unused", host.tools)
    host.runner._transport = recorder
    fresh = host.request(
        "sh", "-c", f"touch {tmp_path}/ran", env={"A": "b'c\nd"}, setup=f"touch {tmp_path}/set-up"
    )
    plain = host.request("touch", f"{tmp_path}/ran")
    prepared = host.tokens[0]
    host.runner.prepare(
        host.target, [fresh, plain], boot_id=host.boot_id, incarnation=host.incarnation, go=True
    )
    host.runner.go(host.target, [prepared], boot_id=host.boot_id, incarnation=host.incarnation)
    host.runner.stop(host.target, [(prepared, 0.0), (fresh.token, 0.0)])
    host.runner.poll(host.target, [prepared])
    host.runner.pieces(host.target, [LogPiece(token=prepared, stream="err", offset=-10, limit=10)])
    host.runner.stacks.read(host.target, [prepared], consent="USR1")
    host.runner.reap(host.target, [prepared])
    host.runner.usage(host.target, [prepared])
    packed = shipment(archive(ordinary))
    host.ship(packed, fresh.token)
    shipped = host.request(
        "touch", f"{tmp_path}/ran", workspace=packed.hash, setup=f"touch {tmp_path}/set-up"
    )
    host.runner.prepare(host.target, [shipped], boot_id=host.boot_id, incarnation=host.incarnation, go=False)
    command = CommandRequest(token=plain.token, argv=("touch", f"{tmp_path}/ran"), env={})
    host.runner.commands.run(host.target, command)
    host.runner.commands.end(host.target, [plain.token])
    host.runner.probe(host.target)
    stray = ChipHolder(boot_id=host.boot_id, pid=bystander, start=int(start_ticks(bystander)))
    host.runner.unwedge(host.target, keep=[plain.token], clear=[stray, prepared], grace=0.0)
    host.runner._transport = host.transport
    return recorder.scripts


def snapshot(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in [directory, *directory.rglob("*")]}


@pytest.mark.parametrize("times", [6, pytest.param(1, marks=pytest.mark.soak)])
def test_a_script_cut_at_any_byte_does_nothing(
    probed_host: ProbedHost, tmp_path: Path, bystander: int, host_shell: str, times: int
) -> None:
    """By default the steps are `times` as long."""
    host = probed_host(host_shell)
    waiting = host.request("touch", f"{tmp_path}/ran")
    host.prepare(waiting)
    (tmp_path / "empty-home").mkdir()
    before = snapshot(tmp_path / "host"), snapshot(tmp_path / "empty-home")
    for number, script in enumerate(scripts_of_every_call(host, tmp_path, bystander)):
        cuts = range(number, len(script), times * STEPS[host_shell])
        complete = len(script.rstrip(b"\n"))  # if stdin stays open, the newline ends the script
        for cut in [*cuts, *range(complete - len(cuts), complete)]:
            for home in ("host/home", "empty-home"):
                done = subprocess.run(
                    ["sh", "-s"],
                    input=script[:cut],
                    capture_output=True,
                    cwd=tmp_path / home,
                    env=host.transport.env | {"HOME": str(tmp_path / home)},
                    executable=str(host.tools / "sh"),
                    timeout=PATIENCE,
                    check=False,
                )
                assert b"IRIS1" not in done.stdout, (number, cut)
    assert (snapshot(tmp_path / "host"), snapshot(tmp_path / "empty-home")) == before
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "set-up").exists()
    assert not any(marked(token) for token in host.tokens)
    assert is_alive(bystander)
    assert host.state(waiting.token) is RemoteState.PREPARED


def library() -> dict[str, str]:
    files = (resources.files("iris_cli") / "remote" / "shell").iterdir()
    return {file.name: file.read_text("utf-8") for file in files if file.name.endswith(".sh")}


def test_the_library_removes_named_files_only() -> None:
    removals = [
        line.strip()
        for text in library().values()
        for line in text.splitlines()
        if re.search(r"\brm\b", line) and not line.strip().startswith("lacks ")
    ]
    assert removals
    assert not [line for line in removals if re.search(r"\brm\b(?! -f )|\brm -f [^#]*-[a-zA-Z]*[rR]", line)]


def test_the_library_keeps_nothing_where_others_may_write_or_wipe() -> None:
    """Exceptions: the lock file of libtpu, the check of full file systems, and the shared memory for containers."""
    code = "\n".join(
        re.sub(r"(^|\s)#.*", "", line) for text in library().values() for line in text.splitlines()
    )
    asked = "with_timeout 5 df -Pk /dev/shm /tmp .\n"
    shared = " -v /dev/shm:/dev/shm \\\n"
    assert (code.count(asked), code.count(shared)) == (1, 1)
    rest = code.replace(asked, "\n").replace(shared, "\n")
    assert not re.findall(r"/tmp\b|/var/tmp|/dev/shm|TMPDIR|mktemp", rest)
    paths = to_builtins(HostPaths())
    assert [name for name, path in paths.items() if path.startswith("/tmp")] == ["lock"]


def test_the_library_fits_its_own_rules() -> None:
    for name, text in library().items():
        assert "\t" not in text, name
        assert not re.search(r"(^|[;&|({]) *(local|source|declare|typeset) ", text, re.MULTILINE), name
        assert "[[" not in re.sub(r"\[\[:(space|cntrl):\]\]", "", text), name
        assert "<<" not in text, f"{name}: bash keeps here-documents in files"
        assert max(map(len, text.splitlines())) <= 110, name
        assert len(text.splitlines()) <= 400, name


@pytest.mark.parametrize("call", [*worker_script_module._PARTS])
def test_no_function_of_a_call_has_the_name_of_another(call: str) -> None:
    """The later one would replace the earlier one."""
    files = library()
    parts = dict.fromkeys([*worker_script_module._DETACHED.get(call, ()), *worker_script_module._PARTS[call]])
    names = Counter(
        name for part in parts for name in set(re.findall(r"^(\w+)\(\)", files[f"{part}.sh"], re.MULTILINE))
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_every_shell_accepts_every_file(tmp_path: Path) -> None:
    for name, text in library().items():
        for shell in (["dash"], ["busybox", "ash"], ["bash", "--posix"]):
            done = subprocess.run([*shell, "-n"], input=text, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), (name, shell)
