"""Stacks of Python threads as py-spy and faulthandler print them, and threads as the kernel describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from iris_cli.core.text import pattern

_LIKE_SPY = pattern(r'Thread (\S+) \(([^)]*)\)(?:: "([^"]*)"?)?')
_LIKE_HANDLER = pattern(r"(?:Current thread|Thread) (\S+)(?: \[(.*)\])? \(most recent call first\):")
_SPY_FRAME = pattern(r" {4}(\S.*) \(([^()]+?)(?::([0-9]{1,9}))?\)")
_HANDLER_FRAME = pattern(r'  File "(.*)", line ([0-9]{1,9}|\?\?\?) in (.*)')
_IN_A_TASK = pattern(r".*/a/[0-9a-f]{32}/(?:work/)?")
_MOST_LINES = 4000
_UNKNOWN_LINES = 40


class Frame(Struct, frozen=True):
    """A call that has not returned. `file` is empty and `line` 0 if they are not known."""

    function: str
    file: str = ""
    line: int = 0


class Thread(Struct, frozen=True, kw_only=True):
    """`frames` begin with the innermost call. `state` is py-spy's word, such as `idle`, or empty."""

    id: str
    name: str = ""
    state: str = ""
    is_main: bool = False
    frames: tuple[Frame, ...] = ()


def threads_of(text: str) -> tuple[Thread, ...]:
    """The threads of a program, in the order of the dump; lines that belong to none are passed over.

    Formats: `py-spy dump`, and `faulthandler.register` of Python 3.9 to 3.14. Of two dumps in one text the first. Where
    there is no thread at all, the lines themselves are taken for one.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")[:_MOST_LINES]]
    found = list(_threads(lines))
    if not found:
        frames = tuple(Frame(line.strip()) for line in lines if line.strip())
        return (Thread(id="", is_main=True, frames=frames[:_UNKNOWN_LINES]),) if frames else ()
    main = _main_of(found)
    return tuple(_as_main(each) if each is main else each for each in found)


def _threads(lines: Iterable[str]) -> Iterator[Thread]:
    head: Thread | None = None
    frames: list[Frame] = []
    seen = set()
    for line in lines:
        begun = _thread(line)
        if begun is None:
            frame = _frame(line)
            if frame is not None:
                frames.append(frame)
            continue
        if head is not None:
            yield _with(head, frames)
        if begun.id in seen:
            return
        seen.add(begun.id)
        head, frames = begun, []
    if head is not None:
        yield _with(head, frames)


def _thread(line: str) -> Thread | None:
    if match := _LIKE_HANDLER.fullmatch(line):
        return Thread(id=match[1], name=match[2] or "")
    if match := _LIKE_SPY.fullmatch(line):
        return Thread(id=match[1], state=match[2], name=match[3] or "")
    return None


def _frame(line: str) -> Frame | None:
    if match := _HANDLER_FRAME.fullmatch(line):
        return Frame(match[3], _place(match[1]), 0 if match[2] == "???" else int(match[2]))
    if match := _SPY_FRAME.fullmatch(line):
        return Frame(match[1], _place(match[2]), int(match[3] or 0))
    return None


def _place(file: str) -> str:
    """A file of the task by its name there: its directory is another one for each rank."""
    inside = _IN_A_TASK.match(file)
    return file[inside.end() :] if inside else file


def _with(head: Thread, frames: Iterable[Frame]) -> Thread:
    return Thread(id=head.id, name=head.name, state=head.state, is_main=head.is_main, frames=tuple(frames))


def _as_main(thread: Thread) -> Thread:
    return Thread(id=thread.id, name=thread.name, state=thread.state, is_main=True, frames=thread.frames)


def _main_of(threads: list[Thread]) -> Thread:
    """By its name with py-spy. faulthandler has the newest thread first."""
    named = [each for each in threads if each.name == "MainThread"]
    if named:
        return named[0]
    return threads[-1] if threads[0].id.startswith("0x") else threads[0]


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
        now = _reading(number, files)
        before = _reading(number, first.get(number, {}))
        if now is not None:
            found.append(_with_share(now, before, elapsed))
    return tuple(found)


def _reading(number: int, files: dict[str, str]) -> KernelThread | None:
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
