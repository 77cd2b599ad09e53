"""`iris init`: create a first cluster.yaml and the state directory."""

import os
from pathlib import Path
from typing import Annotated

from iris_cli.cli.command_types import Context, flag, option
from iris_cli.files import current_directory

EXAMPLES = """
iris init  # and show what could be imported
iris init --name lab --host cpu0.example.org --host me@cpu1.example.org
iris init --slice v5a=v5litepod-8:10.0.0.1,10.0.0.2
"""


def init(
    iris: Context,
    name: Annotated[
        str | None, option("NAME", "Name of the cluster (default: the directory's name).")
    ] = None,
    host: Annotated[list[str] | None, option("[USER@]HOST[:PORT]", "A single host.")] = None,
    slices: Annotated[
        list[str] | None, option("NAME=TYPE:HOST,...", "A TPU slice with all its hosts in order.", "--slice")
    ] = None,
    force: Annotated[bool, flag("--force", "Overwrite an existing file.")] = False,
) -> None:
    """Create cluster.yaml and the state directory.

    Writes a file with comments, without questions. Prints what could be imported.
    """
    from iris_cli.config.load import FILE_NAME
    from iris_cli.ops.setup import init as operation
    from iris_cli.ops.setup.cluster_import.source import offers
    from iris_cli.render.setup import show_initialized

    path = current_directory() / (iris.config_path or os.environ.get("IRIS_CONFIG") or FILE_NAME)
    hosts = tuple(operation.read_host(text) for text in host or ())
    found = tuple(operation.read_slice(text) for text in slices or ())
    names = [each.host for each in hosts if not each.user] + [each for some in found for each in some.hosts]
    user, key = operation.guess_login(names, Path.home())
    cluster = operation.NewCluster(
        name=name or operation.default_name(path.parent), hosts=hosts, slices=found, user=user, key=key
    )
    iris.config_path = iris.config_file = path
    # Check the log before the file is written. If the file must not be replaced, `write_config` raises the error.
    has_log = (force or not path.exists()) and iris.state_of(cluster.name).has_log()
    iris.config = operation.write_config(path, cluster, force=force)
    messages = [*iris.state.create(iris.config.name)]
    offered = [] if iris.config.hosts else offers(current_directory(), Path.home(), os.environ)
    if not key and not os.environ.get("SSH_AUTH_SOCK") and not (Path.home() / ".ssh" / "config").is_file():
        messages.append("no SSH key in ~/.ssh; create one: ssh-keygen -t ed25519")
    show_initialized(iris.output, iris.config, iris.state.path, messages, offered, has_log=has_log)
