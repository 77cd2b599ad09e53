"""The main job, on real SSH servers: a gang ends whole, and tells what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.invocations import Invocations
from tests.support.site import Site

pytestmark = pytest.mark.ssh

PAIR = ("--tpu", "v4-16")


def test_the_failure_of_one_rank_takes_the_gang_down_and_is_named(slice_of_two: Site) -> None:
    site = slice_of_two
    script = 'if [ $IRIS_TASK_INDEX = 1 ]; then echo "loss is NaN" >&2; exit 3; fi; sleep 600'
    ran = site.iris(
        "launch", "--wait", "--name", "doomed", "--grace", "1s", *PAIR, "--", "sh", "-c", script, code=1
    )
    assert "doomed" in ran.out
    site.until(lambda: not any_live(site))
    ended = {event["task"]: event for event in site.events() if event["type"] == "TaskEnded"}
    assert ended["doomed/task-1"]["state"] == "FAILED"
    assert ended["doomed/task-1"]["end"]["exit_code"] == 3
    sibling = ended["doomed/task-0"]
    assert sibling["state"] == "WORKER_FAILED"
    assert sibling["end"]["error"] == "Coscheduled sibling doomed/task-1 failed"
    assert sum(event["type"] == "AttemptStopped" for event in site.events()) == 1
    shown = site.iris("status", "doomed").out
    assert "doomed/task-1" in shown
    assert "loss is NaN" in shown


def test_a_gang_that_two_terminals_retry_at_once_is_stopped_once_and_placed_when_every_rank_has_ended(
    slice_of_two: Site,
) -> None:
    site = slice_of_two
    marks = site.directory / "marks"
    marks.mkdir()
    # Rank 1 holds the round until the file `go` exists: it ignores SIGTERM.
    script = (
        f"[ $IRIS_ATTEMPT = 0 ] || exec touch {marks}/again-$IRIS_TASK_INDEX; "
        f"[ $IRIS_TASK_INDEX = 0 ] || trap '' TERM; touch {marks}/$IRIS_TASK_INDEX; "
        f"until [ -e {marks}/go ]; do sleep 0.1; done"
    )
    site.iris("launch", "--name", "train", "--grace", "10m", *PAIR, "--", "sh", "-c", script)
    site.until(lambda: {mark.name for mark in marks.iterdir()} == {"0", "1"}, cycles=False)
    invocations = Invocations(site)
    for invocation in [invocations.start("retry", subject) for subject in ("train/task-0", "train")]:
        invocation.done()
    site.until(lambda: any(event["type"] == "AttemptStopped" for event in site.events()))
    site.iris("schedule", "--once")
    assert {mark.name for mark in marks.iterdir()} == {"0", "1"}
    assert site.job("train")["display"] == "STOPPING"
    (marks / "go").touch()
    site.iris("wait", "train")
    assert {mark.name for mark in marks.iterdir()} == {"0", "1", "go", "again-0", "again-1"}
    events = [event["type"] for event in site.events() if event.get("task", "train").startswith("train")]
    last_end = max(at for at, kind in enumerate(events) if kind == "AttemptStopped")
    placed = [at for at, kind in enumerate(events) if kind == "TaskAssigned"]
    assert (len(placed), events.count("AttemptStopRequested")) == (4, 2)
    assert placed[1] < last_end < placed[2]


def test_a_cpu_job_runs_beside_a_gang_kept_from_its_chips_and_cancel_stops_every_process_of_the_gang(
    slice_of_two: Site,
) -> None:
    site = slice_of_two
    pids = site.directory / "pids"
    pids.mkdir()
    script = f"(setsid sleep 600 & echo $! >{pids}/stray-$IRIS_TASK_INDEX); echo $$ >{pids}/$IRIS_TASK_INDEX; sleep 600"
    site.iris("launch", "--name", "long", *PAIR, "--", "sh", "-c", script)
    # A file is there before its line is.
    site.until(lambda: sum(file.read_text().endswith("\n") for file in pids.iterdir()) == 4, cycles=False)
    site.iris("launch", "--wait", "--name", "side", "--cpu", "0.1", "--", "sh", "-c", "echo [$JAX_PLATFORMS]")
    assert "[cpu]" in site.iris("logs", "side").out
    assert all(alive(int(file.read_text())) for file in pids.iterdir())
    site.iris("cancel", "long", "--wait", "--reason", "enough")
    assert site.job("long")["state"] == "KILLED"
    for file in pids.iterdir():
        assert not alive(int(file.read_text())), file.name


def test_words_and_attributes_of_any_kind_arrive_byte_for_byte(slice_of_one: Site) -> None:
    site = slice_of_one
    attribute = 'it\'s "$(touch never)" `id` \\ ü€'
    quoted = json.dumps(attribute, ensure_ascii=False)
    config = site.directory / "cluster.yaml"
    config.write_text(
        config.read_text().replace("    hosts:\n", f"    attributes: {{odd: {quoted}}}\n    hosts:\n")
    )
    hostile = [
        "",
        " ",
        "a b",
        "it's",
        '"',
        "$(touch /tmp/never)",
        "`id`",
        "\\",
        "ü€🚀",
        "a\nb",
        "-n",
        "*",
        "x" * 100_000,
    ]
    out = site.directory / "received"
    variables = "[os.environ[name] for name in ('ODD', 'IRIS_WORKER_ATTRIBUTES')]"
    program = f"import json, os, sys; json.dump([sys.argv[2:], *{variables}], open(sys.argv[1], 'w'))"
    odd = "line one\nline 'two' \"$HOME\" `id` ü"
    words = ("--", "python3", "-c", program, str(out), *hostile)
    asked = ("--cpu", "0.1", "-e", f"ODD={odd}", "-c", f"odd={quoted}")
    site.iris("launch", "--wait", "--name", "odd", *asked, *words)
    received, variable, attributes = json.loads(out.read_text())
    assert (received, variable, json.loads(attributes)["odd"]) == (hostile, odd, attribute)


def test_a_host_that_is_down_costs_the_gang_a_round_and_no_retry(slice_of_two: Site) -> None:
    site = slice_of_two
    site.iris("schedule", "--once")
    site.hosts[1].stop()
    site.iris("launch", "--name", "train", *PAIR, "--", "true")
    assert site.job("train")["state"] == "PENDING"
    site.hosts[1].start()
    site.until(lambda: site.job("train")["state"] == "SUCCEEDED")
    ended = [event for event in site.events() if event["type"] == "GangRoundEnded"]
    assert {event["reason"] for event in ended} <= {"dispatch_failed"}


def test_a_changed_host_key_is_refused_until_the_operator_accepts_it(slice_of_two: Site) -> None:
    site = slice_of_two
    site.iris("schedule", "--once")
    host = site.hosts[1]
    old = host.fingerprint
    host.stop()
    host.new_host_key()
    host.start()
    ran = site.iris("worker", "probe", "tpu-a-1", code=7)
    assert old in ran.out + ran.err
    assert host.fingerprint in ran.out + ran.err
    assert "--accept-key" in ran.err
    site.iris("launch", "--name", "train", *PAIR, "--", "true")
    assert site.job("train")["state"] == "PENDING"
    known = next(each for each in site.iris("workers", "--json").json()["workers"] if each["id"] == "tpu-a-1")
    ran = site.iris("worker", "probe", "--accept-key", "tpu-a-1", code=2)  # nobody says yes
    for shown in (old, host.fingerprint, known["boot_id"], known["incarnation"]):
        assert shown in ran.err
    site.iris("worker", "probe", "tpu-a-1", code=7)  # nothing was accepted
    site.iris("worker", "probe", "--accept-key", "--yes", "tpu-a-1")
    site.until(lambda: site.job("train")["state"] == "SUCCEEDED")


def any_live(site: Site) -> bool:
    return any(worker["claims"] for worker in site.iris("workers", "--json").json()["workers"])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
