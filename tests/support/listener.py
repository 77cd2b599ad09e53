"""An HTTP server on loopback that keeps the posted data; a test chooses the answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE

SECRET = "T0KEN-3f9a"


@dataclass
class Listener:
    """`answers` are the next status codes, then 200; 0 means no answer until `gate` is opened."""

    url: str = ""
    posted: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    location: str = ""
    gate: threading.Event = field(default_factory=threading.Event)


@contextmanager
def listening() -> Iterator[Listener]:
    """Yield a listener."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            listener.paths.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = listener.answers.pop(0) if listener.answers else 200
            if code == 0:
                listener.gate.wait(PATIENCE)
                return
            if code == 200:
                listener.posted.append(json.loads(body))
            self.send_response(code)
            if listener.location:
                self.send_header("Location", listener.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - as the library calls it

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        listener.url = f"http://127.0.0.1:{server.server_address[1]}/hook/{SECRET}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            listener.gate.set()
            server.shutdown()
            thread.join()
