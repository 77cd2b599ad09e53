"""What reading a log means for the next writer: go on, repair first, or refuse."""

from __future__ import annotations

from pathlib import Path

from iris_cli.errors import ConfigError, IrisError, LogDamagedError
from iris_cli.journal.durable import Disk, copy_range, opened, refusing, sync_directory
from iris_cli.journal.file_store import Loaded
from iris_cli.journal.head import write_head
from iris_cli.journal.layout import LOG, TORN_PREFIX
from iris_cli.journal.scan import FaultKind
