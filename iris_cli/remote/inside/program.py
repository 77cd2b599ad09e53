"""`iris` inside a task: commands, JSON and exit codes of the full iris, on Python 3.8 without any package.

`rendering.py` joins this module and those that it imports into the single file that a probe writes to a worker.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
from datetime import datetime, timedelta
from typing import Any, Iterator, NoReturn
from unicodedata import category

from iris_cli.core.ids import clip
from iris_cli.core.messages.requests import MAX_LOG_PIECE, check_no_deadlock
from iris_cli.core.text import did_you_mean
from iris_cli.core.units import parse_whole
from iris_cli.errors import ExitCode, IrisError, UsageError
from iris_cli.remote.inside.command_line import COMMANDS, OPERATOR_ONLY, Line
from iris_cli.remote.inside.requests import Failure, Json, TaskRequests

USAGE = """\
usage: iris launch [OPTIONS] -- COMMAND... | status [JOB] | wait JOB... [--timeout TIME]
| cancel JOB... [--reason TEXT] | logs JOB|TASK [--tail N|all] [--stream out|err|both] [--attempt N]
| register-endpoint NAME PORT [--metadata NAME=VALUE] [--remove]
This is the iris of a task. launch takes the options of a job; all commands take --json and --quiet.
"""
GLOBAL = ("--json", "-q", "--quiet", "--no-color", "-v", "--verbose")
# `wait` exits with the code of the first state in this list that any job has.
EXIT_CODES = {"FAILED": 1, "UNSCHEDULABLE": 9, "KILLED": 8}
MAX_TAIL = 4 << 20  # bytes in which the last lines of a log are searched


class Commands:
    """The commands. Each method takes the arguments and options, and returns an exit code."""

    def __init__(self, output: Output, requests: TaskRequests) -> None:
        self.output, self.requests = output, requests

    def launch(self, command: list[str], options: Json) -> int:
        if not command:
            raise UsageError("there is no command to run", hint="iris launch [OPTIONS] -- COMMAND ...")
        job = {"command": command, **options}
        wait, _, request_id = (job.pop(name, None) for name in ("wait", "no-schedule", "request-id"))
        if job.pop("no-inherit-constraints", False):
            if "constraints" in job or "prefer" in job:
                job["inherit_constraints"] = False
            job.setdefault("constraints", [])
        answer = self.requests.ask("submit", {"job": job}, request_id)
        if not self.output.as_json:
            self.output.print_line(answer["job"])
            sys.stdout.flush()
        elif not wait:
            self.output.print_document(answer)
        return self._wait([answer["job"]], None) if wait else 0

    def status(self, jobs: list[str], _: Json) -> int:
        answer = self.requests.ask("status", {"job": jobs[0] if jobs else None})
        if self.output.as_json:
            self.output.print_document(status_document(answer))
            return 0
        for each in (answer["job"], *answer["tasks"]):
            display = each.get("display", each["state"])
            self.output.print_line(each["id"], display, each.get("worker") or "", each.get("why", ""))
        for each in answer.get("endpoints", ()):
            self.output.print_line(
                each["task"], f"endpoint {each['name']}", f"{each['address']}:{each['port']}"
            )
        return 0

    def wait(self, jobs: list[str], options: Json) -> int:
        return self._wait(jobs, options.get("timeout"))

    def _wait(self, jobs: list[str], timeout: float | None) -> int:
        for job in jobs:
            check_no_deadlock(os.environ.get("IRIS_JOB_ID", ""), job)
        try:
            answers = self.requests.wait_for_jobs(jobs, timeout)
        except KeyboardInterrupt:
            text = f"stopped waiting for {', '.join(jobs)}"
            if self.output.as_json:
                return self.output.print_failure(Failure(text, "", ExitCode.INTERRUPTED))
            self.output.print_message(text)
            return 130
        found = [answer["job"] for answer in answers if answer]
        not_ended = [job for job, answer in zip(jobs, answers) if not answer]
        self.output.print_ended(found, timed_out=bool(not_ended))
        if not_ended:
            still_open, first = ", ".join(not_ended), not_ended[0]
            self.output.print_warning(
                f"the wait timed out; no end reported for {still_open}: iris status {first}"
            )
            return 1
        states = [each["state"] for each in found]
        return next((code for state, code in EXIT_CODES.items() if state in states), 0)

    def cancel(self, jobs: list[str], options: Json) -> int:
        if not jobs:
            raise UsageError("no jobs given", hint="name jobs")
        answers: Json = {}
        try:
            for job in jobs:
                answers[job] = self.requests.ask("cancel", {"job": job, "reason": options.get("reason", "")})
        finally:  # print the cancelled jobs also if a later one fails
            if answers:
                self.output.print_cancelled(answers)
        return 0

    def logs(self, names: list[str], options: Json) -> int:
        named_task = re.fullmatch("(.+)/task-(0|[1-9][0-9]*)", names[0])
        job = named_task[1] if named_task else names[0]
        tasks = self.requests.ask("status", {"job": job})["tasks"]
        attempt = options.get("attempt")
        # If no task has the attempt, the request for it gets the error.
        if attempt is not None and not named_task:
            started = (each for each in tasks if each.get("attempt") is not None)
            tasks = [each for each in started if each["attempt"] >= attempt] or tasks
        tail = options.get("tail", 20)
        logs = [log_document(each, attempt, tail) for each in tasks if names[0] in (job, each["id"])]
        if named_task and not logs:
            hint = f"the ranks are 0 to {len(tasks) - 1}"
            raise Failure(f"{job} has no rank {named_task[2]}", hint, ExitCode.NOT_FOUND)
        streams = options.get("stream", "both").replace("both", "out err").split()
        for stream in streams:
            for log in logs:
                prefix = f"[{log['rank']}] " if logs[1:] else ""
                for line in self._log_lines(log, stream, tail) if log["attempt"] is not None else ():
                    log["note"] = ""
                    if self.output.as_json:
                        log["lines"].append({"stream": stream, "text": line})
                    else:
                        self.output.print_line(prefix + re.sub("\x1b\\[[0-9;:]*m", "", line).expandtabs())
        if self.output.as_json:
            self.output.print_document({"tasks": logs})
        for log in logs:
            if log["note"] and not self.output.as_json:
                self.output.print_message(f"{log['task']}: {log['note']}")
        return 0

    def _log_lines(self, log: Json, stream: str, tail: int | None) -> Iterator[str]:
        """Yield all lines of a log, or its last `tail` lines."""
        fields = {"task": log["task"], "stream": stream, "attempt": log["attempt"]}
        if tail is None:
            yield from (line or "" for line in self._lines_from(fields, 0))
            return
        found = list(self._lines_from(fields, -MAX_LOG_PIECE))
        if found[:1] == [None] and len(found) <= tail:
            found = list(self._lines_from(fields, -MAX_TAIL))
        yield from (line for line in found[-tail:] if tail and line is not None)

    def _lines_from(self, fields: Json, offset: int) -> Iterator[str | None]:
        """Yield the lines of a log from `offset` on; None for the first line if it begins before `offset`."""
        rest, in_line = b"", None
        while True:
            answer = self.requests.ask("logs", {**fields, "offset": offset})
            data = base64.b64decode(answer["data"])
            in_line = answer["offset"] > 0 if in_line is None else in_line
            offset = answer["offset"] + len(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield None if in_line else last_text(line)
                in_line = False
            if not data or offset >= answer["size"]:
                break
        if rest:
            yield None if in_line else last_text(rest)

    def register_endpoint(self, words: list[str], options: Json) -> int:
        if options.get("remove"):
            answer = self.requests.ask("remove_endpoint", {"name": words[0]})
        elif not words[1:]:
            raise UsageError("the endpoint has no port", hint="iris register-endpoint NAME PORT")
        else:
            fields = {"name": words[0], "port": options["port"], "metadata": options.get("metadata", {})}
            answer = self.requests.ask("register_endpoint", fields)
        if self.output.as_json:
            self.output.print_document(answer)
        return 0


def last_text(line: bytes) -> str:
    """Decode a line. If a progress bar has overwritten it with carriage returns, return only the last text."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]


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

    def print_cancelled(self, answers: Json) -> None:
        """Print jobs in the format of `iris cancel`."""
        cancelled = [job for job, answer in answers.items() if answer["cancelled"]]
        over = {job: answer.get("state") for job, answer in answers.items() if not answer["cancelled"]}
        if self.as_json:
            self.print_document({"cancelled": cancelled, "over": over})
            return
        for job in cancelled if not self.quiet else ():
            self.print_line(f"cancelled {job}")
        for job, state in over.items():
            self.print_message(f"{job} had already ended" + (f" ({state})" if state else ""))

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


