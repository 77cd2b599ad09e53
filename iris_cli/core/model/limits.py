"""Every named limit with its default. `limits:` in `cluster.yaml` overrides the defaults."""

from msgspec import Struct

MAX_EXTRA_TIME = 30.0  # seconds that a call about many attempts may add to `dispatch_timeout`


def extra_time(attempts: int) -> float:
    """Return the seconds that a call about this many attempts may take in addition to `dispatch_timeout`."""
    return min(0.05 * attempts, MAX_EXTRA_TIME)


class Limits(Struct, frozen=True, kw_only=True):
    """Limits. Durations are in seconds."""

    connect_timeout: float = 10.0
    dispatch_timeout: float = 5.0  # maximum time of one call after the connection is made
    dispatch_lease: float = 60.0  # time in which only the invocation that assigned an attempt may dispatch it
    max_dispatch_parallelism: int = 128
    launch_timeout: float = 10.0  # time without a sign of life (one every 2 s) after which a start has failed
    device_wait: float = 60.0  # time for which a start waits for chips and ports that another process holds
    backoff_first: float = 10.0  # doubles with each consecutive failure
    backoff_max: float = 600.0
    quarantine_after: int = 3  # consecutive refusals by one worker
    quarantine_retry: float = 3600.0  # time after which a successful probe lifts a quarantine
    worker_lost_after: float = 600.0  # time without answers after which a suspect worker is lost
    settle_seconds: float = 60.0  # time for which a gang's verdict waits for evidence from a silent host
    gang_reserve_after: float = 600.0  # time after which workers are held back for a pending gang
    max_dispatch_failures: int = 10
    max_children: int = 1000  # maximum number of child jobs of one job, including ended ones
    max_job_depth: int = 8  # parts in the id of a child job: `a/b/c` has three
    max_endpoints: int = 32  # maximum number of endpoints of one attempt
    reap_after: float = 14 * 86400.0  # time for which a worker keeps an ended attempt's output; 0: no limit
    keep_logs: int = 1 << 20  # an ended attempt's stream up to this size is copied whole; 0: no copy
    workspace_size: int = 1 << 30  # maximum bytes of a packed directory, not compressed
    slice_request_timeout: float = 300.0  # from the request for a slice until its provider accepts it
    slice_create_timeout: float = 1800.0  # from the request for a slice until its provider has created it
    slice_boot_timeout: float = 900.0  # from its creation until every VM has passed its probe
    scale_backoff_first: float = 60.0  # back-off of a scale group; doubles with each consecutive failure
    scale_backoff_max: float = 3600.0
    slices_per_minute: int = 10  # maximum rate of requests for slices of one scale group
    silent_after: float = 1800.0  # time without output until a running task is marked quiet; 0: never
    loop_interval: float = 10.0  # time between two cycles of the loop while no task starts or ends

    def backoff(self, failures: int) -> float:
        """Return the seconds of back-off after this many consecutive failures (1 or more)."""
        return doubling_backoff(self.backoff_first, failures, self.backoff_max)


def doubling_backoff(first: float, failures: int, longest: float) -> float:
    """Return a back-off of `first` seconds that doubles with each failure after the first, at most `longest`."""
    return min(first * 2.0 ** min(failures - 1, 32), longest)  # more doublings could overflow
