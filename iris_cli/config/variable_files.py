"""Read environment variables, and the files that job options name: files of variables, files with a line per task."""

from pathlib import Path

from iris_cli.config.reading import Setting, mapping_of, scalar_text, text
from iris_cli.config.yaml_source import Report
from iris_cli.core import check_variable, clip, pattern
from iris_cli.core.model.array import split_lines
from iris_cli.errors import UsageError
from iris_cli.files import read_limited

MAX_BYTES = 1 << 20

_LINE = pattern(r"(?:export\s+)?(?P<name>[^=\s]+)\s*=\s*(?P<value>.*)")


def expand_home(name: str) -> Path:
    """Expand `~` or `~user` at the start of a path. Raises UsageError."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UsageError(f"{clip(name)}: no such home directory") from None


def path_of(setting: Setting) -> Path:
    """Parse a path, which is relative to the directory of the file in which it is written."""
    return setting.report.file.parent / expand_home(text(setting))


def read_variables(setting: Setting) -> dict[str, str]:
    """Parse a mapping of variables. Numbers and booleans become text as written in the file."""
    for name, entry in setting.entries().items():
        try:
            check_variable(name)
        except UsageError as error:
            entry.problem(error.message, error.hint)
    return mapping_of(scalar_text)(setting)


def read_env_file(path: Path) -> dict[str, str]:
    """Read a file with `NAME=value` lines. `export`, quotes around values, and `#` comments are optional.

    Variables in values are not expanded. Raises ConfigError with all problems of the file.
    """
    report = Report(path)
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(path, report), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        try:
            if match is None:
                raise UsageError("not a variable", hint="write NAME=value")
            check_variable(match["name"])
        except UsageError as error:
            report.add(number, "", error.message, error.hint)
        else:
            found[match["name"]] = _strip_quotes(match["value"])
    report.raise_if_any()
    return found


def _lines(path: Path, report: Report) -> list[str]:
    try:
        if not path.is_file():
            raise ValueError("not a regular file" if path.exists() else "no such file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES or b"\0" in data:
            raise ValueError("not a file of variables: too large, or with NUL bytes")
        # `splitlines` would also split at Unicode line separators, which a value may contain.
        return data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        report.add(1, "", "not UTF-8 text")
    except ValueError as error:
        report.add(1, "", str(error))
    except OSError as error:
        report.add(1, "", error.strerror or str(error))
    return []


def _strip_quotes(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


MAX_BYTES_OF_LINES = 64 << 20


def read_lines(path: Path) -> tuple[str, ...]:
    """Read the lines of a file for `--each-line`. Raises UsageError."""
    return split_lines(str(path), read_limited(str(path), MAX_BYTES_OF_LINES))
