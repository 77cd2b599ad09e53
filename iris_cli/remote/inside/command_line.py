"""Parse command lines as the operator's iris does. A part of the `iris` inside tasks."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, Iterator, Tuple

from iris_cli.core.ids import clip
from iris_cli.core.messages.requests import MAX_REQUEST_BYTES
from iris_cli.core.model.array import split_lines
from iris_cli.core.text import did_you_mean, one_of, parse_pairs, parse_tail, parse_variables, request_name
from iris_cli.core.units import parse_duration, parse_index, parse_memory, parse_number, parse_whole
from iris_cli.errors import UsageError
from iris_cli.files import read_limited
from iris_cli.remote.inside.rendering import OPTIONS
from iris_cli.remote.inside.requests import Json

Options = Dict[str, Tuple[str, str, Tuple[str, ...]]]
# For each flag: the name of its option, the kind of its value, and the allowed words, () if any text is allowed.
SWITCHES = ("--wait", "--no-schedule", "--no-inherit-constraints")
LAUNCH: Options = {
    **OPTIONS,
    **{flag: (flag.strip("-"), "ON", ()) for flag in SWITCHES},
    "--request-id": ("request-id", "REQUEST", ()),
}
LOGS: Options = {
    **dict.fromkeys(("--tail", "-n"), ("tail", "TAIL", ())),
    "--stream": ("stream", "STREAM", ("out", "err", "both")),
    "--attempt": ("attempt", "INDEX", ()),
}
ENDPOINT: Options = {"--metadata": ("metadata", "LABELS", ()), "--remove": ("remove", "ON", ())}
# For each command: its required argument, its maximum number of arguments, its options.
COMMANDS: dict[str, tuple[str, int, Options]] = {
    "launch": ("", sys.maxsize, LAUNCH),
    "status": ("", 1, {}),
    "wait": ("JOB...", sys.maxsize, {"--timeout": ("timeout", "SECONDS", ())}),
    "cancel": ("", sys.maxsize, {"--reason": ("reason", "TEXT", ())}),
    "logs": ("JOB|TASK", 1, LOGS),
    "register-endpoint": ("NAME", 2, ENDPOINT),
}
# Options and commands that tasks do not have.
OPERATOR_ONLY = (
    *("--workdir", "--env-file", "--follow", "-f", "--dry-run", "--watch", "-w", "--all", "--at", "--rank"),
    *("--diff", "--no-fold", "--raw", "--prefix", "--wait", "--label", "--state", "--config", "--state-dir"),
    *("--lock-timeout", "--version", "--again", "--failed"),
)
HINTS = {
    "--workdir": "drop it to use the parent's directory, or submit with the Python client",
    "--env-file": "pass each variable as --env NAME=VALUE",
}


class Line:
    """The arguments and options of a command line. Raises UsageError."""

    def __init__(self, command: str, words: list[str]) -> None:
        self.help, self.options = f"iris {command} --help", COMMANDS[command][2]
        self.words: list[str] = []
        self._texts: dict[str, tuple[str, list[str]]] = {}  # for each option: its last flag, and its texts
        rest = iter(words)
        for word in rest:
            if word.startswith("-") and word != "-":
                self._store_option(word, rest)
            else:
                self.words.append(word)
        self.values: Json = {key: self._value(*found) for key, found in self._texts.items()}

    def _store_option(self, word: str, rest: Iterator[str]) -> None:
        """Store the text of an option: the part of `word` after `=`, or the next word of `rest`."""
        flag, sign, text = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        if flag not in self.options:
            raise self._unknown(flag)
        key, kind, _ = self.options[flag]
        is_switch = kind in ("ON", "OFF")
        if is_switch and sign:
            raise UsageError(f"option {flag!r} does not take a value", hint=self.help)
        found = text if is_switch or sign else next(rest, None)
        if found is None:
            raise UsageError(f"option {flag!r} requires an argument", hint=self.help)
        self._texts[key] = flag, [*self._texts.get(key, ("", []))[1], found]

    def _unknown(self, flag: str) -> UsageError:
        if flag in OPERATOR_ONLY:
            return UsageError(f"{flag} is not available inside a task", hint=HINTS.get(flag, self.help))
        hint = did_you_mean(clip(flag), (each for each in self.options if each.startswith("--")))
        return UsageError(f"no such option: {clip(flag)}", hint=hint or self.help)

    def _value(self, flag: str, texts: list[str]) -> Any:
        """Return the value of an option. If the value is not a list, only the last of `texts` counts."""
        _, kind, words = self.options[flag]
        if words:
            return self.read(flag, kind, lambda: one_of(texts[-1], words))
        if kind == "LABELS":
            return parse_pairs(flag, texts)
        if kind in LISTS:
            return self.read(flag, kind, lambda: LISTS[kind](texts))
        return self.read(flag, kind, lambda: READERS.get(kind, str)(texts[-1]))

    def read(self, name: str, kind: str, parse: Callable[[], Any]) -> Any:
        """Return the value of the option or argument `name`, the result of `parse`. Add the name to errors."""
        try:
            return parse()
        except UsageError as error:
            message = MESSAGES.get(kind, "{1}").format(name, error.message)
            raise UsageError(message, hint=self.help if kind in NUMBERS else error.hint) from error


NUMBERS = {"CORES": parse_number, "POSITIVE": parse_whole, "COUNT": parse_whole, "INDEX": parse_index}
READERS: dict[str, Callable[[str], Any]] = {
    **NUMBERS,
    "ON": lambda _: True,
    "OFF": lambda _: False,
    "SIZE": parse_memory,
    **dict.fromkeys(("DURATION", "SECONDS"), parse_duration),
    "GROUP": lambda text: {"group_by": text},
    "LINES": lambda path: split_lines(path, read_limited(path, MAX_REQUEST_BYTES)),
    "REQUEST": request_name,
    "TAIL": parse_tail,
}
LISTS: dict[str, Callable[[list[str]], Any]] = {
    **dict.fromkeys(("CONSTRAINTS", "TAINTS", "JOBS", "SECRETS"), list),
    "PORTS": lambda texts: ",".join(texts).split(","),
    "VARIABLES": lambda texts: parse_variables(texts, os.environ),
}
# Formats of error messages: the option or argument, then the error.
MESSAGES = {
    **dict.fromkeys(NUMBERS, "invalid value for '{}': {}"),
    **dict.fromkeys(("SIZE", "DURATION", "CHOICE"), "{}: {}"),
}
