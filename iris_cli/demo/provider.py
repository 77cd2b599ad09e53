"""Slices of SSH hosts on this machine, for the demo and for tests: real processes, real keys, no root.

A slice is a directory. The file `owner.json` names its owner. The provider writes the file `pids` before the hosts are
configured, and `slice.json` when all hosts are ready. So it can find and clean up an interrupted creation.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from iris_cli.capacity.provider import ProviderError
from iris_cli.clock import SYSTEM_CLOCK, Clock
from iris_cli.core import ScaleGroup, SliceHost, lookup
from iris_cli.core.messages.cloud import CloudSlice, CloudState, Refusal
from iris_cli.demo import processes
from iris_cli.files import DISK, replace_file

_MARKER = ".iris-local-slices"
_CREATION_TIMEOUT = 60.0
"""Seconds. After this time, the creation of an unfinished slice counts as interrupted."""


class LocalProvider:
    """The slices of one owner below `root`, in one zone."""

    def __init__(self, root: Path, owner: str, zone: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._root = root.absolute()
        self._owner = owner
        self._zone = zone

    def list(self) -> tuple[CloudSlice, ...]:
        """Return the existing slices. A slice with an ended host counts as preempted."""
        if not self._root.is_dir():
            return ()
        return tuple(self._read_slice(path) for path in sorted(self._root.iterdir()) if self._is_ours(path))

    def create(self, name: str, group: ScaleGroup) -> None:
        """Start the hosts, and return when they are ready. The hosts accept the key in the group's `ssh.key`."""
        known = lookup(group.template.type)
        if known is None:
            raise ProviderError(Refusal.INVALID, f"TPU type {group.template.type} is not known")
        if not group.connection.key:
            raise ProviderError(Refusal.INVALID, "local slices need `ssh: {key: ...}`")
        path = self._root / name
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._root / _MARKER).touch(mode=0o600)
            if not self._claim(path, group):
                return
        except OSError as error:
            raise ProviderError(Refusal.DENIED, str(error)) from error
        self._start(path, name, group, known.vms)

    def delete(self, name: str) -> None:
        """Delete a slice with its hosts and their processes."""
        path = self._root / name
        if not self._is_ours(path):
            return
        processes.kill_hosts(path / "pids")
        processes.end_processes(path)
        # Delete only a slice that this class has created, below a root that it has marked.
        if (self._root / _MARKER).is_file() and (path / "owner.json").is_file():
            with suppress(OSError):
                processes.remove_tree(path)

    # One slice

    def _claim(self, path: Path, group: ScaleGroup) -> bool:
        """Create the slice's directory together with its owner file. Return False if the directory exists."""
        draft = Path(mkdtemp(prefix=f".{path.name}.", dir=self._root))
        owner = {"owner": self._owner, "zone": self._zone, "group": group.name, "made_at": self._clock.now()}
        _write(draft / "owner.json", owner)
        try:
            draft.rename(path)
        except OSError:
            shutil.rmtree(draft)
            if self._is_ours(path):
                return False
            raise ProviderError(Refusal.INVALID, f"a slice {path.name} of another owner exists") from None
        return True

    def _is_ours(self, path: Path) -> bool:
        """Return whether the directory is a slice of this owner in this zone."""
        owner = None if path.name.startswith(".") else _read(path / "owner.json")
        return owner is not None and (owner["owner"], owner["zone"]) == (self._owner, self._zone)

    def _read_slice(self, path: Path) -> CloudSlice:
        owner, content = _read(path / "owner.json") or {}, _read(path / "slice.json")
        state, detail = CloudState.READY, ""
        hosts: tuple[SliceHost, ...] = ()
        if content is None:
            state = CloudState.CREATING
            if not 0 <= self._clock.now() - float(owner.get("made_at", 0.0)) < _CREATION_TIMEOUT:
                state, detail = CloudState.FAILED, "creation was interrupted"
        else:
            hosts = tuple(
                SliceHost(host="127.0.0.1", port=each["port"], key=each["key"]) for each in content["hosts"]
            )
            ended = len(hosts) - len(processes.live_hosts([each["pid"] for each in content["hosts"]]))
            if ended:
                state, detail = CloudState.STOPPED, f"{ended} of {len(hosts)} hosts have ended"
        return CloudSlice(
            name=path.name,
            state=state,
            group=str(owner.get("group", "")),
            hosts=hosts,
            incarnation=f"{path.name} {owner.get('made_at', '')}",
            detail=detail,
        )

    def _start(self, path: Path, name: str, group: ScaleGroup, vms: int) -> None:
        """Start the hosts. Write their pids before the configuration: until then a host ends with this process."""
        template, started = group.template, [processes.spawn_host() for _ in range(vms)]
        _write(path / "pids", [process.pid for process in started])
        try:
            for index, process in enumerate(started):
                processes.configure_host(
                    process,
                    path / "hosts" / f"{name}-{index}",
                    metadata=processes.vm_metadata(
                        template.type, template.zone, name, index, vms, preemptible=template.preemptible
                    ),
                    client_key_file=group.connection.key,
                    stay=True,
                )
            hosts = [processes.await_host(process) for process in started]
        except (OSError, ValueError) as error:
            for process in started:
                process.kill()
            raise ProviderError(Refusal.UNANSWERED, f"a local SSH server did not start: {error}") from error
        _write(path / "slice.json", {"hosts": hosts})


def _read(path: Path) -> Any:
    """Return the JSON in a file; None if it can't be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(path: Path, content: object) -> None:
    replace_file(DISK, path, json.dumps(content).encode())
