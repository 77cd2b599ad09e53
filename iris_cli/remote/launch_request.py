"""A launch request and the shell files written for it on the worker."""

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
from iris_cli.remote.worker_script import directory_word, library_part, quote

MARKER = "IRIS_ATTEMPT_TOKEN"
"""The environment variable by which all processes of an attempt are found."""

_IRIS_VARIABLES = ("IRIS_TASK_DIR", "IRIS_WORKDIR", "IRIS_OUTPUT_DIR", MARKER)
_ENTER_CONTAINER = (
    'set -- $(cat "$IRIS_TASK_DIR/../../c/${IRIS_TASK_DIR##*/}" 2>/dev/null)',
    "[ $# -ge 2 ] || { echo 'iris: the container of this task is not running' >&2; exit 1; }",
    'if [ -t 0 ]; then set -- "$1" "$2" -it; else set -- "$1" "$2" -i; fi',
)
_SHA256 = re.compile("[0-9a-f]{64}")
_MAX_TIME = 10**9  # seconds, about thirty years
# bin/ is last in PATH, so that an `iris` installed on the host precedes the small `iris` that probes write to bin/.
_DIRECTORIES = (
    'export IRIS_TASK_DIR="$1" IRIS_WORKDIR="$1/work" IRIS_OUTPUT_DIR="$1/output"'
    ' PATH="${PATH:-/usr/bin:/bin}:${1%/a/*}/bin"'
)


class LaunchRequest(Struct, frozen=True, kw_only=True):
    """A request to start an attempt. Times are in seconds. 0 disables `timeout`, `setup_timeout` and `lease`.

    `argv` runs without a shell. Before `argv`, the command `setup` runs in a shell, once for each pair of workspace and
    set-up. The attempt gets its own copy of `workspace` (SHA-256, hexadecimal) as the set-up left it. An attempt is
    `exclusive` if it needs all chips of the host. Its task listens on `ports`. The start waits at most `device_wait`
    for chips and ports. `signal` is sent before the `timeout`. `memory` limits all processes of the attempt together,
    in bytes, if the host has control groups (0: no limit). With an `image` the attempt runs in a container; `gpus`
    gives the container the host's GPUs. The worker stops the attempt if no poll renews its lease for `lease` seconds.
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
    """A packed workspace to upload: a gzipped tar file of `packed_size` bytes.

    Each call of `chunks` reads the file from its beginning. `hash` is the SHA-256 (hexadecimal) and `size` the size in
    bytes of the uncompressed tar file. The worker accepts at most `limit` uncompressed bytes. Raises ValueError.
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
    """Return the text of the file `cmd`: a shell function that executes the command. Raises ValueError."""
    if not request.argv or not request.argv[0] or request.argv[0].startswith("-"):
        raise ValueError("a command needs the name of a program that doesn't begin with '-'")
    arguments = [f"{name}={value}" for name, value in request.env.items() if _is_argument(request, name)]
    if request.image:  # container.sh calls the function with docker or podman and the first arguments
        words = [*_variables(request, arguments), request.image, *request.argv]
        return f'task_cmd() {{\nexec "$@" {" ".join(map(_word, words))}\n}}\n'
    if arguments and "=" in request.argv[0]:
        raise ValueError(f"{request.argv[0][:40]!r} looks like a variable, not like a program")
    # A shell can't export variables whose names it reserves, but the program `env` can set them.
    words = [*(["env", *arguments] if arguments else []), *request.argv]
    return f"task_cmd() {{\nexec {' '.join(map(_word, words))}\n}}\n"


def side_command_text(request: LaunchRequest) -> str:
    """Return a shell function that executes another command for an attempt, in its container if it has an image."""
    if not request.image:
        return command_text(request)
    arguments = [f"{name}={value}" for name, value in request.env.items() if _is_argument(request, name)]
    return f"task_cmd() {{\n{container_steps(_variables(request, arguments), request.argv)}\n}}\n"


