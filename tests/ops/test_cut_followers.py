"""Answers that are cut off at any byte, or never come: a follower shows what was written, each line once."""

from __future__ import annotations

import base64
import gzip
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.ops.logs import follow, log_reading
from iris_cli.ops.logs.follow import Follower, Step
from iris_cli.ops.logs.log_reading import Query
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target
from tests.ops.world import World
from tests.support.lab import Lab

PIECES = re.compile(rb"^logs ([0-9a-f]{32}) (out|err) (-?[0-9]+) ([0-9]+)$", re.MULTILINE)
NONCE = re.compile(rb"^nonce=([0-9a-f]{32})$", re.MULTILINE)


@dataclass
class CutTransport:
    """Answers calls for logs from the files of a world. `cuts`: at which share of its answer each call is cut off."""

    world: World
    cuts: Iterator[float | None]
    last_words: list[bytes] = field(default_factory=list)

    def run(self, target: Target, script: Script) -> ScriptResult:
        answer = self._answer(script.text)
        assert len(answer) <= script.limit
        cut = next(self.cuts, None)
        if cut is None:
            return ScriptResult(stdout=answer, stderr=b"", status=0)
        if cut == 1.0:
            raise NoAnswer(SilenceKind.TIMEOUT, "output", "nothing came")
        # A server may close a channel in order although what it led to was killed.
        return ScriptResult(stdout=answer[: int(cut * len(answer))], stderr=b"", status=0)

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self, script: bytes) -> bytes:
        nonce = NONCE.search(script)
        assert nonce is not None
        lines = [b"H 1700000000 100"]
        for token, stream, offset, limit in PIECES.findall(script):
            key = (token.decode(), stream.decode())
            data = self.world.hosts.files.get(key, b"")
            start = max(0, len(data) + int(offset)) if int(offset) < 0 else min(int(offset), len(data))
            piece = data[start : start + int(limit)]
            inode = self.world.hosts.inodes.get(key, 7) if key in self.world.hosts.files else 0
            packed = len(piece) % 2  # whatever the worker likes better
            lines.append(b"L %d %d %d%b" % (start, len(data), inode, b" gzip" if packed else b""))
            sent = gzip.compress(piece) if packed else piece
            lines += [b"T " + line for line in base64.encodebytes(sent).splitlines()]
        body = b"".join(line + b"\n" for line in lines)
        begin, end = b"IRIS1 %b BEGIN b -\n" % nonce[1], b"IRIS1 %b END %d\n" % (nonce[1], len(lines))
        return b"Welcome\n" + begin + body + end


@contextmanager
def small_numbers() -> Iterator[None]:
    """The same rules with small numbers, and answers that are waited for however slow this machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reading, "FIRST_READ", 16)
        patch.setattr(log_reading, "PIECE", 32)
        patch.setattr("iris_cli.ops.logs.log_reading.FIRST_READ", 16)
        patch.setattr(follow, "STEP_TIME", 60.0)
        patch.setattr(follow, "_SHORT_WAIT", 60.0)
        yield


WRITTEN = st.lists(
    st.tuples(
        st.sampled_from([("train/task-0", "out"), ("train/task-0", "err"), ("train/task-1", "out")]),
        st.integers(1, 30).flatmap(
            lambda count: st.text("ab é\n", max_size=10).map(lambda text: text * count)
        ),
    ),
    max_size=8,
)
CUTS = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=40)


def followed(
    world: World, written: list[tuple[tuple[str, str], str]], cuts: list[float | None]
) -> list[Step]:
    """Every step while the tasks write, one piece at each look, and answers are cut; none after the end."""
    transport = CutTransport(world, iter(cuts))
    world.hosts.pieces = TaskRunner(transport, "lab").pieces  # type: ignore[method-assign]  # over a transport
    story = iter(written)
    ended: list[bool] = []

    def go_on() -> None:
        if said := next(story, None):
            (task, stream), text = said
            world.says(task, text, stream)
        elif not ended:
            ended.append(True)
            transport.cuts = iter(())
            world.says("train/task-0", "last words\n" * 30)  # more than one call brings
            world.lab.reports("train/* exited 0")
        world.write()

    world.clock.then = go_on
    return list(Follower(world.session(), "train", Query(tail=None)).steps())


@settings(deadline=None, max_examples=15)
@given(WRITTEN, CUTS)
def test_answers_cut_at_any_byte_lose_and_double_nothing(
    written: list[tuple[tuple[str, str], str]], cuts: list[float | None]
) -> None:
    lab = Lab().slice("a", "v4-16").job("train", tpu="v4-16").schedule().reports("train/* running")
    with TemporaryDirectory() as directory, small_numbers():
        world = World(lab, Path(directory) / "state")
        with world.scheduler():
            steps = followed(world, written, cuts)
    shown: dict[tuple[str, str], str] = defaultdict(str)
    for step in steps:
        for text in step.texts:
            shown[str(text.attempt.task), text.stream] += text.text
    for rank in (0, 1):
        for stream in ("out", "err"):
            task = f"train/task-{rank}"
            there = world.hosts.files.get((lab.attempt("train", rank).token, stream), b"").decode()
            unfinished = "\n" if there and not there.endswith("\n") else ""
            assert shown[task, stream] == there + unfinished
