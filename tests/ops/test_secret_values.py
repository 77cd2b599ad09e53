"""Secrets are read when a task starts, from the operator's environment or a file; without them nothing starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId
from iris_cli.core.model.job import Job, JobState
from iris_cli.errors import UsageError
from iris_cli.ops.secret_values import missing_secrets, secret_values
from tests.support.fake_runner import Site
from tests.support.lab import Lab

CANARY = "canary-51c0de"


def job(*secrets: str) -> Job:
    lab = Lab().worker("w").job("j", secrets=secrets)
    return lab.cluster.jobs[JobId("j")]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file as a secret should be kept."""
    path = tmp_path / "the key"
    path.write_text(CANARY)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b"\n", ""),
        (b"", ""),
        (b" a\tb\n c ", " a\tb\n c "),
        ("ß🧪".encode(), "ß🧪"),
    ],
)
def test_a_file_is_its_text_less_one_line_end(key: Path, content: bytes, value: str) -> None:
    key.write_bytes(content)
    assert secret_values(job(f"KEY=@{key}")) == {"KEY": value}


def test_one_job_may_have_secrets_of_variables_and_of_files(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t")
    monkeypatch.setenv("KEY", "of the environment")
    both = job("TOKEN", f"KEY=@{key}")
    assert (both.secrets, both.secret_files) == (("TOKEN", "KEY"), {"KEY": str(key)})
    assert secret_values(both) == {"TOKEN": "t", "KEY": CANARY}


def gone(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "it is gone": (gone, "{path}: No such file or directory"),
    "its group can read it": (
        lambda path: path.chmod(0o640),
        "{path} is readable by others (chmod 600 '{path}')",
    ),
    "all can read it": (
        lambda path: path.chmod(0o604),
        "{path} is readable by others (chmod 600 '{path}')",
    ),
    "it is a directory": (a_directory, "{path}"),
    "it is a pipe": (a_pipe, "{path} is not a regular file"),
    "it is not UTF-8": (lambda path: path.write_bytes(b"\xff" + CANARY.encode()), "not text"),
    "it has a NUL": (lambda path: path.write_bytes(b"\0" + CANARY.encode()), "not text"),
    "it is too long": (lambda path: path.write_text(CANARY * 20_000), "longer than 131071 bytes"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_a_file_that_cannot_be_used_is_missing_and_why_is_said_without_its_text(
    key: Path, fault: str
) -> None:
    spoil, words = SPOILT[fault]
    spoil(key)
    ((name, said),) = missing_secrets(job(f"KEY=@{key}")).items()
    assert name == "KEY"
    assert said.startswith(words.format(path=key))
    assert CANARY not in said


def test_a_job_waits_for_the_file_of_its_secret_and_starts_when_it_is_there(
    key: Path, tmp_path: Path
) -> None:
    key.chmod(0o644)
    site = Site(tmp_path, "w0")
    site.launch("one", secrets=(f"KEY=@{key}",), force=True)
    site.run()
    assert site.state_of("one") is JobState.PENDING
    assert site.task("one").attempts == ()
    key.chmod(0o600)
    site.run()
    assert site.state_of("one") is JobState.RUNNING


@pytest.mark.parametrize("words", [f"KEY={CANARY}", "KEY=", "KEY=@", f"1={CANARY}", "BASH_ENV", "UID", "_"])
def test_what_would_show_a_secret_is_refused_without_repeating_it(words: str) -> None:
    with pytest.raises(UsageError) as refused:
        job(words)
    assert CANARY not in str(refused.value) + refused.value.hint
