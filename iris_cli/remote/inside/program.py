"""`iris` inside a task: the words, documents and exit codes of the whole iris, on Python 3.8 without any package.

`rendering.py` joins this module, its neighbours and their values to the one file that a probe writes to a worker.
"""

from __future__ import annotations

import argparse
import base64
import math
import os
import re
import signal
import sys
from typing import Any, Iterator, NoReturn

from iris_cli.remote.inside.mail import Failure, Json, Mail, new_name, result_of
from iris_cli.remote.inside.output import Output, log_of, status_document
from iris_cli.remote.inside.values import LONGEST_LOG_PIECE, MOST_BYTES, OPTIONS

USAGE = """\
usage: iris launch [OPTIONS] -- COMMAND... | status [JOB] | wait JOB... [--timeout TIME]
| cancel JOB... [--reason TEXT] | logs JOB|TASK [--tail N|all] [--stream out|err|both] [--attempt N]
| register-endpoint NAME PORT [--metadata NAME=VALUE] [--remove]
This is the iris of a task. launch takes the options of a job; all commands take --json and --quiet.
"""
WORDS = {
    "launch": (1, sys.maxsize, "command to run: iris launch [OPTIONS] -- COMMAND ..."),
    "status": (0, 1, ""),
    "wait": (1, sys.maxsize, "job to wait for"),
    "cancel": (1, sys.maxsize, "job to cancel"),
    "logs": (1, 1, "job to show logs of"),
    "register-endpoint": (1, 2, "name of the endpoint"),
}
"""The fewest and the most words of each command, and what the first one is."""
GLOBAL = ("--json", "-q", "--quiet", "--no-color", "-v", "--verbose")
WORST_FIRST = {"FAILED": 1, "UNSCHEDULABLE": 9, "KILLED": 8}
FARTHEST = 4 << 20  # bytes to go back for the last lines of a log


class Parser(argparse.ArgumentParser):
    """The options of one command. An error is a Failure."""

    def error(self, message: str) -> NoReturn:
        raise Failure(message, "iris --help")


def parser_of(command: str) -> Parser:
    parser = Parser(prog=f"iris {command}", allow_abbrev=False)
    add = parser.add_argument
    if command == "launch":
        for option, (key, kind) in OPTIONS.items():
            add(option, dest=f"job {key}", **KINDS.get(kind, {}))
        for option in ("--wait", "--no-schedule", "--no-inherit-constraints"):
            add(option, action="store_true")
        add("--request-id", type=request_id)
    elif command == "wait":
        add("--timeout", type=duration)
    elif command == "cancel":
        add("--reason", default="")
    elif command == "logs":
        add("--tail", "-n", type=count, default=20)
        add("--stream", choices=("out", "err", "both"), default="both")
        add("--attempt", type=int)
    elif command == "register-endpoint":
        add("--metadata", type=named, action="append", default=[])
        add("--remove", action="store_true")
    return parser


def named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise argparse.ArgumentTypeError(f"{name}: not the name of a variable")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} is not set in this task: write {name}=VALUE")
    return name, value if equals else os.environ[name]


