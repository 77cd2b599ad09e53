"""`iris forward` on real hosts: both directions at once, over a retry, and what it says if nothing is carried."""

from __future__ import annotations

import getpass
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from iris_cli.errors import ExitCode
from tests.e2e.test_one_host_hangs import through
from tests.support.forked import Forked
from tests.support.json_output import check_run
from tests.support.relay import Relay, relay
from tests.support.site import Site
from tests.support.sshd import SshHost
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.ssh

SMALL = ("--cpu", "0.01")

SERVER = """
import os, socketserver, sys, threading

class Door(socketserver.StreamRequestHandler):
    rbufsize = 0

    def handle(self):
        name = f"{os.environ['IRIS_WORKER_ID']} attempt {os.environ['IRIS_ATTEMPT']}"
        lines = list(iter(lambda: self.rfile.readline().strip(), b""))
        if b"Upgrade: websocket" in lines:
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\n\\r\\n")
            self.talk(128 if b"large" in lines[0] else 48)
        else:
            self.wfile.write(f"HTTP/1.0 200 OK\\r\\n\\r\\n{name}\\n".encode())

    def talk(self, pieces):
        # The server speaks of itself, and answers, at the same time.
        said = threading.Thread(target=lambda: [self.connection.sendall(b"s" * 65536) for _ in range(pieces)])
        said.start()
        while data := self.connection.recv(65536):
            self.connection.sendall(data.upper())
        said.join()

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

with Server(("127.0.0.1", int(sys.argv[1])), Door) as server:
    server.serve_forever()
"""
"""Tells where it runs; with a WebSocket's upgrade it sends 3 or 8 MiB of `s` and what it hears in capitals."""


@pytest.fixture
def site(slice_of_one: Site) -> Site:
    return with_server(slice_of_one)


def with_server(site: Site) -> Site:
    (site.directory / "server.py").write_text(SERVER)
    return site


def launch(site: Site, name: str, *more: str, port: str, before: str = "") -> None:
    """Serve on a port: a number, or a variable of the task. Each attempt leaves its pid in a file."""
    serve = f"exec {sys.executable} -S {site.directory}/server.py {port}"
    script = f"{before} echo $$ >{site.directory}/pid-$IRIS_ATTEMPT; {serve}"
    site.iris("launch", "--name", name, *SMALL, *more, "--", "sh", "-c", script)
    site.until(lambda: site.job(name)["state"] == "RUNNING")


def worker_of(site: Site, name: str) -> str:
    return str(site.job(name)["tasks"][0]["worker"])


def end_attempt(site: Site, number: int) -> None:
    """Kill the program of an attempt of the only job."""
    os.kill(int((site.directory / f"pid-{number}").read_text()), signal.SIGKILL)


def free_port() -> int:
    """One that no outgoing connection is given."""
    while True:
        port = random.randint(10_000, 30_000)
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)):
                return port


@contextmanager
def forwarding(site: Site, *words: str) -> Iterator[tuple[Forked, Path]]:
    """`iris forward` while it listens, and the file of what it prints. It has ended with the block."""
    printed = site.directory / "forwarded"
    with printed.open("wb") as file, ExitStack() as stack:
        process = stack.enter_context(site_process(site, file.fileno(), "forward", *words))
        until(lambda: printed.read_bytes() or process.poll() is not None)
        assert "forwarding 127.0.0.1:" in printed.read_text()
        yield process, printed


@contextmanager
def site_process(site: Site, out: int, *words: str) -> Iterator[Forked]:
    process = Forked(words, cwd=site.directory, env=site.environ(), stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def asked(port: int) -> str:
    """What a plain HTTP request gets; nothing if the connection is closed."""
    with closing(socket.create_connection(("127.0.0.1", port), PATIENCE)) as sock:
        try:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: sock.recv(65536), b"")).decode().rpartition("\r\n")[2].strip()
        except ConnectionError:
            return ""


def sockets_of(process: Forked) -> int:
    names = []
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            names.append(os.readlink(path))
    return sum(name.startswith("socket:") for name in names)


