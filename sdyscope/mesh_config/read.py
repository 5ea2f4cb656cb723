"""Mesh configurations from TOML and YAML files, and from plain data."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from sdyscope.errors import SdyscopeError, TargetError, did_you_mean, one_of, read_text
from sdyscope.mesh_config.mapped_mesh import MappedMesh
from sdyscope.mesh_config.mesh_rules import MeshRule, MeshRules
from sdyscope.mesh_config.mesh_shape import MeshShape, check_name, unknown_axis
from sdyscope.mesh_config.ruled_mesh import RULE_KEYS, RuledMesh, ruled_mesh_of
from sdyscope.words.counts import listed

MeshConfig: TypeAlias = MeshRules | MappedMesh | RuledMesh

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
_TELLING = {*_SHAPE_KEYS, *_MAPPED_KEYS, *RULE_KEYS} - {"batch_axis_name"}
_HYBRID = ("ici", "dcn")
_HYBRID_OF_AXLEARN = ("ici_mesh_shape", "dcn_mesh_shape")
_YAML = (".yaml", ".yml")
#: How deep tables and lists of a file may be nested, and how many values it may have.
_DEEPEST, _MOST = 64, 100_000
#: So many characters of a value are shown in an error.
_LONG = 60


def read_mesh_config(path: str | Path, section: str | None = None) -> MeshConfig:
    """Reads a mesh configuration from a file.

    Args:
        path: a TOML file, or a YAML file (``.yaml``, ``.yml``).
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
    ``dcn_axes``, the mappings and ``batch_axis_name`` make a ``MappedMesh``; ``mesh_axes`` and
    ``logical_axis_rules`` a ``RuledMesh``, whatever else there is.

    Raises:
        TargetError: a key is unknown, or what is said can't be.
    """
    if "logical_axis_rules" in _table(data, "A mesh configuration"):
        return ruled_mesh_of(data)
    known = (*_SHAPE_KEYS, *_MAPPED_KEYS)
    for key in data:
        if key not in known:
            raise TargetError(
                f"A mesh configuration has no {key!r}.",
                hint=did_you_mean(str(key), known, f"It has {', '.join(known)}."),
            )
    shape = [key for key in data if key in _SHAPE_KEYS]
    mapped = [key for key in data if key in _MAPPED_KEYS]
    if shape and mapped:
        raise TargetError(
            f"{shape[0]} and {mapped[0]} are two ways to describe a mesh, and one is needed.",
            hint=f"Leave {shape[0]} or {mapped[0]} out.",
        )
    return _rules(data) if shape else MappedMesh(**data)


def _rules(data: Mapping[str, Any]) -> MeshRules:
    names = None
    if "mesh_axis_names" in data:
        names = tuple(_list(data["mesh_axis_names"], "mesh_axis_names", '["data", "model"]'))
        for name in names:
            check_name(name, "a mesh axis")
    default = None
    if data.get("mesh_shape") is not None:
        default = _shape(data["mesh_shape"], names, "mesh_shape")
        # Rules are about the same axes, in the same order, however their tables name them.
        names = default.axis_names
    rules = []
    such_as = '[["tpu-v5p-.*", {data = -1}]]'
    for number, rule in enumerate(_list(data.get("mesh_rules", ()), "mesh_rules", such_as), 1):
        where = f"Mesh rule {number}"
        if not isinstance(rule, list | tuple) or len(rule) != 2 or not isinstance(rule[0], str):
            raise TargetError(
                f"{where} is {_short(rule)}, not a pattern and a shape.",
                hint=f"mesh_rules is a list of such pairs: {such_as}.",
            )
        try:
            shape = _shape(rule[1], names, "the shape")
        except TargetError as error:
            error.message = f"{where}, {rule[0]!r}: {error.message}"
            raise
        rules.append(MeshRule(rule[0], shape))
    return MeshRules(default, tuple(rules))


def _shape(value: Any, names: tuple[str, ...] | None, where: str) -> MeshShape:
    """A shape: sizes in the order of the names, sizes by name, or both for ICI and DCN."""
    if isinstance(value, Mapping) and any(key in value for key in _HYBRID_OF_AXLEARN):
        raise TargetError(
            f"{where} has {listed(list(map(str, value)))}, where ici and dcn are needed.",
            hint="They have the same meaning: {ici = [1, 4], dcn = [2, 1]}.",
        )
    if isinstance(value, Mapping) and any(key in value for key in _HYBRID):
        if set(value) != set(_HYBRID):
            raise TargetError(
                f"{where} has {listed(list(map(str, value)))}, where ici and dcn are needed.",
                hint="ici has sizes within a slice, dcn across slices: "
                "{ici = {fsdp = -1}, dcn = {data = 2}}.",
            )
        if names is None:
            sides = [side for side in value.values() if isinstance(side, Mapping)]
            names = tuple(dict.fromkeys(name for side in sides for name in side)) or None
        ici = _sizes(value["ici"], names, f"ici of {where}")
        dcn = _sizes(value["dcn"], names, f"dcn of {where}")
        return MeshShape(ici[0], ici[1], dcn[1])
    return MeshShape(*_sizes(value, names, where))


def _sizes(
    value: Any, names: tuple[str, ...] | None, where: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if isinstance(value, Mapping):
        names = names or tuple(value)
        for name in value:
            check_name(name, "a mesh axis")
            if name not in names:
                error = unknown_axis(name, names)
                error.hint = f"{error.hint} mesh_axis_names names all axes."
                raise error
        return names, tuple(value.get(name, 1) for name in names)
    if not isinstance(value, list | tuple):
        raise TargetError(
            f"{where} is {_short(value)}, neither a list of sizes nor a table of them.",
            hint="Such as [-1, 2], or {data = -1, model = 2}.",
        )
    sizes = tuple(value)
    if names is None:
        raise TargetError(
            f"{where} is a list of sizes, and mesh_axis_names does not say of which axes.",
            hint="Give mesh_axis_names, or sizes by name: {data = -1, model = 2}.",
        )
    return names, sizes


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TargetError(f"{where} is {_short(value)}, not a table of names and values.")
    return value


def _list(value: Any, where: str, such_as: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TargetError(f"{where} is {_short(value)}, not a list.", hint=f"Such as {such_as}.")
    return value


def _short(value: Any) -> str:
    """A value as TOML and YAML call it: `empty`, `a table`, or itself."""
    if value is None:
        return "empty"
    text = repr(value)
    if isinstance(value, Mapping):
        return "a table"
    if len(text) > _LONG:
        return "a list" if isinstance(value, list | tuple) else f"{text[:_LONG]}..."
    return text


# --- Files ----------------------------------------------------------------------------------------


def _load(path: Path) -> Mapping[str, Any]:
    # Some editors begin with a mark.
    text = read_text(path, "mesh configuration", encoding="utf-8-sig")
    if path.suffix in _YAML:
        loaded = _yaml(text, path)
        loaded = {} if loaded is None else loaded
    else:
        try:
            loaded = read_toml(text, path)
        except TargetError as error:
            if path.suffix != ".toml":
                error.hint = (
                    f"It is read as TOML, because its name does not end in {one_of(_YAML)}."
                )
            raise
    if not isinstance(loaded, Mapping):
        raise TargetError("The file has no table, so it has no mesh configuration.", file=path)
    return loaded


def read_toml(text: str, path: Path) -> Mapping[str, Any]:
    """What a TOML text says; a TargetError has the place of what is not TOML."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        at = re.search(r" \(at line (\d+), column (\d+)\)", said)
        raise TargetError(
            f"The file is not TOML: {said[: at.start()] if at else said}.",
            file=path,
            line=int(at[1]) if at else None,
            column=int(at[2]) if at else None,
        ) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        raise _too_long(path, error) from error
    _check_size(tables, path, _inside)
    return tables


