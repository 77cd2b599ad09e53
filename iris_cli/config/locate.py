"""Find `cluster.yaml`, and files in home directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iris_cli.core.ids import clip
from iris_cli.errors import ConfigError, UsageError

FILE_NAME = "cluster.yaml"


def expand_home(name: str) -> Path:
    """Expand `~` or `~user` at the start of a path. Raises UsageError."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise UsageError(f"{clip(name)}: no such home directory") from None


def find_config(config_option: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the path of the configuration file. `config_option`: the value of --config.

    Return the first of: `config_option`, `$IRIS_CONFIG`, `./cluster.yaml` if it exists, and the file in the user's
    configuration directory. Raises ConfigError if the file does not exist.
    """
    named = config_option or (Path(environ["IRIS_CONFIG"]) if environ.get("IRIS_CONFIG") else None)
    if named is not None:
        path = cwd / named
        if not path.is_file():
            source = "--config" if config_option else "$IRIS_CONFIG"
            raise ConfigError(f"{source}: no such file: {named}", hint="create one: iris init")
        return path
    paths = [cwd / FILE_NAME, *_user_paths(environ)]
    for path in paths:
        if path.is_file():
            return path
    raise ConfigError(
        f"no {FILE_NAME} (looked for {', '.join(map(str, paths))})",
        hint="create one: iris cluster import or iris init; or use --config FILE",
    )


def _user_paths(environ: Mapping[str, str]) -> list[Path]:
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # by the XDG specification, programs must ignore relative paths
        home = environ.get("HOME")
        base = f"{home}/.config" if home else ""
    return [Path(base, "iris", FILE_NAME)] if base else []
