"""The context of a command: global options, sessions, and the cycles that follow the command."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from iris_cli.cli.failures import CommandInterruptedError
from iris_cli.errors import ExitCode, IrisError, NotFoundError, NotWritableError
from iris_cli.ops.cluster_handle import ClusterHandle
from iris_cli.render.console import Output

if TYPE_CHECKING:
    from iris_cli.client.outbox import Outbox
    from iris_cli.ops.session import GetProgress, Session
    from iris_cli.ops.views.cycles import Cycles
    from iris_cli.remote.ssh import SshTransport

_MANUAL_HINT = "jobs stay pending until you run: iris watch --schedule, or iris cron install"


class Context(ClusterHandle, dict=True):
    """The cluster handle and the output of one command.

    `words_after_dashes`: a program's command line, see CommandAfterDashes. `starts_loop`: start a background loop for
    the jobs that are open after this command. `has_printed_no_cycles`: the command has printed why no cycle follows.
    """

    output: Output = field(default_factory=Output)
    words_after_dashes: tuple[str, ...] = ()
    starts_loop: bool = True
    _sessions: list[Session] = field(default_factory=list)
    has_printed_no_cycles: bool = False

    def session(self, command: str, transport: SshTransport | None = None) -> Session:
        session = super().session(command, transport)
        self._sessions.append(session)
        return session

    def take_no_cycles_reason(self) -> str:
        """Return why no cycle follows, and record that the command prints it: `leave` does not print it again."""
        why = self.why_no_cycles()
        self.has_printed_no_cycles = self.has_printed_no_cycles or bool(why)
        return why

    def print_no_cycles_reason(self) -> None:
        """Print why no cycle follows, if none does. Print nothing with --json."""
        why = self.take_no_cycles_reason()
        if why and not self.output.as_json:
            self.output.message(why)

    def why_no_cycles(self) -> str:
        """Return why no cycle follows this command, with the command to type; '' if cycles follow."""
        from iris_cli.journal.access import disk_problem, permission_problem
        from iris_cli.ops.loop.start import may_start
        from iris_cli.ops.views.cycles import cycles_of

        if why := disk_problem(self.state.path):
            return why
        cycles = cycles_of(self.state, self.clock.now(), self.config.loop)
        if cycles.has_next_cycle:
            return ""
        if self.starts_loop and may_start(self) and not permission_problem(self.state.path):
            return ""
        return f"no cycles are running: {cycles.fix}"

    def cycles_for_json(self, session: Session) -> Cycles | None:
        """Start the background loop if open jobs need it. Return the `Cycles` for the --json output.

        Return None without --json, and after a warning if the state can't be read.
        """
        if not self.output.as_json:
            return None
        from iris_cli.ops.views.view import load_view

        self.leave()
        try:
            return load_view(session).cycles
        except IrisError as error:
            self.output.warning(f"warning: {error.message}")
            return None

    def prepare_error(self, error: NotFoundError | NotWritableError) -> None:
        """Explain an unknown name: the worker is not registered yet, or the log is damaged before the name.

        If the state can't be written, the error says why no cycle follows: `leave` does not print it again.
        """
        if isinstance(error, NotWritableError):
            self.has_printed_no_cycles = True
            return
        if any(error.worker in session.hosts for session in self._sessions):
            error.hint = "it is configured, but no cycle has registered it yet: iris schedule"
        if damage := next(filter(None, (session.damage for session in self._sessions)), None):
            error.message += " in the valid part of the log"
            error.hint = f"{damage.what}; {damage.hint}"

    def interrupted(self, text: str) -> int:
        """Print that Ctrl-C ended a wait. Return the exit code, or with --json raise CommandInterruptedError."""
        if self.output.as_json:
            raise CommandInterruptedError(text) from None
        self.output.message(text)
        return ExitCode.INTERRUPTED

    def leave(self) -> None:
        """End the command: start the background loop if the command left work that needs cycles."""
        sessions, self._sessions = self._sessions, []  # breaks a reference cycle that would keep files open
        used = [each for each in sessions if each.may_need_cycles]
        if self.starts_loop and used:
            self._start_loop_or_warn(used[-1])

    def _start_loop_or_warn(self, session: Session) -> None:
        """Start the loop if needed, or print once why no cycle follows. If the start fails, only print a warning."""
        from iris_cli.ops.loop.start import logout_kills_processes, start_if_needed
        from iris_cli.ops.views.cycles import work_left

        try:
            pid = start_if_needed(self, session)
            ends_at_logout = pid is not None and logout_kills_processes(os.environ)
            has_work_left = (
                pid is None
                and not self.has_printed_no_cycles
                and work_left(session.view(), session.config, session.state)
            )
        except (OSError, IrisError) as error:
            if why := self.why_no_cycles():
                if not self.has_printed_no_cycles:
                    self.output.warning(why)
                return
            cause = error.message if isinstance(error, IrisError) else error.strerror or str(error)
            self.output.warning(f"warning: the background loop failed to start: {cause}; {_MANUAL_HINT}")
            return
        if pid is not None:
            note = ", ends when you log out (to avoid that: loginctl enable-linger)" if ends_at_logout else ""
            self.output.message(f"background loop started (pid {pid}){note}: iris loop show")
        elif has_work_left and (why := self.why_no_cycles()):
            self.output.message(why)

    @cached_property
    def outbox(self) -> Outbox:
        """The outbox of the task in which this command runs."""
        from iris_cli.client.outbox import Outbox
        from iris_cli.client.records import ANSWER_TIMEOUT

        return Outbox(Path(os.environ["IRIS_TASK_DIR"]), ANSWER_TIMEOUT)

    def tell(self, message: str) -> None:
        self.output.warning(message)

    def progress(self, get_progress: GetProgress) -> AbstractContextManager[None]:
        return self.output.progress(get_progress)
