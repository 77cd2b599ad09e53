"""Causes that the exit code, the signal or iris's own error shows, if the program printed no known message."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule
from iris_cli.core.model.task import EndReason

_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_SHELL = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_FAULTHANDLER = "iris launch --again {job} --env PYTHONFAULTHANDLER=1"
_LAST_LINES = "iris logs {task} --tail 200"
_DMESG = "iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'"
_IF_KILLED = (
    "dmesg on the host shows if the kernel killed the task. If so, request more memory (--memory), or reduce the "
    "memory that the program uses."
)

# The formatter would use twice as many lines for each rule.
# fmt: off
OUT_OF_MEMORY = Rule(
    name="out-of-memory", source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    next="iris exec {worker} -- free -h", reasons=(EndReason.OOM,),
    cause="the kernel killed the task: out of memory",
    fix="Request enough memory (--memory, which is also the limit), or use less: fewer loader workers, less "
        "prefetching, a streamed dataset.")

HOSTS = (
    Rule(name="host-rebooted", source="https://docs.cloud.google.com/tpu/docs/maintenance-events",
         next="iris exec {worker} -- last -x -n 5",
         text=("host * was rebooted", "the host was rebooted"),
         cause="the host was rebooted: by maintenance, by a kernel crash, or manually",
         fix="`last -x` on the host shows the time. Checkpoints and --max-retries-preemption let the work continue."),
    Rule(name="attempt-vanished", source=_SIGNALS, next=_DMESG,
         text=("the attempt vanished: no process, no exit record",),
         cause="the task and its wrapper were killed, manually or by the kernel's OOM killer",
         fix=_IF_KILLED),
    Rule(name="lease-ended", source="https://man7.org/linux/man-pages/man5/crontab.5.html", next="iris loop show",
         text=("lease expired: no poll in time", "its lease ended: nobody polled it"),
         cause="no cycle polled the task within its --lease, so its worker stopped it",
         fix="Check what runs cycles (`iris loop show`, `iris cron show`), or give the job a longer lease or none."),
)
"""Rules for failures of a host. They match the errors that iris records."""

TIME_LIMIT = Rule(
    name="time-limit", source="https://docs.python.org/3/library/faulthandler.html",
    next=_LAST_LINES, all_shown="iris launch --again {job} --timeout {longer}", reasons=(EndReason.TIMEOUT,),
    cause="the task exceeded its --timeout",
    fix="If its last output is recent, raise the limit. If it is old, the task hung: start it again, and run "
        "`iris stacks` while it hangs.")

EXITS = (
    Rule(name="exit-not-found", source=_SHELL, next="iris exec {worker} -- sh -c 'echo $PATH'", exits=(127,),
         cause="the command, or a program that it runs, was not found",
         fix="Commands run without a login shell, so ~/.local/bin is not on PATH: use the full path, or install it "
             "in --setup."),
    Rule(name="exit-not-executable", source=_SHELL, exits=(126,),
         cause="the command was found, but is not executable",
         fix="Run chmod +x on the file before it is shipped, or run its interpreter: python3 train.py, sh run.sh."),
    Rule(name="exit-killed", source=_SIGNALS, next=_DMESG, signal="SIGKILL",
         cause="SIGKILL from outside iris, usually from the kernel's OOM killer",
         fix=_IF_KILLED),
    Rule(name="exit-bus-error", source=_SIGNALS, next="iris exec {worker} -- df -h /dev/shm", signal="SIGBUS",
         cause="SIGBUS: a memory-mapped file was truncated, or its disk is full",
         fix="Free space on the disk of the mapped file or in /dev/shm, and truncate no file while it is mapped."),
    Rule(name="exit-illegal-instruction", source="https://github.com/tensorflow/tensorflow/issues/17411",
         next="iris exec {worker} -- sh -c 'grep -m1 flags /proc/cpuinfo'", signal="SIGILL",
         cause="SIGILL: a binary uses instructions that this CPU lacks",
         fix="Prebuilt wheels of TensorFlow and jaxlib need AVX: use another host type, or a build for this CPU."),
    Rule(name="exit-abort", source=_SIGNALS, next=_LAST_LINES, all_shown=_FAULTHANDLER, signal="SIGABRT",
         cause="SIGABRT: a check inside a C++ library failed",
         fix="The first line with `Check failed` or `F0000` names the check; the stack follows. Without that line, "
             "--env PYTHONFAULTHANDLER=1 prints the Python stack."),
    Rule(name="exit-segfault", source="https://docs.python.org/3/library/faulthandler.html",
         next=_LAST_LINES, all_shown=_FAULTHANDLER, signal="SIGSEGV",
         cause="SIGSEGV: a crash inside native code",
         fix="--env PYTHONFAULTHANDLER=1 prints the Python stack. The usual cause is incompatible libraries."),
    Rule(name="exit-terminated", source=_SIGNALS, next="iris history {worker}", signal="SIGTERM",
         cause="SIGTERM from outside iris",
         fix="Another process sent it, or the host was shut down: `iris history` shows a preemption."),
    Rule(name="exit-crashed", source=_SHELL, next=_LAST_LINES, all_shown=_FAULTHANDLER,
         exits=(132, 134, 135, 136, 139),
         cause="a program started by the command crashed",
         fix="Its last lines name the program. The signal is the code minus 128: 11 is SIGSEGV, 6 SIGABRT. --env "
             "PYTHONFAULTHANDLER=1 prints the Python stack."),
    Rule(name="exit-above-128", source=_SHELL, next=_LAST_LINES, exits=(137, 143),
         cause="a program started by the command was killed by a signal",
         fix="Its last lines name the program. The signal is the code minus 128: 9 is SIGKILL; dmesg on the host shows "
             "if the kernel sent it (out of memory)."),
)
