"""Whether there are SSH keys to offer: to every worker, and to the jump hosts on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from iris_cli.core.model.worker import Connection
from iris_cli.ops.checks.findings import Finding, failure, fine

if TYPE_CHECKING:
    from iris_cli.remote.ssh.config import Hop, Routes
    from iris_cli.remote.ssh.keys import KeyRing
    from iris_cli.remote.transport import NoAnswer

SSH_CONFIG = Path("~/.ssh/config")


def check_keys(connections: Iterable[Connection]) -> list[Finding]:
    """What is wrong with the keys, each fault once, however many hosts there are."""
    from iris_cli.remote.ssh.config import Routes
    from iris_cli.remote.transport import NoAnswer

    try:
        routes = Routes(SSH_CONFIG.expanduser())
    except NoAnswer as error:
        return [failure("keys", error.detail, error.hint)]
    faults: dict[tuple[str, str], list[str]] = {}
    ways = list(dict.fromkeys(connections))
    for connection, fault in _tried(routes, ways):
        if fault is not None:
            faults.setdefault((fault.detail, fault.hint), []).append(connection.host)
    if not faults:
        return [fine("keys", "there is a key to offer to every host")] if ways else []
    return [
        failure("keys", detail if len(hosts) == len(ways) else f"for {_named(hosts)}: {detail}", hint)
        for (detail, hint), hosts in faults.items()
    ]


def _tried(routes: Routes, connections: Iterable[Connection]) -> Iterator[tuple[Connection, NoAnswer | None]]:
    """What keeps us from having a key for each hop to a host; each offer is looked at once."""
    from iris_cli.remote.ssh.keys import KeyRing
    from iris_cli.remote.transport import NoAnswer

    ring = KeyRing()
    known: dict[object, NoAnswer | None] = {}
    for connection in connections:
        found: NoAnswer | None = None
        try:
            for hop in routes.to(connection):
                offer = (hop.identities, hop.explicit, hop.identities_only)
                if offer not in known:
                    known[offer] = _fault(ring, hop)
                found = found or known[offer]
        except NoAnswer as error:
            found = error
        yield connection, found


def _fault(ring: KeyRing, hop: Hop) -> NoAnswer | None:
    from iris_cli.remote.transport import NoAnswer

    try:
        with ring.for_hop(hop):
            return None
    except NoAnswer as error:
        return error


def _named(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"
