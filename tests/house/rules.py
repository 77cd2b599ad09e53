"""The rules of the house, each a function from one parsed module to what it finds wrong there."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "iris_cli"

# Who may import whom. Everybody may import errors, and everybody but core the clock, randomness, decoding and files.
_BELOW = {
    "core": frozenset({"errors"}),
    "journal": frozenset({"core"}),
    "remote": frozenset({"core"}),
    "capacity": frozenset({"core"}),
    "config": frozenset({"core"}),
    "ops": frozenset({"core", "journal", "remote", "capacity", "config"}),
    "client": frozenset({"core", "journal", "remote", "capacity", "config", "ops"}),
    "render": frozenset({"core", "journal", "remote", "capacity", "config", "ops"}),
    "demo": frozenset({"core", "remote", "capacity", "ops", "render"}),
    "cli": frozenset({"core", "journal", "remote", "capacity", "config", "ops", "client", "render", "demo"}),
    "__main__": frozenset({"cli"}),
    "errors": frozenset[str](),
    "clock": frozenset[str](),
    "randomness": frozenset[str](),
    "decoding": frozenset[str](),
    "files": frozenset({"core"}),
}
# The provider `local`, one command of many, and all modules that a loop keeps.
_IMPORT_BY_NAME = frozenset({"iris_cli.capacity.opening", "iris_cli.cli.tree", "iris_cli.ops.loop.run"})
_CORE_IMPORTS = frozenset(
    (
        *("__future__", "bisect", "collections", "collections.abc", "contextlib", "copy", "difflib"),
        *("enum", "functools", "gc", "heapq", "itertools", "math", "operator", "re", "signal", "types"),
        *("typing", "msgspec", "msgspec.structs"),
    )
)
_HOMES = {
    "paramiko": frozenset({"remote"}),
    "filelock": frozenset({"journal"}),
    "yaml": frozenset({"config"}),
    "typer": frozenset({"cli"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli", "render"}),
    "google": frozenset({"capacity"}),
}
_KEYS = frozenset({"region", "preemptible", "tpu-name"})
_KEYS_HOME = "iris_cli.core.attributes"
_TABLES = frozenset({"jobs", "tasks", "workers", "slices", "scale_groups", "claims"})
_ORDERLESS = frozenset({"set", "frozenset", "sorted", "sum", "any", "all", "len", "min", "max", "Counter"})
_ORDERED = frozenset({"list", "tuple", "iter", "enumerate", "map", "zip", "filter", "dict"})
_PORTS = {
    "iris_cli.clock": frozenset({"time"}),
    "iris_cli.randomness": frozenset({"os.urandom"}),
    # A part of the program of tasks, which has no port.
    "iris_cli.remote.inside.requests": frozenset({"time", "os.urandom"}),
}
_CLOCKS_AND_DICE = frozenset({"time", "random", "secrets", "uuid"})
_READINGS = frozenset({"now", "today", "utcnow"})  # of datetime and date


@dataclass(frozen=True)
class Module:
    """One Python file: its dotted name and its text."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        gc.disable()  # it would take twice as long as the parser
        try:
            return ast.parse(self.text)
        finally:
            gc.enable()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the tree."""
        return list(ast.walk(self.tree))

    def has(self, words: Iterable[str]) -> bool:
        """Return whether the text contains one of the words. Otherwise the tree need not be searched."""
        return any(word in self.text for word in words)

    @property
    def layer(self) -> str:
        """The part of the house it belongs to; '' for the package itself and for what isn't in it."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else ""

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Line and dotted name of everything imported, also inside functions."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = f"{'.' * node.level}{node.module or ''}"
                whole = base in (PACKAGE, f"{PACKAGE}.")
                found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names if whole]
                found += [] if whole else [(node.lineno, base)]
        return found


@cache
def house() -> list[Module]:
    """Every module of the package."""
    return [_module(path) for path in sorted((ROOT / PACKAGE).rglob("*.py"))]


@cache
def tests() -> list[Module]:
    """Every test module."""
    return [_module(path) for path in sorted((ROOT / "tests").rglob("*.py"))]


def _module(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text("utf-8"))


