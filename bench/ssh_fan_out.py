"""Target 11: many hosts at once, each 50 ms away, in the time of a few."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

from bench.result import Row
from bench.scale import Scale
from bench.scripted_sshd import BOOT_ID, incarnation_of
from bench.ssh_hosts import ROUND_TRIP, launch, runner_of, scripted_hosts, transport
from bench.stopwatch import cpu, seconds, wall
from iris_cli.core.ids import Token
from iris_cli.remote.fan_out import fan_out
from iris_cli.remote.transport import Target

LIMITS = {256: 2.7, 1024: 11.0}


def rows(scale: Scale) -> Iterator[Row]:
    """Connect, authenticate, start and be told so, on all of them; nobody may time out."""
    sizes = {scale.of(hosts): limit for hosts, limit in LIMITS.items()}
    with scripted_hosts(max(sizes), ROUND_TRIP) as (known_hosts, targets):

        def on_hosts(count: int) -> None:
            with transport(known_hosts) as ssh:
                runner = runner_of(ssh)

                def start(target: Target) -> Token:
                    return launch(runner, target, (BOOT_ID, incarnation_of(target.worker)), ["true"])

                assert len(list(fan_out(targets[:count], start))) == count

        on_hosts(1)
        one = statistics.median(seconds(lambda: on_hosts(1), wall) for _ in range(scale.repeat))
        for hosts, limit in sizes.items():
            walls = [seconds(partial(on_hosts, hosts), wall) for _ in range(min(scale.repeat, 3))]
            name = f"start on {hosts} hosts against 1, s wall"
            yield Row(target=11, name=name, value=statistics.median(walls), reference=one, limit=limit)
        start = cpu()
        on_hosts(min(sizes))
        spent = (cpu() - start) / min(sizes)
        # The interpreter's lock lets one thread run at a time: the whole can't be faster than this.
        yield Row(target=11, name="CPU of this machine for a host, s", value=spent, reference=0.004, limit=1)
