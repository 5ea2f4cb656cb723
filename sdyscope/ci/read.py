"""``[tool.sdyscope]`` read from a TOML file: strictly, every error with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar

import msgspec

from sdyscope.analysis.budgets import Budgets, CommunicationLimit, ReplicationLimit
from sdyscope.ci.config import SECTION, Config, Ignore, SnapshotFile, Target
from sdyscope.ci.toml_places import Path as TomlPath
from sdyscope.ci.toml_places import nearest, toml_places
from sdyscope.errors import SdyscopeError, TargetError, did_you_mean, one_of, read_text
from sdyscope.facts.findings import Severity
from sdyscope.facts.program import PARTITIONERS
from sdyscope.facts.traffic import KINDS, CollectiveKind
from sdyscope.hardware.names import parse_hardware
from sdyscope.hardware.rates import parse_size
from sdyscope.mesh_config import MeshShape, parse_mesh_shape
from sdyscope.mesh_config.mesh_shape import unknown_axis
from sdyscope.mesh_config.read import read_toml
from sdyscope.snapshots import STAGES, Stage
from sdyscope.values.source import SourceLocation

SizeText: TypeAlias = str | int
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table whose keys are known."""


class CommunicationTable(_Table, frozen=True):
    """One entry of ``communication``."""

    kind: CollectiveKind | None = None
    axis: str = ""
    bytes: SizeText | None = None
    count: _Count | None = None


class ReplicatedTable(_Table, frozen=True, kw_only=True):
    """One entry of ``replicated``."""

    tensors: _Words = "*"
    bytes: SizeText


class MemoryTable(_Table, frozen=True):
    """``memory``."""

    arguments: SizeText | None = None
    temporaries: SizeText | None = None
    total: SizeText | None = None


class BudgetsTable(_Table, frozen=True):
    """``budgets`` of a target."""

    communication: tuple[CommunicationTable, ...] = ()
    unlisted_communication: SizeText | None = None
    replicated: SizeText | tuple[ReplicatedTable, ...] = ()
    memory: MemoryTable = MemoryTable()


class SnapshotTable(_Table, frozen=True, kw_only=True):
    """``snapshot`` of a target."""

    file: _Words
    stages: tuple[Stage, ...] | None = None


class IgnoreTable(_Table, frozen=True, kw_only=True):
    """One entry of ``ignore``."""

    rule: _Words
    tensors: _Words = "*"
    reason: _Words


class DefaultsTable(_Table, frozen=True):
    """``[tool.sdyscope.defaults]``: what all targets have unless they say otherwise."""

    mesh: dict[str, int] | str | None = None
    mesh_config: str | None = None
    mesh_selector: str | None = None
    devices: str | int | None = None
    partitioner: Literal["shardy", "gspmd", "both"] | None = None
    on: str | None = None
    settings: dict[str, str | int | float | bool] = {}
    jax: str | tuple[str, ...] = ()
    check: bool = True
    lint: bool = True
    compile: bool = True
    snapshot: SnapshotTable | None = None
    budgets: BudgetsTable | None = None
    fail_on: Severity = "warning"
    strict: bool = True


class TargetTable(DefaultsTable, frozen=True, kw_only=True):
    """``[tool.sdyscope.targets.NAME]``; docs/ci.md says what the keys mean."""

    target: _Words
    module: str | None = None
    ignore: tuple[IgnoreTable, ...] = ()