def container_steps(variables: Sequence[str], argv: Sequence[str]) -> str:
    """Return shell text that runs a command in the container of an attempt; `variables` are options `-e`."""
    options = f'--user "$2" --workdir "$IRIS_WORKDIR" {" ".join(map(_word, variables))}'
    command = " ".join(map(_word, argv))
    return "; ".join(
        [*_ENTER_CONTAINER, f'exec "$1" exec "$3" {options} "iris-${{IRIS_TASK_DIR##*/}}" {command}']
    )


def _variables(request: LaunchRequest, arguments: Sequence[str]) -> list[str]:
    """Return the options of docker or podman for all variables. `-e NAME` copies a variable from their environment."""
    names = [name for name in request.env if not _is_argument(request, name)]
    return [word for each in (*arguments, *names, *_IRIS_VARIABLES) for word in ("-e", each)]


def _is_argument(request: LaunchRequest, name: str) -> bool:
    """Return True if the variable, which is not a secret, is passed as an argument because it can't be exported."""
    return is_reserved_by_shells(name) or (bool(request.image) and is_read_by_container_clients(name))


def environment_text(request: LaunchRequest, *, directories: bool = True) -> str:
    """Return the text of the file `env`: a shell function that exports all variables, for the process of the task.

    `directories=False` omits the variables with the attempt's directories. Raises ValueError for an invalid variable.
    """
    lines = []
    for name, value in request.env.items():
        if not is_variable(name):
            raise ValueError(f"{name[:80]!r} is not the name of an environment variable")
        word = _word(value)
        if not _is_argument(request, name):
            lines.append(f"export {name}={word}")
    marker = f"export {MARKER}={request.token}"
    exports = [_DIRECTORIES] if directories else []
    return "\n".join(["task_env() {", *lines, *exports, marker, "}\n"])


def setup_text(request: LaunchRequest) -> str:
    """Return the text of the file `setup`.

    Without a set-up command the text is `:` if a workspace must be copied or an image pulled, otherwise ''. Raises
    ValueError if the text can't be written to a file.
    """
    _word(request.setup)
    return request.setup or (":\n" if request.workspace or request.image else "")


def settings_text(request: LaunchRequest) -> str:
    """Return the attempt's settings for the file `run`. Raises ValueError for an invalid time or port."""
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
    # The part for containers comes after the part for memory, because it replaces functions of that part.
    memory = [f"memory_limit={request.memory:d}", library_part("memory")] if request.memory else []
    limits = [*memory, *_image_settings(request), *_signal_settings(request.signal)]
    return "\n".join([*lines, *_workspace_settings(request), *limits])


def _signal_settings(signal: EarlySignal | None) -> list[str]:
    if signal is None:
        return []
    numbers = f"early_number={SIGNALS[signal.name]}\nearly_lead={hundredths(signal.lead)}"
    return [f"early_name={signal.name}", numbers, library_part("early")]


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
    return [*settings, library_part("container")]


def set_up_key(workspace: str, command: str) -> str:
    """Return the key of a set-up command in a worker's cache. `workspace` may be ""."""
    return hashlib.sha256(f"{workspace}\n{command}".encode()).hexdigest()


def hundredths(seconds: float) -> int:
    """Convert seconds to hundredths, the shell library's unit. Raises ValueError for NaN."""
    if math.isnan(seconds):
        raise ValueError("a time must be a number")
    return math.ceil(100 * min(max(seconds, 0.0), _MAX_TIME))


def _word(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:40]!a} can't be encoded in UTF-8") from error
    return quote(text)


def terminal_command(cluster_id: str, target: Target, token: Token) -> str:
    """Return the command that runs a prepared attempt on a terminal of its worker until the attempt ends.

    File descriptors 7 and 8 are the terminal, for the task. The wrapper's own output is discarded.
    """
    root = directory_word(target.connection.remote_dir)
    steps = (
        f"d={root}/{cluster_id}/{target.worker}/a/{token}",
        f"export {MARKER}={token}",
        '[ ! -r "$d/run" ] || exec sh "$d/run" start 7>&1 8>&2 >/dev/null 2>&1',
    )
    return f"exec /bin/sh -c {shlex.quote('; '.join(steps))}"