def imports_upwards(module: Module) -> Iterator[str]:
    if not module.layer:
        return
    allowed = _BELOW.get(module.layer)
    if allowed is None:
        yield f"{module.name} is in none of the layers {', '.join(_BELOW)}"
        return
    common = {"errors"} | ({"clock", "randomness", "decoding", "files"} if module.layer != "core" else set())
    for line, name in module.imports:
        if name.startswith("."):
            yield f"{module.name}:{line} imports relatively: say the whole name"
        other = Module(name, "").layer
        if other not in ("", "__version__") and other not in allowed | common | {module.layer}:
            yield f"{module.name}:{line} imports {name}: {module.layer} may not know {other}"


def imports_by_name(module: Module) -> Iterator[str]:
    """Imports that the rule of the layers can't see."""
    by_name = ("import_module", "__import__")
    if module.layer and module.name not in _IMPORT_BY_NAME and module.has(by_name):
        for line, named in names_in(module):
            if named in by_name:
                yield f"{module.name}:{line} imports by name: write an import"


def strayed_clocks_and_dice(module: Module) -> Iterator[str]:
    """Time and randomness come from their ports, so that a test can give others."""
    if not module.layer:
        return
    allowed = _PORTS.get(module.name, frozenset())
    for line, name in _sources(module):
        if name not in allowed and name.split(".")[0] not in allowed:
            yield f"{module.name}:{line} uses {name}: take it from iris_cli.clock or iris_cli.randomness"


def _sources(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((node.lineno, name) for name in names if name.split(".")[0] in _CLOCKS_AND_DICE)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (
                (node.lineno, name)
                for name in names
                if node.module in _CLOCKS_AND_DICE or name == "os.urandom"
            )
        elif isinstance(node, ast.Attribute) and (node.attr == "urandom" or node.attr in _READINGS):
            of = ast.unparse(node.value)
            if (of, node.attr) == ("os", "urandom") or (
                node.attr in _READINGS and of.split(".")[-1] in ("datetime", "date")
            ):
                yield node.lineno, f"{of}.{node.attr}"


def impure_core(module: Module) -> Iterator[str]:
    if module.layer != "core":
        return
    for line, name in module.imports:
        known = name in _CORE_IMPORTS or name.split(".")[0] == PACKAGE
        if not known:
            yield f"{module.name}:{line} imports {name}: core is pure, it knows no world outside"


def strayed_dependencies(module: Module) -> Iterator[str]:
    if module.name.split(".")[0] != PACKAGE:
        return
    for line, name in module.imports:
        homes = _HOMES.get(name.split(".")[0])
        if homes is not None and module.layer not in homes:
            yield f"{module.name}:{line} imports {name}, which belongs to {' and '.join(sorted(homes))}"


def iterated_sets(module: Module) -> Iterator[str]:
    """Sets that are walked through in core: their order differs from run to run."""
    if module.layer != "core":
        return
    harmless: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.SetComp):
            harmless.update(id(each) for each in node.generators)
        if isinstance(node, ast.Call) and name_of(node.func) in _ORDERLESS:
            harmless.update(
                id(each)
                for argument in node.args
                if isinstance(argument, (ast.GeneratorExp, ast.ListComp))
                for each in argument.generators
            )
    for node in module.nodes:
        walked: list[ast.expr] = []
        if isinstance(node, ast.For) or (isinstance(node, ast.comprehension) and id(node) not in harmless):
            walked = [node.iter]
        elif isinstance(node, ast.Call) and name_of(node.func) in _ORDERED:
            walked = node.args
        for each in walked:
            if _is_set(each):
                yield f"{module.name}:{each.lineno} walks through a set: sort it, or keep a dict"


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_set(node.left) or _is_set(node.right)
    return isinstance(node, (ast.Set, ast.SetComp)) or (
        isinstance(node, ast.Call) and name_of(node.func) in ("set", "frozenset")
    )


def name_of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def raw_keys(module: Module) -> Iterator[str]:
    """Well-known attribute keys as literals: a typing error in one of them places jobs wrongly, in silence."""
    if module.layer and module.name != _KEYS_HOME and module.has(_KEYS):
        words = {
            id(line.value)
            for node in module.nodes
            if isinstance(node, ast.ClassDef) and "StrEnum" in map(name_of, node.bases)
            for line in node.body
            if isinstance(line, ast.Assign)
        }
        for node in module.nodes:
            if isinstance(node, ast.Constant) and node.value in _KEYS and id(node) not in words:
                yield f"{module.name}:{node.lineno} writes {node.value!r} where {_KEYS_HOME} has a constant"


