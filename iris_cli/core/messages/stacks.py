"""Parse stacks of Python threads from py-spy or faulthandler, and states of threads from the kernel."""

from msgspec import Struct

from iris_cli.core.text import pattern

_SPY_THREAD = pattern(r'Thread (\S+) \(([^)]*)\)(?:: "([^"]*)"?)?')
_HANDLER_THREAD = pattern(r"(?:Current thread|Thread) (\S+)(?: \[(.*)\])? \(most recent call first\):")
_SPY_FRAME = pattern(r" {4}(\S.*) \(([^()]+?)(?::([0-9]{1,9}))?\)")
_HANDLER_FRAME = pattern(r'  File "(.*)", line ([0-9]{1,9}|\?\?\?) in (.*)')
_TASK_DIRECTORY = pattern(r".*/a/[0-9a-f]{32}/(?:work/)?")
_MAX_LINES = 4000
_MAX_UNKNOWN_LINES = 40


class Frame(Struct, frozen=True):
    """A call that has not returned. `file` is '' and `line` 0 if unknown."""

    function: str
    file: str = ""
    line: int = 0


class Thread(Struct, kw_only=True):
    """A thread with its `frames`, innermost call first. `state` is py-spy's word, such as `idle`, or ''."""

    id: str
    name: str = ""
    state: str = ""
    is_main: bool = False
    frames: tuple[Frame, ...] = ()


def threads_of(text: str) -> tuple[Thread, ...]:
    """Return the threads of a program in the order of the dump. Unrelated lines are skipped.

    Reads only the first dump in the text, from `py-spy dump` or from faulthandler of Python 3.9 to 3.14. A text without
    threads becomes one thread, with the lines as frames.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")[:_MAX_LINES]]
    threads: dict[str, Thread] = {}  # by id, in the order of the dump
    current: Thread | None = None
    for line in lines:
        if thread := _thread(line):
            if thread.id in threads:
                break  # the second dump begins
            current = threads[thread.id] = thread
        elif current is not None and (frame := _frame(line)):
            current.frames += (frame,)
    if not threads:
        frames = tuple(Frame(line.strip()) for line in lines if line.strip())
        return (Thread(id="", is_main=True, frames=frames[:_MAX_UNKNOWN_LINES]),) if frames else ()
    found = tuple(threads.values())
    # py-spy names the main thread. faulthandler lists it last, because the newest thread comes first.
    default = found[-1 if found[0].id.startswith("0x") else 0]
    next((each for each in found if each.name == "MainThread"), default).is_main = True
    return found


def _thread(line: str) -> Thread | None:
    if match := _HANDLER_THREAD.fullmatch(line):
        return Thread(id=match[1], name=match[2] or "")
    if match := _SPY_THREAD.fullmatch(line):
        return Thread(id=match[1], state=match[2], name=match[3] or "")
    return None


def _frame(line: str) -> Frame | None:
    if match := _HANDLER_FRAME.fullmatch(line):
        return Frame(match[3], _relative_path(match[1]), 0 if match[2] == "???" else int(match[2]))
    if match := _SPY_FRAME.fullmatch(line):
        return Frame(match[1], _relative_path(match[2]), int(match[3] or 0))
    return None


def _relative_path(file: str) -> str:
    """Return the path of a file. A path in the task's directory is made relative, so that it is equal in all ranks."""
    match = _TASK_DIRECTORY.match(file)
    return file[match.end() :] if match else file


_FILE_LINE = pattern(r"([1-9][0-9]{0,9})/(stat|wchan):(.*)")
_TIME_LINE = pattern(r"at ([0-9]{1,15})")
_WHOLE_NUMBER = pattern(r"[0-9]{1,19}")
_SPIN_SHARE = 0.5  # share of one core
_RUNNABLE_SPIN_SHARE = 0.1
_NO_CHANNEL = ("", "0")


class KernelThread(Struct, frozen=True, kw_only=True):
    """One thread. `state` is the kernel's letter, `wait_channel` the kernel function in which it sleeps, or ''.

    `cpu_seconds` is its CPU time so far. `cpu` is the share of one core that it used between the two readings; None if
    only one reading has the thread.
    """

    id: int
    name: str
    state: str
    wait_channel: str
    cpu_seconds: float
    cpu: float | None = None

    @property
    def spins(self) -> bool:
        """True if the thread used half a core, or a tenth if it is runnable, because it may have waited for a core."""
        threshold = _RUNNABLE_SPIN_SHARE if self.state == "R" else _SPIN_SHARE
        return self.cpu is not None and self.cpu >= threshold


def kernel_threads(output: str) -> tuple[KernelThread, ...]:
    """Return the threads of the last reading, the main thread first. Unrelated lines are skipped."""
    readings: list[tuple[int, dict[int, dict[str, str]]]] = []
    for line in output.split("\n"):
        if at := _TIME_LINE.fullmatch(line):
            readings.append((int(at[1]), {}))
        elif readings and (match := _FILE_LINE.fullmatch(line)):
            files = readings[-1][1].setdefault(int(match[1]), {})
            text = f"{files[match[2]]}\n" if match[2] in files else ""  # a name may contain line feeds
            files[match[2]] = f"{text}{match[3]}"
    if len(readings) < 2:
        return ()
    (began, first), (ended, second) = readings[0], readings[-1]
    elapsed = (ended - began) / 100
    found = (_kernel_thread(tid, files, first.get(tid, {}), elapsed) for tid, files in second.items())
    return tuple(filter(None, found))


def _kernel_thread(
    number: int, files: dict[str, str], before: dict[str, str], elapsed: float
) -> KernelThread | None:
    """Return one thread from two readings; None if the second reading is incomplete."""
    seconds, earlier = _cpu_seconds(files), _cpu_seconds(before)
    if seconds is None:
        return None
    head, _, tail = files["stat"].rpartition(") ")
    channel = files.get("wchan", "")
    return KernelThread(
        id=number,
        name=head.partition("(")[2][:64],
        state=tail.split()[0][:1],
        wait_channel="" if channel in _NO_CHANNEL else channel[:64],
        cpu_seconds=seconds,
        cpu=round(max(0.0, seconds - earlier) / elapsed, 2) if earlier is not None and elapsed > 0 else None,
    )


def _cpu_seconds(files: dict[str, str]) -> float | None:
    """Return the CPU time in one reading. The numbers follow the last parenthesis, because names may contain some."""
    fields = files.get("stat", "").rpartition(") ")[2].split()
    if len(fields) < 13 or not (_WHOLE_NUMBER.fullmatch(fields[11]) and _WHOLE_NUMBER.fullmatch(fields[12])):
        return None
    return (int(fields[11]) + int(fields[12])) / 100
