"""Causes that the exit code or the signal alone shows, if the program printed no known message."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule
from iris_cli.core.model.task import EndReason

_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_SHELL = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_FAULTHANDLER = "iris launch --again {job} --env PYTHONFAULTHANDLER=1"

OUT_OF_MEMORY = Rule(
    name="out-of-memory",
    reasons=(EndReason.OOM,),
    cause="the kernel killed the task: out of memory",
    fix="Request enough memory (--memory, which is also the limit), or use less: fewer loader workers, less "
    "prefetching, a streamed dataset.",
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    next="iris exec {worker} -- free -h",
)

HOSTS = (
    Rule(
        name="host-rebooted",
        text=("the host was rebooted",),
        cause="the host was rebooted: by maintenance, by a kernel crash, or manually",
        fix="`last -x` on the host shows the time. Checkpoints and --max-retries-preemption let the work continue.",
        source="https://docs.cloud.google.com/tpu/docs/maintenance-events",
        next="iris exec {worker} -- last -x -n 5",
    ),
    Rule(
        name="attempt-vanished",
        text=("the attempt vanished: no process, no exit record",),
        cause="the task and its wrapper were killed, manually or by the kernel's OOM killer",
        fix="dmesg on the host shows if the kernel killed the task. If so, request more memory (--memory), or reduce "
        "the memory that the program uses.",
        source=_SIGNALS,
        next="iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'",
    ),
    Rule(
        name="lease-ended",
        text=("lease expired: no poll in time", "its lease ended: nobody polled it"),
        cause="no cycle polled the task within its --lease, so its worker stopped it",
        fix="Check what runs cycles (`iris loop show`, `iris cron show`), or give the job a longer lease or none.",
        source="https://man7.org/linux/man-pages/man5/crontab.5.html",
        next="iris loop show",
    ),
)
"""Rules for failures of a host. They match the errors that iris records."""

TIME_LIMIT = Rule(
    name="time-limit",
    reasons=(EndReason.TIMEOUT,),
    cause="the task exceeded its --timeout",
    fix="If its last output is recent, raise the limit. If it is old, the task hung: while it runs, "
    "`iris stacks` shows where it hangs.",
    source="https://docs.python.org/3/library/faulthandler.html",
    next="iris logs {task} --tail 200",
    all_shown="iris launch --again {job} --timeout {longer}",
)

EXITS = (
    Rule(
        name="exit-not-found",
        exits=(127,),
        cause="the command, or a program that it runs, was not found",
        fix="Commands run without a login shell, so ~/.local/bin is not on PATH: use the full path, or "
        "install it in --setup.",
        source=_SHELL,
        next="iris exec {worker} -- sh -c 'echo $PATH'",
    ),
    Rule(
        name="exit-not-executable",
        exits=(126,),
        cause="the command was found, but is not executable",
        fix="Run chmod +x on the file before it is shipped, or run its interpreter: python3 train.py, sh run.sh.",
        source=_SHELL,
    ),
    Rule(
        name="exit-killed",
        signal="SIGKILL",
        cause="SIGKILL not sent by iris, often by the kernel's OOM killer",
        fix="dmesg on the host shows if the kernel killed the task. If so, request more memory (--memory), or reduce "
        "the memory that the program uses.",
        source=_SIGNALS,
        next="iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'",
    ),
    Rule(
        name="exit-bus-error",
        signal="SIGBUS",
        cause="SIGBUS: a memory-mapped file was truncated, or its disk is full",
        fix="Free space on the disk of the mapped file or in /dev/shm, and truncate no file while it is mapped.",
        source=_SIGNALS,
        next="iris exec {worker} -- df -h /dev/shm",
    ),
    Rule(
        name="exit-illegal-instruction",
        signal="SIGILL",
        cause="SIGILL: a binary uses instructions that this CPU lacks",
        fix="Prebuilt wheels of TensorFlow and jaxlib need AVX: use another host type, or a build for this CPU.",
        source="https://github.com/tensorflow/tensorflow/issues/17411",
        next="iris exec {worker} -- sh -c 'grep -m1 flags /proc/cpuinfo'",
    ),
    Rule(
        name="exit-abort",
        signal="SIGABRT",
        cause="SIGABRT: a check inside a C++ library failed",
        fix="The first line with `Check failed` or `F0000` names the check; the stack follows. Without such a "
        "line, --env PYTHONFAULTHANDLER=1 prints the Python stack.",
        source=_SIGNALS,
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-segfault",
        signal="SIGSEGV",
        cause="SIGSEGV: a crash inside native code",
        fix="--env PYTHONFAULTHANDLER=1 prints the Python stack. The usual cause is incompatible libraries.",
        source="https://docs.python.org/3/library/faulthandler.html",
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-terminated",
        signal="SIGTERM",
        cause="SIGTERM, not sent by iris",
        fix="Another process sent it, or the host was shut down: `iris history` shows a preemption.",
        source=_SIGNALS,
        next="iris history {worker}",
    ),
    Rule(
        name="exit-crashed",
        exits=(132, 134, 135, 136, 139),
        cause="a program that the command runs crashed",
        fix="Its last lines name the program. The signal is the code minus 128: 11 is SIGSEGV, 6 SIGABRT. "
        "--env PYTHONFAULTHANDLER=1 prints the Python stack.",
        source=_SHELL,
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-above-128",
        exits=(137, 143),
        cause="a program that the command runs was killed by a signal",
        fix="Its last lines name the program. The signal is the code minus 128: 9 is SIGKILL; dmesg on the "
        "host shows if the kernel sent it (out of memory).",
        source=_SHELL,
        next="iris logs {task} --tail 200",
    ),
)
