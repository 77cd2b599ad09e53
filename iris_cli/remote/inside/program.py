"""`iris` inside a task: the words, documents and exit codes of the whole iris, on Python 3.8 without any package.

`rendering.py` joins this module, its neighbours and their values to the one file that a probe writes to a worker.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from typing import Any, List, NoReturn, Sequence, Tuple

from iris_cli.remote.inside.logs import log_lines
from iris_cli.remote.inside.mail import Failure, Json, Mail, new_name, remove, result_of
from iris_cli.remote.inside.output import Output, log_of, status_document
from iris_cli.remote.inside.packing import pack, packed_path
from iris_cli.remote.inside.values import MOST_BYTES, OPTIONS

USAGE = """\
usage: iris launch [OPTIONS] -- COMMAND... | status [JOB] | wait JOB... [--timeout TIME]
| cancel JOB... [--reason TEXT] | logs JOB|TASK [--tail N|all] [--stream out|err|both] [--attempt N]
| register-endpoint NAME PORT [--metadata NAME=VALUE] [--remove]
This is the iris of a task. launch takes the options of a job; all commands take --json and --quiet.
"""
WORST_FIRST = {"FAILED": 1, "UNSCHEDULABLE": 9, "KILLED": 8}

Said = List[Tuple[str, str]]  # options and their values


def split(
    words: Sequence[str], valued: Sequence[str] = (), flags: Sequence[str] = ()
) -> tuple[list[str], Said]:
    """The words of a command that are no options, and its options. Those in `flags` take no value."""
    others: list[str] = []
    said: Said = []
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            others.append(word)
            continue
        if not word.startswith("--") and len(word) > 2:
            option, equals, value = word[:2], "=", word[2:]
        if option not in valued and option not in flags:
            raise Failure(f"the iris of a task has no option {option}", "iris --help")
        if option in flags and equals:
            raise Failure(f"{option} takes no value")
        if option in valued and not equals:
            found = next(left, None)
            if found is None:
                raise Failure(f"{option} needs a value")
            value = found
        said.append((option, value))
    return others, said


def named(option: str, value: str) -> tuple[str, str]:
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise Failure(f"{option} {value} is not NAME=VALUE")
    return name, text


def number(option: str, text: str) -> float:
    try:
        found = json.loads(re.sub(r"^\.", "0.", text))
    except ValueError:
        found = None
    if type(found) not in (int, float) or not math.isfinite(found):
        raise Failure(f"{option}: {text!r} is not a number")
    return float(found) if isinstance(found, float) else found


def seconds(text: str) -> float:
    """`90s`, `1h30m`, or a number without a unit. Raises Failure."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    part = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
    text = f"{text}s" if text[-1:].isdigit() else text
    if not re.fullmatch(f"({part})+", text):
        raise Failure(f"{text!r} is not a duration", "write it like 90s, 10m or 2h")
    return sum(float(many) * units[unit] for many, unit in re.findall(part, text))


