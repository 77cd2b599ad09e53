"""The metadata server of a Google VM, on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def metadata() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield its address, and its values by their path below `instance/`."""
    said: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = said.get(self.path.removeprefix("/computeMetadata/v1/instance/"))
            found = body is not None and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write((body if found and body is not None else "an error page").encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}", said
    server.shutdown()
    server.server_close()
