"""Imports inside functions: every one has a reason, and all of them are in this list.

A command of iris starts in a few hundredths of a second because it imports only what it uses. `iris_cli.cli` is not in
the list: each of its commands imports what it needs when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.house.rooms import imported
from tests.house.rules import PACKAGE, Module

LAZY: Mapping[str, str] = {
    # Google's library is an extra, and slow to import: only a configuration with its groups pays for it.
    "capacity.opening": "capacity.gcp.api capacity.gcp.provider capacity.slurm.provider",
    # A task has no state directory, and outside of a task there is no outbox.
    "client.iris_client": "client.outbox client.state_directory",
    "client.outbox": "journal.files.workspaces ops.workspace.pack",
    "client.state_directory": (
        "ops.cycle.cycle ops.files.pull ops.jobs.change ops.jobs.launch ops.logs.follow "
        "ops.logs.log_reading ops.logs.logs ops.loop.foreground ops.names ops.views.job_status"
    ),
    # Most clusters create no slices on demand.
    "config.schema": "core.lifecycle.slices",
    # Only an attempt with an error text is explained, and only a refused job.
    "core.known_causes": ("core.known_causes.host core.known_causes.libraries core.known_causes.multi_host"),
    "core.lifecycle.feasibility": "core.scheduling.sets core.scheduling.explain.wording",
    # A look needs neither the writer, nor the archive, nor the files of logs and workspaces.
    "journal.log.file_store": ("core.evolve journal.log.archive journal.log.record journal.log.scan"),
    "journal.log.verify": "journal.log.writer",
    "journal.snapshot.cache": "journal.snapshot.reading journal.snapshot.writing",
    "journal.state_dir": (
        "core.events.events journal.files.notices journal.files.workspaces journal.history journal.log.writer"
    ),
    # A look connects to nobody, places nothing and notifies nobody. Most cycles ship, post and take over nothing.
    "ops.cycle.calls": "remote.launch_request",
    "ops.cycle.launches": "remote.launch_request",
    "ops.cycle.cycle": (
        "core.lifecycle.placement core.lifecycle.slices core.scheduling "
        "core.scheduling.plan ops.cycle.kept_logs ops.notify"
    ),
    "ops.cycle.reply_queue": "config.request_text ops.cycle.replies remote.output_calls",
    "ops.cycle.requests": (
        "config.request_reading config.request_text core.lifecycle.children ops.views.offered"
    ),
    "ops.cycle.kept_logs": "remote.output_calls",
    "ops.cycle.transfers": "remote.task_runner",
    "ops.jobs.launch": "ops.cycle.cycle ops.secret_values ops.views.inventory ops.workspace.pack",
    "ops.loop.cron_checks": "ops.checks.host_checks",
    "ops.notify": "ops.views.failure",
    "ops.outcomes.causes": "core.known_causes",
    "ops.outcomes.stack_places": "core.lifecycle.attempts",
    "ops.session": "core.evolve journal.history remote.fan_out remote.transport",
    "ops.setup.init": "remote.ssh.config",
    "ops.setup.next_steps": "ops.setup.cluster_import.source ops.views.status ops.views.cycles",
    "ops.views.inventory": "core.lifecycle.identity",
    "ops.views.job_status": "ops.views.failure",
    "ops.views.status": "ops.views.failure ops.views.scale_status",
    "ops.views.view": "core.evolve core.scheduling.plan ops.secret_values",
    "ops.views.why": "core.scheduling ops.views.scale_status",
    "ops.workers.execute": "remote.srun",
    "ops.cluster_handle": (
        "config.load journal.state_dir ops.session remote.srun remote.ssh remote.task_runner"
    ),
    # `iris schedule` with nothing to do opens no connection, so paramiko is not imported.
    "remote.ssh": "remote.ssh.config remote.ssh.dialer remote.ssh.sockets",
    # rich is slow to import: a command that prints plain lines or JSON does without it.
    "render.as_json": "core.constraint_syntax",
    "render.cycles": "ops.loop.start",
    "render.console": "render.as_json render.progress",
    "render.views.why": "core.scheduling.explain.wording",
    "render.watch.screen": "render.watch.board render.watch.live",
}
"""Modules, each with those that its functions import. Names are relative to the package."""


def differences(modules: Iterable[Module], lazy: Mapping[str, str] = LAZY) -> Iterator[str]:
    """Imports inside functions that are not in the list, and rows of the list that no module needs."""
    modules = list(modules)
    names = {module.name for module in modules}
    listed = {(importer, target) for importer, targets in lazy.items() for target in targets.split()}
    found = {
        (module.name.removeprefix(f"{PACKAGE}."), target.removeprefix(f"{PACKAGE}."))
        for module in modules
        if module.layer not in ("", "cli", "__main__")
        if any(isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset for node in module.nodes)
        for function in module.nodes
        if isinstance(function, ast.FunctionDef | ast.Lambda)
        for target in imported(ast.walk(function), names)
    }
    yield from (
        f"{importer} imports {target} inside a function" for importer, target in sorted(found - listed)
    )
    yield from (
        f"{importer} imports {target} nowhere: remove it" for importer, target in sorted(listed - found)
    )
