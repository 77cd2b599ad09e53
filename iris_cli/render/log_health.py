"""What the event log is worth, and what became of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iris_cli.core.dataclass import fields
from iris_cli.core.units import count
from iris_cli.journal.salvage import SalvageReport
from iris_cli.journal.scan import Fault
from iris_cli.journal.verify import Verdict
from iris_cli.render.console import Output


def show_verdict(output: Output, log: Path, verdict: Verdict) -> None:
    """Every finding with its place, or that there is none."""
    header, sound = verdict.header, verdict.sound_until
    if output.as_json:
        output.document(
            {
                "log": str(log),
                "ok": verdict.ok,
                "cluster": header.cluster_name if header else None,
                "cluster_id": header.cluster_id if header else None,
                "format": header.format if header else None,
                "records": verdict.records,
                "sound_until": {"line": sound.line, "byte": sound.offset, "seq": sound.seq},
                "findings": [_fault(each) for each in verdict.findings],
                "unfinished": _fault(verdict.unfinished) if verdict.unfinished else None,
            }
        )
        return
    for fault in verdict.findings:
        output.line(f"{log}: {fault}")
    if verdict.unfinished is not None:
        output.message(f"{log}: {verdict.unfinished}: the next command that writes sets it aside")
    records = count(verdict.records, "transaction")
    if verdict.ok:
        output.line(f"{log}: {records}, all sound" + (f" (cluster {header.cluster_name})" if header else ""))
    else:
        output.line(f"{log}: {records} can be read, the first {sound.line} of them are sound")


def show_salvage(output: Output, report: SalvageReport) -> None:
    """What goes on, what does not, and where the old log is."""
    if output.as_json:
        output.document(
            {
                "kept": report.kept,
                "lost": report.lost,
                "findings": [_fault(each) for each in report.findings],
                "old_log": str(report.old_log) if report.old_log else None,
            }
        )
    elif report.old_log is None:
        output.line("the log is sound; nothing was changed")
    else:
        output.line(
            f"kept {count(report.kept, 'transaction')}, gave up {report.lost} that stood behind the damage"
        )
        output.line(f"the old log is {report.old_log}")


def _fault(fault: Fault) -> dict[str, Any]:
    return {**{each.name: getattr(fault, each.name) for each in fields(fault)}, "kind": fault.kind.value}
