"""A launch request and the shell files written for it on the worker."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from iris_cli.core.ids import Token
from iris_cli.core.model.job import SIGNALS, EarlySignal
from iris_cli.core.model.variables import is_read_by_container_clients, is_reserved_by_shells, is_variable
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import (
    container_text,
    directory_word,
    early_signal_text,
    memory_text,
    quote,
)

MARKER = "IRIS_ATTEMPT_TOKEN"
"""The environment variable of all processes of an attempt, by which leftover ones are found."""

_OWN = ("IRIS_TASK_DIR", "IRIS_WORKDIR", "IRIS_OUTPUT_DIR", MARKER)
_ENTER = (
    'set -- $(cat "$IRIS_TASK_DIR/container" 2>/dev/null)',
    "[ $# -ge 2 ] || { echo 'iris: the container of this task is not running' >&2; exit 1; }",
    'if [ -t 0 ]; then set -- "$1" "$2" -it; else set -- "$1" "$2" -i; fi',
)
_SHA256 = re.compile("[0-9a-f]{64}")
_LONGEST_TIME = 10**9  # seconds: thirty years count as no limit
# At the end of PATH: an `iris` installed on the host comes before the small one that probes write.
_PLACES = (
    'export IRIS_TASK_DIR="$1" IRIS_WORKDIR="$1/work" IRIS_OUTPUT_DIR="$1/output"'
    ' PATH="${PATH:-/usr/bin:/bin}:${1%/a/*}/bin"'
)


class LaunchRequest(Struct, frozen=True, kw_only=True):
    """An attempt to start. Times in seconds; 0 disables `timeout`, `setup_timeout` and `lease`.

    `argv` runs without a shell, `setup` runs in one beforehand, once for each pair of workspace and set-up. The
    attempt gets its own copy of `workspace` (SHA-256, hexadecimal) as the set-up left it. `exclusive` needs all
    chips of the host, `ports` are those it will listen on; it waits at most `device_wait` for both. `signal` is
    sent ahead of the `timeout`. `memory` is the limit in bytes of all its processes together, if the host has control
    groups for that (0: no limit). With an `image` the program runs in a container; `gpus` gives it the host's GPUs.
    With a `lease` the task is stopped once no poll has renewed it for that long.
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
    memory: int = 0
    exclusive: bool = False
    ports: tuple[int, ...] = ()
    device_wait: float = 60
    image: str = ""
    gpus: bool = False


class Shipment(Struct, frozen=True, kw_only=True):
    """A packed workspace to upload: a gzipped tar file of `packed_size` bytes, which `chunks` reads from its start.

    `hash` is the SHA-256 of the uncompressed tar file (hexadecimal), `size` its bytes, of which at most `limit` are
    accepted. Raises ValueError.
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
    """Return the file `cmd`: a function that executes the command. Raises ValueError if it can't be executed."""
    if not request.argv or not request.argv[0] or request.argv[0].startswith("-"):
        raise ValueError("a command needs the name of a program that doesn't begin with '-'")
    kept = [f"{name}={value}" for name, value in request.env.items() if _is_argument(request, name)]
    if request.image:
        return f'task_cmd() {{\nexec "$@" {" ".join(map(_word, _in_container(request, kept)))}\n}}\n'
    if kept and "=" in request.argv[0]:
        raise ValueError(f"{request.argv[0][:40]!r} can't be told from a variable")
    # Shells reserve some names, which only `env` can set. None of them holds a secret.
    words = [*(["env", *kept] if kept else []), *request.argv]
    return f"task_cmd() {{\nexec {' '.join(map(_word, words))}\n}}\n"


def side_command_text(request: LaunchRequest) -> str:
    """Return a function that executes another command for an attempt: in its container if it has an image."""
    if not request.image:
        return command_text(request)
    kept = [f"{name}={value}" for name, value in request.env.items() if _is_argument(request, name)]
    return f"task_cmd() {{\n{container_steps(_variables(request, kept), request.argv)}\n}}\n"


