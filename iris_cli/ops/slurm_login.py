"""Run Slurm's commands on a login host, over the connections that also reach the workers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm.commands import ENVIRONMENT, TIMEOUT, Ran, Run
from iris_cli.core import WorkerId
from iris_cli.core.messages.cloud import Refusal
from iris_cli.ops.session import Session
from iris_cli.remote.transport import NoAnswer, Target

_MOST = 64 << 20  # bytes of an answer


def on_login_host(session: Session, host: str) -> Run:
    """Return a runner of Slurm's commands on a login host, with the SSH settings of `ssh` in cluster.yaml."""
    target = Target(worker=WorkerId(f"login.{host}"), connection=replace(session.config.ssh, host=host))

    def run(command: Sequence[str]) -> Ran:
        settings = (f"{name}={value}" for name, value in ENVIRONMENT.items())
        # The shell is no login shell: a site may put Slurm into PATH only in its profile.
        script = (
            f"command -v {shlex.quote(command[0])} >/dev/null 2>&1 || . /etc/profile >/dev/null 2>&1\n"
            f"exec env {shlex.join([*settings, *command])} </dev/null\n"
        )
        try:
            done = session.runner.run_script(target, script.encode(), timeout=TIMEOUT, limit=_MOST)
        except NoAnswer as silence:
            refusal = Refusal.UNANSWERED if silence.sent else Refusal.DENIED
            raise ProviderError(refusal, f"{command[0]} on {host}: {silence}") from silence
        return Ran(done.status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    return run