class Commands:
    """Each command takes the words after its name, with those after `--` in `rest`, and returns an exit code."""

    def __init__(self, output: Output, mail: Mail, rest: list[str]) -> None:
        self.output, self.mail, self.rest = output, mail, rest

    def launch(self, words: list[str]) -> int:
        flags = [option for option, (_, kind) in OPTIONS.items() if kind in ("ON", "OFF")]
        own = ("--wait", "--no-schedule", "--no-inherit-constraints")
        others, said = split(
            words, ["--request-id", *(each for each in OPTIONS if each not in flags)], [*own, *flags]
        )
        if others:
            raise Failure(f"{others[0]} is no option", f"put -- before the command: -- {others[0]} ...")
        if not self.rest:
            raise Failure("there is no command to run", "iris launch [OPTIONS] -- COMMAND ...")
        last = dict(said)
        request_id = last.get("--request-id")
        if request_id is not None and not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", request_id):
            hint = "use 1 to 64 letters, digits, '.', '_' and '-'"
            raise Failure(f"{request_id!r} can't be a request id", hint)
        job = job_of(said, self.rest)
        if "workdir" in job:
            job["workspace"] = pack(job.pop("workdir"), self.mail)
        answer = self.mail.ask("submit", {"job": job}, request_id)
        if "workspace" in job:
            remove(packed_path(self.mail, job["workspace"]["hash"]))
        if not self.output.as_json:
            self.output.line(answer["job"])
            sys.stdout.flush()
        elif "--wait" not in last:
            self.output.document(answer)
        return self._wait([answer["job"]], None) if "--wait" in last else 0

    def status(self, words: list[str]) -> int:
        jobs, _ = self._jobs(split(words))
        if len(jobs) > 1:
            raise Failure("status takes one job")
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

    def wait(self, words: list[str]) -> int:
        jobs, last = self._jobs(split(words, ["--timeout"]), "wait for")
        return self._wait(jobs, seconds(last["--timeout"]) if "--timeout" in last else None)

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
        self._show_ended(found, timed_out=len(found) < len(jobs))
        left = [job for job, answer in zip(jobs, answers) if not answer]
        if left:
            self.output.warning(f"the time is over and {' '.join(left)} {'go' if left[1:] else 'goes'} on")
            return 1
        states = [each["state"] for each in found]
        return next((code for state, code in WORST_FIRST.items() if state in states), 0)

    def _show_ended(self, found: list[Json], *, timed_out: bool) -> None:
        if self.output.as_json:
            keys = {"job": "id", "state": "state", "display": "display", "reason": "why"}
            rows = [{"why": "", **each} for each in found]
            jobs = [{name: row[key] for name, key in keys.items() if key in row} for row in rows]
            self.output.document({"jobs": jobs, "timed_out": timed_out})
            return
        for each in found:
            text = ": ".join(filter(None, (each["id"], each["state"], each.get("why"))))
            if not self.output.quiet:
                self.output.line(text)
            elif each["state"] != "SUCCEEDED":
                self.output.warning(text)

    def cancel(self, words: list[str]) -> int:
        jobs, last = self._jobs(split(words, ["--reason"]), "cancel")
        reason = last.get("--reason", "")
        answers = {job: self.mail.ask("cancel", {"job": job, "reason": reason}) for job in jobs}
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

    def _jobs(self, found: tuple[list[str], Said], purpose: str = "") -> tuple[list[str], dict[str, str]]:
        jobs = list(dict.fromkeys([*found[0], *self.rest]))
        if purpose and not jobs:
            raise Failure(f"there is no job to {purpose}")
        return jobs, dict(found[1])

    def logs(self, words: list[str]) -> int:
        chosen, last = self._jobs(split(words, ["--tail", "-n", "--stream", "--attempt"]))
        if len(chosen) != 1:
            raise Failure("logs takes one job or task" if chosen else "there is no job to show logs of")
        tail, stream = last.get("--tail", last.get("-n", "20")), last.get("--stream", "both")
        if tail != "all" and not re.fullmatch("[0-9]{1,9}", tail):
            raise Failure(f"--tail {tail!r} is neither a number of lines nor all")
        if stream not in ("out", "err", "both"):
            raise Failure(f"--stream {stream!r} is neither out nor err nor both")
        attempt = number("--attempt", last["--attempt"]) if "--attempt" in last else None
        job, _, index = chosen[0].partition("/task-")
        tasks = self.mail.ask("status", {"job": job})["tasks"]
        if index:
            tasks = [each for each in tasks if each["id"] == chosen[0]]
        logs = [log_of(each, attempt) for each in tasks]
        for name in ("out", "err") if stream == "both" else (stream,):
            for log in logs:
                prefix = f"[{log['rank']}] " if logs[1:] else ""
                asked = {"task": log["task"], "stream": name, "attempt": log["attempt"]}
                self._show_log(log, asked, None if tail == "all" else int(tail), prefix)
        if self.output.as_json:
            self.output.document({"tasks": logs})
        for log in logs:
            if log["note"] and not self.output.as_json:
                self.output.message(f"{log['task']}: {log['note']}")
        return 0

    def _show_log(self, log: Json, asked: Json, tail: int | None, prefix: str) -> None:
        for line in log_lines(self.mail, asked, tail) if log["attempt"] is not None else ():
            log["note"] = ""
            if self.output.as_json:
                log["lines"].append({"stream": asked["stream"], "text": line})
            else:
                self.output.line(prefix + re.sub("\x1b\\[[0-9;:]*m", "", line).expandtabs())

    def register_endpoint(self, words: list[str]) -> int:
        others, said = split(words, ["--metadata"], ["--remove"])
        others += self.rest
        usage = "iris register-endpoint NAME PORT"
        metadata = dict(named(option, value) for option, value in said if option == "--metadata")
        if not others or others[2:]:
            raise Failure(
                f"{others[2]} is one word too many" if others else "the endpoint has no name", usage
            )
        if "--remove" in dict(said):
            answer = self.mail.ask("remove_endpoint", {"name": others[0]})
        elif len(others) < 2:
            raise Failure("the endpoint has no port", usage)
        else:
            endpoint = {"name": others[0], "port": number("PORT", others[1]), "metadata": metadata}
            answer = self.mail.ask("register_endpoint", endpoint)
        if self.output.as_json:
            self.output.document(answer)
        return 0


