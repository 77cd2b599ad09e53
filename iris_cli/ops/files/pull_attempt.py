"""Pull the files of one attempt from its worker, one after the other."""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field

from iris_cli.core import AttemptId, Token, WorkerId, clip, format_memory
from iris_cli.core.messages.observations import Silence
from iris_cli.errors import NotWritableError
from iris_cli.journal.files.pulled_logs import PulledLogs
from iris_cli.ops.cycle.answers import answered
from iris_cli.ops.files.local_tree import BadNameError, LocalTree, PartialFile, split_name
from iris_cli.remote import output_calls
from iris_cli.remote.transport import Target

SMALL = 64 << 10  # bytes; files of at most this size are fetched together

_OUTPUT_PREFIX = b"output/"
_STREAMS = {b"out": "out", b"err": "err"}
_TRIES = 3  # maximum fetches of a file that changes during the fetch
_FRESH = 2.0  # seconds; a file that changed more recently may change again without a new modification time
_MAX_MESSAGES = 5
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class PulledAttempt(Struct, kw_only=True):
    """Result of pulling the files of one attempt.

    `files` is the number of fetched files, `bytes` their size. `unchanged` is the number of files whose local copies
    were up to date. `log_bytes`: fetched bytes of stdout and stderr. `problems` name the files that could not be
    fetched. `silence`: the call without a usable answer. `silent`: True if the worker did not answer at all.
    """

    OMITTED: ClassVar = ("silence",)

    attempt: AttemptId
    worker: WorkerId
    directory: Path
    files: int = 0
    bytes: int = 0
    unchanged: int = 0
    log_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    silent: bool = False
    silence: Silence | None = None


class _WantedFile(Struct, frozen=True):
    name: bytes
    parts: tuple[bytes, ...]
    version: output_calls.Version | None


