"""Which files of a directory are shipped.

In a git work tree those that git tracks and those that it neither tracks nor ignores; elsewhere all. In both cases,
files matched by `.irisignore` are excluded, and so are iris's own: the state directory, `cluster.yaml`, pulled files.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from iris_cli.core.ids import clip
from iris_cli.core.work_paths import PULLED
from iris_cli.errors import UsageError
from iris_cli.ops.workspace.ignore import IGNORE_FILE, IgnoreFile, read_ignore_file

MOST_FILES = 200_000

_GIT = (
    "git",
    "-c",
    "core.fsmonitor=false",
)  # which may name a program, and a directory may come from anywhere
_PATIENCE = 300.0  # seconds for one answer of git
_NO_WORK_TREE = ("not a git repository", "must be run in a work tree")
_WHICH_REPOSITORY = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    }
)
"""Set where iris is run by a hook of git; they would name another directory than ours."""


class _GitError(Exception):
    """Git can't tell; the message says why."""


class Selection(Struct, frozen=True):
    """Names relative to the directory, with `/`, as bytes of the system, in the order of these bytes.

    `by` says who chose them, `words` what else people should know.
    """

    names: tuple[str, ...]
    by: str
    words: tuple[str, ...] = ()


def select(directory: Path, own: Sequence[Path] = ()) -> Selection:
    """Choose among the files of a directory, a real path, except `own` ones. Raises UsageError."""
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
    """What git would choose; None if it has nothing to do with the directory. Raises _GitError."""
    if not any(os.path.lexists(each / ".git") for each in (directory, *directory.parents)):
        return None
    try:
        if _git(directory, "check-ignore", "-q", ".", codes=(0, 1)).returncode == 0:
            return None  # such as a build directory, or all of a home whose settings are kept in git
        return list(_bounded(directory, filter(shipped, _listed(directory, "", words))))
    except _NoWorkTreeError:
        return None


def _listed(top: Path, below: str, words: list[str]) -> Iterator[str]:
    """The files of one repository, and of those in it: submodules and others that git only names."""
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
    """Whether there is a directory, and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


class _NoWorkTreeError(Exception):
    """Git says that there is no work tree."""


def _git(
    directory: Path, *arguments: str, codes: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    """Ask git. Raises _GitError and _NoWorkTreeError."""
    env = {name: value for name, value in os.environ.items() if name not in _WHICH_REPOSITORY}
    env |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - git with arguments of ours
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
    """Everything that isn't excluded, except git's own directory. Links are not followed."""
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
