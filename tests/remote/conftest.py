"""Workers on this machine with the shells that real ones may have."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.containers import Podman, podman_with_image
from tests.support.local_transport import SHELLS, tools_of
from tests.support.worker_host import WorkerHost

MakeHost = Callable[..., WorkerHost]

NOT_SOAKED = "not soak"
"""The selection in pyproject.toml. Otherwise each process would collect thousands of cases that do not run."""


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[MakeHost]:
    """Makes workers; those of one test with the same name share a home."""
    made: list[WorkerHost] = []

    def make(
        shell: str = "dash", *, name: str = "host", tools: Path | None = None, **fields: object
    ) -> WorkerHost:
        tools = tools or tools_of(shell, tmp_path / f"tools-{shell}")
        host = WorkerHost(tmp_path / name, tools, **fields)  # type: ignore[arg-type]  # tests may set any field
        made.append(host)
        return host

    yield make
    for host in made:
        host.clean_up()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a `host_shell` in one shell, mostly dash, which most hosts have and which is twice as fast.
    Tests marked `two_shells` run in dash and in one of the others, by turns. The soak runs all combinations.
    """
    if "host_shell" not in metafunc.fixturenames:
        return
    turn = zlib.crc32(metafunc.function.__name__.encode())
    own = {(*("dash",) * 8, *SHELLS[1:])[turn % 10]}
    if metafunc.definition.get_closest_marker("two_shells") is not None:
        own = {"dash", SHELLS[1:][turn % 2]}
    shells = [
        pytest.param(shell, marks=() if shell in own else pytest.mark.soak)
        for shell in SHELLS
        if shell in own or metafunc.config.option.markexpr != NOT_SOAKED
    ]
    metafunc.parametrize("host_shell", shells)


def copy_of(model: WorkerHost, host: WorkerHost) -> WorkerHost:
    """Give a host the home of another one, and the answers of its probe."""
    shutil.copytree(model.transport.home, host.transport.home, symlinks=True, dirs_exist_ok=True)
    host.boot_id, host.incarnation = model.boot_id, model.incarnation
    host.containment = model.containment
    return host


ProbedHost = Callable[..., WorkerHost]


@pytest.fixture(scope="session")
def probed_homes(tmp_path_factory: pytest.TempPathFactory) -> ProbedHost:
    """The home of a probed host for each shell, to be copied: a probe takes longer than most other calls."""

    @cache
    def probed(shell: str) -> WorkerHost:
        directory = tmp_path_factory.mktemp(f"probed-{shell}")
        host = WorkerHost(directory / "host", tools_of(shell, directory / "tools"))
        host.probe()
        return host

    return probed


@pytest.fixture
def probed_host(make_host: MakeHost, probed_homes: ProbedHost) -> ProbedHost:
    """Makes a probed host with that shell. A probe would have the same effect with any fields of the host."""

    def make(shell: str = "dash", **fields: object) -> WorkerHost:
        return copy_of(probed_homes(shell), make_host(shell, **fields))

    return make


@pytest.fixture
def host(host_shell: str, probed_host: ProbedHost) -> WorkerHost:
    """A probed worker with that shell."""
    return probed_host(host_shell)


@pytest.fixture(params=["dash", *(pytest.param(shell, marks=pytest.mark.soak) for shell in SHELLS[1:])])
def worker(request: pytest.FixtureRequest, probed_host: ProbedHost) -> WorkerHost:
    """A probed worker for slow tests, by default with only one shell."""
    return probed_host(request.param)


@pytest.fixture
def dash_host(probed_host: ProbedHost) -> WorkerHost:
    """A probed worker with dash, for tests that don't depend on the shell."""
    return probed_host("dash")


@pytest.fixture(scope="session")
def podman_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    podman = podman_with_image(tmp_path_factory.mktemp("podman"))
    yield podman
    podman.close()


@pytest.fixture(scope="module")
def podman(podman_store: Podman) -> Iterator[Podman]:
    """After the tests of a module nothing of them is left."""
    yield podman_store
    left = podman_store.containers()
    if left:
        podman_store.remove_all()
    assert left == []
