"""Target 11: many hosts in parallel, each 50 ms away.

The local cost of a host is compared with the SSH library alone, which does the same without deadlines, host key checks
and kept connections.
"""

from __future__ import annotations

import socket
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import paramiko

from bench.result import Row, Scale
from bench.scripted_sshd import BOOT_ID, incarnation_of
from bench.ssh_hosts import PATIENCE, ROUND_TRIP, launch, new_runner, script_of_launch, scripted_hosts
from bench.stopwatch import cpu, medians, seconds, wall
from iris_cli.core.ids import Token
from iris_cli.remote.transport import Target
from tests.support.fan_out import fan_out

LIMITS = {256: 2.7, 1024: 11.0}
THREADS = 128


def rows(scale: Scale) -> Iterator[Row]:
    """Measure connecting, authenticating and starting a task on all hosts; no host may time out."""
    sizes = {scale.of(hosts): limit for hosts, limit in LIMITS.items()}
    with scripted_hosts(max(sizes), ROUND_TRIP) as (known_hosts, targets):

        def on_hosts(count: int) -> None:
            with new_runner(known_hosts) as runner:

                def start(target: Target) -> Token:
                    return launch(runner, target, (BOOT_ID, incarnation_of(target.worker)))

                assert len(list(fan_out(targets[:count], start))) == count

        on_hosts(1)
        one = statistics.median(seconds(lambda: on_hosts(1), wall) for _ in range(scale.repeat))
        for hosts, limit in sizes.items():
            walls = [seconds(partial(on_hosts, hosts), wall) for _ in range(min(scale.repeat, 3))]
            name = f"start on {hosts} hosts against 1, s wall"
            yield Row(target=11, name=name, value=statistics.median(walls), reference=one, limit=limit)
        few = targets[: min(sizes)]
        script = script_of_launch(few[0], (BOOT_ID, incarnation_of(few[0].worker)))
        found = medians(
            {
                "iris": lambda: seconds(lambda: on_hosts(len(few)), cpu) / len(few),
                "library": lambda: seconds(lambda: _by_library(few, script), cpu) / len(few),
            },
            min(scale.repeat, 3),
        )
        # The interpreter lock lets one thread run at a time: the total can't be faster than this.
        yield Row(
            target=11,
            name="CPU of this machine for a host, against the SSH library alone, s",
            value=found["iris"],
            reference=found["library"],
            limit=1.25,
        )


def _by_library(targets: Sequence[Target], script: bytes) -> None:
    """Connect with the SSH library and run the script on all hosts."""
    key = paramiko.Ed25519Key.from_private_key_file(str(targets[0].connection.key))

    def run(target: Target) -> bytes:
        sock = socket.create_connection((target.connection.host, target.connection.port or 22))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = paramiko.Transport(sock)
        try:
            link.start_client(timeout=PATIENCE)
            link.auth_publickey(target.connection.user, key)
            channel = link.open_session()
            channel.exec_command("exec /bin/sh -s")
            channel.sendall(script)
            channel.shutdown_write()
            said = b"".join(iter(lambda: channel.recv(1 << 15), b""))
            assert channel.recv_exit_status() == 0
            return said
        finally:
            link.close()

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(run, targets))
