"""Sizes and durations in text form: `512MiB`, `8GB`, `90s`, `10m`, `2h`."""

import math

from iris_cli.core.text import pattern
from iris_cli.errors import UsageError

_DECIMAL_UNITS = {"PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3}
_BINARY_UNITS = {"PiB": 1 << 50, "TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_UNITS = {name.lower(): size for name, size in {**_DECIMAL_UNITS, **_BINARY_UNITS, "B": 1}.items()}
_MEMORY = pattern(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*([a-zA-Z]*)")
_MIN_BARE_NUMBER = 1 << 20  # bytes: smaller numbers are refused, because `memory: 16` means 16 GB to a user
_MAX_MEMORY = 1 << 60  # bytes

_WHOLE = pattern(r"[+-]?[0-9]{1,99}")
_NUMBER = pattern(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = pattern(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d))+")
_DURATION_PART = pattern(r"([0-9.]+)(ms|s|m|h|d)")
_MAX_SECONDS = 1e10


def count(number: int, noun: str) -> str:
    """Return `1 task`, `3 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parse_whole(text: str) -> int:
    """Parse a whole number in decimal digits. Raises UsageError, also for `1_0` and digits outside ASCII."""
    if not _WHOLE.fullmatch(text):
        raise UsageError(f"{text[:80]!r} is not a whole number")
    return int(text)


def parse_index(text: str) -> int:
    """Parse the number of a rank or an attempt. Raises UsageError."""
    number = parse_whole(text)
    if number < 0:
        raise UsageError(f"{number} is less than 0")
    return number


def parse_number(text: str) -> float:
    """Parse a finite decimal number. Raises UsageError, also for `nan`, `1_0` and digits outside ASCII."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise UsageError(f"{text[:80]!r} is not a number")
    return float(text)


def parse_memory(value: str | int) -> int:
    """Parse `512MiB`, `8GB`, `1.5TiB`, or a bare number of bytes (1 MiB or more) to bytes. Raises UsageError."""
    text = str(value).strip()
    match = None if isinstance(value, bool) else _MEMORY.fullmatch(text)
    unit = _UNITS.get(match[3].lower() or "b", 0) if match else 0
    if not match or not unit:
        raise UsageError(f"{text[:80]!r} is not a size", hint="examples: 512MiB, 8GB, 1.5TiB")
    fraction = match[2] or ""
    divisor: int = 10 ** len(fraction)
    size = int(match[1] + fraction) * unit // divisor
    if not match[3] and 0 < size < _MIN_BARE_NUMBER:
        raise UsageError(f"{text!r} would be {size} bytes", hint=f"give the unit: {text}GB or {text}GiB")
    if not 0 < size <= _MAX_MEMORY:
        raise UsageError(f"{text[:80]!r} is not a possible size", hint="examples: 512MiB, 8GB, 1.5TiB")
    return size


def format_cores(cores: float) -> str:
    """Return `1 core`, `0.5 cores` or `16 cores`."""
    return f"{cores:g} {'core' if cores == 1 else 'cores'}"


def format_memory(size: int) -> str:
    """Return the exact size (`8GB`, `512MiB`) if three digits are enough, otherwise the size rounded down (`1.53GiB`).

    A user who asks for the printed size of a worker must not ask for more than the worker has.
    """
    for units in (_BINARY_UNITS, _DECIMAL_UNITS):
        for unit, bytes_each in units.items():
            if size % bytes_each == 0 and 0 < size // bytes_each < 1000:
                return f"{size // bytes_each}{unit}"
    for unit, bytes_each in _BINARY_UNITS.items():
        if size >= bytes_each:
            return f"{size * 100 // bytes_each / 100:.2f}{unit}"
    return f"{size}B"


def parse_duration(value: str | int | float) -> float:
    """Parse `90s`, `10m`, `1h30m`, `2d`, `500ms`, or a bare number to seconds. Raises UsageError."""
    text = str(value).strip()
    if _DURATION.fullmatch(text):
        seconds = math.fsum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
    else:
        is_number = not isinstance(value, bool) and _NUMBER.fullmatch(text)
        seconds = float(text) if is_number else -1.0
    if not 0 <= seconds <= _MAX_SECONDS:
        raise UsageError(f"{text[:80]!r} is not a duration", hint="examples: 90s, 10m, 2h")
    return seconds


def format_duration(seconds: float) -> str:
    """Return the two largest units (`45s`, `1m30s`, `1d6h`); one decimal below ten seconds; `0s` if negative."""
    seconds = max(0.0, seconds)
    if seconds < 10 and round(seconds, 1) % 1:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit in ("d", "h", "m", "s"):
        number, rest = divmod(rest, int(_SECONDS[unit]))
        if number or parts:
            parts.append((number, unit))
    return "".join(f"{number}{unit}" for number, unit in parts[:2] if number) or "0s"
