"""Threads of a process as the kernel describes them: state, wait channel and CPU time of two readings."""

from __future__ import annotations

from msgspec import Struct

from iris_cli.core.patterns import pattern

_LINE = pattern(r"([1-9][0-9]{0,9})/(stat|wchan):(.*)")
_AT = pattern(r"at ([0-9]{1,15})")
_NUMBERS = pattern(r"[0-9]{1,19}")
_SPINS = 0.5
_SPINS_ON_A_BUSY_HOST = 0.1
_NO_CHANNEL = ("", "0")


class KernelThread(Struct, frozen=True, kw_only=True):
    """One thread. `state` is the kernel's letter, `wait_channel` the kernel function it sleeps in, '' if unknown.

    `cpu_seconds` is its CPU time so far; `cpu` the share of one core that it used between the readings, None if it was
    not there at both.
    """

    id: int
    name: str
    state: str
    wait_channel: str
    cpu_seconds: float
    cpu: float | None = None

    @property
    def spins(self) -> bool:
        """Whether it used half a core or more; a tenth if it is still runnable, for the host may be overloaded."""
        least = _SPINS_ON_A_BUSY_HOST if self.state == "R" else _SPINS
        return self.cpu is not None and self.cpu >= least


def kernel_threads(said: str) -> tuple[KernelThread, ...]:
    """The threads of the second reading, the main thread first. Lines that are none of a reading are skipped."""
    readings: list[tuple[int, dict[int, dict[str, str]]]] = []
    for line in said.split("\n"):
        if at := _AT.fullmatch(line):
            readings.append((int(at[1]), {}))
        elif readings and (match := _LINE.fullmatch(line)):
            files = readings[-1][1].setdefault(int(match[1]), {})
            text = f"{files[match[2]]}\n" if match[2] in files else ""  # a name may hold line feeds
            files[match[2]] = f"{text}{match[3]}"
    if len(readings) < 2:
        return ()
    (began, first), (ended, second) = readings[0], readings[-1]
    elapsed = (ended - began) / 100
    found = []
    for number, files in second.items():
        now = _thread(number, files)
        before = _thread(number, first.get(number, {}))
        if now is not None:
            found.append(_with_share(now, before, elapsed))
    return tuple(found)


def _thread(number: int, files: dict[str, str]) -> KernelThread | None:
    """One thread of one reading. Its name may hold anything: the fields follow the last parenthesis."""
    head, _, tail = files.get("stat", "").rpartition(") ")
    fields = tail.split()
    if len(fields) < 13 or not (_NUMBERS.fullmatch(fields[11]) and _NUMBERS.fullmatch(fields[12])):
        return None
    channel = files.get("wchan", "")
    return KernelThread(
        id=number,
        name=head.partition("(")[2][:64],
        state=fields[0][:1],
        wait_channel="" if channel in _NO_CHANNEL else channel[:64],
        cpu_seconds=(int(fields[11]) + int(fields[12])) / 100,
    )


def _with_share(now: KernelThread, before: KernelThread | None, elapsed: float) -> KernelThread:
    share = None
    if before is not None and elapsed > 0:
        share = round(max(0.0, now.cpu_seconds - before.cpu_seconds) / elapsed, 2)
    return KernelThread(
        id=now.id,
        name=now.name,
        state=now.state,
        wait_channel=now.wait_channel,
        cpu_seconds=now.cpu_seconds,
        cpu=share,
    )