def log_document(task: Json, attempt: float | None, tail: int | None) -> Json:
    """Return a task's log in the format of `iris logs --json`, with `lines` empty."""
    last = task.get("attempt")
    number = last if attempt is None or last is None else attempt
    note = task.get("why", "") if last is None else "" if tail == 0 else "no output"
    log = {"task": task["id"], "rank": int(task["id"].rpartition("-")[2]), "state": task["state"]}
    log.update(attempt=number, worker=task.get("worker"), note=note, lines=[])
    return {**log, "answered": True, "kept": False, "pulled": False}


def main(words: list[str]) -> int:
    """Run a command. Global options may be anywhere before `--`."""
    end = words.index("--") if "--" in words else len(words)
    words, rest = words[:end], words[end + 1 :]
    output = Output("--json" in words, "-q" in words or "--quiet" in words)
    try:
        return run(output, [each for each in words if each not in GLOBAL], rest)
    except IrisError as error:
        return output.print_failure(error)
    except (KeyError, TypeError, ValueError, AttributeError):
        hint = "use the same version of iris in the task and on the operator's machine"
        return output.print_failure(IrisError("the answer to a request can't be understood", hint=hint))
    except OSError as error:
        return output.print_failure(UsageError(str(error)))
    except KeyboardInterrupt:
        return output.print_failure(Failure("interrupted", "", ExitCode.INTERRUPTED))