def threads_of(process: Forked) -> int:
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def test_a_new_connection_goes_to_where_the_task_runs_after_a_retry(slice_of_two: Site) -> None:
    site, here = with_server(slice_of_two), free_port()
    launch(site, "web", "--max-retries-failure", "1", "--ports", "web", port="$IRIS_PORT_WEB")
    first = worker_of(site, "web")
    with forwarding(site, "web", f"{here}:web") as (process, printed):
        until(lambda: asked(here) == f"{first} attempt 0", printed.read_text)
        held = socket.create_connection(("127.0.0.1", here), PATIENCE)
        for worker in ("tpu-a-0", "tpu-a-1"):
            site.iris("worker", "drain", worker)
        end_attempt(site, 0)
        assert held.recv(1) == b""  # the end of the program is the end of its connections
        held.close()
        site.until(lambda: site.job("web")["display"] == "RETRYING (1 of 1)")
        assert asked(here) == ""
        assert "web/task-0 is not running (RETRYING (1 of 1)): connection closed" in printed.read_text()
        site.iris("worker", "uncordon", "tpu-a-1" if first == "tpu-a-0" else "tpu-a-0")
        site.until(lambda: site.job("web")["state"] == "RUNNING" and worker_of(site, "web") != first)
        until(lambda: asked(here) == f"{worker_of(site, 'web')} attempt 1", printed.read_text)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == ExitCode.INTERRUPTED


