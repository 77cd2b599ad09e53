"""The `slice_template` of a scale group of Slurm allocations."""

from __future__ import annotations

from iris_cli.config.hosts import host_name
from iris_cli.config.job_file import duration
from iris_cli.config.reading import Section, Setting, boolean, integer, list_of, matching, one_of, scalar_text
from iris_cli.core import PREEMPTIBLE_ATTRIBUTE_KEY, pattern
from iris_cli.core.model.slice import NodeAccess, Provider, SliceTemplate, SlurmOptions
from iris_cli.errors import UsageError

SLURM_ONLY = SlurmOptions.__struct_fields__
"""The keys of a template that only this provider has."""
_WORDS = pattern(r"[A-Za-z0-9_][A-Za-z0-9_.,:@=/*&|()\[\]-]{0,254}")
_DIRECTIVE = pattern(r"(-[A-Za-z]|--[a-z][a-z-]{0,40})((=| )[^\x00-\x1f\x7f]{1,255})?")
_MOST_NODES = 4096
_RESERVED_NAMES = (
    "job-name J comment dependency d nodes N ntasks-per-node chdir D output o error e partition p account A qos q"
    " time t gres constraint C requeue no-requeue parsable wrap array a wait W test-only clusters M"
)
_RESERVED = frozenset(_RESERVED_NAMES.split())


def slurm_template(entry: Section) -> SliceTemplate:
    """Parse the template of Slurm allocations. A time limit of 0, or none, is the partition's default."""
    words = matching(
        _WORDS, "a name of Slurm's", "see `sinfo`, `sacctmgr show assoc`, `scontrol show partition`"
    )
    options = SlurmOptions(
        nodes=entry.get("nodes", integer(1, _MOST_NODES), 1),
        partition=entry.get("partition", words, ""),
        account=entry.get("account", words, ""),
        qos=entry.get("qos", words, ""),
        time=entry.get("time", duration, 0.0),
        gres=entry.get("gres", words, ""),
        constraint=entry.get("constraint", words, ""),
        directives=entry.get("directives", list_of(_directive), ()),
        login=entry.get("login", host_name, ""),
        transport=entry.get("transport", one_of(NodeAccess), NodeAccess.SSH),
    )
    return SliceTemplate(
        provider=Provider.SLURM,
        type="",
        preemptible=entry.get(PREEMPTIBLE_ATTRIBUTE_KEY, boolean, False),
        slurm=options,
    )


def _directive(setting: Setting) -> str:
    """Parse another option of sbatch as one argument: `--exclusive`, `--mem=64G`."""
    found = scalar_text(setting)
    if _DIRECTIVE.fullmatch(found) is None:
        raise UsageError("not an option of sbatch", hint="write it like --exclusive or --mem=64G")
    name, _, value = found.lstrip("-").replace(" ", "=", 1).partition("=")
    if name in _RESERVED:
        raise UsageError(
            f"{name} is set by iris", hint="some options are keys of slice_template: nodes, time, gres"
        )
    if not found.startswith("--"):
        return f"-{name}{value}"
    return f"--{name}={value}" if value else f"--{name}"
