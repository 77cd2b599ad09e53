"""Everything that is wrong with a file, collected so that it is reported at once."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from iris_cli.errors import ConfigError

_MOST = 100


class Problem(Struct, frozen=True):
    """One finding. `path` leads to it from the top of the file, such as `slices[0].hosts`; '' is the file."""

    line: int
    path: str
    message: str
    hint: str = ""


class Report(Struct):
    """The findings about one file, in the order they were made."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, line: int, path: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(line, path, message, hint))

    def warn(self, line: int, path: str, message: str) -> None:
        self.warnings.append(self._text(Problem(line, path, message)))

    @property
    def crowded(self) -> bool:
        """So much is wrong that more help with each single one would only cost time."""
        return len(self.problems) >= _MOST

    def raise_if_any(self) -> None:
        """Raise a ConfigError with all problems by line, if there are any."""
        if not self.problems:
            return
        ordered = sorted(self.problems, key=lambda problem: problem.line)
        lines = [self._text(problem) for problem in ordered[:_MOST]]
        if len(ordered) > _MOST:
            lines.append(f"{self.file}: and {len(ordered) - _MOST} more")
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        raise ConfigError(f"{self.file} has {count}", problems=tuple(lines))

    def _text(self, problem: Problem) -> str:
        path = f" {problem.path}:" if problem.path else ""
        hint = f" ({problem.hint})" if problem.hint else ""
        return f"{self.file}:{problem.line}:{path} {problem.message}{hint}"
