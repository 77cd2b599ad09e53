"""Commands that fail in ways that happen, and what the card of each failure says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.oom import HUNGRY, inside


@dataclass(frozen=True)
class Failure:
    """A command that fails, and its card: who failed and how, the name of the known cause, a line, the next command.

    `proven` and `guessed` are facts of the worker, a piece of each text by its kind.
    """

    command: Sequence[str]
    failed: str
    known: str | None
    next: str
    says: str = ""
    options: Sequence[str] = ()
    proven: Mapping[str, str] | None = None
    guessed: Mapping[str, str] | None = None


def python(program: str) -> tuple[str, ...]:
    return ("python3", "-c", program)


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


# The test kills it: a file is renamed to `<job>.pid` once the processes in it are those to kill.
ENDLESS = shell("f=$PIDS/$IRIS_JOB_ID; echo $$ $PPID >$f.new; mv $f.new $f.pid; exec sleep 600")
GANG = ("--replicas", "2", "--group-by", "lot")
AS_IT_WAS_SHIPPED = ("--workdir", ".")
PROGRAM = 'def step(n):\n    raise ValueError(f"loss is nan at step {n}")\n\nstep(7)\n'
WRONG_SECRET = """
import http.server, os, threading, urllib.request
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_error(200 if self.headers["Token"] == "right" else 401)
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", headers={"Token": os.environ["TOKEN"]})
urllib.request.urlopen(request)
"""
TAKEN_PORT = "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_server(a.getsockname())"
NO_MORE_FILES = (
    "import os, resource as r; r.setrlimit(r.RLIMIT_NOFILE, (16, 16)); [os.dup(0) for _ in range(99)]"
)
NO_MORE_MEMORY = "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 28, 1 << 28)); bytearray(1 << 30)"
# Files alone resolve names in it, so that no query leaves the machine.
UNRESOLVED_RANK_1 = """
[ "$IRIS_TASK_INDEX" = 1 ] || exec sleep 600
echo 'hosts: files' >nsswitch
exec unshare --map-root-user --uts --mount sh -c \
  'mount --bind nsswitch /etc/nsswitch.conf && hostname no-such-name && exec "$@"' sh "$@"
