"""The background loop and its process. The loop runs cycles until no work is left.

The loop is an ordinary invocation. It may be killed at any time, and the next invocation continues its work.
"""

import os
import pkgutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from pathlib import Path

from msgspec import Struct

import iris_cli
from iris_cli.config import load, schema
from iris_cli.core import Cluster, JobId, Provider, WorkerCondition, WorkerId, count, group_pairs
from iris_cli.errors import ConfigError, IrisError, LogDamagedError, NotFoundError
from iris_cli.journal.files.runners import LOOP, LoopOrder, RunnerLock, read_loop_order
from iris_cli.ops import autoscale, cluster_handle, secret_values
from iris_cli.ops.cycle import compaction, cycle, dispatch
from iris_cli.ops.loop import changes, foreground
from iris_cli.ops.loop.start import COMMAND, has_owner_ended
from iris_cli.ops.session import Session
from iris_cli.ops.views.cycles import work_left

SHORT_PAUSE = 1.0  # seconds to the next cycle after a new event in the log or a task request

_RESTART = "run `iris loop start` in a shell that has"
_MAX_NAMES = 3  # maximum number of jobs named in one message
CHECK_INTERVAL = 1.0  # interval in seconds at which the loop checks if it must end and if the log has grown
SCALE_EVERY = 30.0
"""Seconds between two passes of the autoscaler. Each pass lists the provider's slices."""
_NICE = 10
_NOT_NEEDED = (
    *("iris_cli.__main__", "iris_cli.client", "iris_cli.cli.commands.demo", "iris_cli.demo.run"),
    *("iris_cli.capacity.gcp", "iris_cli.render.watch", "iris_cli.render.report"),
)
_LIBRARIES = ("paramiko", "cryptography.hazmat.primitives.asymmetric.ed25519", "yaml", "urllib.request")


def missing_secrets_by_job(cluster: Cluster) -> dict[JobId, dict[str, str]]:
    """Return the secrets of open jobs that this process can't read, by job, each with the reason."""
    with_secrets = [job for job in cluster.open_jobs() if job.end is None and job.secrets]
    return {job.id: missing for job in with_secrets if (missing := secret_values.missing_secrets(job))}


