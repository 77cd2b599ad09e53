"""A host on this machine for the demo: a real SSH server in a separate process, with its own key and home.

`python -m iris_cli.demo.host` runs a host. The host reads its settings as a JSON object from the first line of stdin,
and prints its port and host key as another JSON object. When stdin ends, the host kills its processes and ends, so that
it can't outlive its parent. With the setting `stay` the host ignores the end of stdin. It accepts one key and listens
only on loopback. Commands run with the home and the metadata server of the simulated host.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from iris_cli.demo.processes import end_processes, make_key
from iris_cli.remote.ssh_server import LOOPBACK, SshServer, public_part

_METADATA_ROOT = "/computeMetadata/v1/"


def main() -> None:
    """Run one host until stdin ends."""
    settings = json.loads(sys.stdin.readline())
    server = _serve(settings)
    address = {"port": server.port, "key": server.key.get_base64()}
    sys.stdout.write(json.dumps(address) + "\n")
    sys.stdout.flush()
    if settings["stay"]:
        threading.Event().wait()
    while sys.stdin.read(1):
        pass
    end_processes(Path(settings["directory"]))


def _serve(settings: Mapping[str, Any]) -> SshServer:
    """Start the SSH server and the metadata server of a host."""
    directory = Path(settings["directory"])
    host_key, home = directory / "host_key", directory / "home"
    make_key(host_key)
    client_key = settings["client_key"] or public_part(settings["client_key_file"])
    home.mkdir(mode=0o700)
    metadata = _serve_metadata(settings["metadata"])
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    environment = {**keep, "HOME": str(home), "SHELL": "/bin/sh", "GCE_METADATA_HOST": metadata}
    return SshServer(host_key, client_key, environment)


def _serve_metadata(values: Mapping[str, str]) -> str:
    """Start the host's metadata server and return its address. `values`: by path below `/computeMetadata/v1/`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.get(self.path.removeprefix(_METADATA_ROOT))
            found = value is not None and self.headers.get("Metadata-Flavor") == "Google"
            body = (value or "").encode() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface of http.server
            """Log nothing: stdout belongs to the parent."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{LOOPBACK}:{server.server_address[1]}"


if __name__ == "__main__":
    main()
