"""Names of environment variables, and sources of secret values."""

import re

from iris_cli.core.ids import clip
from iris_cli.errors import UsageError

RESERVED_PREFIX = "IRIS_"
MAX_STRING = 128 * 1024 - 1  # Linux refuses longer strings at exec: MAX_ARG_STRLEN, 32 pages of 4 KiB

_MAX_PORT_NAME = 32
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_BY_SHELLS = frozenset(
    {"_", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO"}
    | {"OPTIND", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID"}
)
_READ_BY_CONTAINER_CLIENTS = re.compile(
    "PATH|HOME|TMPDIR|LD_.*|XDG_.*|NOTIFY_SOCKET|LISTEN_(FDS|PID|FDNAMES)|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)"
    "|_?CONTAINERS?_.*|PODMAN_.*|STORAGE_(DRIVER|OPTS)|REGISTRY_AUTH_FILE"
    "|DOCKER_(HOST|CONTEXT|CONFIG|TLS.*|CERT_PATH|API_VERSION|DEFAULT_PLATFORM|CONTENT_TRUST.*)"
)


def is_variable(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_reserved_by_shells(name: str) -> bool:
    """Return whether a shell reserves the variable. `export` can't set a reserved variable, other programs can."""
    return name in _RESERVED_BY_SHELLS or name.startswith("BASH")


def is_read_by_container_clients(name: str) -> bool:
    """Return whether docker or podman reads the variable. If so, setting it for a container also affects the client."""
    return _READ_BY_CONTAINER_CLIENTS.fullmatch(name) is not None


def check_variable(name: str) -> None:
    """Raise UsageError if a job can't set a variable of this name."""
    if not is_variable(name):
        raise UsageError(
            f"{clip(name)!r} is not the name of an environment variable",
            hint="use letters, digits and '_', not beginning with a digit",
        )
    if name.startswith(RESERVED_PREFIX):
        raise UsageError(f"{clip(name)} is set by iris", hint="choose a name that does not begin with IRIS_")


def check_port_name(name: str) -> None:
    """Raise UsageError for a name that can't be part of a variable's name."""
    if not is_variable(name) or len(name) > _MAX_PORT_NAME:
        raise UsageError(
            f"{clip(name)!r} is not a port name",
            hint="iris chooses the numbers: --ports http,metrics gives IRIS_PORT_HTTP, IRIS_PORT_METRICS",
        )


def secret_source(text: str) -> tuple[str, str]:
    """Return the name of a secret and the file with its value; "" if the value is in the operator's environment.

    `text` is `NAME` or `NAME=@FILE`. Raises UsageError; its message never contains the text after the name.
    """
    name, sign, source = text.partition("=")
    check_variable(name)
    if is_reserved_by_shells(name):
        # The value could only be passed in the arguments of a command, which every user of the host can see.
        raise UsageError(f"{name} can't be a secret: the shell sets it")
    if sign and (not source.startswith("@") or source == "@"):
        raise UsageError(
            f"secret {name}: do not write a value on the command line",
            hint=f"write {name} and set the variable, or write {name}=@FILE",
        )
    return name, source[1:]
