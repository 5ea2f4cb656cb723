"""Tags: the number of every op of a lowered module, written where compilers leave it alone.

An op's tag is ``sid12``, 12 being its node in the op graph. It stands as the outermost name of the
op's location, which becomes the ``op_name`` in HLO's metadata, and as the frontend attribute
``sid``. Both outlive the way to HLO and back and both partitioners; an op that the compiler made
from several has all their tags (``sid615;sid614``).

Function and block arguments have no tags of their own: they are found by their function's or
their op's, and their number. ``graph.tags`` reads tags.
"""

from __future__ import annotations

import re
from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.graph import OpGraph
from sdyscope.stages import compat, inspections

#: Name of the frontend attribute.
ATTRIBUTE = "sid"

_FRONTEND = "mhlo.frontend_attributes"
_ALIAS = re.compile(r"^#loc\d* = loc\(.*\n", re.MULTILINE)
#: The location at the end of an op in MLIR's generic text form, where block arguments have theirs
#: in the middle of a line.
_LOCATION = re.compile(r" loc\(([^()\n]*)\)$", re.MULTILINE)
#: The name of a location, and what it is the name of, as an alias has it.
_NAME = re.compile(r'^(#loc\d*) = loc\("((?:[^"\\]|\\.)*)"(?:\((.*)\))?\)$', re.MULTILINE)


def tag(module: Any, graph: OpGraph, *, in_attributes: bool = True) -> Any:
    """A copy of a module, in the same context, in which every op has its tag.

    In an op's location the tag is all that the copy has: what the op is called and where it stands,
    the graph says of its node. Without them, the module goes to HLO and back in four fifths of the
    time.

    Args:
        module: an ``ir.Module``.
        graph: its op graph, as ``graph.build`` makes it.
        in_attributes: whether the tag is the frontend attribute, too.

    Raises:
        CompilerError: the graph is not that of the module.
    """
    copied = copy(module)
    with copied.context:
        numbered = _to_partition(copied, graph)
        for node, operation in numbered if in_attributes else ():
            if operation.name.startswith("stablehlo."):
                _write_attribute(operation, node)
        if not compat.locations_are_writable():
            return _with_locations(copied, [node for node, _ in numbered])
        named = compat.ir.Location.name
        for node, operation in numbered:
            operation.location = named(f"sid{node}")
    return copied


def tag_names(module: Any, graph: OpGraph) -> tuple[Any, list[str]]:
    """A copy of a module in which the name of every op's location begins with its tag.

    ``jit(step)/dot_general`` becomes ``sid12/jit(step)/dot_general``: XLA calls an instruction
    after the last part of its name, so that it compiles to the same text but for ``op_name``. An op
    without a name is called by its kind, which is what XLA makes of it. ``stages.align.hlo_tags``
    reads them back.

    Args:
        module: an ``ir.Module``.
        graph: its op graph, as ``graph.build`` makes it.

    Returns:
        The copy, and the name that the location of each op had, by its node; empty for none.

    Raises:
        CompilerError: the graph is not that of the module.
    """
    copied = copy(module)
    names = [""] * len(graph.without_results())
    with copied.context:
        numbered = _to_partition(copied, graph)
        for node, operation in numbered:
            names[node] = compat.location_name(operation)
        if not compat.locations_are_writable():
            called = [names[node] or _kind(operation) for node, operation in numbered]
            return _with_locations(copied, [node for node, _ in numbered], called), names
        for node, operation in numbered:
            types, name, location = compat.split_location(operation.location)
            for outer in (f"sid{node}/{name or _kind(operation)}", *reversed(types)):
                location = compat.ir.Location.name(outer, childLoc=location)
            operation.location = location
    return copied, names


def operations(module: Any, graph: OpGraph) -> dict[int, Any]:
    """Every op inside a module by its node in the graph, in the order in which they end.

    Raises:
        CompilerError: the graph is not that of the module.
    """
    return dict(_numbered(module, graph))


