"""A job script runs on real hosts as it was at launch: alone, from its workspace, with arguments, again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.site import Site
from tests.support.sshd import SshHost

pytestmark = pytest.mark.ssh

SCRIPT = """\
#!/usr/bin/env python3
# What it needs:
#IRIS --name from-script --cpu 0.5
#IRIS --env GREETING='hello there'

import os, sys
print(os.environ["GREETING"], sys.argv, sorted(os.listdir()))
raise ValueError
"""


@pytest.fixture
def site(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Site:
    hosts = ssh_lab(1)
    made = Site(tmp_path, hosts)
    made.write_config({"a": hosts}, tpu="v5litepod-4")
    return made


def written(site: Site, job: str) -> str:
    return (site.state / f"logs/{job}/task-0/attempt-0/out").read_text()


def test_a_script_alone_is_shipped_and_gets_what_follows_the_dashes(site: Site) -> None:
    """What is to be typed after its error doesn't ship a directory: the script can't be executed here."""
    script = site.directory / "own.py"
    script.write_text(SCRIPT)
    script.chmod(0o600)
    shown = site.iris("launch", "own.py", "--dry-run", "--json").json()["workspace"]
    assert [each["name"] for each in shown["files"]] == ["own.py"]
    site.iris("launch", "own.py", "--no-schedule", "--", "one", "two words")
    script.write_text("#!/bin/false\n")  # what was launched runs
    assert site.iris("wait", "from-script", code=1).err == "details: iris why from-script\n"
    (submitted,) = (event["job"] for event in site.events() if event["type"] == "JobSubmitted")
    assert (submitted["command"], submitted["resources"]) == (["./own.py", "one", "two words"], {"cpu": 0.5})
    job = site.job("from-script")
    assert (job["tasks"][0]["display"], job["failure"]["next"]) == (
        "FAILED exit 1",
        "iris ssh from-script/task-0",
    )
    said = written(site, "from-script")
    assert said == "hello there ['./own.py', 'one', 'two words'] ['own.py']\n"
    again = site.iris("launch", "--again", "from-script", "-e", "GREETING=again", "--wait", code=1)
    assert written(site, again.out.splitlines()[0]) == said.replace("hello there", "again")


def test_a_script_goes_with_its_directory_wherever_it_is(site: Site) -> None:
    work, jobs = site.directory / "work", site.directory / "work/jobs"
    jobs.mkdir(parents=True)
    (work / "data").write_text("shipped")
    (work / ".irisignore").write_text("jobs\n")
    text = '#!/bin/sh -e\n#IRIS --workdir ..\n#IRIS --name inside\ncat data; echo " $0"\n'
    (jobs / "train.sh").write_text(text)
    (site.directory / "outside.sh").write_text(text)
    site.iris("launch", "work/jobs/train.sh", "--wait")
    site.iris("launch", "outside.sh", "--workdir", "work", "--name", "outside", "--wait")
    assert written(site, "inside") == "shipped ./jobs/train.sh\n"
    assert written(site, "outside") == "shipped ./outside.sh\n"
