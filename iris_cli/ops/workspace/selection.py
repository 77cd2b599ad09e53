"""Selection of the files that are shipped from a directory.

In a git work tree, the tracked files and the untracked files that are not ignored are selected. Elsewhere all files are
selected. In both cases, iris excludes files matched by `.irisignore`, the state directory, `cluster.yaml`, and pulled
files.
"""

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.core.work_paths import PULL_DIRECTORY
from iris_cli.errors import UsageError

MAX_FILES = 200_000

# fsmonitor is disabled, because this setting of an untrusted directory may name a program to run.
_GIT = ("git", "-c", "core.fsmonitor=false")
_TIMEOUT = 300.0  # seconds for one git call
_NO_WORK_TREE = ("not a git repository", "must be run in a work tree")
_GIT_VARIABLES = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    }
)
"""Variables that git sets for hooks, and that name the hook's repository. iris removes them for its calls of git."""
_MAX_BYTES = 1 << 20
_TRAILING_BLANKS = re.compile(r"(?<!\\)((?:\\\\)*)[ \t\r]+$")
_STARS = re.compile(r"(?:(?<=/)|^)\*\*(?=/|$)")


class _GitError(Exception):
    """Git can't list files. The message says why."""


class Selection(Struct, frozen=True):
    """Names of the selected files, and a description of the rule that selected them.

    Names are relative to the directory, decoded by `os.fsdecode`, and sorted by their bytes.
    """

    names: tuple[str, ...]
    rule: str
    warnings: tuple[str, ...] = ()


def select(directory: Path, own_paths: Sequence[Path] = ()) -> Selection:
    """Select the files of `directory`, except files below `own_paths`. All paths are resolved. Raises UsageError."""
    may_ship = _make_ship_filter(directory, own_paths)
    ignore = read_ignore_file(directory)
    if ignore is None and directory in (Path.home(), Path.home().resolve(), Path("/")):
        raise UsageError(
            f"{directory} is too much to ship: it holds keys and other private files",
            hint=f"name a directory in it; or exclude files in {IGNORE_FILE}",
        )
    warnings: list[str] = []
    rule = f"all files except those in {IGNORE_FILE}" if ignore else "all files (not a git repository)"
    try:
        chosen = _list_with_git(directory, may_ship, warnings)
    except _GitError as error:
        if ignore is None:
            raise UsageError(
                f"git can't list the files of {directory}: {error}",
                hint=f"fix that, or exclude files in {directory / IGNORE_FILE}",
            ) from error
        warnings.append(f"git can't list ignored files ({error}): only {IGNORE_FILE} is used")
        chosen = None
    if chosen is not None:
        names = [name for name in chosen if ignore is None or not ignore.excludes_file(name)]
        rule = "git" if ignore is None else f"git and {IGNORE_FILE}"
    else:
        names = list(_check_count(directory, _walk(directory, ignore or IgnoreFile(), may_ship, warnings)))
    return Selection(tuple(sorted(set(names), key=os.fsencode)), rule, tuple(warnings))


def _make_ship_filter(directory: Path, own_paths: Sequence[Path]) -> Callable[[str], bool]:
    """Return a predicate that is False for pulled files and for files below `own_paths`."""
    own_prefixes = tuple(
        "" if each == directory else f"{each.relative_to(directory)}/"
        for each in own_paths
        if each.is_relative_to(directory)
    )
    return lambda name: not f"{name}/".startswith(own_prefixes) and f"/{PULL_DIRECTORY}/" not in f"/{name}"


