"""Answers to a task, as they are told inside of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iris_cli.core.job import JobState
from iris_cli.render.console import Output


def show_status(output: Output, said: Mapping[str, Any]) -> None:
    """One job, its tasks and where they listen: a line each."""
    if output.as_json:
        output.document(said)
        return
    job = said["job"]
    output.line(_joined(job["id"], _display(job), job["why"]))
    for task in said["tasks"]:
        output.line(_joined(task["id"], _display(task), task["worker"], task["why"]))
    for endpoint in said.get("endpoints", ()):
        output.line(_joined(endpoint["task"], endpoint["name"], f"{endpoint['address']}:{endpoint['port']}"))


def _display(said: Mapping[str, Any]) -> str:
    """How the state reads; the state itself where an older iris answered."""
    return str(said.get("display", said["state"]))


def show_waited(output: Output, found: Mapping[str, Mapping[str, Any] | None]) -> None:
    """How each job ended; None is one that goes on though the time is over."""
    ended = [
        {"job": job, "state": said["job"]["state"], "reason": said["job"]["why"]}
        for job, said in found.items()
        if said is not None
    ]
    if output.as_json:
        output.document({"jobs": ended, "timed_out": len(ended) < len(found)})
    else:
        for each in ended:
            reason = f": {each['reason']}" if each["reason"] else ""
            tell = output.done if each["state"] == JobState.SUCCEEDED else output.failed
            tell(f"{each['job']}: {each['state']}{reason}")
    left = [job for job, said in found.items() if said is None]
    if left:
        output.warning(f"the time is over and {' '.join(left)} {'goes' if len(left) == 1 else 'go'} on")


def show_cancelled(output: Output, said: Mapping[str, bool]) -> None:
    """The jobs that were cancelled, and those that were over before."""
    cancelled = [job for job, done in said.items() if done]
    over = [job for job in said if job not in cancelled]
    if output.as_json:
        output.document({"cancelled": cancelled, "over": dict.fromkeys(over)})  # how, a task is not told
        return
    for job in cancelled:
        output.done(f"cancelled {job}")
    for job in over:
        output.message(f"{job} was over already")


def _joined(*words: str | None) -> str:
    return "  ".join(word for word in words if word)
