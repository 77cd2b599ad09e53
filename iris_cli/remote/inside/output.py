"""Output of the commands as text and as JSON. A part of the `iris` inside tasks."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from unicodedata import category

from iris_cli.errors import IrisError
from iris_cli.remote.inside.requests import Json


class Output:
    """Prints results to stdout and messages to stderr."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet

    def print_document(self, content: Json) -> None:
        sys.stdout.write(json.dumps({"schema_version": 1, **content}) + "\n")

    def print_line(self, *words: str) -> None:
        sys.stdout.write("  ".join(one_line(word) for word in words if word) + "\n")

    def print_warning(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(one_line(text) + "\n")

    def print_message(self, text: str) -> None:
        """Print a message to stderr, unless `quiet`."""
        if not self.quiet:
            self.print_warning(text)

    def print_ended(self, found: list[Json], *, timed_out: bool) -> None:
        """Print jobs in the format of `iris wait`."""
        if self.as_json:
            keys = {"id": "job", "state": "state", "display": "display", "why": "reason"}
            rows = [{"why": "", **each} for each in found]
            jobs = [{name: each[key] for key, name in keys.items() if key in each} for each in rows]
            self.print_document({"jobs": jobs, "timed_out": timed_out})
            return
        for each in found:
            text = ": ".join(filter(None, (each["id"], each["state"], each.get("why"))))
            if not self.quiet:
                self.print_line(text)
            elif each["state"] != "SUCCEEDED":
                self.print_warning(text)

    def print_failure(self, error: IrisError) -> int:
        """Print an error. Return its exit code."""
        if self.as_json:
            fields = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
            sys.stderr.write(json.dumps({"schema_version": 1, "error": fields}) + "\n")
        else:
            self.print_warning(f"error: {error.message}")
            if error.hint:
                self.print_warning(f"hint: {error.hint}")
        return error.exit_code


def one_line(text: str) -> str:
    """Return the text as one printable line. Control characters are escaped."""
    signs = text.replace("\n", "⏎").replace("\t", " ").replace("\r", "\\x0d")
    return "".join(
        sign if sign.isprintable() or category(sign) in ("Zs", "Cn") else ascii(sign)[1:-1] for sign in signs
    )


def status_document(answer: Json) -> Json:
    """Convert a status answer to the format of `iris status JOB --json`."""
    others = {key: each for key, each in answer.items() if key != "job"}
    return {**row(answer["job"]), **others, "tasks": list(map(row, answer["tasks"]))}


def row(part: Json) -> Json:
    """Return a job or task with its times as text."""
    return {key: time_text(value) if key.endswith("_at") else value for key, value in part.items()}


def time_text(at: float | None) -> str | None:
    """Format a time as ISO 8601 in UTC; None if it is out of range."""
    try:
        found = datetime(1970, 1, 1) + timedelta(milliseconds=round((at or 0) * 1000))
    except OverflowError:
        return None
    return None if at is None else f"{found.isoformat(timespec='milliseconds')}Z"


def log_document(task: Json, attempt: float | None) -> Json:
    """Return a task's log in the format of `iris logs --json`, with `lines` empty."""
    last = task.get("attempt")
    number = last if attempt is None or last is None else attempt
    note = task.get("why", "") if last is None else "has written nothing"
    log = {"task": task["id"], "rank": int(task["id"].rpartition("-")[2]), "state": task["state"]}
    log.update(attempt=number, worker=task.get("worker"), note=note, lines=[])
    return {**log, "answered": True, "kept": False, "pulled": False}
