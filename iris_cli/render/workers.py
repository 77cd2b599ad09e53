"""Print the list of workers, and the details of one worker."""

from collections.abc import Iterator, Sequence

from iris_cli.core import WorkerCondition, count, format_memory
from iris_cli.ops.outcomes.causes import skew_words
from iris_cli.ops.views.inventory import Inventory, WorkerDetails, WorkerRow, WorkerView
from iris_cli.render import layout, tables
from iris_cli.render.console import Output

_COLUMNS = ("WORKER", "HOST", "DEVICE", "CORES FREE", "MEMORY FREE", "STATUS", "JOBS", "NOTE")
_TEXT_WIDTH = 20  # columns in which a long text of jobs or notes can be wrapped


def show_inventory(output: Output, inventory: Inventory) -> None:
    names = (each.worker.id for each in inventory.workers)
    output.view(inventory, inventory.messages, names, lambda: _inventory(inventory, output.width))


def show_worker(output: Output, view: WorkerView) -> None:
    def draw() -> list[layout.Renderable]:
        cycles = tables.cycle_words(view.cycles, view.at)
        return [
            *tables.banner(view.messages, view.cycles),
            *worker_tables(view.details, cycles, output.width, view.occupied),
        ]

    output.view(view, view.messages, [view.details.worker.id], draw)


def _inventory(inventory: Inventory, width: int) -> Iterator[layout.Renderable]:
    yield from tables.banner(inventory.messages, inventory.cycles)
    yield tables.cycle_words(inventory.cycles, inventory.at)
    if not inventory.workers:
        yield tables.text("no workers yet: iris doctor checks the hosts in cluster.yaml", "dim")
        return
    rows = list(map(_cells, inventory.workers))
    only = (
        ("WORKER", "CORES FREE", "STATUS", "NOTE") if width < tables.NARROW else _fitting_columns(rows, width)
    )
    yield tables.table(_COLUMNS, rows, only=only)


def _fitting_columns(rows: Sequence[tables.Row], width: int) -> list[str]:
    """Return the columns to show. Those that say least are omitted until jobs and notes have room."""
    widths = {}
    for header, cells in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        width_needed = max(map(len, cells))
        if header in ("JOBS", "NOTE"):
            width_needed = min(width_needed, _TEXT_WIDTH)
        if width_needed:
            widths[header] = max(len(header), width_needed) + 2
    for header in ("MEMORY FREE", "HOST", "DEVICE"):
        if sum(widths.values()) - 2 > width:
            widths.pop(header, None)
    return list(widths)


def _cells(details: WorkerDetails) -> tables.Row:
    row = details.worker
    return (
        row.id,
        details.connection.host,
        row.device,
        cores(row),
        memory(row),
        status_words(row.status),
        tables.fold(row.jobs),
        "; ".join(
            dict.fromkeys((*row.refuses, *row.warnings, *(f"tainted: {taint}" for taint in row.taints)))
        ),
    )


def status_words(status: str, noun: str = "") -> str:
    """Return a worker's status in words, such as `stopping tasks`; for a slice (`noun`: VM) such as `2 VMs suspect`."""
    return ", ".join(_status_part(*part.rpartition(" "), noun) for part in status.split(", "))


def _status_part(number: str, _: str, word: str, noun: str) -> str:
    if word == "stopping":
        return "stopping tasks" + (f" ({count(int(number), noun)})" if number else "")
    return f"{count(int(number), noun)} {word}" if number else word


def is_use_known(row: WorkerRow) -> bool:
    """Return whether the free resources are known. On a lost worker, attempts that are presumed gone may still run."""
    return row.status not in ("lost", "unprobed")


def cores(row: WorkerRow) -> str:
    """Return free and total cores: `12/16`; `-` if they are unknown."""
    return f"{row.cpu_free:g}/{row.cpu:g}" if is_use_known(row) else "-"


def memory(row: WorkerRow) -> str:
    """Return free and total memory: `48GiB/64GiB`; `-` if they are unknown."""
    return f"{format_memory(row.memory_free)}/{format_memory(row.memory)}" if is_use_known(row) else "-"


