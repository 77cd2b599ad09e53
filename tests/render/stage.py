"""A place where command lines are typed: the real ones, on a real state directory, with workers in memory.

Nothing of this machine shows: time stands still, the directory has a short name, and nobody is asked.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Self, cast

import pytest

from iris_cli.cli import app, consent
from iris_cli.core.attributes import DEVICE_VARIANT_ATTRIBUTE_KEY, TPU_NAME_ATTRIBUTE_KEY
from iris_cli.core.ids import Token, WorkerId
from iris_cli.core.messages.observations import ProbeReport, RemoteState, Silence, SilenceKind
from iris_cli.core.model.task import AttemptState
from iris_cli.files import DISK
from iris_cli.journal.files.runners import LOOP, Runner, RunnerLock
from iris_cli.journal.log.file_store import FileStore
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.cluster_handle import ClusterHandle
from iris_cli.remote.command_calls import CommandEnd, CommandRequest
from iris_cli.remote.stack_calls import Programs
from iris_cli.remote.task_runner import LogChunk, LogPiece
from iris_cli.remote.transport import Target
from iris_cli.render.layout import clean_line
from tests.render.scenes import SCENES
from tests.support.fake_runner import Clock, Entry, FakeRunner, Host
from tests.support.in_memory import IN_MEMORY, room_in_memory
from tests.support.lab import Lab

if TYPE_CHECKING:
    from iris_cli.cli.context import Context
    from iris_cli.remote.ssh import SshTransport

WIDTHS = (60, 100, 200)
HERE = "/home/me/my-cluster"
"""What stands for the directory of the stage in what is shown: as long as that, so that lines break alike."""
_BEGIN = f"{IN_MEMORY}/s-" if room_in_memory() else "/tmp/stage-"
"""The begin of the path of a directory; with eight random digits it is as long as `HERE`."""
CLUSTER = "c1" * 16
"""The random id of its log."""


class Hosts(FakeRunner):
    """The workers of a lab, as its log knows them; what they would say is put in by whoever paints the picture."""

    def __init__(self, lab: Lab, clock: Clock) -> None:
        super().__init__({str(worker): Host(str(worker), clock.now) for worker in lab.hosts})
        self._lab = lab
        self.output: dict[Token, dict[str, bytes]] = {}  # by stream
        self.ran: dict[str, CommandEnd] = {}  # what a command of the operator comes to there, by worker
        self.stacked: dict[Token, Programs] = {}
        for worker, known in lab.cluster.workers.items():
            facts = lab.hosts[worker].facts
            host = self.hosts[worker]
            host.boot_id, host.incarnation = facts.boot_id, facts.incarnation
            if known.silent_since is not None:
                host.silence = SilenceKind.UNREACHABLE
        for task in lab.cluster.tasks.values():
            for each in task.attempts:
                state = _STATES.get(each.state, RemoteState.EXITED)
                entry = Entry(state, name=str(task.id), exit_code=0 if state is RemoteState.EXITED else None)
                self.hosts[each.worker].tokens[each.token] = entry

    def attempt(self, task: str) -> Token:
        """The token of the newest attempt of a task."""
        job, _, index = task.rpartition("/task-")
        return self._lab.attempt(job, int(index)).token

    def says(self, task: str, text: str, stream: str = "out") -> None:
        """What a task has written."""
        said = self.output.setdefault(self.attempt(task), {})
        said[stream] = said.get(stream, b"") + text.encode("utf-8", "surrogatepass")

    def probe(
        self, target: Target, *, first_contact: bool = False, make: bool = True
    ) -> ProbeReport | Silence:
        host, facts = self.hosts[target.worker], self._lab.hosts[WorkerId(target.worker)].facts
        answer = ProbeReport(
            worker=facts.worker,
            boot_id=host.boot_id,
            incarnation=host.incarnation,
            cpus=int(facts.cpu),
            memory=facts.memory,
            disk_free=100 << 30,
            clock=host.now(),
        )
        return self._answer(host, "probe", answer)

    def pieces(self, target: Target, wanted: Sequence[LogPiece]) -> tuple[LogChunk, ...] | Silence:
        return self._answer(self.hosts[target.worker], "logs", tuple(map(self._piece, wanted)))

    def _piece(self, piece: LogPiece) -> LogChunk:
        data = self.output.get(piece.token, {}).get(piece.stream, b"")
        start = piece.offset if piece.offset >= 0 else max(0, len(data) + piece.offset)
        start = min(start, len(data))
        return LogChunk(data=data[start : start + piece.limit], offset=start, size=len(data), inode=1)

    @property
    def commands(self) -> Self:
        return self

    @property
    def stacks(self) -> Self:
        return self

    def run(self, target: Target, request: CommandRequest) -> CommandEnd | Silence:
        return self._answer(self.hosts[target.worker], "exec", self.ran.get(target.worker, _NOTHING))

    def end(self, target: Target, tokens: Sequence[Token]) -> Silence | None:
        answer = self._answer(self.hosts[target.worker], "end", None)
        return answer if isinstance(answer, Silence) else None

    def read(
        self, target: Target, tokens: Sequence[Token], *, consent: str = "", seconds: float = 30.0
    ) -> tuple[Programs, ...] | Silence:
        answer = tuple(self.stacked[token] for token in tokens)
        return self._answer(self.hosts[target.worker], "stacks", answer)


_NOTHING = CommandEnd(exit_code=0, output=b"")
_STATES = {
    AttemptState.ASSIGNED: RemoteState.PREPARED,
    AttemptState.RUNNING: RemoteState.RUNNING,
    AttemptState.STOPPING: RemoteState.STOPPING,
}


@dataclass(frozen=True)
class Key:
    """A host key as a host presents it."""

    type: str = "ssh-ed25519"
    fingerprint: str = "SHA256:4xv0Vq2mJ6WkzXb7yN1cUj0sQ5rTtYpLhGfEdCbA981"


class Keys:
    """Stands where SSH would be: every host shows the same key, which is new."""

    def presented_key(self, _target: Target, _timeout: float) -> Key:
        return Key()

    def known_keys(self, target: Target) -> list[Key]:
        old = Key(fingerprint="SHA256:oldoldoldoldoldoldoldoldoldoldoldoldoldold1")
        return [] if target.worker == "gpu-0" else [old]

    @contextmanager
    def trusting(self, _worker: WorkerId, _key: Key) -> Iterator[Keys]:
        yield self

    def accept_keys(self, _keys: dict[WorkerId, Key]) -> None:
        pass

    def forget_keys(self, _workers: object) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Stage:
    """A scene, its directory, and its workers. `typed` runs one command line there."""

    directory: Path
    lab: Lab
    hosts: Hosts
    clock: Clock
    _first_line: str
    loop: RunnerLock  # looks like that of a background loop
    answers: list[str] = field(default_factory=list)  # of somebody at a terminal; none: nobody is there

    @property
    def log(self) -> Path:
        return self.directory / "state" / "events.jsonl"

    @property
    def cluster_id(self) -> str:
        return str(json.loads(self._first_line)["cluster_id"])

    def nobody_runs_cycles(self, since: float) -> None:
        """The loop was killed so many seconds ago, right after a cycle."""
        self.loop.release()
        at = {"at": self.lab.now - since}
        state = StateDir(self.directory / "state", now=lambda: self.lab.now, actor="me@laptop")
        state.write_heartbeat(at, LOOP, at)

    def loop_lacks(self, trouble: str) -> None:
        """Its last cycle has found something that it can't do."""
        at = {"at": self.lab.now - 3.0}
        state = StateDir(self.directory / "state", now=lambda: self.lab.now, actor="me@laptop")
        state.write_heartbeat(at, LOOP, {**at, "troubles": [trouble]})

    def typed(
        self, line: str, width: int = 100, *, told: bool = True, colour: bool = False
    ) -> tuple[str, int]:
        """What it shows on stdout, and on stderr if that is `told`, in the order in which it comes; its exit code."""
        codes: list[int] = []
        words = shlex.split(line)
        text = self.shown(lambda: codes.append(_code_of(words, self.clock)), width, told=told, colour=colour)
        return text, codes[0]

    def shown(
        self, act: Callable[[], object], width: int = 100, *, told: bool = True, colour: bool = False
    ) -> str:
        """The same of anything that shows something."""
        shown = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            self._set(patch)
            patch.setenv("COLUMNS", str(width))
            if colour:
                patch.setenv("FORCE_COLOR", "1")
            patch.setattr(sys, "stdout", shown)
            patch.setattr(sys, "stderr", shown if told else io.StringIO())
            patch.setattr(sys, "stdin", io.StringIO())
            if self.answers:
                patch.setattr(consent, "ask", partial(self._answer, shown))
            act()
        text = (
            shown.getvalue().replace(str(self.directory), HERE).replace(self.directory.name, Path(HERE).name)
        )
        text = text.replace(self.cluster_id, CLUSTER)
        return "".join(f"{each.rstrip()}\n" for each in text.split("\n")[:-1])

    def _answer(self, shown: io.StringIO, iris: Context, question: str) -> bool | None:
        """Somebody at the terminal, whose answers are seen in what is shown."""
        if iris.output.as_json:
            return None
        answer = self.answers.pop(0)
        shown.write(f"{clean_line(question)} [y/N]: {answer}\n")
        return answer == "y"

    def _set(self, patch: pytest.MonkeyPatch) -> None:
        patch.chdir(self.directory)
        patch.setenv("HOME", str(self.directory))
        for name in (
            "IRIS_CONFIG",
            "IRIS_STATE_DIR",
            "IRIS_TASK_DIR",
            "IRIS_JOB_ID",
            "FORCE_COLOR",
            "NO_COLOR",
            "COLORTERM",
            "TTY_COMPATIBLE",
            "TTY_INTERACTIVE",
            "XDG_CONFIG_HOME",
            "SSH_AUTH_SOCK",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("PATH", str(self.directory / "bin"))
        patch.setattr(DISK, "fsync", lambda _fd: None)
        patch.setattr("getpass.getuser", lambda: "me")
        patch.setattr(ClusterHandle, "actor", "me@laptop")
        patch.setattr(ClusterHandle, "transport", cast("SshTransport", Keys()))
        patch.setattr(ClusterHandle, "_runner", lambda *_: self.hosts)


def _code_of(words: Sequence[str], clock: Clock) -> int:
    try:
        return app.run(words, clock)
    except SystemExit as ended:  # the help of a group
        return int(ended.code or 0)


class Stages:
    """Makes stages, each with files of its own. What a scene has written is copied, not played again."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._labs: dict[str, Lab] = {}

    @contextmanager
    def stage(self, scene: str) -> Iterator[Stage]:
        if scene not in self._labs:
            self._labs[scene] = SCENES[scene]()
            _write(self._labs[scene], self._kept / scene)
        lab = self._labs[scene]
        directory = Path(f"{_BEGIN}{token_hex(4)}")
        directory.mkdir(mode=0o700)
        shutil.copytree(self._kept / scene, directory, dirs_exist_ok=True)
        clock = Clock(lab.now)
        loop = _loop(lab, directory / "state")
        first = (directory / "state" / "events.jsonl").read_text().partition("\n")[0]
        try:
            yield Stage(directory, lab, Hosts(lab, clock), clock, first, loop)
        finally:
            loop.release()
            shutil.rmtree(directory)


def _write(lab: Lab, directory: Path) -> None:
    """Its log, a configuration with its hosts, and a cycle of the background loop that ran 3 s ago."""
    state = directory / "state"
    state.mkdir(mode=0o700, parents=True)
    store = FileStore(state)
    for transaction in lab.log:
        store.append(
            transaction.seq - 1, transaction.events, at=transaction.at, actor="me@laptop iris schedule"
        )
    at = {"at": lab.now - 3.0}
    StateDir(state, now=lambda: lab.now, actor="me@laptop").write_heartbeat(at, LOOP, at)
    (directory / "cluster.yaml").write_text(_configuration(lab))


def _loop(lab: Lab, state: Path) -> RunnerLock:
    """The lock of a background loop, as a process 4711 of this host would hold it."""
    since = lab.now - 3600.0
    runners = StateDir(state, now=lambda: lab.now, actor="me@laptop").runners
    held = runners.hold(LOOP, "iris loop", interval=10.0, since=since)
    assert held is not None
    held.write(
        Runner(kind=LOOP, pid=4711, actor="me@laptop", command="iris loop", interval=10.0, since=since)
    )
    return held


def _configuration(lab: Lab) -> str:
    """A cluster.yaml that says of the hosts what the log knows of them."""
    slices: dict[str, list[str]] = {}
    workers = []
    for worker, known in lab.cluster.workers.items():
        declared = known.attributes
        if TPU_NAME_ATTRIBUTE_KEY in declared:
            slices.setdefault(str(declared[TPU_NAME_ATTRIBUTE_KEY]), []).append(worker)
        else:
            free = {key: str(value) for key, value in declared.items() if key in ("pool", "rack")}
            gpu = f", gpu: 'A100:{known.gpus}'" if known.gpus else ""
            workers.append(f"  - {{id: {worker}, host: {worker}{gpu}, attributes: {json.dumps(free)}}}")
    lines = ["cluster: {name: lab}", "slices:" if slices else ""]
    for name, hosts in slices.items():
        kind = lab.the_worker(hosts[0]).attributes[DEVICE_VARIANT_ATTRIBUTE_KEY]
        lines += [f"  - {{name: {name}, type: {kind}, hosts: [{', '.join(hosts)}], zone: us-central2-b}}"]
    return "\n".join([*lines, *(["workers:", *workers] if workers else [])]) + "\n"