def copy(module: Any) -> Any:
    """A copy of an ``ir.Module`` in the same context: its op, which can all that is done to one."""
    return module.operation.clone()


def _numbered(module: Any, graph: OpGraph) -> list[tuple[int, Any]]:
    numbered: list[tuple[int, Any]] = []
    free = _number(module.operation, 0, numbered)
    count = len(graph.without_results())
    if free != count:
        raise CompilerError(f"The module has {free} ops, and its graph {count}.")
    return numbered


def _to_partition(copied: Any, graph: OpGraph) -> list[tuple[int, Any]]:
    """The ops of a copy with their nodes, for the process that partitions it.

    What calls back when it is partitioned has a mark there, in place of an address of this process.
    """
    numbered = _numbered(copied, graph)
    called_back = {
        op.id
        for op in graph.ops
        if op.kind == "stablehlo.custom_call" and op.call_target == inspections.TARGET
    }
    for node, operation in numbered if called_back else ():
        if node in called_back:
            operation.attributes["backend_config"] = compat.ir.StringAttr.get(inspections.MARK)
    return numbered


def numbered(module: Any) -> list[tuple[int, Any]]:
    """Every op of an ``ir.Module`` with its node in the op graph, but the module itself."""
    numbered: list[tuple[int, Any]] = []
    with module.context:
        _number(module.operation, 0, numbered)
    return numbered


def _number(operation: Any, node: int, numbered: list[tuple[int, Any]]) -> int:
    """Adds every op inside ``operation``, which is ``node``, in the order in which they end.

    The numbers are the op graph's: an op, the arguments of its regions, the ops inside. Returns the
    next number.
    """
    free = node + 1
    for region in operation.regions:
        for block in region.blocks:
            free += len(block.arguments)
            for view in block.operations:
                inner = view.operation
                own, free = free, free + 1
                if len(inner.regions):
                    free = _number(inner, own, numbered)
                numbered.append((own, inner))
    return free


def _kind(operation: Any) -> str:
    return str(operation.name).rpartition(".")[2]


def _write_attribute(operation: Any, node: int) -> None:
    attributes = operation.attributes
    mine: dict[str, Any] = {ATTRIBUTE: compat.ir.StringAttr.get(str(node))}
    if _FRONTEND in attributes:
        written = compat.dictionary_items(attributes[_FRONTEND])
        mine = {**dict(written), **mine}
    attributes[_FRONTEND] = compat.ir.DictAttr.get(mine)


def _with_locations(module: Any, nodes: list[int], names: list[str] | None = None) -> Any:
    """The module with its locations rewritten in its text: JAX up to 0.8 can't set them.

    Args:
        module: an ``ir.Module``.
        nodes: of each op, in the order in which they end.
        names: likewise the name to write behind the tag, in place of that of the location; by
            default the tag is put in place of the location.
    """
    text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    known = {match[1]: (match[2], match[3]) for match in _NAME.finditer(text)}
    following = iter([*zip(nodes, names or [""] * len(nodes), strict=True), (0, "module")])

    def wrapped(match: re.Match[str]) -> str:
        node, name = next(following)
        inside, types = "" if names is None else match[1], []
        if names is not None:
            name = f"/{_escaped(name)}"
            while inside in known:
                own, inside = known[inside]
                if not own.endswith(":"):
                    break
                types.append(own)
        child = f"({inside})" if inside and inside != "unknown" else ""
        location = f'"sid{node}{name}"{child}'
        for own in reversed(types):
            location = f'"{own}"({location})'
        return f" loc({location})"

    # A location inside another can only be an alias that is defined before.
    aliases = "".join(match[0] for match in _ALIAS.finditer(text))
    tagged = aliases + _LOCATION.sub(wrapped, _ALIAS.sub("", text))
    if (left := len(list(following))) != 0:
        raise CompilerError(f"{left} ops of the module have no location to put a tag on.")
    return compat.ir.Module.parse(tagged, module.context)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
