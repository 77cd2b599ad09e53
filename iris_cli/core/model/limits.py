"""Every named limit of the tool with its default; `limits:` in `cluster.yaml` sets others."""

from __future__ import annotations

from msgspec import Struct

MOST_EXTRA_TIME = 30.0  # seconds that a call about very many attempts may take beside `dispatch_timeout`


def extra_time(attempts: int) -> float:
    """Seconds that a call about so many attempts may take beside `dispatch_timeout`: slow hosts need that."""
    return min(0.05 * attempts, MOST_EXTRA_TIME)


class Limits(Struct, frozen=True, kw_only=True):
    """Durations in seconds."""

    connect_timeout: float = 10.0
    dispatch_timeout: float = 5.0  # one round trip after connecting
    dispatch_lease: float = 60.0  # how long only the invocation that assigned an attempt may send it
    max_dispatch_parallelism: int = 128
    launch_timeout: float = 10.0  # without a sign of life (one each 2 s) of what starts the command
    device_wait: float = 60.0  # how long a start waits for chips and ports that something else still holds
    backoff_first: float = 10.0  # doubles with each failure in a row
    backoff_max: float = 600.0
    quarantine_after: int = 3  # refusals by one worker in a row
    quarantine_retry: float = 3600.0
    worker_lost_after: float = 600.0
    settle_seconds: float = 60.0  # how long a gang's verdict waits for the evidence of a silent host
    gang_reserve_after: float = 600.0
    max_dispatch_failures: int = 10
    max_children: int = 1000  # of one job, also those that are over
    max_job_depth: int = 8  # parts of the id of a child job: `a/b/c` has three
    max_endpoints: int = 32  # of one attempt
    reap_after: float = 14 * 86400.0  # how long a worker keeps the output of an ended attempt; 0: for ever
    keep_logs: int = 1 << 20  # bytes of a stream of an ended attempt that are copied whole; 0: none is copied
    workspace_size: int = 1 << 30  # bytes of a packed directory, not compressed
    slice_request_timeout: float = 300.0  # as long as no provider has taken on the request for a slice
    slice_create_timeout: float = 1800.0  # from the request for a slice until its provider has it
    slice_boot_timeout: float = 900.0  # from then until every VM of it has passed its probe
    scale_backoff_first: float = 60.0  # of a scale group; doubles with each failure in a row
    scale_backoff_max: float = 3600.0
    slices_per_minute: int = 10  # of one scale group, to be asked for
    silent_after: float = 1800.0  # without output, until a running task is marked quiet; 0: never
    loop_interval: float = 10.0  # between two cycles of the background loop while nothing starts or ends

    def backoff(self, failures: int) -> float:
        """How long to leave a worker alone after that many failures in a row (1 or more)."""
        doublings = min(failures - 1, 32)  # beyond that the number overflows, and the maximum holds anyway
        return min(self.backoff_first * 2.0**doublings, self.backoff_max)
