"""Selection of the files that are shipped from a directory.

In a git work tree: tracked files, and untracked ones that are not ignored; elsewhere all files. In both cases, files
matched by `.irisignore` are excluded, and so are iris's own: the state directory, `cluster.yaml`, pulled files.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.core.work_paths import PULLED
from iris_cli.errors import UsageError

MOST_FILES = 200_000

_GIT = (
    "git",
    "-c",
    "core.fsmonitor=false",
)  # it may name a program, and the directory may be untrusted
_PATIENCE = 300.0  # seconds for one git call
_NO_WORK_TREE = ("not a git repository", "must be run in a work tree")
_WHICH_REPOSITORY = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    }
)
"""Variables that git hooks set; they would name another repository."""


class _GitError(Exception):
    """Git can't list files; the message says why."""


class Selection(Struct, frozen=True):
    """Names relative to the directory, with `/`, decoded like file names, in the order of their bytes.

    `by` names the selection rule, `words` are warnings.
    """

    names: tuple[str, ...]
    by: str
    words: tuple[str, ...] = ()


def select(directory: Path, own: Sequence[Path] = ()) -> Selection:
    """Select the files of a directory, a real path, except `own` ones. Raises UsageError."""
    shipped = _not_own(directory, own)
    ignore = read_ignore_file(directory)
    _refuse_whole_homes(directory, ignore)
    words: list[str] = []
    by = f"all files except those in {IGNORE_FILE}" if ignore else "all files (not a git repository)"
    try:
        chosen = _from_git(directory, shipped, words)
    except _GitError as error:
        if ignore is None:
            raise UsageError(
                f"git can't list the files of {directory}: {error}",
                hint=f"fix that, or exclude files in {directory / IGNORE_FILE}",
            ) from error
        words.append(f"git can't list ignored files ({error}): only {IGNORE_FILE} is used")
        chosen = None
    if chosen is not None:
        names = [name for name in chosen if ignore is None or not ignore.leaves_out_file(name)]
        by = "git" if ignore is None else f"git and {IGNORE_FILE}"
    else:
        names = list(_bounded(directory, _walk(directory, ignore or IgnoreFile(), shipped, words)))
    return Selection(tuple(sorted(set(names), key=os.fsencode)), by, tuple(words))


def _refuse_whole_homes(directory: Path, ignore: IgnoreFile | None) -> None:
    if ignore is None and directory in (Path.home(), Path.home().resolve(), Path("/")):
        raise UsageError(
            f"{directory} is too much to ship: it holds keys and other private files",
            hint=f"name a directory in it; or exclude files in {IGNORE_FILE}",
        )


def _not_own(directory: Path, own: Sequence[Path]) -> Callable[[str], bool]:
    """Return a test that rejects `own` paths (they grow with each copy, or hold secrets) and pulled files."""
    below = tuple(
        "" if each == directory else f"{each.relative_to(directory)}/"
        for each in own
        if each.is_relative_to(directory)
    )
    return lambda name: not f"{name}/".startswith(below) and f"/{PULLED}/" not in f"/{name}"


