"""Mesh configurations from TOML and YAML files, and from plain data."""

from __future__ import annotations

import difflib
import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.mesh_config.mapped_mesh import MappedMesh
from sdyscope.mesh_config.mesh_rules import MeshRule, MeshRules
from sdyscope.mesh_config.mesh_shape import MeshShape, unknown_axis

MeshConfig: TypeAlias = MeshRules | MappedMesh

_SHAPE_KEYS = ("mesh_axis_names", "mesh_shape", "mesh_rules")
_MAPPED_KEYS = (
    "axes",
    "dcn_axes",
    "shared_mapping",
    "compute_mapping",
    "param_mapping",
    "batch_axis_name",
)
#: What a table is known by as a mesh configuration, where no section is named.
_TELLING = {*_SHAPE_KEYS, *_MAPPED_KEYS} - {"batch_axis_name"}
_HYBRID = ("ici", "dcn")


def read_mesh_config(path: str | Path, section: str | None = None) -> MeshConfig:
    """Reads a mesh configuration from a file.

    Args:
        path: a TOML file, or a YAML file (``.yaml``, ``.yml``; needs PyYAML).
        section: the table that has it, such as ``trainer.mesh``. By default the only table that
            looks like one.

    Raises:
        TargetError: the file can't be read, has no such section, or what it says can't be.
    """
    path = Path(path)
    whole = _load(path)
    try:
        if section is None:
            return mesh_config_of(_only(whole))
        return mesh_config_of(_section(whole, section))
    except SdyscopeError as error:
        error.file = error.file or str(path)
        raise


def mesh_config_of(data: Mapping[str, Any]) -> MeshConfig:
    """The mesh configuration that plain data describes: the contents of a section of a file.

    ``mesh_shape``, ``mesh_axis_names`` and ``mesh_rules`` make ``MeshRules``; ``axes``,
    ``dcn_axes``, the mappings and ``batch_axis_name`` make a ``MappedMesh``.

    Raises:
        TargetError: a key is unknown, or what is said can't be.
    """
    known = (*_SHAPE_KEYS, *_MAPPED_KEYS)
    for key in data:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            raise TargetError(
                f"A mesh configuration has no {key!r}.",
                hint=f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(known)}.",
            )
    shape = [key for key in data if key in _SHAPE_KEYS]
    mapped = [key for key in data if key in _MAPPED_KEYS]
    if shape and mapped:
        raise TargetError(
            f"{shape[0]} and {mapped[0]} are two ways to describe a mesh, and one is needed.",
            hint=f"Leave {shape[0]} or {mapped[0]} out.",
        )
    return _rules(data) if shape else _mapped(data)


def _mapped(data: Mapping[str, Any]) -> MappedMesh:
    for key, value in data.items():
        if key == "batch_axis_name":
            if value is not None and not isinstance(value, str):
                raise TargetError(f"batch_axis_name is {value!r}, not the name of a logical axis.")
        else:
            _table(value, key)
    return MappedMesh(**data)


def _rules(data: Mapping[str, Any]) -> MeshRules:
    names = None
    if "mesh_axis_names" in data:
        names = tuple(_list(data["mesh_axis_names"], "mesh_axis_names"))
    default = None
    if data.get("mesh_shape") is not None:
        default = _shape(data["mesh_shape"], names, "mesh_shape")
    rules = []
    for number, rule in enumerate(_list(data.get("mesh_rules", ()), "mesh_rules"), 1):
        where = f"mesh rule {number}"
        pair = _list(rule, where)
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise TargetError(f"{where.capitalize()} is not a pattern and a shape.")
        rules.append(MeshRule(pair[0], _shape(pair[1], names, f"the shape of {where}")))
    return MeshRules(default, tuple(rules))