def job_of(said: Said, command: list[str]) -> Json:
    """The fields of a job from the options of `iris launch`."""
    job: Json = {"command": command}
    for option, value in said:
        if option in OPTIONS:
            set_field(job, option, value)
    if "--no-inherit-constraints" in dict(said):
        if "constraints" in job or "prefer" in job:
            job["inherit_constraints"] = False
        job.setdefault("constraints", [])
    return job


def set_field(job: Json, option: str, value: str) -> None:
    """Set one field. What stays text here is read by the iris of the operator."""
    key, kind = OPTIONS[option]
    if kind in ("ON", "OFF"):
        job[key] = kind == "ON"
    elif kind in ("CORES", "POSITIVE", "COUNT"):
        job[key] = number(option, value)
    elif kind in ("CONSTRAINTS", "TAINTS", "JOBS", "SECRETS"):
        job[key] = [*job.get(key, ()), value]
    elif kind == "PORTS":
        job[key] = [*job.get(key, ()), *value.split(",")]
    elif kind == "VARIABLES":
        job[key] = {**job.get(key, {}), **variable(value)}
    elif kind == "LABELS":
        job[key] = {**job.get(key, {}), **dict([named(option, value)])}
    elif kind == "GROUP":
        job[key] = {"group_by": value}
    elif kind == "LINES":
        job[key] = lines_of(value)
    else:
        job[key] = value


def variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise Failure(f"--env {name}: not the name of a variable")
    if not equals and name not in os.environ:
        raise Failure(f"--env {name}: there is no such variable here", f"write --env {name}=VALUE")
    return {name: value if equals else os.environ[name]}


def lines_of(path: str) -> list[str]:
    """The lines of a file, without their ends."""
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--each-line: {path} can't be read: {error}") from error
    if len(text) > MOST_BYTES:
        raise Failure(f"--each-line: {path} takes more than {MOST_BYTES} bytes", "split it into several jobs")
    if not text or "\0" in text:
        raise Failure(f"--each-line: {path} {'holds a NUL byte' if text else 'has no lines'}")
    lines = text.split("\n")
    return [line[:-1] if line.endswith("\r") else line for line in (lines if lines[-1] else lines[:-1])]


def main(words: list[str]) -> int:
    """Run one command. Global options may stand anywhere before `--`."""
    output = Output()
    end = words.index("--") if "--" in words else len(words)
    words, rest = words[:end], words[end + 1 :]
    output.as_json, output.quiet = "--json" in words, "-q" in words or "--quiet" in words
    try:
        return run(output, [each for each in words if each not in GLOBAL], rest)
    except Failure as error:
        return output.failure(error)
    except (KeyError, TypeError, ValueError, AttributeError):
        hint = "are iris inside the task and on the operator's machine of the same version?"
        return output.failure(Failure("the answer to a request can't be understood", hint, 1))
    except KeyboardInterrupt:
        return output.failure(Failure("interrupted", "", 130))


GLOBAL = ("--json", "-q", "--quiet", "--no-color", "-v", "--verbose")


def run(output: Output, words: list[str], rest: list[str]) -> int:
    for word in words:
        if word.partition("=")[0] in ("--config", "--state-dir", "--lock-timeout"):
            raise Failure(f"{word} is an option of the operator's iris: this one only works inside its task")
    if not words or words[0] == "help" or "--help" in words or "-h" in words:
        sys.stdout.write(USAGE)
        return 0
    commands = Commands(output, Mail(), rest)
    if words[0] not in ("launch", "status", "wait", "cancel", "logs", "register-endpoint"):
        raise Failure(
            f"{words[0]} is not for the inside of a task", "iris --help; the operator has the whole iris"
        )
    code: int = getattr(commands, words[0].replace("-", "_"))(words[1:])
    return code


def terminated(*_: Any) -> NoReturn:
    """End with the clean-up that a signal would prevent."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    os.umask(0o077)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, terminated)
    sys.exit(main(sys.argv[1:]))
