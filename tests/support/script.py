"""The language of the transcripts: a command in, the recorded events out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.lifecycle.display import job_display, task_displays
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import JobRequest, Priority, ReplaceLost
from iris_cli.core.units import parse_duration, parse_memory
from iris_cli.errors import IrisError
from tests.support.autoscaling_script import AutoscalingVerbs
from tests.support.lab import Lab
from tests.support.words import lines_of


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


_LAUNCH: dict[str, Callable[[str], Any]] = {
    "tpu": str,
    "gpu": str,
    "cpu": float,
    "memory": parse_memory,
    "replicas": int,
    "slices": int,
    "spread": lambda text: text == "yes",
    "keep-going": lambda text: text == "yes",
    "group-by": str,
    "tolerate": _words,
    "after": _words,
    "array": str,
    "secrets": _words,
    "setup": str,
    "priority": Priority,
    "force": lambda text: text == "yes",
    "max-retries-failure": int,
    "max-retries-preemption": int,
    "max-task-failures": int,
    "scheduling-timeout": parse_duration,
    "timeout": parse_duration,
    "replace-lost": ReplaceLost,
    "lease": parse_duration,
    "setup-timeout": parse_duration,
}
_HOST: dict[str, Callable[[str], Any]] = {"cpu": float, "memory": parse_memory, "gpus": int, "workers": int}


class Script(AutoscalingVerbs):
    """Runs a transcript on a lab."""

    def __init__(self) -> None:
        self.lab = Lab()

    def run(self, line: str) -> list[str]:
        """Run a command; return its events, its output, or its error."""
        name, *words = shlex.split(line)
        before, done = self.lab.cluster, len(self.lab.log)
        try:
            printed = getattr(self, f"do_{name.replace('-', '_')}")(*words) or []
        except IrisError as error:
            return [f"error: {error.message}", *([f"hint: {error.hint}"] if error.hint else [])]
        assert self.lab.replayed() == self.lab.cluster
        return [*self._events(before, done), *printed]

    def _events(self, before: Cluster, done: int) -> list[str]:
        new = [event for transaction in self.lab.log[done:] for event in transaction.events]
        return lines_of(new, before, self.lab.cluster, self.lab.now)

    # Fleet

    def do_add_slice(self, name: str, *words: str) -> None:
        tpu, options = "v4-16", dict(word.split("=", 1) for word in words)
        tpu = options.pop("type", tpu)
        self.lab.slice(name, tpu, **_typed(options, _HOST))

    def do_add_vm(self, worker: str, slice_name: str, index: str) -> None:
        self.lab.vm(worker, slice_name, int(index))

    def do_add_worker(self, name: str, *words: str) -> None:
        self.lab.worker(name, **_typed(dict(word.split("=", 1) for word in words), _HOST))

    def do_remove(self, *names: str) -> None:
        self.lab.configure(*names)

    def do_reconfigure(self) -> None:
        self.lab.configure()

    def do_silence(self, *words: str) -> None:
        *names, kind = words
        self.lab.silent(*names, kind=SilenceKind(kind))

    def do_poll(self, *words: str) -> None:
        """Poll several workers: `poll a-0=unreachable b-0=answers`."""
        said = dict(word.split("=") for word in words)
        self.lab.answers(
            *(
                self.lab.answer_of(name)
                if what == "answers"
                else self.lab.silence_of(name, SilenceKind(what))
                for name, what in said.items()
            )
        )

    def do_policy(self, *words: str) -> None:
        """Configure `replace_lost` on these workers."""
        *names, policy = words
        self.lab.policies |= {WorkerId(name): ReplaceLost(policy) for name in names}

    def do_answer(self, *names: str) -> None:
        self.lab.answers(*(self.lab.answer_of(name) for name in names))

    def do_reboot(self, name: str, *words: str) -> None:
        """Reboot a host, which then reports the attempts on its disk: `reboot w train/task-0 exited 0`."""
        self.lab.hosts[self.lab.the_worker(name).id].reboot()
        if words:
            self.do_report(*words)
        else:
            self.do_answer(name)

    def do_wipe(self, name: str) -> None:
        self.lab.hosts[self.lab.the_worker(name).id].wipe()
        self.do_answer(name)

    def do_recreate(self, name: str) -> None:
        host = self.lab.hosts[self.lab.the_worker(name).id]
        host.reboot()
        host.wipe()
        self.do_answer(name)

    def do_probe(self, name: str, *flags: str) -> None:
        self.lab.probe(name, trusted="--accept-key" in flags)

    def do_drain(self, name: str, reason: str = "") -> None:
        self.lab.drain(name, reason)

    def do_uncordon(self, name: str) -> None:
        self.lab.uncordon(name)

    def do_taint(self, name: str, taint: str, flag: str = "") -> None:
        self.lab.taint(name, taint, removed=flag == "--remove")

    def do_forget(self, name: str, flag: str) -> None:
        assert flag == "--dead"
        self.lab.forget_dead(name)

    # Jobs

    def do_launch(self, name: str, *words: str) -> None:
        constraints, options = [], {}
        for word in words:
            key, _, value = word.partition("=")
            if key in ("-c", "--prefer"):
                constraints.append(parse_constraint(("~" if key == "--prefer" else "") + value))
            else:
                options[key] = value
        asked = _typed(options, _LAUNCH)
        self.lab.job(name, JobRequest(command=("train",), constraints=tuple(constraints)), **asked)

    def do_cancel(self, job: str, reason: str = "") -> None:
        self.lab.cancel(job, reason)

    def do_again(self, job: str, *fields: str) -> None:
        self.lab.again(job, **dict(field.partition("=")[::2] for field in fields))

    def do_retry(self, job: str, index: str = "") -> None:
        self.lab.retry(job, int(index) if index else None)

    def do_hold(self, job: str) -> None:
        self.lab.change(job, held=True)

    def do_release(self, job: str) -> None:
        self.lab.change(job, held=False)

    def do_set(self, job: str, *fields: str) -> None:
        self.lab.change(job, **_typed(dict(field.split("=") for field in fields), _LAUNCH))

    def do_schedule(self) -> None:
        self.lab.schedule()

    # Reports of workers, separated by ';' if they are in one poll

    def do_report(self, *words: str) -> None:
        line, _, unheard = " ".join(words).partition(" --unheard ")
        self.lab.reports(*(item.strip() for item in line.split(";")), unheard=unheard.split())

    def do_not_sent(self, names: str) -> None:
        self.lab.not_sent(names)

    def do_unanswered(self, names: str, kind: str = "timeout") -> None:
        """Record that the launch of these tasks was sent and not answered."""
        self.lab.unanswered(names, SilenceKind(kind))

    def do_reap(self, worker: str, *left: str) -> None:
        """Remove the files that are due on a worker, except those of some attempts."""
        self.lab.reap(worker, *left)

    # Time and observation

    def do_advance(self, duration: str) -> None:
        self.lab.advance(duration)

    def do_status(self, job: str) -> list[str]:
        lines = [f"{job} {self.lab.state_of(job)}"]
        for task in self.lab.cluster.tasks_of(JobId(job)):
            words = [f"task-{task.index}", str(task.state)]
            if task.current is not None:
                end = f" {task.current.end.reason}" if task.current.end else ""
                words.append(
                    f"(attempt-{task.current.number} {task.current.state}{end} on {task.current.worker})"
                )
            lines.append(" ".join(words))
        return lines

    def do_display(self, job: str) -> list[str]:
        """Print the displays of a job and its tasks."""
        of_tasks = task_displays(self.lab.cluster, JobId(job))
        return [
            job_display(self.lab.cluster, JobId(job)),
            *(f"task-{i} {each}" for i, each in enumerate(of_tasks)),
        ]

    def do_why(self, job: str) -> list[str]:
        waiting = self.lab.plan().waiting
        return [
            f"{subject}: {reason}"
            for subject, reasons in waiting.items()
            if str(subject).split("/task-")[0] == job
            for reason in reasons
        ]

    def do_change(self, job: str) -> list[str]:
        """Print the single change that would place the pending tasks of a job."""
        plan = self.lab.plan()
        waiting = [key for key in plan.waiting if str(key).split("/task-")[0] == job]
        return [str(plan.waiting.explain(key).change or "none") for key in waiting[:1]]


def _typed(options: dict[str, str], kinds: dict[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {key.replace("-", "_"): kinds.get(key, str)(value) for key, value in options.items()}
