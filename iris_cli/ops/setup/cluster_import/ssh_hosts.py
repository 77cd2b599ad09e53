"""Single hosts from an SSH configuration. How each is reached stays there: iris asks it for that by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from iris_cli.config.entry_text import NewHost
from iris_cli.core.ids import is_name
from iris_cli.core.model.worker import Connection
from iris_cli.errors import UsageError
from iris_cli.ops.setup.cluster_import.found import Found, LeftOut
from iris_cli.remote.ssh.config import Hop, Routes, host_names
from iris_cli.remote.transport import NoAnswer

_NO_SHELL = "git"  # whose servers let nobody run anything


def read_ssh_config(path: Path) -> Found:
    """Every host with a name of its own; patterns say how hosts are reached, and name none. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"there is no {path}", hint="say --from FILE, or name the hosts")
    try:
        names, routes = host_names(path), Routes(path)
    except NoAnswer as error:
        raise UsageError(error.detail, hint=error.hint) from error
    ways: dict[str, tuple[Hop, ...]] = {}
    left_out: list[LeftOut] = []
    for name in names:
        try:
            ways[name] = routes.to(Connection(host=name))
        except NoAnswer as error:
            left_out.append(LeftOut(name, error.detail, error.hint))
    found = list(_judged(ways))
    return Found(
        hosts=tuple(each for each in found if isinstance(each, NewHost)),
        left_out=(*left_out, *(each for each in found if isinstance(each, LeftOut))),
    )


def _judged(ways: dict[str, tuple[Hop, ...]]) -> Iterator[NewHost | LeftOut]:
    jumps: dict[str, str] = {}
    for name, way in ways.items():
        for hop in way[:-1]:
            jumps.setdefault(hop.label, name)
    ends: dict[tuple[str, ...], str] = {}
    for name, way in ways.items():
        end = way[-1]
        place = (*(f"{hop.host} {hop.port}" for hop in way), end.proxy_command)
        if name in jumps:
            yield LeftOut(
                name, f"it is the way to others, {jumps[name]} for one", f"iris cluster import {name}"
            )
        elif end.user == _NO_SHELL:
            yield LeftOut(name, "the user git can't run commands")
        elif not is_name(name):
            yield LeftOut(name, "its name can't be that of a worker")
        elif place in ends:
            yield LeftOut(name, f"it is {ends[place]} by another name")
        else:
            ends[place] = name
            yield NewHost(name, name)
