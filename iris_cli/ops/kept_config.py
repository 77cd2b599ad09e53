"""The configuration as it was read last: to load the library of YAML takes as long as all else that a status does.

It is taken only for the very text that is in `cluster.yaml` now, at the same place, and by the rules that read it
then; else the file is read as if nothing had been kept. Commands that write to the log keep it, beside the log.

Most of it are the hosts, and whoever only looks at the cluster asks for none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from msgspec.structs import replace

import iris_cli
from iris_cli.config.schema import ClusterConfig, HostConfig
from iris_cli.journal.codec import decode_record, encode_record

if TYPE_CHECKING:
    from iris_cli.journal.state_dir import StateDir
    from iris_cli.ops.session import Session

_MOST_BYTES = 1 << 20  # what is longer is refused by who reads YAML
_RULES = ("config", "core", "journal")


def kept_config(path: Path, state: StateDir) -> ClusterConfig | None:
    """What was kept of the file as it is now; None if it has to be read."""
    kept = state.read_config()
    if kept is None:
        return None
    config = kept.pop("config", None)
    if kept != _asked(path):
        return None
    with suppress(ValueError, TypeError):
        return _decoded(config)
    return None


def _decoded(entry: dict[str, Any]) -> ClusterConfig:
    """Raises ValueError and TypeError."""
    config = decode_record(ClusterConfig, {name: entry[name] for name in entry if name != "hosts"})
    return replace(config, hosts=cast("tuple[HostConfig, ...]", _Hosts(entry.get("hosts", ()))))


class _Hosts(Sequence[HostConfig]):
    """The hosts of a configuration, as good as a tuple. They are decoded when somebody asks for one."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self._entries = entries

    @cached_property
    def _hosts(self) -> tuple[HostConfig, ...]:
        return tuple(decode_record(HostConfig, each) for each in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._hosts[index]

    def __iter__(self) -> Iterator[HostConfig]:
        return iter(self._hosts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._hosts == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # hosts hold mappings, so a tuple of them has none either


def keep_config(path: Path, text: str, config: ClusterConfig, state: StateDir) -> None:
    """Keep what was read of this text, if it can be. Never raises OSError."""
    asked = _asked(path)
    if asked is not None and asked["text"] == text:
        with suppress(ValueError):
            state.keep_config({**asked, "config": encode_record(config)})


def text_of(path: Path) -> str | None:
    """The file as it is now; None if only whoever reads it can tell what is wrong with it."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        return text.decode("utf-8") if len(text) <= _MOST_BYTES else None
    except (OSError, ValueError):
        return None


def change_teller(session: Session) -> Callable[[], None]:
    """For what runs for days: tells once that the file is not any more what it was at the start."""
    path = session.config.path
    before, told = text_of(path), False

    def look() -> None:
        nonlocal told
        now = None if told or before is None else text_of(path)
        if now not in (None, before):  # none: somebody is just replacing it
            told = True
            session.tell(
                f"{path.name} has changed since this began: end it and start it again to take that in"
            )

    return look


def _asked(path: Path) -> dict[str, Any] | None:
    """All that the configuration follows from."""
    text = text_of(path)
    if text is None:
        return None
    return {"rules": _rules(), "path": str(path.absolute()), "home": os.environ.get("HOME"), "text": text}


def _rules() -> str:
    """Tells programs apart that read other things in the same text, also those of one version."""
    seen = []
    for name in _RULES:
        with suppress(OSError), os.scandir(Path(iris_cli.__file__).parent / name) as entries:
            seen += [
                (each.name, each.stat().st_size, each.stat().st_mtime_ns)
                for each in entries
                if each.name.endswith(".py")
            ]
    return f"{iris_cli.__version__} {crc32(repr(sorted(seen)).encode()):08x}"