def container_steps(variables: Sequence[str], argv: Sequence[str]) -> str:
    """Return shell text that runs a command in the container of the attempt in $IRIS_TASK_DIR, with options `-e`."""
    options = f'--user "$2" --workdir "$IRIS_WORKDIR" {" ".join(map(_word, variables))}'
    command = " ".join(map(_word, argv))
    return "; ".join([*_ENTER, f'exec "$1" exec "$3" {options} "iris-${{IRIS_TASK_DIR##*/}}" {command}'])


def _in_container(request: LaunchRequest, kept: Sequence[str]) -> list[str]:
    """Return the last arguments of docker or podman: a bare NAME copies the client's variable."""
    return [*_variables(request, kept), request.image, *request.argv]


def _variables(request: LaunchRequest, kept: Sequence[str]) -> list[str]:
    names = [name for name in request.env if not _is_argument(request, name)]
    return [word for each in (*kept, *names, *_OWN) for word in ("-e", each)]


def _is_argument(request: LaunchRequest, name: str) -> bool:
    """Return True if the variable is passed as an argument: it is not secret and can't be exported."""
    return is_reserved_by_shells(name) or (bool(request.image) and is_read_by_container_clients(name))


def environment_text(request: LaunchRequest, *, directories: bool = True) -> str:
    """Return the file `env`: a function that exports all variables, called only in the process of the task.

    `directories=False` omits the variables of the attempt's directories. Raises ValueError for an invalid name or a
    value that no environment can hold.
    """
    lines = []
    for name, value in request.env.items():
        if not is_variable(name):
            raise ValueError(f"{name[:80]!r} is not the name of an environment variable")
        word = _word(value)
        if not _is_argument(request, name):
            lines.append(f"export {name}={word}")
    marker = f"export {MARKER}={request.token}"
    own = [_PLACES] if directories else []
    return "\n".join(["task_env() {", *lines, *own, marker, "}\n"])


def setup_text(request: LaunchRequest) -> str:
    """Return the file `setup`. Raises ValueError if its text can't be written to a file.

    A `workspace` alone needs one too: running it makes the attempt's copy.
    """
    _word(request.setup)
    return request.setup or (":\n" if request.workspace or request.image else "")


def settings_text(request: LaunchRequest) -> str:
    """Return the attempt's settings in the file `run`. Raises ValueError for an invalid time or port."""
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
    # A container has its own memory limit: its part of the library replaces the one for memory.
    limits = [*_memory(request.memory), *_image_settings(request), *_early(request.signal)]
    return "\n".join([*lines, *_workspace_settings(request), *limits])


def _memory(limit: int) -> list[str]:
    return [f"memory_limit={limit:d}", memory_text().rstrip("\n")] if limit else []


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


def _image_settings(request: LaunchRequest) -> list[str]:
    if not request.image:
        return []
    copied = "set_up_copy && " if request.workspace or request.setup else ""
    set_up = f"set_up() {{ have_runtime && {copied}have_image; }}"
    settings = [f"image={_word(request.image)}", f"gpus={int(request.gpus)}", set_up]
    return [*settings, container_text().rstrip("\n")]


def set_up_key(workspace: str, command: str) -> str:
    """Return the key by which a worker caches a set-up; `workspace` may be ""."""
    return hashlib.sha256(f"{workspace}\n{command}".encode()).hexdigest()


def hundredths(seconds: float) -> int:
    """Convert seconds to the library's unit. Raises ValueError for NaN."""
    if math.isnan(seconds):
        raise ValueError("a time must be a number")
    return math.ceil(100 * min(max(seconds, 0.0), _LONGEST_TIME))


def _word(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!a} can't be encoded in UTF-8") from error
    return quote(text)


# The command that starts an attempt on a terminal of its worker.


def terminal_command(cluster_id: str, target: Target, token: Token) -> str:
    """Return the command that starts a prepared attempt on the terminal; it ends with the attempt.

    Output of the wrapper is discarded; the task gets the terminal as file descriptors 7 and 8.
    """
    root = directory_word(target.connection.remote_dir)
    steps = (
        f"d={root}/{cluster_id}/{target.worker}/a/{token}",
        f"export {MARKER}={token}",
        '[ ! -r "$d/run" ] || exec sh "$d/run" start 7>&1 8>&2 >/dev/null 2>&1',
    )
    return f"exec /bin/sh -c {shlex.quote('; '.join(steps))}"
