"""A directory goes out with a job, over real SSH, as it was at launch; what the job leaves comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh


def test_a_directory_runs_as_it_was_at_launch_and_its_output_is_pulled(
    ssh_lab: Callable[..., list[SshHost]], tmp_path: Path
) -> None:
    hosts = ssh_lab(1)
    site = Site(tmp_path, hosts)
    site.write_config({"a": hosts}, tpu="v5litepod-4")
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "run.sh").write_text(
        '#!/bin/sh\ncat "sub/my data" made >"$IRIS_OUTPUT_DIR/result"\ncat sub/link\n'
    )
    (work / "run.sh").chmod(0o755)
    (work / "sub/my data").write_text("as it was\n")
    (work / "sub/link").symlink_to("my data")
    (work / ".irisignore").write_text("*.ckpt\n")
    (work / "large.ckpt").write_text("stays at home")
    shown = site.iris("launch", "--dry-run", "--json", "--workdir", "work", "--", "./run.sh").json()[
        "workspace"
    ]
    assert [each["name"] for each in shown["files"]] == [".irisignore", "run.sh", "sub/link", "sub/my data"]
    site.iris(
        *("launch", "--no-schedule", "--name", "ship", "--tpu", "v5litepod-4", "--workdir", "work"),
        *("--setup", "echo set up >made; ! [ -e large.ckpt ]", "--", "./run.sh"),
    )
    (work / "sub/my data").write_text("changed since")
    site.until(lambda: site.job("ship")["state"] not in ("PENDING", "RUNNING"))
    job = site.job("ship")
    assert (job["state"], job["workspace"]["name"], job["workspace"]["files"]) == ("SUCCEEDED", "work", 4)
    site.iris("pull", "ship")
    assert (tmp_path / "iris-out/ship/task-0/attempt-0/result").read_text() == "as it was\nset up\n"
    assert (site.state / "logs/ship/task-0/attempt-0/out").read_text() == "as it was\n"
