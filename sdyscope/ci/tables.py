"""The tables of ``[tool.sdyscope]`` as TOML has them: keys, types, and what to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from sdyscope.ci.toml_places import Path as TomlPath
from sdyscope.facts.findings import Severity
from sdyscope.facts.traffic import KINDS, CollectiveKind
from sdyscope.snapshots import STAGES, Stage

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