def worker_tables(
    details: WorkerDetails, cycles: layout.Text, width: int, occupied: Sequence[str]
) -> list[layout.Renderable]:
    """Return the worker's status, the reasons why it rejects tasks, its warnings, facts and attempts.

    `cycles`: text about what runs cycles. `occupied`: kinds of tasks that the worker rejects now, with reasons.
    """
    row = details.worker
    head = layout.Text.assemble(tables.text(row.id, "bold"), "  ", tables.state(row.status))
    parts: list[layout.Renderable] = [head, cycles]
    parts += [tables.text(f"accepts no tasks: {why}", "yellow") for why in row.refuses]
    parts += [tables.text(warning, "yellow") for warning in row.warnings if warning not in row.refuses]
    parts += [tables.text(f"accepts no {why}", "yellow") for why in occupied]
    if row.taints:
        parts.append(tables.text(f"accepts only tasks that tolerate {', '.join(row.taints)}", "yellow"))
    parts += [] if row.refuses or occupied or row.taints else [tables.text("accepts tasks", "dim")]
    parts += [tables.text(""), tables.facts(_facts(details))]
    if details.claims:
        parts += [tables.text(""), _claims(details, width)]
    if details.condition is WorkerCondition.UNTRUSTED:
        parts += [tables.text(""), tables.next_line(f"iris worker probe --accept-key {row.id}")]
    elif details.condition is not WorkerCondition.HEALTHY:
        parts += [tables.text(""), tables.next_line("iris doctor")]
    return parts


def _facts(details: WorkerDetails) -> list[tuple[str, str]]:
    row = details.worker
    is_known, total = is_use_known(row), format_memory(row.memory)
    return [
        ("slice", f"{row.slice}, worker index {row.index}" if row.slice else ""),
        ("device", row.device),
        ("cores", f"{row.cpu_free:g} of {row.cpu:g} free" if is_known else f"{row.cpu:g}" * bool(row.cpu)),
        (
            "memory",
            f"{format_memory(row.memory_free)} of {total} free" if is_known else total * bool(row.memory),
        ),
        ("chips", f"{row.chips if row.chips_free else 0} of {row.chips} free" if row.chips else ""),
        ("gpus", f"{row.gpus_free} of {row.gpus} free" if row.gpus else ""),
        _last_poll(details),
        ("silent since", _utc(tables.clock_time(details.silent_since_at))),
        ("failed polls", str(details.failed_polls or "")),
        ("next poll after", _utc(tables.clock_time(details.cooldown_until_at))),
        ("quarantined", _utc(tables.clock_time(details.quarantined_at))),
        ("taints", ", ".join(row.taints)),
        ("manual taints", ", ".join(details.taints_by_hand)),
        ("attributes", ", ".join(f"{key}={value}" for key, value in details.attributes.items())),
        ("address", _address(details)),
        ("remote_dir", details.connection.remote_dir),
        ("known_hosts", "" if details.connection.allocation else details.connection.known_hosts),
        ("clock", skew_words(details.skew) if details.skew else ""),
        ("boot id", details.boot_id),
        ("incarnation", details.incarnation),
        ("containment", details.containment),
    ]


def _last_poll(details: WorkerDetails) -> tuple[str, str]:
    """Return a label and whether the worker answered, or in which other condition it is, with the reason."""
    if details.condition is WorkerCondition.HEALTHY:
        return "last poll", "answered"
    return "condition", f"{details.condition.value}{f' ({details.reason})' if details.reason else ''}"


def _utc(moment: str) -> str:
    return f"{moment} UTC" if moment else ""


def _address(details: WorkerDetails) -> str:
    connection = details.connection
    if connection.allocation:
        login = f" on {connection.login}" if connection.login else ""
        return f"node {connection.node} of Slurm job {connection.allocation}, reached by srun{login}"
    user = f"{connection.user}@" if connection.user else ""
    port = f":{connection.port}" if connection.port else ""
    jump = f" via {connection.proxy_jump}" if connection.proxy_jump else ""
    return f"{user}{connection.host}{port}{jump}"


def _claims(details: WorkerDetails, width: int) -> layout.Renderable:
    rows = (
        (
            str(claim.attempt),
            claim.state,
            f"{claim.cpu:g}",
            format_memory(claim.memory),
            "all chips" if claim.chips else ",".join(map(str, claim.gpus)),
            tables.clock_time(claim.since_at),
        )
        for claim in details.claims
    )
    only = ("ATTEMPT", "STATE", "PLACED (UTC)") if width < tables.NARROW else ()
    return tables.table(
        ("ATTEMPT", "STATE", "CORES", "MEMORY", "DEVICE", "PLACED (UTC)"), rows, only=only, right=()
    )
