"""Export a job to another engine, with notes on fields that are not exported."""

from msgspec import Struct, field, structs

from iris_cli.config.yaml_text import yaml_text
from iris_cli.core import JobId, count
from iris_cli.core.lifecycle.request_fields import check_image
from iris_cli.errors import UsageError
from iris_cli.ops.export import counterparts, jobset, sbatch, shell
from iris_cli.ops.export.source import Source


class Export(Struct, frozen=True, kw_only=True):
    """A job for another engine. `text` is the content of the file. Its comments repeat the notes."""

    job: JobId
    engine: counterparts.Engine = field(name="to")
    text: str
    notes: tuple[counterparts.ExportNote, ...]


def export(
    source: Source,
    engine: counterparts.Engine,
    *,
    image: str | None = None,
    queue: str | None = None,
    strict: bool = False,
) -> Export:
    """Return the job in the engine's format.

    `image` overrides the job's image. `queue` is the engine's queue. Raises UsageError if the engine can't run the job,
    and with `strict` also if a field can't be exported.
    """
    if image is not None:
        source = structs.replace(source, image=image)
    check_image(source.image or None, ())
    if engine is counterparts.Engine.SBATCH:
        lines, found = sbatch.batch_script(source, queue)
        first, content = "#!/bin/sh\n", "\n".join(lines) + "\n"
    else:
        document, found = jobset.job_set(source, queue)
        first, content = "", yaml_text(document)
    notes = sorted(dict.fromkeys(found), key=lambda note: not note.lost)  # lost fields first
    comments = [f"The iris job {source.job.id}, written by iris export.", *map(note_line, notes)]
    text = first + "".join(f"{shell.comment(each)}\n" for each in comments) + content
    lost_fields = list(dict.fromkeys(note.field for note in notes if note.lost))
    if strict and lost_fields:
        raise UsageError(
            f"{count(len(lost_fields), 'field')} not exported to {engine}: {', '.join(lost_fields)}",
            hint="without --strict iris exports the rest and says why these are not exported",
        )
    return Export(job=source.job.id, engine=engine, text=text, notes=tuple(notes))


def note_line(note: counterparts.ExportNote) -> str:
    return f"not exported: {note.field} ({note.text})" if note.lost else f"to do: {note.field}: {note.text}"
