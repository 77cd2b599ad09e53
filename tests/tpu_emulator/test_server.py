"""The emulator on the network: what goes wrong there, its books, and the process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.fake_runner import Clock
from tests.support.google_tpu import GoogleTpu
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.server import Emulator


def control(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """A call to the emulator itself, as another process makes it."""
    request = urllib.request.Request(
        f"{url}/emulator/{path}", method=method, data=json.dumps(body or {}).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_by_chance_calls_fail_or_lose_their_answer(google: GoogleTpu, cloud: Cloud) -> None:
    cloud.settings.unreliable = 0.5
    trouble = (pytest.importorskip("google.api_core.exceptions").GoogleAPICallError, OSError)
    for index in range(20):
        try:
            google.create(f"west-{index}")
        except trouble:
            continue
    answers = {each.answer for each in cloud.books.calls}
    assert answers == {"200", "500", "lost"}
    heard = sum(each.answer in ("200", "lost") for each in cloud.books.calls)
    assert len(cloud.books.made()) == heard


def test_the_books_record_when_each_node_was_created_ready_stopped_and_deleted(
    google: GoogleTpu, cloud: Cloud, clock: Clock
) -> None:
    begin = clock.now()
    cloud.settings.create_seconds = 60
    google.spot("west-1", labels={"owner": "us"})
    clock.sleep(60)
    assert google.state("west-1") == "READY"
    clock.sleep(40)
    cloud.preempt("west-1")
    clock.sleep(10)
    assert [each.name for each in cloud.books.left()] == ["west-1"]
    google.delete("west-1")
    [entry] = cloud.books.made()
    times = [entry.made_at, entry.ready_at, entry.stopped_at, entry.gone_at]
    assert [each - begin for each in times if each is not None] == [0, 60, 100, 110]
    assert (entry.kind, entry.zone, entry.chips, entry.labels) == ("node", "us-west4-a", 8, {"owner": "us"})


def test_another_process_can_change_everything(emulator: Emulator, google: GoogleTpu) -> None:
    google.spot("west-1")
    assert control(emulator.url, "PATCH", "settings", {"page_size": 7})["page_size"] == 7
    assert control(emulator.url, "GET", "settings")["page_size"] == 7
    control(emulator.url, "POST", "nodes/west-1:turn", {"health": "TIMEOUT"})
    assert google.node("west-1").health.name == "TIMEOUT"
    control(emulator.url, "POST", "nodes/west-1:preempt")
    assert google.state("west-1") == "PREEMPTED"
    now = control(emulator.url, "POST", "advance", {"seconds": 5})["now"]
    assert control(emulator.url, "POST", "advance")["now"] == now
    control(emulator.url, "POST", "faults", {"kind": "error", "method": "DELETE"})
    with pytest.raises(pytest.importorskip("google.api_core.exceptions").InternalServerError):
        google.delete("west-1")
    [entry] = control(emulator.url, "GET", "books")["entries"]
    assert (entry["name"], entry["gone_at"]) == ("west-1", None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/projects/p/locations/us-west4-a/nodes?nodeId=mine"),
        ("GET", "/emulator/books"),
        ("PATCH", "/nobody-knows/emulator/settings"),
    ],
)
def test_who_knows_its_port_alone_gets_nothing(emulator: Emulator, method: str, path: str) -> None:
    """Loopback is open to all users of a machine, and who has a node made may log in there."""
    port = urlsplit(emulator.url).port
    body = json.dumps({"acceleratorType": "v4-8", "runtimeVersion": "x", "page_size": 1}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, data=body)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 403
    assert emulator.cloud.books.made() == []


def test_as_a_process_of_its_own_it_ends_with_its_stdin() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.tpu_emulator"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"page_size": 3}\n')
        process.stdin.flush()
        said = json.loads(process.stdout.readline())
        assert said["pid"] == process.pid
        assert control(said["url"], "GET", "settings")["page_size"] == 3
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