"""
OWN_ADDRESS = python("import socket; socket.getaddrinfo(socket.gethostname(), 80)")
FAULTHANDLER = "iris launch --again {} --env PYTHONFAULTHANDLER=1"
NOT_FOR_MEMORY = {"killed": "not out of memory"}


FAILURES = {
    "error": Failure(
        ("python3", "train.py"),
        "failed: exit 1",
        None,
        "iris launch --again error --workdir .",
        '  File "train.py", line 2, in step',
        AS_IT_WAS_SHIPPED,
    ),
    "module": Failure(
        python("import no_such_module"),
        "failed: exit 1",
        "python-module",
        "iris launch --again module --workdir .",
        "No module named 'no_such_module'",
    ),
    "program": Failure(
        ("no-such-program",),
        "failed: exit 127",
        "exit-not-found",
        "iris exec {worker} -- sh -c 'echo $PATH'",
        "no-such-program",
        ("--force",),
    ),
    "script": Failure(
        shell("./train.sh"),
        "failed: exit 127",
        "script-missing",
        "iris launch --again script --workdir .",
        "./train.sh",
    ),
    "python-script": Failure(
        ("python3", "no_such.py"),
        "failed: exit 2",
        "script-missing",
        "iris launch --again python-script --workdir .",
        "can't open file 'no_such.py'",
    ),
    "x-bit": Failure(
        ("./plain.sh",),
        "failed: exit 126",
        "exit-not-executable",
        "iris ssh x-bit/task-0",
        "Permission denied",
        AS_IT_WAS_SHIPPED,
    ),
    "rank": Failure(
        shell("[ $IRIS_TASK_INDEX = 1 ] || exec sleep 600; echo loss is nan; exit 3"),
        "rank 1 failed first: exit 3",
        None,
        "iris ssh rank/task-1",
        "loss is nan",
        GANG,
    ),
    "own-137": Failure(
        shell("exit 137"),
        "failed: exit 137",
        "exit-above-128",
        "iris ssh own-137/task-0",
        proven=NOT_FOR_MEMORY,
    ),
    "own-139": Failure(shell("exit 139"), "failed: exit 139", "exit-crashed", FAULTHANDLER.format("own-139")),
    "kill-kill": Failure(
        ENDLESS, "failed: killed by SIGKILL", None, "iris ssh kill-kill/task-0", proven=NOT_FOR_MEMORY
    ),
    "kill-term": Failure(ENDLESS, "failed: killed by SIGTERM", "exit-terminated", "iris history {worker}"),
    "kill-segv": Failure(
        ENDLESS, "failed: killed by SIGSEGV", "exit-segfault", FAULTHANDLER.format("kill-segv")
    ),
    "abort": Failure(
        python("import os; os.abort()"),
        "failed: killed by SIGABRT",
        "exit-abort",
        FAULTHANDLER.format("abort"),
    ),
    "setup": Failure(
        ("true",),
        "failed: setup failed, exit 4",
        None,
        "iris ssh setup/task-0",
        "no wheel",
        ("--setup", "echo no wheel >&2; exit 4"),
    ),
    "setup-limit": Failure(
        ("true",),
        "failed: setup failed",
        "setup-timeout",
        "iris launch --again setup-limit --setup-timeout 2s",
        "the set-up took longer than 1 s",
        ("--setup", "sleep 600", "--setup-timeout", "1s"),
    ),
    "limit": Failure(
        shell("echo step 1; exec sleep 600"),
        "failed: exceeded its time limit of 1s",
        "time-limit",
        "iris launch --again limit --timeout 2s",
        "step 1",
        ("--timeout", "1s"),
    ),
    "variable": Failure(
        python("import os; os.environ['DATA_OF_LAB']"),
        "failed: exit 1",
        "variable-missing",
        "iris launch --again variable --secret DATA_OF_LAB",
        "KeyError: 'DATA_OF_LAB'",
    ),
    "secret": Failure(
        python(WRONG_SECRET),
        "failed: exit 1",
        "credentials-refused",
        "iris launch --again secret",
        "HTTP Error 401",
        ("--secret", "TOKEN"),
    ),
    "port": Failure(
        python(TAKEN_PORT),
        "failed: exit 1",
        "port-taken",
        "iris exec {worker} -- ss -ltnp",
        "Address already in use",
    ),
    "files": Failure(
        python(NO_MORE_FILES),
        "failed: exit 1",
        "open-files",
        "iris launch --again files --workdir .",
        "Too many open files",
    ),
    "memory": Failure(
        python(NO_MORE_MEMORY),
        "failed: exit 1",
        "memory",
        "iris exec {worker} -- free -h",
        "MemoryError",
    ),
}

UNRESOLVED = Failure(
    (*shell(UNRESOLVED_RANK_1), "sh", *OWN_ADDRESS),
    "rank 1 failed first: exit 1",
    "name-resolution",
    "iris exec {worker} -- cat /etc/resolv.conf",
    "socket.gaierror",
    GANG,
)


CRASH = "import ctypes; ctypes.string_at(0)"
# The name of a process, in the words of the kernel and with the beginning of an escape sequence.
FORGED = f"open('/proc/self/comm', 'w').write('x[7]: trap \\x1b['); {CRASH}"
OOM_KILL = {"memory": "kernel: Memory cgroup out of memory: Killed process"}


def deaths(group: Path) -> dict[str, Failure]:
    """Processes that the kernel kills or that crash. `group` is a control group with little memory."""
    hungry = inside(group, *HUNGRY)
    return {
        "oom": Failure(
            hungry,
            "failed: ran out of memory, exit 137",
            "out-of-memory",
            "iris exec {worker} -- free -h",
            proven=OOM_KILL,
        ),
        "limit": Failure(
            HUNGRY,
            "failed: ran out of memory, exit 137",
            "out-of-memory",
            "iris exec {worker} -- free -h",
            options=("--memory", "32MiB"),
            proven={"memory": "its control group counts 1 OOM kill at its limit of 32MiB (--memory)"},
        ),
        "oom-child": Failure(
            (*shell('"$@"; exit $?'), "sh", *hungry),
            "failed: exit 137",
            "exit-above-128",
            "iris ssh oom-child/task-0",
            guessed=OOM_KILL,
        ),
        "crash": Failure(
            (*shell('[ $IRIS_TASK_INDEX = 1 ] || exec sleep 600; exec "$@"'), "sh", *python(CRASH)),
            "rank 1 failed first: killed by SIGSEGV",
            "exit-segfault",
            FAULTHANDLER.format("crash"),
            options=GANG,
            proven={"crash": "]: segfault at 0 ip "},
        ),
        "crash-child": Failure(
            (*shell('"$@"; exit $?'), "sh", *python(CRASH)),
            "failed: exit 139",
            "exit-crashed",
            FAULTHANDLER.format("crash-child"),
            guessed={"crash": "]: segfault at 0 ip "},
        ),
        "forged": Failure(
            python(FORGED),
            "failed: killed by SIGSEGV",
            "exit-segfault",
            FAULTHANDLER.format("forged"),
            guessed={"crash": "kernel: x[7]: trap "},
        ),
    }