def environment_troubles(
    cluster: Cluster, missing: Mapping[JobId, Mapping[str, str]], environ: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Yield problems of this process's environment, such as a missing SSH agent, a rejected key, missing secrets."""
    auth_failed = [
        each.id for each in cluster.workers.values() if each.condition is WorkerCondition.AUTH_FAILED
    ]
    if auth_failed:
        names = _names(auth_failed)
        agent = environ.get("SSH_AUTH_SOCK", "")
        if agent and not Path(agent).is_socket():
            yield f"the loop's SSH agent is gone and {names} refused its key; {_RESTART} an agent"
        else:
            yield f"{names} refused its key; run `iris doctor`, then {_RESTART} the right one"
    by_problem: dict[str, list[WorkerId]] = {}  # workers by the problem of the SSH key on this machine
    for each in cluster.workers.values():
        step, _, problem = each.reason.partition(": ")  # a reason is `STEP: DETAIL`
        if each.condition is WorkerCondition.SUSPECT and step == "key":
            by_problem.setdefault(problem, []).append(each.id)
    for problem, workers in by_problem.items():
        yield f"{_names(workers)} can't be reached: {problem}; run `iris doctor`"
    by_secret = group_pairs((each, job) for job, problems in missing.items() for each in problems.items())
    for (name, problem), jobs in by_secret.items():
        more = f" and {len(jobs) - _MAX_NAMES} more" if len(jobs) > _MAX_NAMES else ""
        secret = f"secret {name} of {', '.join(jobs[:_MAX_NAMES])}{more}"
        is_unset = problem == secret_values.NOT_SET
        yield secret + (f" is not in the loop's environment; {_RESTART} it" if is_unset else f": {problem}")


def _names(workers: Sequence[WorkerId]) -> str:
    return workers[0] if len(workers) == 1 else count(len(workers), "worker")


class LoopEnd(StrEnum):
    DONE = "nothing left to do"
    STOPPED = "stopped"
    REPLACED = "replaced by another loop"
    OFF = "cluster.yaml says loop: off"
    GONE = "its state directory was moved or deleted"
    ORPHANED = "its demo ended"
    UPGRADE = "another version of iris was installed"


class LoopPass(Struct, frozen=True, kw_only=True):
    """One pass of the loop: the result of its cycle, or the reason why the cycle did not run (`trouble`)."""

    result: cycle.CycleResult | None = None
    trouble: str = ""
    fault: Exception | None = None  # an internal error


class Loop(Struct):
    """One background loop.

    `lock` is held while the loop runs. `order_at_start` is the operator's last order to the loops (`iris loop start` or
    `stop`) when this loop started. `report` gets each pass. `new_version` returns the installed version if it is new,
    otherwise ''. `has_owner_ended` returns True if the demo that owns the loop has ended.
    """

    session: Session
    lock: RunnerLock
    configuration: changes.Configuration
    report: Callable[[LoopPass], None]
    order_at_start: LoopOrder
    new_version: Callable[[], str] = lambda: ""
    has_owner_ended: Callable[[], bool] = lambda: False
    _trouble: str = ""
    _pause: float = 0.0  # seconds to the next cycle
    _autoscaled_at: float = float("-inf")

    def run(self) -> LoopEnd:
        """Run cycles until the loop must end. Return the reason. Raises IrisError if no cycle can ever run again."""
        session = self.session
        session.runs_as, session.cycle_details = LOOP, self._cycle_details
        with dispatch.Dispatcher(session) as dispatcher:
            if (end_reason := self._end_reason()) is not None:
                return end_reason
            requests, cycles = 0, cycle.Cycles(dispatcher)
            while True:
                seq = session.cluster.seq
                self.report(self._run_pass(cycles))
                if not self._trouble and not self._open_work() and self._release():
                    return LoopEnd.DONE
                has_requests, requests = dispatcher.requests != requests, dispatcher.requests
                changed = (session.cluster.seq != seq or has_requests) and not self._trouble
                if (end_reason := self._wait(cycles, self._next_pause(changed=changed))) is not None:
                    return end_reason

    def _next_pause(self, *, changed: bool) -> float:
        """Return the seconds to the next cycle: SHORT_PAUSE if `changed`, otherwise twice the last pause.

        The pause ends early if the time limit or the grace period of a live attempt ends.
        """
        session, pause = self.session, SHORT_PAUSE if changed else max(SHORT_PAUSE, 2 * self._pause)
        self._pause = min(pause, session.limits.loop_interval)
        pauses, now = [self._pause], session.clock.now()
        for attempt_id, attempt in session.cluster.live_attempts():
            job, end = session.cluster.jobs[attempt_id.task.job], 0.0
            if attempt.stop is not None:
                end = attempt.stop.at + job.grace
            elif attempt.started_at is not None and job.timeout:
                end = attempt.started_at + job.timeout
            pauses += [end + SHORT_PAUSE - now] if end + SHORT_PAUSE > now else []
        return min(pauses)

    def _end_reason(self) -> LoopEnd | None:
        """Return the reason why the loop must end now, or None. Reload a changed configuration."""
        if not self.lock.is_in_place():
            return LoopEnd.GONE
        if self.has_owner_ended():
            return LoopEnd.ORPHANED
        order = read_loop_order(self.session.state.path)
        if self.order_at_start.stopped:
            return LoopEnd.STOPPED
        if order.turn != self.order_at_start.turn:
            return LoopEnd.STOPPED if order.stopped else LoopEnd.REPLACED
        if self.session.config.loop is schema.Mode.OFF:
            return LoopEnd.OFF
        self._reload_configuration()  # BEFORE the check for an upgrade, because a new loop needs a valid file
        return LoopEnd.UPGRADE if not self.configuration.invalid and self.new_version() else None

    def _run_pass(self, cycles: cycle.Cycles) -> LoopPass:
        self._trouble = ""
        try:
            self._reload_configuration()
            if self.session.config.loop is schema.Mode.OFF:
                return LoopPass()
            now = self.session.clock.monotonic()
            scales = self.session.config.scales and not self.configuration.invalid
            if scales and now - self._autoscaled_at >= SCALE_EVERY:
                self._autoscaled_at = now
                autoscale.run(self.session, probe=False)
            cycles.schedule = not self.configuration.invalid
            cycles.run()
            if (compacted := compaction.compact_if_large(self.session)) is not None:
                self.session.tell(compaction.compaction_words(compacted))
        except foreground.TRANSIENT_ERRORS as error:
            self._trouble = foreground.error_words(error)
        except (LogDamagedError, NotFoundError, ConfigError):
            raise
        except Exception as error:  # is reported, and the next cycle may succeed
            return self._failed_pass(error)
        return LoopPass(trouble=self._trouble) if self._trouble else LoopPass(result=cycles.result)

    def _failed_pass(self, error: Exception) -> LoopPass:
        """Note an unexpected error as the trouble. Return the pass that reports it."""
        if isinstance(error, IrisError):  # such as no thread that can be started
            self._trouble = foreground.error_words(error)
            return LoopPass(trouble=self._trouble)
        self._trouble = f"internal error: {type(error).__name__}: {error}"
        return LoopPass(trouble=self._trouble, fault=error)

    def _reload_configuration(self) -> None:
        config = self.configuration.changed_config()
        if config is not None:
            self.session.reconfigure(config)

    def _wait(self, cycles: cycle.Cycles, seconds: float) -> LoopEnd | None:
        """Wait `seconds` for the next pass, and process late answers. Return why the loop must end, or None.

        The wait is shorter after new transactions or task requests, and if the configuration becomes valid or invalid.
        """
        clock, state, dispatcher = self.session.clock, self.session.state.path, cycles.dispatcher
        due = clock.monotonic() + seconds
        size, requests = compaction.size_of_log(state), dispatcher.requests
        invalid = self.configuration.invalid
        while (now := clock.monotonic()) < due:
            until = min(due, now + CHECK_INTERVAL)
            try:
                cycles.schedule = not self.configuration.invalid
                cycles.finish_calls(until=until)
            except foreground.TRANSIENT_ERRORS as error:
                self._trouble = foreground.error_words(error)
            except (LogDamagedError, NotFoundError, ConfigError):
                raise
            except Exception as error:
                known, failed = self._trouble, self._failed_pass(error)
                if failed.trouble != known:
                    self.report(failed)
            clock.sleep(max(0.0, until - clock.monotonic()))
            if (end_reason := self._end_reason()) is not None:
                return end_reason
            new_size, new_requests = compaction.size_of_log(state), dispatcher.requests
            if (new_size, new_requests, self.configuration.invalid) != (size, requests, invalid):
                size, requests, invalid = new_size, new_requests, self.configuration.invalid
                due = min(due, clock.monotonic() + SHORT_PAUSE)
        return None

    def _open_work(self) -> str:
        return work_left(self.session.cluster, self.session.config, self.session.state)

    def _release(self) -> bool:
        """Release the lock. Return True if the loop may end.

        The log is read AFTER the release. If it contains open work, take the lock again and return False.
        """
        session = self.session
        self.lock.release()
        session.view()
        if not self._open_work():
            return True
        with suppress(OSError):
            lock = session.state.runners.hold(
                LOOP, session.command, interval=session.limits.loop_interval, since=session.clock.now()
            )
            if lock is not None:
                self.lock = lock
                return False
        return True  # another loop has started, or the lock can't be taken

    def _cycle_details(self) -> Mapping[str, object]:
        """Return the data that the loop adds to the heartbeat after each cycle."""
        missing = missing_secrets_by_job(self.session.cluster)
        troubles = [
            *filter(None, [self.configuration.invalid]),
            *environment_troubles(self.session.cluster, missing),
        ]
        return {
            "pid": os.getpid(),
            "interval": self.session.limits.loop_interval,
            **({"troubles": troubles} if troubles else {}),
            **({"missing": {job: list(names) for job, names in missing.items()}} if missing else {}),
        }


def load_everything() -> None:
    """Import all modules of a loop at its start, because an upgrade may replace the files while the loop runs."""
    for module in pkgutil.walk_packages(iris_cli.__path__, "iris_cli.", onerror=lambda _: None):
        if not module.name.startswith(_NOT_NEEDED):
            import_module(module.name)
    for name in _LIBRARIES:
        import_module(name)


def set_up_process() -> None:
    """Lower the priority of this process, ignore SIGHUP, and make new files private."""
    os.umask(0o077)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def await_configuration(handle: cluster_handle.ClusterHandle, report: Callable[[str], None]) -> bool:
    """Wait until `cluster.yaml` is valid, and return True. `report` gets each new problem.

    Return False if the state directory is gone, or if the operator stopped the loop.
    """
    state, last_problem = handle.state_path_in_use, ""
    while True:
        try:
            handle.config  # noqa: B018 - loads the configuration; a valid one is cached
            return True
        except ConfigError as error:
            problem = f"no cycle could be run: {error.message}"
        if problem != last_problem:
            report(problem)
            last_problem = problem
        if not state.is_dir() or read_loop_order(state).stopped:
            return False
        handle.clock.sleep(CHECK_INTERVAL)


def serve(
    handle: cluster_handle.ClusterHandle,
    program: Sequence[str],
    lock_fd: int | None,
    *,
    begin: Callable[[Session], None],
    report: Callable[[Session, LoopPass], None],
) -> tuple[LoopEnd, RunnerLock] | None:
    """Run the loop. Return why it ended, and its lock. Return None if another loop runs. Raises IrisError, OSError.

    `program`: command line of a loop. `lock_fd`: descriptor of the lock if the parent process took the lock, otherwise
    None. `begin` gets the session before the first pass of the loop. `report` gets each pass.
    """
    runners, now = handle.state.runners, handle.clock.now()
    interval = handle.config.limits.loop_interval
    lock = None
    if lock_fd is not None:
        lock = runners.inherit(lock_fd, COMMAND, interval=interval, since=now)
    lock = lock or runners.hold(LOOP, COMMAND, interval=interval, since=now)
    if lock is None:
        return None
    load_everything()
    path = handle.config_file
    configuration = changes.Configuration(path, lambda: load.load_cluster_config(path), handle.config)
    if any(each.template.provider is Provider.GCP for each in configuration.initial.scale_groups):
        import_module("iris_cli.capacity.gcp.provider")
    session = handle.session(COMMAND)
    begin(session)
    loop = Loop(
        session=session,
        lock=lock,
        configuration=configuration,
        report=lambda loop_pass: report(session, loop_pass),
        order_at_start=read_loop_order(session.state.path),
        new_version=changes.InstalledProgram(program).new_version,
        has_owner_ended=has_owner_ended,
    )
    return loop.run(), loop.lock


def replace_process(program: Sequence[str], lock: RunnerLock) -> None:
    """Replace this process by the installed program, which inherits the lock. Raises OSError."""
    os.set_inheritable(lock.descriptor, True)
    os.execv(program[0], [*program, "--lock-fd", str(lock.descriptor)])  # noqa: S606 - our own program
