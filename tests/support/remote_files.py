"""Files of attempts in memory instead of the calls that fetch them: false answers, and files that change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from iris_cli.core.ids import Token
from iris_cli.core.messages.observations import Silence
from iris_cli.remote.output_calls import BLOCK, PIECE, FileList, FileLists, FilePiece, OutputCalls, Version
from iris_cli.remote.transport import Target
from tests.ops.world import silence

LONG_AGO = 1_700_000_000


@dataclass
class RemoteFile:
    data: bytes
    mtime: int = LONG_AGO
    inode: int = 7

    @property
    def version(self) -> Version:
        return Version(len(self.data), self.mtime, self.inode)


@dataclass
class RemoteFiles(OutputCalls):
    """Files by token and name. `asked` are the calls; a function may be called before each of them."""

    files: dict[Token, dict[bytes, RemoteFile]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    gone: set[Token] = field(default_factory=set)
    linked: set[Token] = field(default_factory=set)  # attempts whose output is a link
    unlisted: set[bytes] = field(default_factory=set)  # names without a version in the list
    room: int = 1_000_000  # maximum number of files in one answer
    asked: list[tuple[object, ...]] = field(default_factory=list)
    before: Callable[[tuple[object, ...]], None] = lambda _: None

    def put(self, token: Token, name: str | bytes, data: bytes, mtime: int = LONG_AGO) -> None:
        raw = name if isinstance(name, bytes) else name.encode()
        self.files.setdefault(token, {})[raw] = RemoteFile(data, mtime)

    def _ask_for(self, target: Target, *what: object) -> Silence | None:
        self.asked.append(what)
        self.before(what)
        return silence(target.worker) if target.worker in self.silent else None

    def files_of(self, token: Token) -> FileList:
        listed = {
            name: None if name in self.unlisted else file.version
            for name, file in self.files.get(token, {}).items()
        }
        return FileList(
            token=token, files=tuple(listed.items()), gone=token in self.gone, link=token in self.linked
        )

    def list_files(self, target: Target, tokens: Sequence[Token]) -> FileLists | Silence:
        said = self._ask_for(target, "files", *tokens)
        lists = tuple(self._cut(self.files_of(token), self.room // len(tokens)) for token in tokens)
        return said or FileLists(clock=LONG_AGO + 1000.0, lists=lists)

    def _cut(self, found: FileList, room: int) -> FileList:
        return replace(found, files=found.files[:room], cut=True) if len(found.files) > room else found

    def batch(
        self, target: Target, token: Token, names: Sequence[bytes]
    ) -> tuple[tuple[Version, bytes], ...] | Silence | None:
        said = self._ask_for(target, "batch", *names)
        there = self.files.get(token, {})
        if said or any(name not in there for name in names):
            return said
        return tuple((there[name].version, there[name].data) for name in names)

    def piece(
        self, target: Target, token: Token, name: bytes, offset: int, limit: int = PIECE
    ) -> FilePiece | Silence:
        said = self._ask_for(target, "piece", name, offset)
        file = self.files.get(token, {}).get(name)
        if said or file is None:
            return said or FilePiece(data=b"", offset=0, version=Version(0, 0, 0))
        end = -(-(offset + min(limit, PIECE)) // BLOCK) * BLOCK if limit > BLOCK else offset + limit
        return FilePiece(
            data=file.data[offset : min(end, offset + limit)], offset=offset, version=file.version
        )
