"""Causes known by the exit code or the signal alone, for a program that printed nothing."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule
from iris_cli.core.model.task import EndReason

_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_SHELL = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_FAULTHANDLER = "iris launch --again {job} --env PYTHONFAULTHANDLER=1"

OUT_OF_MEMORY = Rule(
    name="out-of-memory",
    reasons=(EndReason.OOM,),
    cause="the kernel ended it because memory ran out",
    fix="Ask for what it needs (--memory, which is a limit, too), so that it gets a host with so much free; fewer "
    "loader workers, less prefetching, a dataset that is streamed.",
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    next="iris exec {worker} -- free -h",
)

HOSTS = (
    Rule(
        name="host-rebooted",
        says=("the host was rebooted",),
        cause="the host was rebooted: by maintenance, a crash of its kernel, or by hand",
        fix="`last -x` on the host shows when. Checkpoints and --max-retries-preemption let the work continue.",
        source="https://docs.cloud.google.com/tpu/docs/maintenance-events",
        next="iris exec {worker} -- last -x -n 5",
    ),
    Rule(
        name="attempt-vanished",
        says=("the attempt vanished: no process, no exit record",),
        cause="it was killed together with its wrapper: by hand, or because memory ran out",
        fix="dmesg on the host tells if it was the kernel. If so, ask for what it needs (--memory), or load less.",
        source=_SIGNALS,
        next="iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'",
    ),
    Rule(
        name="lease-ended",
        says=("lease expired: no poll in time", "its lease ended: nobody polled it"),
        cause="no cycle polled it for as long as its --lease, and so its worker stopped it",
        fix="See who runs cycles (`iris loop show`, `iris cron show`), or launch it with a longer lease or none.",
        source="https://man7.org/linux/man-pages/man5/crontab.5.html",
        next="iris loop show",
    ),
)
"""What happened to a host, or on it, in the words in which iris records it."""

TIME_LIMIT = Rule(
    name="time-limit",
    reasons=(EndReason.TIMEOUT,),
    cause="it ran for as long as its --timeout lets it",
    fix="If its last lines are of work that went on, give it more time. If they are old, it hung: while it runs, "
    "`iris stacks` shows where.",
    source="https://docs.python.org/3/library/faulthandler.html",
    next="iris logs {task} --tail 200",
    all_shown="iris launch --again {job} --timeout {longer}",
)

EXITS = (
    Rule(
        name="exit-not-found",
        exits=(127,),
        cause="the command, or one that it starts, was not found",
        fix="Commands run without a login shell, so that ~/.local/bin is not on PATH: write the whole path, or install "
        "it in --setup.",
        source=_SHELL,
        next="iris exec {worker} -- sh -c 'echo $PATH'",
    ),
    Rule(
        name="exit-not-executable",
        exits=(126,),
        cause="the command was found, but may not be executed",
        fix="chmod +x before it is shipped, or start it by its interpreter: python3 train.py, sh run.sh.",
        source=_SHELL,
    ),
    Rule(
        name="exit-killed",
        signal="SIGKILL",
        cause="SIGKILL, not sent by iris; the kernel sends it when memory runs out",
        fix="dmesg on the host tells if it was the kernel. If so, ask for what it needs (--memory), or load less.",
        source=_SIGNALS,
        next="iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'",
    ),
    Rule(
        name="exit-bus-error",
        signal="SIGBUS",
        cause="SIGBUS: memory behind a file or /dev/shm is missing",
        fix="The disk below a mapped file is full, or /dev/shm is; or the file was cut while it was mapped.",
        source=_SIGNALS,
        next="iris exec {worker} -- df -h /dev/shm",
    ),
    Rule(
        name="exit-illegal-instruction",
        signal="SIGILL",
        cause="SIGILL: a binary uses instructions that this processor lacks",
        fix="Prebuilt wheels of TensorFlow and jaxlib need AVX: another kind of host, or a build for this one.",
        source="https://github.com/tensorflow/tensorflow/issues/17411",
        next="iris exec {worker} -- sh -c 'grep -m1 flags /proc/cpuinfo'",
    ),
    Rule(
        name="exit-abort",
        signal="SIGABRT",
        cause="SIGABRT: a check inside a C++ library failed",
        fix="The first line with `Check failed` or `F0000` says which; what follows it is only the stack. Without any, "
        "--env PYTHONFAULTHANDLER=1 makes Python say where.",
        source=_SIGNALS,
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-segfault",
        signal="SIGSEGV",
        cause="SIGSEGV: a crash inside native code",
        fix="--env PYTHONFAULTHANDLER=1 makes Python say where. Mostly libraries that don't fit each other.",
        source="https://docs.python.org/3/library/faulthandler.html",
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-terminated",
        signal="SIGTERM",
        cause="SIGTERM, not sent by iris",
        fix="Somebody on the host did, or the host was shut down: `iris history` shows whether it was preempted then.",
        source=_SIGNALS,
        next="iris history {worker}",
    ),
    Rule(
        name="exit-crashed",
        exits=(132, 134, 135, 136, 139),
        cause="the command exited with it; a shell does so after a program that crashed",
        fix="Its last lines say which program. The signal is the code less 128: 11 is SIGSEGV, 6 SIGABRT. --env "
        "PYTHONFAULTHANDLER=1 makes Python say where.",
        source=_SHELL,
        next="iris logs {task} --tail 200",
        all_shown=_FAULTHANDLER,
    ),
    Rule(
        name="exit-above-128",
        exits=(137, 143),
        cause="the command exited with it; a shell does so after a program that was ended by a signal",
        fix="Its last lines say which program. The signal is the code less 128: 9 is SIGKILL, and then dmesg on the "
        "host tells if it was the kernel, because memory ran out.",
        source=_SHELL,
        next="iris logs {task} --tail 200",
    ),
)
