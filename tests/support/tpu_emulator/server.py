"""The emulator's HTTP/1.1 server on loopback, with a thread for each connection.

Its address contains a secret: a client that creates a node can log in to it, and all users of this machine, and web
pages in their browsers, can connect to loopback.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from iris_cli.randomness import SYSTEM_RANDOMNESS
from tests.support.tpu_emulator.books import Call
from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.refusals import ApiError
from tests.support.tpu_emulator.routes import answer
from tests.support.tpu_emulator.settings import Fault
from tests.support.tpu_emulator.shapes import numbered

_LOOPBACK = "127.0.0.1"


class Emulator:
    """A cloud served at `url`. Closing it also stops its machines."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.closing = threading.Event()
        self.root = f"/{SYSTEM_RANDOMNESS.hexadecimal(16)}"
        self._server = _Server(self)
        self.url = f"http://{_LOOPBACK}:{self._server.server_address[1]}{self.root}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.cloud.close()


def start(cloud: Cloud) -> closing[Emulator]:
    """Serve a cloud from this process on a free port: `with start(cloud) as emulator: ... emulator.url`."""
    return closing(Emulator(cloud))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        super().__init__((_LOOPBACK, 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # send an answer in one piece
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 - the interface of http.server

    def _serve(self) -> None:
        cloud = self.server.emulator.cloud
        url = urlsplit(self.path)
        root, query = self.server.emulator.root, dict(parse_qsl(url.query, keep_blank_values=True))
        path = unquote(url.path.removeprefix(root))
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not url.path.startswith(f"{root}/"):
            refused = ApiError("PERMISSION_DENIED", "the emulator's address has a secret in it")
            self._send(refused.http_code, refused.body())
            return
        fault = None if path.startswith("/emulator/") else _fault(cloud, self.command, path)
        kind = "" if fault is None else fault.kind
        if kind == "hang":
            _book(cloud, self.command, path, kind)
            self._hang_up(patience=cloud.settings.hang_seconds)
            return
        code, said = _answer(cloud, fault, self.command, path, query, text)
        unheard = kind in ("lost", "stall")
        _book(cloud, self.command, path, kind if unheard else str(code))
        if unheard:
            self._hang_up(patience=cloud.settings.hang_seconds if kind == "stall" else 0.0)
            return
        self._send(code, numbered(said) if "enum-encoding=int" in query.get("$alt", "") else said)

    def _send(self, code: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self, patience: float) -> None:
        """Close the connection without an answer, after `patience` seconds or when the emulator is closed."""
        self.server.emulator.closing.wait(patience)
        self.close_connection = True
        with suppress(OSError):  # the client has closed it
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface of http.server
        """Log nothing: the books have all calls."""


def _answer(
    cloud: Cloud, fault: Fault | None, method: str, path: str, query: dict[str, str], text: bytes
) -> tuple[int, dict[str, Any]]:
    try:
        if fault is not None and fault.kind == "error":
            raise ApiError(fault.status, "the emulator was told to fail")
        body = json.loads(text) if text else {}
        return 200, answer(cloud, method, path, query, body)
    except ApiError as error:
        return error.http_code, error.body()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        malformed = ApiError("INVALID_ARGUMENT", f"malformed: {type(error).__name__}: {error}")
        return malformed.http_code, malformed.body()


def _book(cloud: Cloud, method: str, path: str, what: str) -> None:
    with cloud.lock:
        cloud.books.calls.append(Call(at=cloud.now(), method=method, path=path, answer=what))


def _fault(cloud: Cloud, method: str, path: str) -> Fault | None:
    """Return the fault of this call: the first matching one, or a random one."""
    with cloud.lock:
        for index, fault in enumerate(cloud.faults):
            if fault.hits(method, path):
                left = [fault.again()] if fault.times > 1 else []
                cloud.faults[index : index + 1] = left
                return fault
        dice = Random(f"{cloud.settings.seed} call {len(cloud.books.calls)}")
        if dice.random() < cloud.settings.unreliable:
            return Fault(kind=dice.choice(("error", "lost")))
    return None