#: What to write for a key, where something else is there.
WRITE: Mapping[str, str] = {
    "defaults": "[tool.sdyscope.defaults]",
    "targets": '[tool.sdyscope.targets.NAME] with target = "train.py:step"',
    "target": 'target = "train.py:step"',
    "mesh": 'mesh = "data=4,model=2", or { data = 4, model = 2 }',
    "mesh-config": 'mesh-config = "mesh.toml"',
    "mesh-selector": 'mesh-selector = "tpu-v5p-4096"',
    "devices": "devices = 8",
    "partitioner": 'partitioner = "shardy", "gspmd" or "both"',
    "on": 'on = "tpu:v5e:4x4"',
    "settings": "settings = { layers = 8 }",
    "module": 'module = "jit_step"',
    "jax": 'jax = "0.10"',
    "check": "check = true or false",
    "lint": "lint = true or false",
    "compile": "compile = true or false",
    "snapshot": 'snapshot = { file = "shardings.snap" }',
    "file": 'file = "shardings.snap"',
    "stages": "stages = " + str(list(STAGES)).replace("'", '"') + ", or some of these",
    "budgets": "[tool.sdyscope.targets.NAME.budgets]",
    "communication": 'communication = [{ kind = "all-gather", axis = "model", bytes = "10MiB" }]',
    "unlisted-communication": 'unlisted-communication = "1MiB"',
    "replicated": 'replicated = "1GiB", or [{ tensors = "params*", bytes = "0B" }]',
    "memory": 'memory = { total = "14GiB" }',
    "arguments": 'arguments = "10GiB"',
    "temporaries": 'temporaries = "4GiB"',
    "total": 'total = "14GiB"',
    "kind": f'kind = "{KINDS[0]}"; the kinds are {", ".join(KINDS)}',
    "axis": 'axis = "model"',
    "bytes": 'bytes = "10MiB"',
    "count": "count = 8",
    "ignore": 'ignore = [{ rule = "not-divisible", tensors = "*", reason = "..." }]',
    "rule": 'rule = "not-divisible"',
    "tensors": "tensors = \"params['embed']*\"",
    "reason": 'reason = "why this is fine"',
    "fail-on": 'fail-on = "error", "warning" or "note"',
    "strict": "strict = true or false",
}


def keys_at(type_: Any, path: TomlPath) -> list[str]:
    """The keys that the table at a path may have."""
    tables: Mapping[str | int, type[_Table]] = {
        "ignore": IgnoreTable,
        "snapshot": SnapshotTable,
        "budgets": BudgetsTable,
        "communication": CommunicationTable,
        "replicated": ReplicatedTable,
        "memory": MemoryTable,
    }
    keys = [part for part in path if isinstance(part, str)]
    struct = tables.get(keys[-1], type_)
    return [field.encode_name for field in msgspec.structs.fields(struct)]


_Value = TypeVar("_Value")

_PATH = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]|\[(\.\.\.)\]")


def find_config(folder: Path) -> Path:
    """The nearest ``pyproject.toml`` with ``[tool.sdyscope]``, in a folder or one around it.

    Raises:
        TargetError: there is none.
    """
    here = folder.resolve()
    for each in (here, *here.parents):
        file = each / "pyproject.toml"
        if file.is_file() and _is_configured(file):
            return file
    raise TargetError(
        "There is no pyproject.toml with [tool.sdyscope] here or in a folder above.",
        hint="`sdyscope docs ci` describes it; --config names another file.",
    )


def _is_configured(file: Path) -> bool:
    text = read_text(file, "configuration")
    try:
        tool = tomllib.loads(text).get("tool", {})
    except (ValueError, RecursionError):
        return "tool.sdyscope" in text  # then it is told of what is wrong with it
    return isinstance(tool, Mapping) and "sdyscope" in tool


def read_config(file: Path) -> Config:
    """The configuration in a file.

    Raises:
        TargetError: the file can't be read, is not TOML, has no ``[tool.sdyscope]``, or something
            in that is unknown or impossible; with the line, and what to write.
    """
    text = read_text(file, "configuration", newline="").replace("\r\n", "\n")
    whole = read_toml(text, file)
    return _Reader(file, whole, text).config()