def _check_size(whole: Any, path: Path, inside: Callable[[Any], Iterable[Any]]) -> None:
    """Refuses what is nested too deep for what looks at it, and what aliases make huge."""
    left, count = [(whole, 0)], 0
    while left:
        value, depth = left.pop()
        count += 1
        if depth > _DEEPEST:
            raise _too_deep(path)
        if count > _MOST:
            raise TargetError(
                f"The file has more than {_MOST:,} values, those behind aliases included.",
                file=path,
                hint="Keep the mesh configuration in a file of its own.",
            )
        left += [(each, depth + 1) for each in inside(value)]


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _inside_node(node: Any) -> Iterable[Any]:
    if isinstance(node.value, str):
        return ()
    return [each for item in node.value for each in (item if isinstance(item, tuple) else (item,))]


def _too_long(path: Path, error: ValueError) -> TargetError:
    # Python's own sentences are about calls; what else is no value, such as a date, is YAML's.
    long = "integer string conversion" in str(error)
    said = "has a number of too many digits" if long else f"has a value that can't be: {error}"
    return TargetError(f"The file {said}.", file=path)


def _too_deep(path: Path) -> TargetError:
    return TargetError("The file is nested too deep to be read.", file=path)


def _yaml(text: str, path: Path) -> Any:
    import yaml  # that takes 12 ms, and most commands read none

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses what is named twice, as YAML says and PyYAML does not."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [(key.tag, key.value) for key, _ in node.value]
            for at, (key, _) in enumerate(node.value):
                if isinstance(key.value, str) and names[at] in names[:at]:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r} is named twice", key.start_mark
                    )
            return super().construct_mapping(node, deep)

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        # Before values are made of it: of nested aliases there would be billions.
        _check_size(node, path, _inside_node)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if said.startswith("but "):
            said = f"{error.context}, {said}"
        raise TargetError(
            f"The file is not YAML: {said}.",
            file=path,
            line=None if mark is None else mark.line + 1,
            column=None if mark is None else mark.column + 1,
        ) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:
        raise _too_long(path, error) from error


def _section(whole: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    tables = {".".join(place): table for place, table in _tables(whole)}
    if section in tables:
        return tables[section]
    table: Any = whole
    for part in section.split("."):
        if not isinstance(table, Mapping) or part not in table:
            has = listed([place or "the whole file" for place in tables])
            raise TargetError(
                f"There is no section {section!r}.",
                hint=did_you_mean(
                    section,
                    tables,
                    f"There {'is a mesh configuration' if len(tables) == 1 else 'are some'} in "
                    f"{has}.",
                )
                if tables
                else None,
            )
        table = table[part]
    return _table(table, section)


def _only(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    tables = list(_tables(whole))
    if len(tables) == 1:
        return tables[0][1]
    if not tables:
        raise TargetError(
            "There is no mesh configuration in the file.",
            hint=_misspelt(whole)
            or "A section has mesh_shape, or axes; `sdyscope docs mesh` says more.",
        )
    places = [".".join(place) or "the whole file" for place, _ in tables]
    raise TargetError(
        f"There are {len(tables)} mesh configurations in the file, in {listed(places)}.",
        hint=f"Name one, such as FILE:{places[-1]}.",
    )


def _misspelt(table: Mapping[str, Any]) -> str:
    """What to say of a key that is nearly one of a mesh configuration; empty for none."""
    for key, value in table.items():
        if close := difflib.get_close_matches(str(key), sorted(_TELLING), n=1):
            return f"{key!r} is not one of its keys: did you mean {close[0]!r}?"
        if isinstance(value, Mapping) and (said := _misspelt(value)):
            return said
    return ""


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
