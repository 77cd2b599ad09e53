"""What the event log is worth, and what became of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iris_cli.core.units import count, format_memory
from iris_cli.journal.compact import Compacted
from iris_cli.journal.fault import Fault
from iris_cli.journal.salvage import SalvageReport
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
                "segments": verdict.segments,
                "sound_until": {
                    "file": verdict.sound_in,
                    "line": sound.line,
                    "byte": sound.offset,
                    "seq": sound.seq,
                },
                "findings": [_fault(each) for each in verdict.findings],
                "unfinished": _fault(verdict.unfinished) if verdict.unfinished else None,
            }
        )
        return
    for fault in verdict.findings:
        output.line(f"{log.parent / fault.file}: {fault}")
    if verdict.unfinished is not None:
        aside = ": the next command that writes sets it aside" if verdict.ok else ""
        output.message(f"{log}: {verdict.unfinished}{aside}")
    records = count(verdict.records, "transaction")
    if verdict.ok:
        archive = f", with {count(verdict.segments, 'segment')} of its archive" if verdict.segments else ""
        cluster = f" (cluster {header.cluster_name})" if header else ""
        output.done(f"{log}{archive}: {records}, all sound{cluster}")
    else:
        output.line(f"{log}: {records} can be read, the first {sound.seq} of them are sound")


def show_salvage(output: Output, report: SalvageReport) -> None:
    """What goes on, what does not, and where the old log is."""
    if output.as_json:
        output.document(
            {
                "kept": report.kept,
                "lost": report.lost,
                "findings": [_fault(each) for each in report.findings],
                "old_log": str(report.old_log) if report.old_log else None,
                "old_segments": [str(each) for each in report.old_segments],
            }
        )
    elif not report.findings:
        output.done("the log is sound; nothing was changed")
    else:
        output.failed(f"kept {count(report.kept, 'transaction')}, gave up {report.lost} from the damage on")
        if report.old_log is not None:
            output.done(f"the old log is {report.old_log}")
        for segment in report.old_segments:
            output.done(f"an old segment is {segment}")


def show_compacted(output: Output, done: Compacted | None) -> None:
    """Which lines went where, and what that is in bytes."""
    if output.as_json:
        segment = done.segment if done else None
        output.document(
            {
                "compacted": done is not None,
                "segment": segment.file if segment else None,
                "first": segment.first if segment else None,
                "last": segment.last if segment else None,
                "bytes_before": done.bytes_before if done else None,
                "bytes_archived": done.bytes_archived if done else None,
                "bytes_after": done.bytes_after if done else None,
            }
        )
    elif done is None:
        output.done("the log has nothing to move to the archive")
    else:
        before, archived = format_memory(done.bytes_before), format_memory(done.bytes_archived)
        output.done(f"seq {done.segment.first} to {done.segment.last} went to {done.segment.file}")
        output.done(f"the log had {before}, of which the archive makes {archived}")


def _fault(fault: Fault) -> dict[str, Any]:
    return {**{name: getattr(fault, name) for name in fault.__struct_fields__}, "kind": fault.kind.value}