class _Reader:
    def __init__(self, file: Path, whole: Mapping[str, Any], text: str) -> None:
        self.file = file
        self.whole = whole
        self.places = toml_places(text)
        self.used: set[str] = set()

    def config(self) -> Config:
        section = self.whole.get("tool", {})
        section = section.get("sdyscope") if isinstance(section, Mapping) else None
        if not isinstance(section, Mapping):
            raise TargetError(
                "There is no [tool.sdyscope] in this file.",
                file=self.file,
                hint="`sdyscope docs ci` describes it.",
            )
        for key in section:
            if key not in ("defaults", "targets", "ignore"):
                self.unknown((key,), key, ["defaults", "targets", "ignore"])
        defaults = self.table(section.get("defaults", {}), ("defaults",))
        self.converted(defaults, DefaultsTable, ("defaults",))
        tables = self.table(section.get("targets", {}), ("targets",))
        ignores = self.converted(section.get("ignore", []), tuple[IgnoreTable, ...], ("ignore",))
        if not tables:
            self.fail(("targets",), "No targets are configured.", f"Write {WRITE['targets']}.")
        return Config(
            file=self.file,
            targets=tuple(self.target(name, table, defaults) for name, table in tables.items()),
            ignores=self.ignores(ignores, ("ignore",)),
            places=self.places,
        )

    # What can be wrong.

    def fail(self, path: TomlPath, message: str, hint: str | None) -> NoReturn:
        place = nearest(self.places, (*SECTION, *path))
        raise TargetError(
            message,
            file=self.file,
            line=place.line if place else None,
            column=place.column if place else None,
            hint=hint,
        )

    def unknown(self, path: TomlPath, key: str, known: Sequence[str]) -> NoReturn:
        hint = did_you_mean(key, known, f"Known here: {', '.join(known)}.")
        self.fail(path, f"There is no key {key!r} in {_named(path[:-1])}.", hint)

    def table(self, value: Any, path: TomlPath) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.fail(path, f"{path[-1]!r} is not a table.", f"Write {WRITE[str(path[0])]}.")
        return value

    def converted(self, value: Any, type_: type[_Value], path: TomlPath) -> _Value:
        """A value of the form that its table has."""
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            message, _, at = str(error).partition(" - at `$")
            inner: TomlPath = tuple(
                int(number) if number else key
                for key, number, rest in _PATH.findall(at)
                if not rest
            )
            self.refuse((*path, *inner), message, type_)

    def refuse(self, path: TomlPath, message: str, type_: Any) -> NoReturn:
        """Says in TOML's words what msgspec found."""
        if match := re.match(r"Object contains unknown field `(.*)`", message):
            known = keys_at(type_, path)
            self.unknown((*path, match[1]), match[1], known)
        if match := re.match(r"Object missing required field `(.*)`", message):
            self.fail(path, f"{_named(path)} needs {match[1]!r}.", f"Write {WRITE[match[1]]}.")
        key = next((part for part in reversed(path) if part in WRITE), "")
        hint = f"Write {WRITE[str(key)]}." if key else None
        self.fail(path, f"{str(key) or _named(path)!r} is wrong: {_in_toml(message)}.", hint)

    def at(self, path: TomlPath, make: Callable[[], _Value]) -> _Value:
        """What ``make`` returns; its error gets the place of the key."""
        try:
            return make()
        except SdyscopeError as error:
            self.fail(path, error.message, error.hint)

    # The parts.

    def target(self, name: str, value: Any, defaults: Mapping[str, Any]) -> Target:
        path: TomlPath = ("targets", name)
        own = self.table(value, path)
        # A mesh is said in one of two ways: the target's hides that of the defaults.
        hidden = [key for key in ("mesh", "mesh-config", "mesh-selector") if key in own]
        merged = {
            key: inherited
            for key, inherited in defaults.items()
            if not (hidden and key.startswith("mesh"))
        }
        self.converted(own, TargetTable, path)
        table = self.converted({**merged, **own}, TargetTable, path)

        def where(*keys: str | int) -> TomlPath:
            return (*path, *keys) if keys[0] in own else ("defaults", *keys)

        if table.mesh is not None and table.mesh_config is not None:
            self.fail(
                where("mesh-config"),
                "mesh and mesh-config both define the mesh.",
                "Leave one of them out.",
            )
        mesh = self.mesh(table.mesh, where("mesh"))
        if (on := table.on) is not None:
            self.at(where("on"), lambda: parse_hardware(on))
        snapshot = table.snapshot
        needs = {
            "budgets": table.budgets is not None,
            "snapshot": snapshot is not None and "compiled" in (snapshot.stages or ()),
        }
        for key in (key for key, there in needs.items() if there and not table.compile):
            self.fail(
                where(key),
                f"{key} of {name} needs the compiled program, and compile = false forbids that.",
                "Leave one of them out.",
            )
        return Target(
            name=name,
            word=table.target,
            place=self.source(path),
            mesh=mesh,
            mesh_config=table.mesh_config,
            mesh_selector=table.mesh_selector,
            devices=None if table.devices is None else str(table.devices),
            partitioners=PARTITIONERS[table.partitioner] if table.partitioner else None,
            on=on,
            settings=table.settings,
            module=table.module,
            jax=self.versions(table.jax, where("jax")),
            check=table.check,
            lint=table.lint,
            compiles=table.compile,
            snapshot=None
            if snapshot is None
            else SnapshotFile(self.file.parent / snapshot.file, _ordered(snapshot.stages)),
            budgets=None
            if table.budgets is None
            else self.budgets(table.budgets, where("budgets"), mesh),
            ignores=self.ignores(table.ignore, (*path, "ignore")),
            fail_on=table.fail_on,
            strict=table.strict,
        )

    def mesh(self, value: Mapping[str, int] | str | None, path: TomlPath) -> dict[str, int] | None:
        """Axis sizes in order, as a table or as --mesh takes them."""
        if value is None:
            return None

        def shape() -> MeshShape:
            if isinstance(value, str):
                return parse_mesh_shape(value)
            return MeshShape(tuple(value), tuple(value.values()))

        mesh_shape = self.at(path, shape)
        return dict(zip(mesh_shape.axis_names, mesh_shape.ici, strict=True))

    def versions(self, value: str | tuple[str, ...], path: TomlPath) -> tuple[str, ...]:
        versions = (value,) if isinstance(value, str) else value
        for version in versions:
            if not re.fullmatch(r"\d+(\.\d+)*", version):
                self.fail(path, f"{version!r} is not a JAX version.", f"Write {WRITE['jax']}.")
        return versions

    def source(self, path: TomlPath) -> SourceLocation:
        place = nearest(self.places, (*SECTION, *path))
        line, column = place or (1, 1)
        return SourceLocation(str(self.file), line, column - 1)

    def ignores(self, tables: Sequence[IgnoreTable], path: TomlPath) -> tuple[Ignore, ...]:
        return tuple(
            Ignore(table.rule, table.tensors, table.reason, self.source((*path, number)))
            for number, table in enumerate(tables)
        )

    def size(self, value: SizeText | None, path: TomlPath) -> int | None:
        """Bytes: a number, or a text with a unit."""
        if isinstance(value, str):
            return self.at(path, lambda: parse_size(value, least=0))
        if value is not None and value < 0:
            self.fail(path, f"{value} bytes is negative.", f"Write {WRITE['bytes']}.")
        return value

    def budgets(
        self, table: BudgetsTable, path: TomlPath, mesh: Mapping[str, int] | None
    ) -> Budgets:
        communication = []
        for number, written in enumerate(table.communication):
            where = (*path, "communication", number)
            if written.bytes is None and written.count is None:
                self.fail(where, "This limits nothing.", f"Write {WRITE['bytes']}, or a count.")
            if written.axis and mesh is not None and written.axis not in mesh:
                error = unknown_axis(written.axis, tuple(mesh))
                self.fail((*where, "axis"), error.message, error.hint)
            size = self.size(written.bytes, (*where, "bytes"))
            communication.append(
                CommunicationLimit(written.kind, written.axis, size, written.count)
            )
        replicated = table.replicated
        if isinstance(replicated, str | int):
            limit = self.size(replicated, (*path, "replicated"))
            limits = [("*", limit)]
        else:
            limits = [
                (limit.tensors, self.size(limit.bytes, (*path, "replicated", number, "bytes")))
                for number, limit in enumerate(replicated)
            ]
        memory = {
            key: self.size(getattr(table.memory, key), (*path, "memory", key))
            for key in ("arguments", "temporaries", "total")
        }
        unlisted = self.size(table.unlisted_communication, (*path, "unlisted-communication"))
        return Budgets(
            communication=tuple(communication),
            unlisted=unlisted,
            replicated=tuple(ReplicationLimit(glob, size or 0) for glob, size in limits),
            **memory,
        )


def _ordered(stages: tuple[Stage, ...] | None) -> tuple[Stage, ...] | None:
    return None if stages is None else tuple(stage for stage in STAGES if stage in stages)


#: What TOML's users call msgspec's types.
_TYPES: Mapping[str, str] = {
    "object": "a table",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number with a fraction",
    "bool": "true or false",
}


def _in_toml(message: str) -> str:
    """``Expected `object | null`, got `str``` as ``expected a table, got a text``."""

    def named(match: re.Match[str]) -> str:
        words = [_TYPES.get(word, word) for word in match[1].split(" | ") if word != "null"]
        return one_of(words)

    message = re.sub("^Invalid enum value (.*)", r"There is no \1", message)
    return message[:1].lower() + re.sub("`([^`]*)`", named, message[1:])


def _named(path: TomlPath) -> str:
    """``[tool.sdyscope.targets.mlp]``; an element of an array is told by its number."""
    words = ".".join(str(part) for part in (*SECTION, *path) if isinstance(part, str))
    numbers = [part + 1 for part in path if isinstance(part, int)]
    return f"[{words}]" + (f" number {numbers[-1]}" if numbers else "")