def request_id(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 64 letters, digits, '.', '_' and '-'")
    return text


def number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return int(found) if found.is_integer() else found


def count(text: str) -> int | None:
    """A number of lines; None for `all`."""
    if not re.fullmatch("all|[0-9]{1,9}", text):
        raise ValueError(text)
    return None if text == "all" else int(text)


def duration(text: str) -> float:
    """Seconds from `90s`, `1h30m`, or a number without a unit."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    part = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
    text = f"{text}s" if text[-1:].isdigit() else text
    if not re.fullmatch(f"({part})+", text):
        raise ValueError(text)
    return sum(float(many) * units[unit] for many, unit in re.findall(part, text))


def lines(path: str) -> list[str]:
    """The lines of a file, without their ends. Too many make a request that is too long."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        text = file.read(MOST_BYTES + 1)
    if not text:
        raise argparse.ArgumentTypeError(f"{path} has no lines")
    return re.split("\r?\n", re.sub("\r?\n?\\Z", "", text))


KINDS: dict[str, Json] = {
    "ON": {"action": "store_const", "const": True},
    "OFF": {"action": "store_const", "const": False},
    "CORES": {"type": number},
    "POSITIVE": {"type": int},
    "COUNT": {"type": int},
    "PORTS": {"action": "extend", "type": lambda text: text.split(",")},
    "VARIABLES": {"action": "append", "type": variable},
    "LABELS": {"action": "append", "type": named},
    "GROUP": {"type": lambda text: {"group_by": text}},
    "LINES": {"type": lines},
    **{kind: {"action": "append"} for kind in ("CONSTRAINTS", "TAINTS", "JOBS", "SECRETS")},
}
"""How argparse reads the options of a kind. The operator's iris reads what stays text."""


class Commands:
    """Each command takes its words and options, and returns an exit code."""

    def __init__(self, output: Output, mail: Mail) -> None:
        self.output, self.mail = output, mail

    def launch(self, command: list[str], said: Any) -> int:
        fields = {key[4:]: value for key, value in vars(said).items() if key.startswith("job ")}
        job = {"command": command, **{key: value for key, value in fields.items() if value is not None}}
        for key in {"env", "labels"}.intersection(job):
            job[key] = dict(job[key])
        if said.no_inherit_constraints:
            if "constraints" in job or "prefer" in job:
                job["inherit_constraints"] = False
            job.setdefault("constraints", [])
        answer = self.mail.ask("submit", {"job": job}, said.request_id)
        if not self.output.as_json:
            self.output.line(answer["job"])
            sys.stdout.flush()
        elif not said.wait:
            self.output.document(answer)
        return self._wait([answer["job"]], None) if said.wait else 0

    def status(self, jobs: list[str], _: Any) -> int:
        answer = self.mail.ask("status", {"job": jobs[0] if jobs else None})
        if self.output.as_json:
            self.output.document(status_document(answer))
            return 0
        for each in (answer["job"], *answer["tasks"]):
            display = each.get("display", each["state"])
            self.output.line(each["id"], display, each.get("worker") or "", each.get("why", ""))
        for each in answer.get("endpoints", ()):
            self.output.line(each["task"], each["name"], f"{each['address']}:{each['port']}")
        return 0

    def wait(self, jobs: list[str], said: Any) -> int:
        return self._wait(jobs, said.timeout)

    def _wait(self, jobs: list[str], timeout: float | None) -> int:
        for job in jobs:
            if f"{os.environ.get('IRIS_JOB_ID', '')}/".startswith(f"{job}/"):
                problem = f"{job} can't be over before this task is, which is part of it"
                raise Failure(problem, "wait for child jobs")
        names = [new_name() for _ in jobs]
        try:
            for name, job in zip(names, jobs):
                self.mail.put(name, "wait", {"job": job})
            answers = self.mail.wait(names, timeout)
        except KeyboardInterrupt:
            self.output.message(f"stopped waiting; {' '.join(jobs)} goes on")
            return 130
        finally:
            for name in names:
                self.mail.drop(name)
        found = [result_of(answer)["job"] for answer in answers if answer]
        left = [job for job, answer in zip(jobs, answers) if not answer]
        self.output.ended(found, timed_out=bool(left))
        if left:
            self.output.warning(f"the time is over and {' '.join(left)} {'go' if left[1:] else 'goes'} on")
            return 1
        states = [each["state"] for each in found]
        return next((code for state, code in WORST_FIRST.items() if state in states), 0)

    def cancel(self, jobs: list[str], said: Any) -> int:
        answers = {job: self.mail.ask("cancel", {"job": job, "reason": said.reason}) for job in jobs}
        cancelled = [job for job in jobs if answers[job]["cancelled"]]
        over = {job: answers[job].get("state") for job in jobs if job not in cancelled}
        if self.output.as_json:
            self.output.document({"cancelled": cancelled, "over": over})
            return 0
        for job in cancelled if not self.output.quiet else ():
            self.output.line(f"cancelled {job}")
        for job, state in over.items():
            self.output.message(f"{job} was over already" + (f": {state}" if state else ""))
        return 0

    def logs(self, chosen: list[str], said: Any) -> int:
        job, _, index = chosen[0].partition("/task-")
        tasks = self.mail.ask("status", {"job": job})["tasks"]
        logs = [log_of(each, said.attempt) for each in tasks if not index or each["id"] == chosen[0]]
        for stream in ("out", "err") if said.stream == "both" else (said.stream,):
            for log in logs:
                prefix = f"[{log['rank']}] " if logs[1:] else ""
                for line in self._log_lines(log, stream, said.tail) if log["attempt"] is not None else ():
                    log["note"] = ""
                    if self.output.as_json:
                        log["lines"].append({"stream": stream, "text": line})
                    else:
                        self.output.line(prefix + re.sub("\x1b\\[[0-9;:]*m", "", line).expandtabs())
        if self.output.as_json:
            self.output.document({"tasks": logs})
        for log in logs:
            if log["note"] and not self.output.as_json:
                self.output.message(f"{log['task']}: {log['note']}")
        return 0

    def _log_lines(self, log: Json, stream: str, tail: int | None) -> Iterator[str]:
        """All lines of a log, or the last `tail` ones."""
        asked = {"task": log["task"], "stream": stream, "attempt": log["attempt"]}
        if tail is None:
            yield from (line or "" for line in self._lines_from(asked, 0))
            return
        found = list(self._lines_from(asked, -LONGEST_LOG_PIECE))
        if found[:1] == [None] and len(found) <= tail:
            found = list(self._lines_from(asked, -FARTHEST))
        yield from (line for line in found[-tail:] if tail and line is not None)

    def _lines_from(self, asked: Json, offset: int) -> Iterator[str | None]:
        """The lines of a log from an offset on. None is the part of a line that the offset is in."""
        rest, in_line = b"", None
        while True:
            answer = self.mail.ask("logs", {**asked, "offset": offset})
            data = base64.b64decode(answer["data"])
            in_line = answer["offset"] > 0 if in_line is None else in_line
            offset = answer["offset"] + len(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield None if in_line else text_of(line)
                in_line = False
            if not data or offset >= answer["size"]:
                break
        if rest:
            yield None if in_line else text_of(rest)

    def register_endpoint(self, others: list[str], said: Any) -> int:
        if said.remove:
            answer = self.mail.ask("remove_endpoint", {"name": others[0]})
        elif not others[1:] or not others[1].isdigit():
            raise Failure("the endpoint has no port", "iris register-endpoint NAME PORT")
        else:
            fields = {"name": others[0], "port": int(others[1]), "metadata": dict(said.metadata)}
            answer = self.mail.ask("register_endpoint", fields)
        if self.output.as_json:
            self.output.document(answer)
        return 0


def text_of(line: bytes) -> str:
    """A line as text; of a progress bar its last state."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]


def main(words: list[str]) -> int:
    """Run one command. Global options may stand anywhere before `--`."""
    end = words.index("--") if "--" in words else len(words)
    words, rest = words[:end], words[end + 1 :]
    output = Output("--json" in words, "-q" in words or "--quiet" in words)
    try:
        return run(output, [each for each in words if each not in GLOBAL], rest)
    except Failure as error:
        return output.failure(error)
    except (KeyError, TypeError, ValueError, AttributeError):
        hint = "are iris inside the task and on the operator's machine of the same version?"
        return output.failure(Failure("the answer to a request can't be understood", hint, 1))
    except OSError as error:
        return output.failure(Failure(str(error)))
    except KeyboardInterrupt:
        return output.failure(Failure("interrupted", "", 130))


def run(output: Output, words: list[str], rest: list[str]) -> int:
    if not words or words[0] == "help" or "--help" in words or "-h" in words:
        sys.stdout.write(USAGE)
        return 0
    mail, command = Mail(), words[0]
    if command not in WORDS:
        hint = "iris --help; the operator has the whole iris"
        raise Failure(f"{command} is not for the inside of a task", hint)
    said, others = parser_of(command).parse_known_args(words[1:])
    for word in others:
        if word.startswith("-"):
            packs = "; the Python client packs a directory" if word.startswith("--workdir") else ""
            raise Failure(f"the iris of a task has no option {word}", f"iris launch --help{packs}")
        if command == "launch":
            raise Failure(f"{word} is no option", f"put -- before the command: -- {word} ...")
    others += rest
    if command in ("wait", "cancel"):
        others = list(dict.fromkeys(others))
    least, most, kind = WORDS[command]
    if len(others) < least:
        raise Failure(f"there is no {kind}", "iris --help")
    if len(others) > most:
        raise Failure(f"{others[most]} is one word too many", "iris --help")
    code: int = getattr(Commands(output, mail), command.replace("-", "_"))(others, said)
    return code


def terminated(*_: Any) -> NoReturn:
    """End with the clean-up that a signal would prevent."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, terminated)
    sys.exit(main(sys.argv[1:]))
