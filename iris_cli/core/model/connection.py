"""How a worker is reached. Kept in the log, so that a host removed from `cluster.yaml` can still be polled."""

from __future__ import annotations

from iris_cli.core.structs import Value


class Connection(Value, frozen=True, kw_only=True):
    """SSH settings of one worker. Empty or zero means: as `~/.ssh/config` says, else ssh's own default.

    `known_hosts` is `strict` (the host key must be known beforehand) or `accept-new` (a first key is taken at
    the probe). `remote_dir` is the directory on the worker below which iris keeps its files.
    """

    host: str
    user: str = ""
    port: int = 0
    key: str = ""
    proxy_jump: str = ""
    known_hosts: str = "strict"
    remote_dir: str = "~/.iris"


NOWHERE = Connection(host="")
"""Settings for connections whose host is not known yet."""