def rebound_constants(module: Module) -> Iterator[str]:
    """Constants of a module that are assigned twice: the second value counts everywhere, in silence."""
    bound: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            for name in filter(None, map(name_of, node.targets)):
                if name in bound:
                    yield f"{module.name}:{node.lineno} assigns {name} again"
                bound.add(name)


def prints(module: Module) -> Iterator[str]:
    if module.layer and module.layer != "render":
        for node in module.nodes:
            if isinstance(node, ast.Call) and name_of(node.func) == "print":
                yield f"{module.name}:{node.lineno} prints: only render does"


def trusting_policies(module: Module) -> Iterator[str]:
    trusting = ("AutoAddPolicy", "WarningPolicy")
    for line, named in names_in(module) if module.has(trusting) else ():
        if named in trusting:
            yield f"{module.name}:{line} {named} takes any host for the right one"


_MAY_BE_SUBCLASSED = frozenset({"MissingHostKeyPolicy", "ServerInterface"})


def insides_of_the_ssh_library(module: Module) -> Iterator[str]:
    """Imports of its modules, subclasses of its classes and private attributes: any release of it may change them."""
    tops = [name for _, name in module.imports if name.split(".")[0] == "paramiko"]
    if not (module.layer and tops):
        return
    classes = {
        alias.asname or alias.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "paramiko"
        for alias in node.names
    }
    yield from (f"{module.name} imports {name}: only paramiko itself" for name in tops if name != "paramiko")
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            for base in map(ast.unparse, node.bases):
                is_theirs = base.startswith("paramiko.") or base in classes
                if is_theirs and base.split(".")[-1] not in _MAY_BE_SUBCLASSED:
                    yield f"{module.name}:{node.lineno} derives {node.name} from {base}"
        elif isinstance(node, ast.Attribute):
            of = name_of(node.value)
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            if (is_private and of not in ("self", "cls")) or (of == "paramiko" and node.attr.islower()):
                yield f"{module.name}:{node.lineno} uses {ast.unparse(node)}"


def files_from_afar(module: Module) -> Iterator[str]:
    """Uses of libraries that create files or objects from received data. Headers of a tar file may be written."""
    if not module.has(_UNPACKERS):
        return
    headers = {
        node.lineno
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        and node.module == "tarfile"
        and {each.name for each in node.names} <= _TAR_HEADERS
    }
    for line, named in names_in(module):
        if named in _UNPACKERS and line not in headers:
            yield f"{module.name}:{line} {named} makes files or objects of what somebody sends"


_UNPACKERS = {"tarfile", "zipfile", "unpack_archive", "SFTPClient", "open_sftp", "pickle", "marshal"}
_TAR_HEADERS = {"TarInfo", "USTAR_FORMAT", "GNU_FORMAT"}


def names_in(module: Module) -> Iterator[tuple[int, str]]:
    """Every name that is used or imported, with its line."""
    for node in module.nodes:
        if isinstance(node, ast.alias):
            yield node.lineno, node.name
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def changed_tables(module: Module) -> Iterator[str]:
    """Changes of a cluster's tables that don't go through `evolve`."""
    interpreter = f"{PACKAGE}.core.evolve"
    if module.layer in ("", "remote", "config", "capacity") or module.name.startswith(interpreter):
        return
    for node in module.nodes:
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, (ast.Store, ast.Del))
            and isinstance(node.value, ast.Attribute)
            and node.value.attr in _TABLES
        ):
            yield f"{module.name}:{node.lineno} changes {node.value.attr}: only evolve does"


def network_under_the_lock(module: Module) -> Iterator[str]:
    """Calls to workers inside `with ...transaction()`."""
    for node in module.nodes:
        if not isinstance(node, ast.With) or module.layer not in ("ops", "client", "cli"):
            continue
        opened = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        if not any(
            isinstance(each.func, ast.Attribute) and each.func.attr == "transaction" for each in opened
        ):
            continue
        for inner in (each for statement in node.body for each in ast.walk(statement)):
            if isinstance(inner, ast.Attribute) and inner.attr in ("runner", "fan_out"):
                yield f"{module.name}:{inner.lineno} talks to workers while the lock is held"
