"""Reports about an attempt as short texts: `running`, `exited 1 5s-ago`, `nostart disk`."""

from __future__ import annotations

import re

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import Fact, FactKind
from iris_cli.core.units import parse_duration

_AGO = re.compile(r"(.+)-ago")
_RAN = re.compile(r"ran-(.+)")
_PREEMPTED = Fact(kind=FactKind.PREEMPTED, proven=True, text="the VM is preempted")
_QUIET = re.compile(r"quiet-(.+)")
_PLACE = re.compile(r"in-(.+)")


def parse_report(token: Token, words: str) -> AttemptReport:
    """`STATE [EXIT CODE | CAUSE] [DURATION-ago] [ran-DURATION] [quiet-DURATION] [in-PLACE] [preempted]`.

    The durations are the age of the exit, or of the start of the launch, set-up or command; the run time by the
    worker's clock; and the time since the last output. PLACE is where its program is. `timeout`, `oom` and `signal` are
    exits. `preempted`: the metadata server has announced the end of the VM.
    """
    state, *rest = words.split()
    facts = (_PREEMPTED,) if "preempted" in rest else ()
    rest = [word for word in rest if word != "preempted"]
    ago = [parse_duration(match[1]) for word in rest if (match := _AGO.fullmatch(word))]
    ran = [parse_duration(match[1]) for word in rest if (match := _RAN.fullmatch(word))]
    quiet = [parse_duration(match[1]) for word in rest if (match := _QUIET.fullmatch(word))]
    place = [match[1] for word in rest if (match := _PLACE.fullmatch(word))]
    rest = [word for word in rest if not any(each.fullmatch(word) for each in (_AGO, _RAN, _QUIET, _PLACE))]
    since = ago[0] if ago else 0.0
    if state in ("exited", "timeout", "oom", "signal"):
        return AttemptReport(
            token=token,
            state=RemoteState.EXITED,
            exit_code=int(rest[0]) if rest else 137,
            cause="" if state == "exited" else state,
            started_ago=since,
            ended_ago=since,
            ran=ran[0] if ran else None,
            facts=facts,
        )
    return AttemptReport(
        token=token,
        state=RemoteState(state.upper()),
        cause=rest[0] if rest else "",
        started_ago=since,
        ended_ago=since if state in ("cancelled", "nostart") else None,
        last_output_ago=quiet[0] if quiet else None,
        place=place[0] if place else "",
        ran=ran[0] if ran else None,
        facts=facts,
    )