def _bounded(directory: Path, names: Iterator[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        if number == MOST_FILES:
            raise UsageError(
                f"{directory} holds more than {MOST_FILES} files",
                hint=f"exclude files in {directory / IGNORE_FILE}",
            )
        yield name


# With git


def _from_git(directory: Path, shipped: Callable[[str], bool], words: list[str]) -> list[str] | None:
    """Return the files that git lists; None if the directory is in no work tree or ignored. Raises _GitError."""
    if not any(os.path.lexists(each / ".git") for each in (directory, *directory.parents)):
        return None
    try:
        if _git(directory, "check-ignore", "-q", ".", codes=(0, 1)).returncode == 0:
            return None  # such as a build directory, or a home whose settings are kept in git
        return list(_bounded(directory, filter(shipped, _listed(directory, "", words))))
    except _NoWorkTreeError:
        return None


def _listed(top: Path, below: str, words: list[str]) -> Iterator[str]:
    """Yield the files of one repository and of its submodules and nested repositories."""
    here = top / below
    listed = _git(here, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for raw in listed.split(b"\0"):
        name = below + os.fsdecode(raw)
        if not raw or not is_directory(top / name):
            if raw:
                yield name
        elif os.path.lexists(top / name / ".git"):
            yield from _listed(top, name.rstrip("/") + "/", words)
        else:
            words.append(f"{clip(name)} is not shipped: the submodule is not checked out")


def is_directory(path: Path) -> bool:
    """Return True for a directory, False for a link to a directory."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


class _NoWorkTreeError(Exception):
    """Git reports that there is no work tree."""


def _git(
    directory: Path, *arguments: str, codes: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    """Run git. Raises _GitError and _NoWorkTreeError."""
    env = {name: value for name, value in os.environ.items() if name not in _WHICH_REPOSITORY}
    env |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - git with our arguments
            [*_GIT, *arguments],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except FileNotFoundError as error:
        raise _GitError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise _GitError(f"no answer within {_PATIENCE:g} s") from error
    except OSError as error:
        raise _GitError(f"it can't be started: {error.strerror or error}") from error
    if done.returncode not in codes:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        if any(phrase in said for phrase in _NO_WORK_TREE):
            raise _NoWorkTreeError
        raise _GitError(clip(said.splitlines()[0]))
    return done


# Without git


def _walk(top: Path, ignore: IgnoreFile, shipped: Callable[[str], bool], words: list[str]) -> Iterator[str]:
    """Yield every file that isn't excluded, except git's own directory. Links are not followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(top / below) as found:
                entries = list(found)
        except OSError as error:
            raise UsageError(
                f"{clip(below or str(top))} can't be read: {error.strerror or error}",
                hint=f"fix its permissions, or exclude it in {IGNORE_FILE}",
            ) from error
        for entry in entries:
            name = below + entry.name
            directory = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or ignore.leaves_out(name, directory=directory):
                continue
            if not shipped(f"{name}/" if directory else name):
                continue
            if directory:
                waiting.append(f"{name}/")
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                yield name
            else:
                words.append(f"{clip(name)} is not shipped: it is neither file nor link")


# `.irisignore`: excluded files of a directory, in the syntax of `.gitignore`. Only the file at the top of the
# directory is read; the last matching pattern decides. Named classes such as `[[:alpha:]]` are not supported,
# and `?` matches one character, in git one byte.


IGNORE_FILE = ".irisignore"

_MOST_BYTES = 1 << 20
_TRAILING_BLANKS = re.compile(r"(?<!\\)((?:\\\\)*)[ \t\r]+$")


class _Pattern(Struct, frozen=True):
    regex: re.Pattern[str]
    kept: bool  # it began with `!`
    directories_only: bool


class IgnoreFile:
    """The patterns of one file; without a file there are no patterns."""

    def __init__(self, text: str = "") -> None:
        """Parse the patterns. Raises UsageError for an invalid one."""
        lines = enumerate(text.split("\n"), start=1)
        self._patterns = [each for number, line in lines if (each := _pattern(line, number)) is not None]

    def leaves_out(self, name: str, *, directory: bool) -> bool:
        """Return True if a pattern excludes this entry, ignoring its parents. `name` is relative to the top."""
        for each in reversed(self._patterns):
            if (directory or not each.directories_only) and each.regex.fullmatch(name):
                return not each.kept
        return False

    def leaves_out_file(self, name: str) -> bool:
        """Return True if a file or link, or one of its parents, is excluded."""
        if not self._patterns:
            return False
        ends = [place for place, sign in enumerate(name) if sign == "/"]
        return any(self.leaves_out(name[:end], directory=True) for end in ends) or self.leaves_out(
            name, directory=False
        )


def read_ignore_file(directory: Path) -> IgnoreFile | None:
    """Return the patterns of this directory, or None without a file. Raises UsageError."""
    path = directory / IGNORE_FILE
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a file", hint="move it away")
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than {_MOST_BYTES} bytes")
    try:
        return IgnoreFile(raw.decode("utf-8-sig", "surrogateescape"))
    except UsageError as error:
        raise UsageError(f"{path}:{error.message}", hint=error.hint) from error


def _pattern(line: str, number: int) -> _Pattern | None:
    text = _TRAILING_BLANKS.sub(r"\1", line)
    if not text or text.startswith("#"):
        return None
    kept = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        regex = _translated(text.removeprefix("/"))
    except ValueError as error:
        raise UsageError(f"{number}: {clip(line)!r}: {error}", hint="see gitignore(5)") from error
    return _Pattern(re.compile(regex if anchored else f"(?:.*/)?{regex}", re.DOTALL), kept, directories_only)


_STARS = re.compile(r"(?:(?<=/)|^)\*\*(?=/|$)")


def _translated(pattern: str) -> str:
    """Return a regular expression for whole names. Raises ValueError."""
    made, place = "", 0
    while place < len(pattern):
        sign = pattern[place]
        if sign == "*" and _STARS.match(pattern, place):
            if place + 2 == len(pattern):  # `a/**`: everything in it
                return made + ".+"
            made, place = f"{made}(?:.+/)?", place + 3  # `**/`, `a/**/b`: any number of directories
        elif sign == "*":
            while pattern[place : place + 1] == "*":
                place += 1
            made += "[^/]*"
        elif sign == "?":
            made, place = f"{made}[^/]", place + 1
        elif sign == "[":
            among, place = _class(pattern, place)
            made += among
        elif sign == "\\":
            if place + 1 == len(pattern):
                raise ValueError("nothing follows the last backslash")
            made, place = made + re.escape(pattern[place + 1]), place + 2
        else:
            made, place = made + re.escape(sign), place + 1
    return made


def _class(pattern: str, start: int) -> tuple[str, int]:
    """Return the regular expression of a class such as `[a-z]`, and the position after it. Raises ValueError."""
    place = start + 1
    negated = pattern[place : place + 1] in ("!", "^")
    place += negated
    inside, first = "", True
    while first or pattern[place : place + 1] != "]":
        first = False
        low, place = _member(pattern, place)
        high = low
        if pattern[place : place + 1] == "-" and pattern[place + 1 : place + 2] not in ("", "]"):
            high, place = _member(pattern, place + 1)
        if low > high:
            raise ValueError(f"the range {low!r}-{high!r} is empty")
        inside += f"{re.escape(low)}-{re.escape(high)}"
    return f"(?!/)[{'^' if negated else ''}{inside}]", place + 1


def _member(pattern: str, place: int) -> tuple[str, int]:
    if pattern[place : place + 1] == "\\":
        place += 1
    if pattern[place : place + 2] in ("[:", "[.", "[="):
        raise ValueError("named classes are not supported")
    if place >= len(pattern):
        raise ValueError("its '[' is not closed")
    return pattern[place], place + 1
