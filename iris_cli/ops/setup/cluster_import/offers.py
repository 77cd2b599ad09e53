"""What could be imported here, as commands to type: found by looking at what is on this machine."""

from __future__ import annotations

import configparser
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from iris_cli.errors import IrisError
from iris_cli.ops.setup.cluster_import.nodes import read_nodes
from iris_cli.ops.setup.cluster_import.ssh_hosts import read_ssh_config

_MOST_FILES = 20
_LARGEST = 4 << 20  # of a file that nobody asked to have read


class Offer(Struct, frozen=True):
    """A command, and how much of what it would bring, if that is known."""

    command: str
    slices: int = 0
    hosts: int = 0


def offers(directory: Path, home: Path, environ: Mapping[str, str]) -> list[Offer]:
    """Lists of TPU VMs in a directory, Google's list where gcloud is set up, hosts of the SSH configuration."""
    return [*_lists(directory), *_gcloud(home, environ), *_ssh_hosts(home)]


def _lists(directory: Path) -> Iterator[Offer]:
    for path in sorted(directory.glob("*.json"))[:_MOST_FILES]:
        with suppress(OSError, ValueError, IrisError):
            if path.is_file() and path.stat().st_size <= _LARGEST:
                found = read_nodes(path.read_text("utf-8"))
                if found.slices:
                    name = shlex.quote(path.name)
                    yield Offer(f"iris cluster import --from {name}", slices=len(found.slices))


def _gcloud(home: Path, environ: Mapping[str, str]) -> Iterator[Offer]:
    if shutil.which("gcloud", path=environ.get("PATH")) is None:
        return
    zone = shlex.quote(_zone(home, environ) or "ZONE")
    command = f"gcloud compute tpus tpu-vm list --zone {zone} --format json"
    yield Offer(f"{command} | iris cluster import --from -")


def _zone(home: Path, environ: Mapping[str, str]) -> str:
    """The zone that gcloud takes where it is told none: its variable, or that of the configuration in use."""
    directory = Path(environ.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(OSError, ValueError, configparser.Error):
        active = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _active(directory)
        parser.read(directory / "configurations" / f"config_{Path(active).name}", encoding="utf-8")
    return environ.get("CLOUDSDK_COMPUTE_ZONE") or str(parser.get("compute", "zone", fallback=""))


def _active(directory: Path) -> str:
    try:
        return (directory / "active_config").read_text("utf-8").strip() or "default"
    except OSError:
        return "default"


def _ssh_hosts(home: Path) -> Iterator[Offer]:
    with suppress(IrisError):
        found = read_ssh_config(home / ".ssh" / "config")
        if found.hosts:
            yield Offer("iris cluster import --from ssh-config", hosts=len(found.hosts))