def _check_count(directory: Path, names: Iterator[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        if number == MAX_FILES:
            raise UsageError(
                f"{directory} holds more than {MAX_FILES} files",
                hint=f"exclude files in {directory / IGNORE_FILE}",
            )
        yield name


# With git


def _list_with_git(directory: Path, may_ship: Callable[[str], bool], warnings: list[str]) -> list[str] | None:
    """Return the files that git lists; None if git ignores the directory or finds no work tree. Raises _GitError."""
    if not any(os.path.lexists(each / ".git") for each in (directory, *directory.parents)):
        return None
    try:
        if _git(directory, "check-ignore", "-q", ".", codes=(0, 1)).returncode == 0:
            return None  # for example a build directory
        return list(_check_count(directory, filter(may_ship, _list_repository(directory, "", warnings))))
    except _NoWorkTreeError:
        return None


def _list_repository(top: Path, prefix: str, warnings: list[str]) -> Iterator[str]:
    """Yield the files of the repository at `prefix`, of its submodules and of nested repositories."""
    repository = top / prefix
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    for raw in listed.split(b"\0"):
        name = prefix + os.fsdecode(raw)
        if not raw or not is_directory(top / name):
            if raw:
                yield name
        elif os.path.lexists(top / name / ".git"):
            yield from _list_repository(top, name.rstrip("/") + "/", warnings)
        else:
            warnings.append(f"{clip(name)} is not shipped: the submodule is not checked out")


def is_directory(path: Path) -> bool:
    """Return True if the path is a directory and not a link to a directory."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


class _NoWorkTreeError(Exception):
    """Git found no work tree."""


def _git(
    directory: Path, *arguments: str, codes: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    """Run git. Raises _NoWorkTreeError, or _GitError if it does not run or its exit code is not in `codes`."""
    env = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
    env |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        result = subprocess.run(  # noqa: S603 - git with our arguments
            [*_GIT, *arguments],
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except FileNotFoundError as error:
        raise _GitError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise _GitError(f"no answer within {_TIMEOUT:g} s") from error
    except OSError as error:
        raise _GitError(f"it can't be started: {error.strerror or error}") from error
    if result.returncode not in codes:
        message = result.stderr.decode("utf-8", "replace").strip() or f"exit code {result.returncode}"
        if any(phrase in message for phrase in _NO_WORK_TREE):
            raise _NoWorkTreeError
        raise _GitError(clip(message.splitlines()[0]))
    return result


# Without git


def _walk(
    top: Path, ignore: "IgnoreFile", may_ship: Callable[[str], bool], warnings: list[str]
) -> Iterator[str]:
    """Yield every file that isn't excluded, without directories named `.git`. Links are not followed."""
    directories = [""]
    while directories:
        prefix = directories.pop()
        try:
            with os.scandir(top / prefix) as found:
                entries = list(found)
        except OSError as error:
            raise unreadable(prefix or str(top), error) from error
        for entry in entries:
            name = prefix + entry.name
            directory = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or ignore.excludes(name, directory=directory):
                continue
            if not may_ship(f"{name}/" if directory else name):
                continue
            if directory:
                directories.append(f"{name}/")
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                yield name
            else:
                warnings.append(f"{clip(name)} is not shipped: it is neither file nor link")


def unreadable(name: str, error: OSError) -> UsageError:
    return UsageError(
        f"{clip(name)} can't be read: {error.strerror or error}",
        hint=f"fix its permissions, or exclude it in {IGNORE_FILE}",
    )


# `.irisignore` lists the excluded files of a directory, in the syntax of `.gitignore`. iris reads only the file at the
# top of the directory. If several patterns match a name, the last pattern counts. Named classes such as `[[:alpha:]]`
# are not supported, and `?` matches one character (in git, one byte).


IGNORE_FILE = ".irisignore"


class _Pattern(Struct, frozen=True):
    regex: re.Pattern[str]
    negated: bool  # True if the pattern begins with `!`
    directories_only: bool


class IgnoreFile:
    """The patterns of one `.irisignore` file with the content `text`."""

    def __init__(self, text: str = "") -> None:
        """Parse the patterns. Raises UsageError for an invalid pattern."""
        lines = enumerate(text.split("\n"), start=1)
        self._patterns = [each for number, line in lines if (each := _pattern(line, number)) is not None]

    def excludes(self, name: str, *, directory: bool) -> bool:
        """Return True if a pattern excludes this name. Patterns for the directories above it are not considered.

        `name` is relative to the directory of the `.irisignore`. `directory`: True if it is the name of a directory.
        """
        for each in reversed(self._patterns):
            if (directory or not each.directories_only) and each.regex.fullmatch(name):
                return not each.negated
        return False

    def excludes_file(self, name: str) -> bool:
        """Return True if the file or link, or a directory above it, is excluded."""
        parents = [name[:index] for index, character in enumerate(name) if character == "/"]
        is_below = any(self.excludes(each, directory=True) for each in parents)
        return is_below or self.excludes(name, directory=False)


def read_ignore_file(directory: Path) -> IgnoreFile | None:
    """Return the patterns of the directory's `.irisignore`; None if the file does not exist. Raises UsageError."""
    path = directory / IGNORE_FILE
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path} is not a file", hint="move it away")
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    if len(raw) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than {_MAX_BYTES} bytes")
    try:
        return IgnoreFile(raw.decode("utf-8-sig", "surrogateescape"))
    except UsageError as error:
        raise UsageError(f"{path}:{error.message}", hint=error.hint) from error


def _pattern(line: str, number: int) -> _Pattern | None:
    text = _TRAILING_BLANKS.sub(r"\1", line)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        regex = _translate(text.removeprefix("/"))
    except ValueError as error:
        raise UsageError(f"{number}: {clip(line)!r}: {error}", hint="see gitignore(5)") from error
    return _Pattern(
        re.compile(regex if anchored else f"(?:.*/)?{regex}", re.DOTALL), negated, directories_only
    )


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern, for a match of the whole name. Raises ValueError."""
    regex, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        if character == "*" and _STARS.match(pattern, position):
            if position + 2 == len(pattern):  # `a/**`: everything in `a`
                return regex + ".+"
            regex, position = f"{regex}(?:.+/)?", position + 3  # `**/`, `a/**/b`: any number of directories
        elif character == "*":
            while pattern[position : position + 1] == "*":
                position += 1
            regex += "[^/]*"
        elif character == "?":
            regex, position = f"{regex}[^/]", position + 1
        elif character == "[":
            character_class, position = _translate_class(pattern, position)
            regex += character_class
        elif character == "\\":
            if position + 1 == len(pattern):
                raise ValueError("nothing follows the last backslash")
            regex, position = regex + re.escape(pattern[position + 1]), position + 2
        else:
            regex, position = regex + re.escape(character), position + 1
    return regex


def _translate_class(pattern: str, start: int) -> tuple[str, int]:
    """Return the regular expression of a class such as `[a-z]`, and the position after it. Raises ValueError."""
    position = start + 1
    negated = pattern[position : position + 1] in ("!", "^")
    position += negated
    inside, first = "", True
    while first or pattern[position : position + 1] != "]":
        first = False
        low, position = _read_character(pattern, position)
        high = low
        if pattern[position : position + 1] == "-" and pattern[position + 1 : position + 2] not in ("", "]"):
            high, position = _read_character(pattern, position + 1)
        if low > high:
            raise ValueError(f"the range {low!r}-{high!r} is empty")
        inside += f"{re.escape(low)}-{re.escape(high)}"
    return f"(?!/)[{'^' if negated else ''}{inside}]", position + 1


def _read_character(pattern: str, position: int) -> tuple[str, int]:
    """Return the character of a class at this position, without its backslash, and the position after it."""
    if pattern[position : position + 1] == "\\":
        position += 1
    if pattern[position : position + 2] in ("[:", "[.", "[="):
        raise ValueError("named classes are not supported")
    if position >= len(pattern):
        raise ValueError("its '[' is not closed")
    return pattern[position], position + 1
