"""One launch, and the shell texts of the files that it becomes on the worker."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from iris_cli.core.ids import Token
from iris_cli.core.model.job import SIGNALS, EarlySignal
from iris_cli.core.model.variables import is_kept_by_shells, is_variable
from iris_cli.remote.worker_script import early_signal_text, quote

MARKER = "IRIS_ATTEMPT_TOKEN"
"""The variable in the environment of every process of an attempt, by which its strays are found."""

_SHA256 = re.compile("[0-9a-f]{64}")
_LONGEST_TIME = 10**9  # seconds: thirty years is as good as no limit
# At the end of PATH: a whole `iris` of the host's goes before the small one that probes leave there.
_PLACES = (
    'export IRIS_TASK_DIR="$1" IRIS_WORKDIR="$1/work" IRIS_OUTPUT_DIR="$1/output"'
    ' PATH="${PATH:-/usr/bin:/bin}:${1%/a/*}/bin"'
)


class LaunchRequest(Struct, frozen=True, kw_only=True):
    """What to start. Times in seconds; a `timeout`, `setup_timeout` or `lease` of 0 is none.

    `argv` is run without a shell, `setup` by one beforehand. Of a `workspace` (its SHA-256 in hexadecimal digits) it
    gets a copy of its own, as the set-up has left it, which is run once for all that have the same two.
    `exclusive` needs the chips of the host for itself, `ports` are those that it will listen on: for both it waits
    `device_wait` at most. Before a `timeout` it is told by `signal`.
    With a `lease` the task is stopped once no poll has renewed it for so long, counted from its start.
    """

    token: Token
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workspace: str = ""
    setup: str = ""
    setup_timeout: float = 1800
    timeout: float = 0
    signal: EarlySignal | None = None
    lease: float = 0
    grace: float = 30
    exclusive: bool = False
    ports: tuple[int, ...] = ()
    device_wait: float = 60


class Shipment(Struct, frozen=True, kw_only=True):
    """A workspace on its way: a gzip'd tar file of `packed_size` bytes, which `chunks` reads from its start.

    `hash` is the SHA-256 of the tar file in hexadecimal digits, `size` its bytes, of which no more than `limit` are
    taken. Raises ValueError.
    """

    hash: str
    size: int
    packed_size: int
    chunks: Callable[[], Iterable[bytes]]
    limit: int = 1 << 30

    def __post_init__(self) -> None:
        if _SHA256.fullmatch(self.hash) is None or min(self.size, self.packed_size, self.limit) < 0:
            raise ValueError(f"{self.hash[:80]!r} is no workspace")


def command_text(request: LaunchRequest) -> str:
    """The file `cmd`: a function that becomes the command. Raises ValueError for what can't be executed."""
    if not request.argv or not request.argv[0] or request.argv[0].startswith("-"):
        raise ValueError("a command needs the name of a program that doesn't begin with '-'")
    kept = [f"{name}={value}" for name, value in request.env.items() if is_kept_by_shells(name)]
    if kept and "=" in request.argv[0]:
        raise ValueError(f"{request.argv[0][:40]!r} can't be told from a variable")
    # Shells keep some names to themselves; none of them holds a secret.
    words = [*(["env", *kept] if kept else []), *request.argv]
    return f"task_cmd() {{\nexec {' '.join(map(_word, words))}\n}}\n"


def environment_text(request: LaunchRequest, *, directories: bool = True) -> str:
    """The file `env`: a function that exports everything, called only in the process of the task.

    Without its own `directories` for what has none.

    Raises ValueError for names that are none, and for text that no environment can hold.
    """
    lines = []
    for name, value in request.env.items():
        if not is_variable(name):
            raise ValueError(f"{name[:80]!r} is not the name of an environment variable")
        word = _word(value)
        if not is_kept_by_shells(name):
            lines.append(f"export {name}={word}")
    marker = f"export {MARKER}={request.token}"
    own = [_PLACES] if directories else []
    return "\n".join(["task_env() {", *lines, *own, marker, "}\n"])


def setup_text(request: LaunchRequest) -> str:
    """The file `setup`. Raises ValueError for text that no file of a shell can hold.

    It is what has a set-up run, and that makes the copy of a workspace, too.
    """
    _word(request.setup)
    return request.setup or (":\n" if request.workspace else "")


def settings_text(request: LaunchRequest) -> str:
    """The attempt's own settings in the file `run`. Raises ValueError for times and ports that are none."""
    for port in request.ports:
        if not 0 < port < 1 << 16:
            raise ValueError(f"{port} is no port")
    settings = {
        "time_limit": hundredths(request.timeout),
        "setup_limit": hundredths(request.setup_timeout),
        "lease_limit": hundredths(request.lease),
        "grace": hundredths(request.grace),
        "device_wait": hundredths(request.device_wait),
        "exclusive": int(request.exclusive),
        "ports": quote(" ".join(map(str, request.ports))),
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "\n".join([*lines, *_workspace_settings(request), *_early(request.signal)])


def _early(signal: EarlySignal | None) -> list[str]:
    if signal is None:
        return []
    numbers = f"early_number={SIGNALS[signal.name]}\nearly_lead={hundredths(signal.lead)}"
    return [f"early_name={signal.name}", numbers, early_signal_text().rstrip("\n")]


def _workspace_settings(request: LaunchRequest) -> list[str]:
    if not request.workspace and not request.setup:
        return []
    if request.workspace and _SHA256.fullmatch(request.workspace) is None:
        raise ValueError(f"{request.workspace[:80]!r} is no workspace")
    key = set_up_key(request.workspace, request.setup) if request.setup else ""
    return [f"workspace={request.workspace}", f"set_up_key={key}", "set_up() { set_up_copy; }"]


def set_up_key(workspace: str, command: str) -> str:
    """What a worker knows the set-up of a workspace by; of none if that is empty."""
    return hashlib.sha256(f"{workspace}\n{command}".encode()).hexdigest()


def hundredths(seconds: float) -> int:
    """Seconds as the library counts them. Raises ValueError for NaN."""
    if math.isnan(seconds):
        raise ValueError("a time must be a number")
    return math.ceil(100 * min(max(seconds, 0.0), _LONGEST_TIME))


def _word(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!a} can't be encoded in UTF-8") from error
    return quote(text)
