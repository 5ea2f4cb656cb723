"""The author's expression whose shardings JAX refused, to be tried with edits.

That is one of a ``ShardingTypeError``, or a loop or branches whose types differ in shardings alone.
JAX names neither operand nor line. The traceback has the author's frame, Python says which
expression of it ran, and the frame has its values: so the expression can be traced by itself, as
it is and edited, with JAX alone to say what it accepts.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, TypeAlias, cast

import jax
import numpy as np

from sdyscope.errors import TargetError
from sdyscope.facts.refusals import ArrayType, DifferingTypes, Operand
from sdyscope.patches.source import Source
from sdyscope.patches.specs import spec_text
from sdyscope.stages import compat
from sdyscope.stages.edited.names import Names, names_in
from sdyscope.stages.lowered.differing import differing
from sdyscope.stages.lowered.request import from_jax_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import PACKAGE, SourceLocation, is_own, package_of

#: What JAX raises for shardings that an op can't combine.
_ERROR = "ShardingTypeError"

#: How many calls of the author's functions an expression may make.
_MOST_CALLS = 64

_OUTSIDE = (str(Path(jax.__file__).parent), str(PACKAGE))


@dataclass(frozen=True)
class Tried:
    """An edited expression that JAX accepts.

    Attributes:
        text: the expression.
        results: the types of what it makes.
        traced: its `jax.stages.Traced`, a program of this expression alone.
    """

    text: str
    results: tuple[ArrayType, ...]
    traced: Any


@dataclass(frozen=True)
class _Definition:
    """A function of the author's that an expression is given, as its source.

    Attributes:
        name: what the expression calls it.
        text: its `def`, dedented.
        line: the line of that.
    """

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class _Place:
    """A part of an expression, or of what a function returns, that could be resharded.

    Attributes:
        text: the text that it is in.
        node: the part.
        definition: the function that returns it; None of the expression itself.
        returned: the statement that returns it.
    """

    text: str
    node: ast.expr
    definition: _Definition | None = None
    returned: ast.Return | None = None


@dataclass(frozen=True)
class RefusedExpression:
    """An expression that JAX refuses for its operands' shardings.

    Attributes:
        text: the expression, as it is written.
        source: its line.
        operands: its operands that are sharded arrays.
        result: the shape of the result; None where that is not one array.
        differences: of a loop or of branches, the types that have to be equal.
    """

    text: str
    source: SourceLocation
    operands: tuple[Operand, ...]
    result: tuple[int, ...] | None
    differences: tuple[DifferingTypes[ArrayType], ...]
    _scope: Mapping[str, Any] = field(repr=False)
    _names: Names = field(repr=False)
    _nodes: tuple[ast.expr, ...] = field(repr=False)
    _definitions: tuple[_Definition, ...] = field(repr=False)
    _quote: str = field(default="'", repr=False)

    def resharded(self, specs: Mapping[int, PartitionSpec]) -> Tried | None:
        """The expression with some operands resharded, by their number; None if JAX refuses."""
        pieces = []
        for number, spec in specs.items():
            text = self._reshard(self.operands[number].text, spec)
            if text is None:
                return None
            pieces.append((self._nodes[number], text))
        return self._tried(_replaced(self.text, pieces))

    def agreeing(self) -> Iterator[Tried]:
        """A loop or branches with the types that differ made equal.

        What goes in is resharded as what comes out, or what one function returns as what goes in or
        as the other branch's.
        """
        # Of a branch, either can be as the other.
        firsts, seconds = (
            [difference.first.spec for difference in self.differences],
            [difference.second.spec for difference in self.differences],
        )
        node = _parsed(self.text)
        if all(difference.kind == "carry" for difference in self.differences):
            parts = [part for each in _operands(node) for part in _parts(each)]
            yield from self._agreeing([_Place(self.text, part) for part in parts], seconds)
        places = [*self._returned_inline(node)]
        for definition in self._definitions:
            places.append([*_returned_by(definition)])
        for of_one in places:
            for specs in (firsts, seconds):
                yield from self._agreeing(of_one, specs)

    def _agreeing(
        self, places: Sequence[_Place], specs: Sequence[PartitionSpec]
    ) -> Iterator[Tried]:
        """With one part resharded for each difference, as long as each leaves fewer of them."""
        chosen: list[tuple[_Place, str]] = []
        left = len(specs)
        for spec in specs:
            for place in places:
                text = self._reshard(_segment(place.text, place.node), spec)
                if text is None or any(place is other for other, _ in chosen):
                    continue
                outcome = self._tried_at([*chosen, (place, text)])
                if isinstance(outcome, Tried):
                    yield outcome
                    return
                if outcome < left:
                    chosen, left = [*chosen, (place, text)], outcome
                    break

    def _tried_at(self, edits: Sequence[tuple[_Place, str]]) -> Tried | int:
        """The expression with edits; if JAX refuses, how many types differ then."""
        text = _replaced(
            self.text, [(place.node, new) for place, new in edits if place.definition is None]
        )
        definitions, shown = [], [] if text == self.text else [text]
        for definition in self._definitions:
            own = [(place, new) for place, new in edits if place.definition is definition]
            pieces = [(place.node, new) for place, new in own]
            edited = _replaced(definition.text, pieces)
            definitions.append(_Definition(definition.name, edited, definition.line))
            for statement in {id(place.returned): place.returned for place, _ in own}.values():
                assert statement is not None
                within = [each for each in pieces if _is_inside(each[0], statement)]
                written = _replaced(definition.text, within, statement)
                line = definition.line + statement.lineno - 1
                shown.append(f"{written}  (line {line})")
        try:
            traced = self._traced(text, definitions)
        except Exception as error:
            return len([*differing(str(error))]) or len(self.differences)
        return Tried("; ".join(shown), _results(traced), traced)

    def _returned_inline(self, node: ast.expr) -> Iterator[list[_Place]]:
        """What each function that is written in the expression returns, and parts of that."""
        for each in ast.walk(node):
            if isinstance(each, ast.Lambda):
                yield [_Place(self.text, part) for part in _parts(each.body)]

    def _reshard(self, text: str, spec: PartitionSpec) -> str | None:
        """A call that reshards something; None where no name leads to one."""
        sharding = self._sharding(text, spec)
        call = self._names.known.get("reshard")
        if call is None and "jax" in self._names.known:
            call = f"{self._names.known['jax']}.sharding.reshard"
        return None if sharding is None or call is None else f"{call}({text}, {sharding})"

    def with_out_sharding(self, spec: PartitionSpec) -> Tried | None:
        """The expression with ``out_sharding``; None if it takes none, or JAX refuses."""
        sharding = self._sharding(self.operands[0].text, spec)
        if sharding is None:
            return None
        node = _parsed(self.text)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            module = self._names.known.get("jax.numpy")
            if module is None and "jax" in self._names.known:
                module = f"{self._names.known['jax']}.numpy"
            left, right = (_segment(self.text, side) for side in (node.left, node.right))
            text = f"{module}.matmul({left}, {right}, out_sharding={sharding})"
            return None if module is None else self._tried(text)
        if isinstance(node, ast.Subscript):
            value, at = _segment(self.text, node.value), _segment(self.text, node.slice)
            return self._tried(f"{value}.at[{at}].get(out_sharding={sharding})")
        if isinstance(node, ast.Call) and self.text.endswith(")"):
            given = [keyword.arg for keyword in node.keywords]
            if "out_sharding" in given:
                return None
            before = self.text[:-1].rstrip().removesuffix(",")
            return self._tried(f"{before}, out_sharding={sharding})")
        return None

    def _sharding(self, operand: str, spec: PartitionSpec) -> str | None:
        """How a sharding is written at the line; None where no name leads to it."""
        known = self._names.known
        spec_class = known.get("PartitionSpec")
        if spec_class is None and "jax" in known:
            spec_class = f"{known['jax']}.sharding.PartitionSpec"
        if spec_class is None:
            return None
        written = spec_text(spec, spec_class, self._quote)
        if self._names.has_context:
            return written
        mesh = next((text for text, own in self._names.meshes.items() if own == self.mesh), None)
        if mesh is None and "jax" in known:
            mesh = f"{known['jax']}.typeof({operand}).sharding.mesh"
        sharding_class = known.get("NamedSharding")
        if sharding_class is None and "jax" in known:
            sharding_class = f"{known['jax']}.sharding.NamedSharding"
        if mesh is None or sharding_class is None:
            return None
        return f"{sharding_class}({mesh}, {written})"

    def _tried(self, text: str) -> Tried | None:
        try:
            traced = self._traced(text, self._definitions)
        except Exception:  # JAX refuses in many ways, and a function may take no such argument
            return None
        return Tried(text, _results(traced), traced)

    def _traced(self, text: str, definitions: Sequence[_Definition]) -> Any:
        return _traced(
            text, self._scope, definitions=definitions, with_mesh=self._names.has_context
        )

    @property
    def mesh(self) -> Mesh:
        """The mesh that the operands are on."""
        return self.operands[0].type.mesh


def _results(traced: Any) -> tuple[ArrayType, ...]:
    types = [_type(info) for info in jax.tree.leaves(traced.out_info)]
    return tuple(type_ for type_ in types if type_ is not None)


def refused_expression(error: BaseException) -> RefusedExpression | None:
    """The author's expression that a ``ShardingTypeError`` is about, or types that differ.

    None for another error; where the expression by itself is not refused as well (in a `vmap`, say,
    its operands are others than the op's); and where it runs much of the author's code, as the
    gradient of a model does, which would be traced for each edit.
    """
    own = _own_frame(error) if is_about_shardings(error) else None
    if own is None:
        return None
    frame, position = own
    file = frame.f_code.co_filename
    text = _text(file, position)
    scope = {**frame.f_globals, **frame.f_locals}
    try:
        node = _parsed(text)
    except SyntaxError:
        return None  # of a statement, such as x += y
    definitions: tuple[_Definition, ...] = ()
    if any(differing(str(error))):
        definitions = tuple(_definitions(node, scope))
        for definition in definitions:
            captured = inspect.getclosurevars(scope[definition.name])
            scope = {**captured.globals, **captured.nonlocals, **scope}
    # Bare specs need the mesh that was set where the author's code ran, and is no longer here.
    for with_mesh in (False, True):
        if _is_refused(text, scope, definitions, with_mesh=with_mesh):
            break
    else:
        return None
    names = names_in(frame)
    names = replace(names, has_context=names.has_context or with_mesh)
    operands = [
        (operand, part)
        for part in _operands(node)
        if (operand := _operand(_segment(text, part), scope, with_mesh)) is not None
    ]
    if not operands:
        return None
    mesh = operands[0][0].type.mesh
    return RefusedExpression(
        text,
        SourceLocation(file, position[0], position[2], frame.f_code.co_name),
        tuple(operand for operand, _ in operands),
        None if definitions else _result(text, scope),
        tuple(_differences(str(error), mesh)),
        scope,
        names,
        tuple(part for _, part in operands),
        definitions,
        _quote(file),
    )


def refusing_line(error: BaseException | None) -> SourceLocation | None:
    """The line of an installed package at which JAX refuses shardings.

    None where it is the author's, as of any other error: there ``refused_expression`` says more.
    """
    if error is None or not is_about_shardings(error):
        return None
    entry, line = error.__traceback__, None
    while entry is not None:
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith((*_OUTSIDE, "<")):
            line = SourceLocation(code.co_filename, entry.tb_lineno, 0, code.co_name)
        entry = entry.tb_next
    return line if line is not None and package_of(line.file) else None


def is_about_shardings(error: BaseException) -> bool:
    """Whether JAX refuses shardings, or types that differ in nothing else."""
    if type(error).__name__ == _ERROR:
        return True
    types = [*differing(str(error))] if isinstance(error, TypeError) else []
    return bool(types) and all(
        _UNSHARDED.sub("", each.first) == _UNSHARDED.sub("", each.second) for each in types
    )


def _differences(message: str, mesh: Mesh) -> Iterator[DifferingTypes[ArrayType]]:
    for each in differing(message):
        first, second = _read_type(each.first, mesh), _read_type(each.second, mesh)
        yield DifferingTypes(each.kind, each.value, each.other, each.path, first, second)


#: Where a dimension is, in a type: ``8@data``, ``8@(data,model)``.
_UNSHARDED = re.compile(r"@(?:\([^)]*\)|\w+)")
_DIM = re.compile(r"(?P<size>\d+)(?:@(?:\((?P<several>[^)]*)\)|(?P<axis>\w+)))?")


def _read_type(text: str, mesh: Mesh) -> ArrayType:
    """A type as JAX prints it in full, ``float32[8@data,16]``."""
    name, _, rest = text.partition("[")
    dims = [*_DIM.finditer(rest.partition("]")[0])]
    entries = [tuple(dim["several"].split(",")) if dim["several"] else dim["axis"] for dim in dims]
    shape = tuple(int(dim["size"]) for dim in dims)
    return ArrayType(shape, compat.dtype_name(np.dtype(name)), PartitionSpec(tuple(entries)), mesh)


def _definitions(node: ast.expr, scope: Mapping[str, Any]) -> Iterator[_Definition]:
    """The author's functions that a call is given by their names, as they are defined."""
    arguments = [*_operands(node)] if isinstance(node, ast.Call) else []
    for argument in arguments:
        function = scope.get(argument.id) if isinstance(argument, ast.Name) else None
        if not isinstance(function, FunctionType) or not _is_author_s(
            function.__code__.co_filename
        ):
            continue
        try:
            lines, line = inspect.getsourcelines(function)
            text = textwrap.dedent("".join(lines))
            (statement,) = ast.parse(text).body
        except (OSError, SyntaxError, ValueError):
            continue
        assert isinstance(argument, ast.Name)
        if (
            isinstance(statement, ast.FunctionDef)
            and statement.name == argument.id
            and not statement.decorator_list
        ):
            yield _Definition(argument.id, text, line)


def _returned_by(definition: _Definition) -> Iterator[_Place]:
    """What a function returns, and parts of that; not what functions inside it return."""
    waiting = [*ast.iter_child_nodes(ast.parse(definition.text).body[0])]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Return) and node.value is not None:
            for part in _parts(node.value):
                yield _Place(definition.text, part, definition, node)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression is made of as a pytree, the innermost; itself where that is unknown."""
    if isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _parts(element)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _parts(value)
    elif not isinstance(node, ast.Constant | ast.Lambda):
        yield node


def _is_inside(node: ast.expr, statement: ast.stmt) -> bool:
    return any(each is node for each in ast.walk(statement))


_Position: TypeAlias = tuple[int, int, int, int]
"""First and last line, counted from 1; first column and the one behind the last, in bytes."""


def _own_frame(error: BaseException) -> tuple[FrameType, _Position] | None:
    """The author's innermost frame, and where the expression stands that it runs."""
    frame_position = None
    entry = error.__traceback__
    while entry is not None:
        frame, last = entry.tb_frame, entry.tb_lasti
        entry = entry.tb_next
        if _is_author_s(frame.f_code.co_filename):
            frame_position = frame, [*frame.f_code.co_positions()][last // 2]
    if frame_position is None or None in frame_position[1]:
        return None
    return frame_position[0], cast(_Position, frame_position[1])


def _is_author_s(file: str) -> bool:
    return is_own(file) and not file.startswith((*_OUTSIDE, "<"))


def _text(file: str, position: _Position) -> str:
    """The text of an expression; empty where the file can't be read."""
    line, end_line, column, end_column = position
    lines = [text.encode() for text in linecache.getlines(file)[line - 1 : end_line]]
    if len(lines) != end_line - line + 1:
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    return " ".join(text.decode().strip() for text in lines)


def _quote(file: str) -> str:
    try:
        return Source(file, "".join(linecache.getlines(file))).quote
    except TargetError:
        return "'"


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _segment(text: str, node: ast.expr) -> str:
    return ast.get_source_segment(text, node) or ""


def _replaced(
    text: str, pieces: Sequence[tuple[ast.expr, str]], within: ast.stmt | None = None
) -> str:
    """A text with parts of it replaced; of a statement within it alone, on one line."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    first, last = _span(within, starts) if within is not None else (0, len(data))
    spans = [(*_span(node, starts), new) for node, new in pieces]
    for start, end, new in sorted(spans, reverse=True):
        data = data[:start] + new.encode() + data[end:]
        last += len(new.encode()) - (end - start)
    edited = data[first:last].decode()
    return edited if within is None else " ".join(line.strip() for line in edited.splitlines())


def _span(node: ast.expr | ast.stmt, starts: Sequence[int]) -> tuple[int, int]:
    """First byte of a part of a text, and the one behind its last."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[
        node.end_lineno - 1
    ] + node.end_col_offset


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """What can be arrays: an operator's sides, a call's arguments, what is indexed and by what."""
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Subscript):
        yield node.value
        yield from node.slice.elts if isinstance(node.slice, ast.Tuple) else (node.slice,)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.List | ast.Tuple | ast.Dict):
                yield from _parts(argument)
            elif not isinstance(argument, ast.Starred):
                yield argument