def _shape(value: Any, names: tuple[str, ...] | None, where: str) -> MeshShape:
    """A shape: sizes in the order of the names, sizes by name, or both for ICI and DCN."""
    if isinstance(value, Mapping) and value and all(key in _HYBRID for key in value):
        if "ici" not in value or "dcn" not in value:
            raise TargetError(f"{where} has only {next(iter(value))!r}, and needs ici and dcn.")
        if names is None:
            sides = [side for side in value.values() if isinstance(side, Mapping)]
            names = tuple(dict.fromkeys(str(name) for side in sides for name in side)) or None
        ici = _sizes(value["ici"], names, f"ici of {where}")
        dcn = _sizes(value["dcn"], names, f"dcn of {where}")
        return MeshShape(ici[0], ici[1], dcn[1])
    return MeshShape(*_sizes(value, names, where))


def _sizes(
    value: Any, names: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if isinstance(value, Mapping):
        names = names or tuple(map(str, value))
        for name in value:
            if name not in names:
                raise unknown_axis(str(name), names)
        return names, tuple(value.get(name, 1) for name in names)
    sizes = tuple(_list(value, where))
    if names is None:
        raise TargetError(
            f"{where} is a list of sizes, and mesh_axis_names does not say of which axes.",
            hint="Give mesh_axis_names, or sizes by name: {data = -1, model = 2}.",
        )
    return names, sizes


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TargetError(f"{where} is {value!r}, not a table of names and values.")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TargetError(f"{where} is {value!r}, not a list.")
    return value


# --- Files ----------------------------------------------------------------------------------------


def _load(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise TargetError(f"The mesh configuration can't be read: {why}.", file=path) from error
    loaded = _yaml(text, path) if path.suffix in (".yaml", ".yml") else read_toml(text, path)
    if not isinstance(loaded, Mapping):
        raise TargetError("The file holds no table, so no mesh configuration.", file=path)
    return loaded


def read_toml(text: str, path: Path) -> Mapping[str, Any]:
    """What a TOML text says; a TargetError has the place of what is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        at = re.search(r" \(at line (\d+), column (\d+)\)", said)
        raise TargetError(
            f"The file is no TOML: {said[: at.start()] if at else said}.",
            file=path,
            line=int(at[1]) if at else None,
            column=int(at[2]) if at else None,
        ) from error
    except RecursionError as error:
        raise TargetError("The file is nested too deep to be read.", file=path) from error


def _yaml(text: str, path: Path) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise TargetError(
            "Reading YAML needs PyYAML, which is not installed.",
            file=path,
            hint="pip install 'sdyscope[yaml]', or write the configuration as TOML.",
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise TargetError(
            f"The file is no YAML: {said}.",
            file=path,
            line=None if mark is None else mark.line + 1,
            column=None if mark is None else mark.column + 1,
        ) from error


def _section(whole: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    found: Any = whole
    for part in section.split("."):
        if not isinstance(found, Mapping) or part not in found:
            has = [".".join(place) or "the whole file" for place, _ in _tables(whole)]
            raise TargetError(
                f"There is no section {section!r}.",
                hint=f"Mesh configurations are in {', '.join(has)}." if has else None,
            )
        found = found[part]
    return _table(found, section)


def _only(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = list(_tables(whole))
    if len(tables) == 1:
        return tables[0][1]
    if not tables:
        raise TargetError(
            "There is no mesh configuration in the file.",
            hint="A section has mesh_shape, or axes; docs/mesh.md describes them.",
        )
    raise TargetError(
        f"There are {len(tables)} mesh configurations in the file.",
        hint=f"Name one: FILE:{'.'.join(tables[0][0])}; there are "
        f"{', '.join('.'.join(place) or 'the whole file' for place, _ in tables)}.",
    )


def _tables(
    table: Mapping[str, Any], place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Tables that look like a mesh configuration, by where they are."""
    if any(key in _TELLING for key in table):
        yield place, table
        return
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _tables(cast(Mapping[str, Any], value), (*place, str(key)))