def run(output: Output, words: list[str], rest: list[str]) -> int:
    """Run the command in `words`. `rest` are the words after `--`. Return the exit code."""
    if not words or words[0] == "help" or "--help" in words or "-h" in words:
        sys.stdout.write(USAGE)
        return 0
    requests, command = TaskRequests(), words[0]
    if command.partition("=")[0] in OPERATOR_ONLY:
        raise UsageError(f"{command} is not available inside a task", hint="iris --help")
    if command not in COMMANDS:
        hint = did_you_mean(clip(command), COMMANDS) or "iris --help lists the commands of a task"
        raise UsageError(f"no such command inside a task: iris {clip(command)}", hint=hint)
    line, (required, max_count, _) = Line(command, words[1:]), COMMANDS[command]
    if command == "launch" and line.words:
        first = line.words[0][:80]
        if first.endswith((".yaml", ".yml")):
            raise UsageError("job files are not available inside a task", hint="pass the fields as options")
        raise UsageError(f"{first!r} is not a job file", hint=f"put -- before the command: -- {first} ...")
    arguments = line.words + rest
    if command in ("wait", "cancel"):
        arguments = list(dict.fromkeys(arguments))
    if required and not arguments:
        raise UsageError(f"missing argument {required!r}", hint=line.help)
    if len(arguments) > max_count:
        extra = clip(" ".join(arguments[max_count:]))
        raise UsageError(f"unexpected argument for `iris {command}`: {extra}", hint=line.help)
    if command == "register-endpoint" and arguments[1:]:
        line.values["port"] = line.read("[PORT]", "COUNT", lambda: parse_whole(arguments[1]))
    code: int = getattr(Commands(output, requests), command.replace("-", "_"))(arguments, line.values)
    return code


def exit_on_sigterm(*_: Any) -> NoReturn:
    """Exit on SIGTERM, so that `finally` blocks are executed."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, exit_on_sigterm)
    sys.exit(main(sys.argv[1:]))