def _traced(
    text: str,
    scope: Mapping[str, Any],
    *,
    sharded: bool = True,
    definitions: Sequence[_Definition] = (),
    with_mesh: bool = False,
) -> Any:
    """An expression as a program of its own, with the arrays of its names for arguments.

    Functions are defined anew, so that the arrays which they capture are arguments, too. With
    ``with_mesh`` the arrays' mesh is set, as it was around the author's code.
    """
    code = compile(text, "<expression>", "eval")
    bodies = [compile(each.text, "<definition>", "exec") for each in definitions]
    names = dict.fromkeys(
        name for each in (text, *(own.text for own in definitions)) for name in _names_of(each)
    )
    for each in definitions:
        names.pop(each.name, None)
    used = {name: scope[name] for name in names if name in scope}
    leaves, tree = jax.tree.flatten(used)
    arrays = [number for number, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def expression(*values: Any) -> Any:
        own = list(leaves)
        for number, value in zip(arrays, values, strict=True):
            own[number] = value
        names = {**scope, **jax.tree.unflatten(tree, own)}
        for body in bodies:
            exec(body, names)
        return eval(code, names)

    with _mesh_set(leaves[number] for number in arrays) if with_mesh else nullcontext():
        return jax.jit(expression).trace(*(_abstract(leaves[number], sharded) for number in arrays))


def _mesh_set(arrays: Iterable[Any]) -> AbstractContextManager[Any]:
    """The only mesh of some arrays, set; nothing where there is none, or several."""
    meshes = {jax.typeof(array).sharding.mesh for array in arrays}
    named = [mesh for mesh in meshes if mesh.axis_names]
    if len(named) != 1:
        return nullcontext()
    return cast("AbstractContextManager[Any]", compat.mesh_context(named[0]))


def _is_refused(
    text: str, scope: Mapping[str, Any], definitions: Sequence[_Definition], *, with_mesh: bool
) -> bool:
    """Whether JAX refuses an expression by itself, without tracing much of the author's code."""
    calls = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and _is_author_s(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        _traced(text, scope, definitions=definitions, with_mesh=with_mesh)
    except Exception as error:  # the author's code runs here
        return is_about_shardings(error) and calls <= _MOST_CALLS
    finally:
        sys.setprofile(before)
    return False


def _names_of(text: str) -> list[str]:
    names = [node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(names))


def _abstract(array: Any, sharded: bool) -> Any:
    type_ = jax.typeof(array)
    sharding = type_.sharding if sharded else None
    return jax.ShapeDtypeStruct(type_.shape, type_.dtype, sharding=sharding)


def _operand(text: str, scope: Mapping[str, Any], with_mesh: bool) -> Operand | None:
    """What an operand is; None where it is no array on a mesh."""
    try:
        type_ = _type(_traced(text, scope, with_mesh=with_mesh).out_info)
    except Exception:  # a function, a string, a list: no array
        return None
    return None if type_ is None else Operand(text, type_)


def _type(info: Any) -> ArrayType | None:
    sharding, _ = from_jax_sharding(info.sharding, len(info.shape))
    if sharding is None:
        return None
    dtype = compat.dtype_name(info.dtype)
    return ArrayType(tuple(info.shape), dtype, sharding.spec, sharding.mesh)


def _result(text: str, scope: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of what an expression makes; None where it is not one array."""
    try:
        return tuple(_traced(text, scope, sharded=False).out_info.shape)
    except Exception:  # it makes several, or a name holds an array that can't be without a mesh
        return None
