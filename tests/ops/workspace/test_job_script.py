"""A job script becomes part of the workspace, under one name that nothing else there has."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from iris_cli.core.model.job import JobRequest
from iris_cli.errors import UsageError
from iris_cli.ops.workspace.archive import TarCheck
from iris_cli.ops.workspace.pack import Listing, name_of_script, pack_files, tar_chunks

LIMIT = 1 << 20


@pytest.fixture
def top(tmp_path: Path) -> Path:
    directory = tmp_path / "top"
    directory.mkdir()
    (directory / "data").write_text("data")
    return directory


def script(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def packed(request: JobRequest, limit: int = LIMIT) -> dict[str, tuple[bytes, bool]]:
    """The files of the workspace, and whether they can be executed."""
    kept = []

    def put(found: Listing) -> tuple[str, int]:
        kept.append(b"".join(tar_chunks(found)))
        assert len(kept[-1]) == found.size
        return "0" * 64, found.size

    pack_files(request, put, limit=limit)
    check = TarCheck()
    check.feed(kept[-1])
    check.end()
    with tarfile.open(fileobj=io.BytesIO(kept[-1])) as tar:
        members = [(each, tar.extractfile(each)) for each in tar]
        return {
            each.name: (file.read(), bool(each.mode & 0o100)) for each, file in members if file is not None
        }


def test_alone_it_is_all_there_is(top: Path) -> None:
    request = JobRequest(job_script=script(top / "a.sh"))
    assert packed(request) == {"a.sh": (b"#!/bin/sh\n", True)}
    assert name_of_script(request) == "a.sh"


def test_in_the_directory_it_keeps_its_place_and_is_there_once(top: Path) -> None:
    request = JobRequest(job_script=script(top / "jobs/a.sh"), workdir=str(top))
    assert packed(request) == {"data": (b"data", False), "jobs/a.sh": (b"#!/bin/sh\n", True)}
    assert name_of_script(request) == "jobs/a.sh"


def test_a_directory_that_is_named_by_a_link_is_the_same(top: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(top)
    request = JobRequest(job_script=script(top / "a.sh"), workdir=str(tmp_path / "link"))
    assert packed(request).keys() == {"data", "a.sh"}


def test_from_elsewhere_it_goes_to_the_top(top: Path, tmp_path: Path) -> None:
    request = JobRequest(job_script=script(tmp_path / "jobs/a.sh"), workdir=str(top))
    assert packed(request).keys() == {"data", "a.sh"}


@pytest.mark.parametrize("name", ["data", "jobs"])
def test_a_name_that_the_directory_has_already_is_refused(top: Path, tmp_path: Path, name: str) -> None:
    script(top / "jobs/other.sh")
    request = JobRequest(job_script=script(tmp_path / "elsewhere" / name), workdir=str(top))
    with pytest.raises(UsageError, match=f"has a {name} other than the job script") as refused:
        packed(request)
    assert "rename" in refused.value.hint


def test_a_script_that_went_is_named(top: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.sh can't be read: No such file"):
        packed(JobRequest(job_script=str(top / "a.sh")))


def test_a_script_counts_against_the_limit(top: Path) -> None:
    text = "#!/bin/sh\n" + "x" * 100_000
    with pytest.raises(UsageError, match=r"more than 100KB \(limits.workspace_size\)"):
        packed(JobRequest(job_script=script(top / "a.sh", text), workdir=str(top)), limit=100_000)


def test_a_name_that_programs_read_differently_is_refused(top: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8 or hold control"):
        packed(JobRequest(job_script=script(top / os.fsdecode(b"a\xff.sh"))))
