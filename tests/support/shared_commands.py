"""One process that loads the modules of `iris` for the command servers of all test processes."""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support import command_server


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process of pytest-xdist the address."""
    node.workerinput["commands"] = _address()


def pytest_configure(config: pytest.Config) -> None:
    command_server.CommandServer.address = getattr(config, "workerinput", {}).get("commands", "")


@cache
def _address() -> str:
    """Start the process; return its socket. Connections to it wait until it has loaded the modules."""
    directory = TemporaryDirectory(prefix="iris-commands-")
    address = f"{directory.name}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    process = subprocess.Popen(
        [sys.executable, "-m", command_server.__name__, "share", str(listener.fileno())],
        cwd=command_server.ROOT,
        env=command_server.ENVIRON,
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    listener.close()

    @atexit.register
    def end() -> None:
        process.communicate()
        directory.cleanup()

    return address