def test_a_websocket_carries_megabytes_in_both_directions_at_once(site: Site) -> None:
    port = free_port()
    launch(site, "notebook", port=str(port))
    here = free_port()
    sent = bytes(range(97, 123)) * (3 << 15)  # 2.4 MiB: more than the window of a channel

    def send(sock: socket.socket) -> None:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)

    def talk(found: list[bytes]) -> None:
        with closing(socket.create_connection(("127.0.0.1", here), PATIENCE)) as sock:
            sock.sendall(b"GET /api/kernels HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
            writer = threading.Thread(target=send, args=(sock,))
            writer.start()
            found.append(b"".join(iter(lambda: sock.recv(65536), b"")))
            writer.join()

    def talk_at_once() -> None:
        found: list[list[bytes]] = [[] for _ in range(2)]
        talks = [threading.Thread(target=talk, args=(each,)) for each in found]
        for each in talks:
            each.start()
        for each in talks:
            each.join()
        for (got,) in found:
            assert got.startswith(b"HTTP/1.1 101 ")
            body = got.partition(b"\r\n\r\n")[2]
            assert body.count(b"s") == 48 * 65536
            assert body.replace(b"s", b"") == sent.upper()

    with forwarding(site, "notebook", f"{here}:{port}") as (process, printed):
        until(lambda: asked(here), printed.read_text)
        until(lambda: sockets_of(process) == 2)  # the one that listens, and the one to the worker
        talk_at_once()
        until(lambda: sockets_of(process) == 2, lambda: sockets_of(process))
        talk_at_once()
        until(lambda: sockets_of(process) == 2, lambda: sockets_of(process))
        assert threads_of(process) < 32  # two for each connection at most, and those of the program itself


@pytest.fixture
def relayed(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> Iterator[tuple[Site, Relay]]:
    """A site whose only worker `a-0` is behind a relay."""
    (host,) = ssh_lab(1)
    site = with_server(Site(tmp_path, [host]))
    site.write_config({"a": [host]}, tpu="v4-8")
    with relay(host.port) as way:
        through(site, host, way)
        yield site, way


def test_clients_that_read_nothing_disturb_no_other_and_get_all_in_the_end(
    relayed: tuple[Site, Relay],
) -> None:
    """Each of them leaves a whole window of its channel unread."""
    site, way = relayed
    port, here = free_port(), free_port()
    launch(site, "notebook", port=str(port))
    with forwarding(site, "notebook", f"{here}:{port}") as (_, printed), ExitStack() as stack:
        until(lambda: asked(here), printed.read_text)
        slow = [stack.enter_context(slow_client(here)) for _ in range(3)]
        before = way.down
        for sock in slow:
            sock.sendall(b"GET /large HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
            sock.shutdown(socket.SHUT_WR)
        until(lambda: way.down > before + (3 << 20), lambda: way.down - before)
        until(lambda: is_still(way))
        assert asked(here).endswith("attempt 0")
        for sock in slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            assert received(sock).count(b"s") >= 128 * 65536
        assert len(printed.read_text().splitlines()) == 1


def slow_client(port: int) -> socket.socket:
    """A connection whose own buffer is small."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(PATIENCE)
    sock.connect(("127.0.0.1", port))
    return sock


def received(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(65536), b""))


def is_still(way: Relay) -> bool:
    """Whether nothing comes from the worker for half a second."""
    before = way.down
    time.sleep(0.5)
    return way.down == before


def test_a_lost_connection_is_told_and_the_next_one_is_made_again(relayed: tuple[Site, Relay]) -> None:
    site, way = relayed
    port, here = free_port(), free_port()
    launch(site, "board", port=str(port))
    with forwarding(site, "board", f"{here}:{port}") as (_, printed):
        until(lambda: asked(here), printed.read_text)
        with socket.create_connection(("127.0.0.1", here), PATIENCE) as held:
            held.sendall(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
            assert held.recv(9) == b"HTTP/1.1 "
            way.drop()
            with suppress(ConnectionError):
                received(held)
        until(lambda: "a-0: the SSH connection was lost: connections closed" in printed.read_text())
        assert asked(here).endswith("attempt 0"), printed.read_text()


def test_a_task_is_reached_over_a_jump_host(ssh_lab: Callable[..., list[SshHost]], tmp_path: Path) -> None:
    bastion, host = ssh_lab(2)
    site = with_server(Site(tmp_path, [bastion, host]))
    user = getpass.getuser()
    inner = f"id: inner, host: {host.address}, port: {host.port}, proxy_jump: '{user}@{bastion.address}:{bastion.port}'"
    site.write_config({}, tpu="", extra=f"workers:\n  - {{{inner}}}\n")
    port, here = free_port(), free_port()
    launch(site, "board", port=str(port))
    with forwarding(site, "board", f"{here}:{port}") as (_, printed):
        until(lambda: asked(here) == "inner attempt 0", printed.read_text)


def test_a_port_that_nobody_listens_on_is_told_once_and_the_end_of_the_task_ends_it(site: Site) -> None:
    here, port = free_port(), free_port()
    gate = site.directory / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done;"
    launch(site, "board", port=str(port), before=wait)
    with forwarding(site, "board/task-0", f"{here}:{port}") as (process, printed):
        assert asked(here) == asked(here) == ""
        refused = f"{worker_of(site, 'board')}: nothing listens on port {port}: connection closed"
        until(lambda: printed.read_text().count(refused) == 1, printed.read_text)
        gate.touch()
        until(lambda: asked(here).endswith("attempt 0"), printed.read_text)
        site.iris("cancel", "board", "--wait")
        assert process.wait(PATIENCE) == 0
        assert printed.read_text().splitlines()[-1] == "board/task-0 has ended (KILLED)"


def test_an_endpoint_is_found_by_its_name_and_a_taken_port_has_the_command_to_type(site: Site) -> None:
    here, port = free_port(), free_port()
    launch(site, "board", port=str(port), before=f"iris register-endpoint tensorboard {port};")
    site.until(lambda: bool(site.job("board")["endpoints"]))
    # All hosts of this site are this machine: the port of the endpoint is taken here, too.
    taken = site.iris("forward", "board", "tensorboard", code=ExitCode.FAILED)
    problem, hint = taken.err.splitlines()
    assert problem == f"error: port {port} of this machine is taken"
    words = hint.removeprefix("hint: iris ").split()
    assert words[:2] == ["forward", "board"]
    assert words[2].endswith(":tensorboard")
    with forwarding(site, *words[1:]) as (_, printed):
        local = int(words[2].partition(":")[0])
        until(lambda: asked(local).endswith("attempt 0"), printed.read_text)
    said = site.directory / "said"
    with said.open("wb") as file, site_process(site, file.fileno(), "--json", *words):
        until(lambda: said.read_text().endswith("}\n"), said.read_text)
        check_run(["--json", *words], said.read_text(), "")
        shown = json.loads(said.read_text())
        assert (shown["port"], shown["remote_port"]) == (local, port)
        assert (shown["task"], shown["worker"]) == ("board/task-0", worker_of(site, "board"))
    unknown = site.iris("forward", "board", "jupyter", code=ExitCode.NOT_FOUND)
    assert unknown.err.splitlines() == [
        "error: board has no endpoint 'jupyter'",
        "hint: endpoints: tensorboard",
    ]
    site.iris("launch", "--name", "many", "--replicas", "2", *SMALL, "--", "sleep", "600")
    many = site.iris("forward", "many", f"{here}", code=ExitCode.USAGE)
    assert f"iris forward many/task-0 {here}" in many.err
    for wrong in ("0", "65536", "1:", ":1", "1:2:3", "x:1"):
        site.iris("forward", "board", wrong, code=ExitCode.USAGE)
    site.iris("cancel", "board", "--wait")
    ended = site.iris("forward", "board", "tensorboard", code=ExitCode.NOT_FOUND)
    assert "board" in ended.err
    ended = site.iris("forward", "board", f"{here}", code=ExitCode.NOT_FOUND)
    assert ended.err.splitlines() == [
        "error: board/task-0 has ended (KILLED)",
        "hint: iris logs board/task-0",
    ]