class Puller(Struct, kw_only=True):
    """Fetches the files of one attempt, and fills in `result`.

    `clock`: the worker's time when it listed the files. `report_progress` gets the size of each fetched piece.
    """

    calls: output_calls.OutputCalls
    target: Target
    token: Token
    clock: float
    result: PulledAttempt
    report_progress: Callable[[int], None]

    def pull(self, found: output_calls.FileList, tree: LocalTree) -> None:
        """Fetch the files that are missing locally. Raises SilentError, and NotWritableError on a full disk."""
        wanted = list(self._missing_files(found, tree))
        needed = sum(each.version.size for each in wanted if each.version is not None)
        if needed > tree.free:
            self.result.problems.append(
                f"its files take {format_memory(needed)}, only {format_memory(tree.free)} free on this machine"
            )
            return
        for group in _groups(wanted):
            self._fetch_group(tree, group)
        tree.clean()

    def _missing_files(self, found: output_calls.FileList, tree: LocalTree) -> Iterator[_WantedFile]:
        """Yield the listed files that are missing or different locally. Record files with bad names as problems."""
        used_names: set[tuple[bytes, ...]] = set()
        for name, version in found.files:
            if name in _STREAMS:
                continue
            try:
                if not name.startswith(_OUTPUT_PREFIX):
                    raise BadNameError("not a file of this attempt")
                parts = split_name(name.removeprefix(_OUTPUT_PREFIX))
                if parts in used_names:
                    raise BadNameError("another file has the same local name")
            except BadNameError as error:
                self._problem(name, str(error))
                continue
            used_names.add(parts)
            if version is not None and tree.has(parts, version.size, version.mtime):
                self.result.unchanged += 1
            else:
                yield _WantedFile(name, parts, version)

    def _fetch_group(self, tree: LocalTree, group: Sequence[_WantedFile]) -> None:
        if len(group) > 1:
            answer = answered(self.calls.batch(self.target, self.token, [each.name for each in group]))
            if answer is not None:
                for each, (version, data) in zip(group, answer, strict=True):
                    with self._recording_errors(each), tree.partial_file(each.parts, version) as file:
                        file.write(data, 0)
                        self.report_progress(len(data))
                        self._finish(file, version, len(data), changed=False)
                return
        for each in group:
            with self._recording_errors(each):
                self._fetch(tree, each)

    @contextmanager
    def _recording_errors(self, wanted: _WantedFile) -> Iterator[None]:
        """Record an OSError in the block as a problem of this file. On a full disk raise NotWritableError."""
        try:
            yield
        except OSError as error:
            if error.errno in _DISK_ERRORS:
                raise NotWritableError(
                    f"the files of {self.target.worker} can't be written: {error.strerror}",
                    hint="free some space, then run iris pull again: the pull resumes",
                ) from error
            self._problem(wanted.name, f"can't be written ({error.strerror or error})")

    def _fetch(self, tree: LocalTree, wanted: _WantedFile) -> None:
        """Fetch one file. Resume an interrupted fetch. Raises OSError."""
        version = wanted.version
        for _ in range(_TRIES):
            version = version or self._piece(wanted.name, 0, 1).version
            if not version.inode:
                self.result.notes.append(f"{_printable(wanted.name)} was removed during the pull")
                return
            with tree.partial_file(wanted.parts, version) as file:
                version = self._fetch_version(file, wanted.name, version)
            if version is None:
                return
        self._problem(wanted.name, "not fetched, the file keeps changing")

    def _fetch_version(
        self, file: PartialFile, name: bytes, version: output_calls.Version
    ) -> output_calls.Version | None:
        """Fetch the listed number of bytes, and return None. If the file was replaced, return its new version."""
        offset, changed = min(file.size, version.size), False
        while True:
            piece = self._piece(name, offset)
            current = piece.version
            if current != version:
                if current.inode != version.inode or current.size < version.size:
                    file.truncate()
                    return current
                changed = True
            data = piece.data[: version.size - offset]
            file.write(data, offset)
            self.report_progress(len(data))
            offset += len(data)
            if offset >= version.size:
                self._finish(file, version, version.size, changed=changed)
                return None
            if not data:
                file.truncate()
                return current

    def _piece(self, name: bytes, offset: int, limit: int = output_calls.PIECE) -> output_calls.FilePiece:
        return answered(self.calls.piece(self.target, self.token, name, offset, limit))

    def _finish(self, file: PartialFile, version: output_calls.Version, size: int, *, changed: bool) -> None:
        """Finish a file. If it may still change, set its time back a second, so that the next pull fetches it again."""
        may_change = changed or version.mtime > self.clock - _FRESH
        file.finish(size, version.mtime - may_change)
        self.result.files += 1
        self.result.bytes += size
        if changed:
            self.result.notes.append("files were still being written; pull again after the attempt has ended")

    def pull_logs(
        self, found: output_calls.FileList, attempt: AttemptId, logs: PulledLogs, listed_at: float
    ) -> None:
        """Fetch the part of stdout and stderr that isn't stored yet. Raises SilentError, NotWritableError.

        The next pull continues an interrupted fetch. A complete copy is recorded with the time `listed_at`.
        """
        is_complete = True
        for name, version in found.files:
            stream = _STREAMS.get(name)
            if stream is None or version is None:
                continue
            if (stored := logs.size(attempt, stream)) > version.size:
                logs.forget(attempt, stream)  # the file was replaced
                stored = 0
            tries = _TRIES
            while stored < version.size and tries:
                data = self._piece(name, stored).data[: version.size - stored]
                if not data:
                    break
                if not logs.put(attempt, stream, stored, data):
                    stored, tries = logs.size(attempt, stream), tries - 1  # another pull has changed the copy
                    continue
                stored += len(data)
                self.result.log_bytes += len(data)
                self.report_progress(len(data))
            is_complete = is_complete and stored >= version.size
        if is_complete:
            logs.finish(attempt, listed_at)

    def _problem(self, name: bytes, why: str) -> None:
        self.result.problems.append(f"{_printable(name)}: {why}")


def _groups(wanted: Sequence[_WantedFile]) -> Iterator[list[_WantedFile]]:
    """Yield groups of files. One call fetches a group of small files. A large file is a group by itself."""
    group: list[_WantedFile] = []
    size = name_sizes = 0
    for each in wanted:
        if each.version is not None and each.version.size > SMALL:
            yield [each]
            continue
        # A file of unknown size is treated as small. If a group is too large, its files are fetched one by one.
        file_size = SMALL if each.version is None else each.version.size
        name_size = 4 * len(each.name)
        if group and (
            size + file_size > output_calls.PIECE
            or name_sizes + name_size > output_calls.MAX_NAME_BYTES
            or len(group) == output_calls.MAX_NAMES
        ):
            yield group
            group, size, name_sizes = [], 0, 0
        group.append(each)
        size, name_sizes = size + file_size, name_sizes + name_size
    if group:
        yield group


def _printable(name: bytes) -> str:
    return clip(name.decode("utf-8", "replace"))


def shorten(messages: Sequence[str]) -> list[str]:
    """Return the first _MAX_MESSAGES distinct messages, and a message with the number of the others."""
    distinct = list(dict.fromkeys(messages))
    more = len(distinct) - _MAX_MESSAGES
    return [*distinct[:_MAX_MESSAGES], *([f"{more} more"] if more > 0 else [])]
