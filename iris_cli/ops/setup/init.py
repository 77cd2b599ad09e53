"""Create a `cluster.yaml` for `iris init`."""

import errno
import getpass
import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig
from iris_cli.config.yaml_text import NewHost, NewSlice, host_lines, quote, slice_lines
from iris_cli.core import Connection, canonical_type, clip, is_name
from iris_cli.errors import ConfigError, NotWritableError, UsageError
from iris_cli.remote.transport import NoAnswer

_CLOUD_KEY = "google_compute_engine"
_KEYS = ("id_ed25519", _CLOUD_KEY, "id_ecdsa", "id_rsa")  # names in ~/.ssh; the first existing key is used
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_RANGE = re.compile(r"\[([0-9]+)-[0-9]+\]")  # range of hosts, such as `v4a-w-[0-3]`


class NewCluster(Struct, frozen=True, kw_only=True):
    """Content of a new cluster.yaml. If `user` or `key` is empty, ~/.ssh/config or ssh's default applies."""

    name: str
    hosts: tuple[NewHost, ...] = ()
    slices: tuple[NewSlice, ...] = ()
    user: str = ""
    key: str = ""


def read_host(text: str) -> NewHost:
    """Parse `[USER@]HOST[:PORT]`. The worker's name is derived from the host. Raises UsageError."""
    user, at, address = text.rpartition("@")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address).strip("-._")[:63]
    lacks_port = address.endswith(":") and not address.endswith("::")
    if not is_name(name) or lacks_port or (at and not _USER.fullmatch(user)):
        raise UsageError(f"{clip(text)!r} is not a host", hint="write --host HOST or --host USER@HOST:PORT")
    host, _, port = address.partition(":")
    if not _PORT.fullmatch(port):
        return NewHost(worker=name, host=address, user=user)  # without a port; it may be an IPv6 address
    return NewHost(worker=name, host=host, user=user, port=int(port))


def read_slice(text: str) -> NewSlice:
    """Parse `NAME=TYPE:HOST,HOST`. The type may have any spelling that `canonical_type` accepts. Raises UsageError."""
    name, equals, rest = text.partition("=")
    kind, colon, host_list = rest.partition(":")
    hosts = tuple(host.strip() for host in host_list.split(","))
    if not (equals and colon and is_name(name) and all(hosts)):
        raise UsageError(
            f"{clip(text)!r} is not a slice", hint="write NAME=TYPE:HOST,HOST with all hosts in order"
        )
    return NewSlice(name=name, type=canonical_type(kind), hosts=hosts)


def default_name(directory: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.name).strip("-._")[:63]
    return name if is_name(name) else "my-cluster"


def guess_login(hosts: Sequence[str], home: Path, *, for_cloud: bool = False) -> tuple[str, str]:
    """Return the user and the key file for logging in to `hosts`.

    A value is '' if ~/.ssh/config sets it, or if it is unknown. With `for_cloud`, prefer the key that gcloud creates.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, the uid may have no name
        user = ""
    if not _USER.fullmatch(user):
        user = ""
    names = (_CLOUD_KEY, *_KEYS) if for_cloud else _KEYS
    key = next((f"~/.ssh/{name}" for name in names if (home / ".ssh" / name).is_file()), "")
    if not (home / ".ssh" / "config").is_file():
        return user, key
    try:
        from iris_cli.remote.ssh.config import Routes  # slow to load

        routes = Routes(home / ".ssh" / "config")
        last_hops = [routes.resolve(Connection(host=_RANGE.sub(r"\1", host)))[-1] for host in hosts]
    except NoAnswer:
        return "", ""  # `iris doctor` reports the problem
    has_user = any(hop.user != user for hop in last_hops)
    has_key = any(hop.identities for hop in last_hops)
    return "" if has_user else user, "" if has_key else key


def write_config(path: Path, cluster: NewCluster, *, force: bool = False) -> ClusterConfig:
    """Validate and write the file. With `force`, replace an existing file.

    Raises ConfigError, NotWritableError, and UsageError if the file exists and `force` is False.
    """
    text = compose(cluster)
    check_text(path, text)
    write_text(path, text, force=force)
    return load_cluster_config(path)


def check_text(path: Path, text: str) -> ClusterConfig:
    """Return the configuration that the text of a file defines. Raises ConfigError without line numbers."""
    try:
        return load_cluster_config(path, text.encode("utf-8", "surrogatepass"))
    except ConfigError as error:
        position = re.compile(re.escape(str(path)) + r":\d+: ?")
        problems = tuple(position.sub("", problem) for problem in error.problems)
        raise ConfigError("the cluster.yaml would be invalid", problems=problems) from error


def write_text(path: Path, text: str, *, force: bool = False, mode: int = 0o600) -> None:
    """Write a file, by default private to its owner. The umask has no effect. With `force`, replace an existing file.

    Raises NotWritableError, and UsageError if the file exists and `force` is False.
    """
    target = path.parent / f".{path.name}.{os.getpid()}" if force else path
    try:
        if force:
            if path.exists() and not path.is_file():  # do not replace a device such as /dev/stdout
                raise OSError(errno.EINVAL, "not a regular file")
            target.unlink(missing_ok=True)  # left by a killed process with the same pid
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                os.fchmod(fd, mode)
                file.write(text)
            if force:
                os.replace(target, path)
        except OSError:
            target.unlink()  # an incomplete file would make the next `iris init` fail
            raise
    except FileExistsError:
        raise UsageError(f"{path} already exists", hint="--force overwrites it") from None
    except OSError as error:
        raise NotWritableError(f"{path} can't be written: {error.strerror}") from error


def compose(cluster: NewCluster) -> str:
    user = f"user: {quote(cluster.user)}" if cluster.user else _NO_USER
    key = f"key: {quote(cluster.key)}" if cluster.key else "# key: ~/.ssh/id_ed25519"
    slices = "".join(f"\n  {line}" for each in cluster.slices for line in slice_lines(each))
    workers = "".join(f"\n  {line}" for each in cluster.hosts for line in host_lines(each))
    return f"""\
# The hosts of the cluster and how to reach them. Check with: iris config validate

cluster: {{name: {quote(cluster.name)}}}

ssh:                      # for all hosts; a slice or worker can override it with its own ssh
  {user}
  {key}
  # port: 22
  # proxy_jump: bastion   # resolved through ~/.ssh/config, like all host names
  known_hosts: strict     # reject unknown keys; accept-new accepts keys of new hosts

{_SLICES + slices if slices else _NO_SLICES}

{_WORKERS + workers if workers else _NO_WORKERS}

# replace_lost: preemptible     # never | preemptible | always: reschedule tasks of unreachable workers
# remote_dir: ~/.iris           # on a local disk of the workers
# defaults: {{cpu: 1, memory: 1GiB, env: {{}}}}
"""


_NO_USER = "# user: me              # default: from ~/.ssh/config"
_SLICES = "slices:                   # one entry for each TPU slice, its VMs in order of worker index"
_NO_SLICES = """\
# slices:                 # one entry for each TPU slice, its VMs in order of worker index
#   - name: v5a
#     type: v5litepod-16
#     hosts: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]   # or a range: "v5a-w-[0-3]"
#     zone: us-west4-a
#     preemptible: false"""
_WORKERS = "workers:                  # single hosts; the probe finds cpu, memory and devices"
_NO_WORKERS = """\
# workers:                # single hosts; the probe finds cpu, memory and devices
#   - {id: cpu-0, host: cpu0.example.org}"""
