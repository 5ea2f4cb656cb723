"""The author's expression that JAX refused with a ``ShardingTypeError``, to be tried with edits.

JAX names neither operand nor line. The traceback has the author's frame, Python says which
expression of it ran, and the frame has its values: so the expression can be traced by itself, as
it is and edited, with JAX alone to say what it accepts.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, cast

import jax

from sdyscope.errors import TargetError
from sdyscope.facts.refusals import ArrayType, Operand
from sdyscope.patches.source import Source
from sdyscope.patches.specs import spec_text
from sdyscope.stages import compat
from sdyscope.stages.edited.names import Names, names_in
from sdyscope.stages.lowered.request import from_jax_sharding
from sdyscope.values.sharding import PartitionSpec
from sdyscope.values.source import PACKAGE, SourceLocation, is_own

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
class RefusedExpression:
    """An expression that JAX refuses for its operands' shardings.

    Attributes:
        text: the expression, as it is written.
        source: its line.
        operands: its operands that are sharded arrays.
        result: the shape of the result; None where that is not one array.
    """

    text: str
    source: SourceLocation
    operands: tuple[Operand, ...]
    result: tuple[int, ...] | None
    _scope: Mapping[str, Any] = field(repr=False)
    _names: Names = field(repr=False)
    _nodes: tuple[ast.expr, ...] = field(repr=False)
    _quote: str = field(default="'", repr=False)

    def resharded(self, specs: Mapping[int, PartitionSpec]) -> Tried | None:
        """The expression with some operands resharded, by their number; None if JAX refuses."""
        pieces = []
        for number, spec in specs.items():
            operand = self.operands[number]
            sharding = self._sharding(operand, spec)
            call = self._names.known.get("reshard")
            if call is None and "jax" in self._names.known:
                call = f"{self._names.known['jax']}.sharding.reshard"
            if sharding is None or call is None:
                return None
            pieces.append((self._nodes[number], f"{call}({operand.text}, {sharding})"))
        return self._tried(_replaced(self.text, pieces))

    def with_out_sharding(self, spec: PartitionSpec) -> Tried | None:
        """The expression with ``out_sharding``; None if it takes none, or JAX refuses."""
        sharding = self._sharding(self.operands[0], spec)
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

    def _sharding(self, operand: Operand, spec: PartitionSpec) -> str | None:
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
        mesh = next(
            (text for text, own in self._names.meshes.items() if own == operand.type.mesh), None
        )
        if mesh is None and "jax" in known:
            mesh = f"{known['jax']}.typeof({operand.text}).sharding.mesh"
        sharding_class = known.get("NamedSharding")
        if sharding_class is None and "jax" in known:
            sharding_class = f"{known['jax']}.sharding.NamedSharding"
        if mesh is None or sharding_class is None:
            return None
        return f"{sharding_class}({mesh}, {written})"

    def _tried(self, text: str) -> Tried | None:
        try:
            traced = _traced(text, self._scope)
        except Exception:  # JAX refuses in many ways, and a function may take no such argument
            return None
        results = [_type(info) for info in jax.tree.leaves(traced.out_info)]
        return Tried(text, tuple(result for result in results if result is not None), traced)


def refused_expression(error: BaseException) -> RefusedExpression | None:
    """The author's expression that a ``ShardingTypeError`` is about.

    None for another error; where the expression by itself is not refused as well (in a `vmap`, say,
    its operands are others than the op's); and where it runs much of the author's code, as the
    gradient of a model does, which would be traced for each edit.
    """
    own = _own_frame(error) if type(error).__name__ == _ERROR else None
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
    if not _is_refused(text, scope):
        return None
    operands = [
        (operand, part)
        for part in _operands(node)
        if (operand := _operand(_segment(text, part), scope)) is not None
    ]
    if not operands:
        return None
    return RefusedExpression(
        text,
        SourceLocation(file, position[0], position[2], frame.f_code.co_name),
        tuple(operand for operand, _ in operands),
        _result(text, scope),
        scope,
        names_in(frame),
        tuple(part for _, part in operands),
        _quote(file),
    )


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


def _replaced(text: str, pieces: Sequence[tuple[ast.expr, str]]) -> str:
    data = text.encode()
    for node, new in sorted(pieces, key=lambda piece: -piece[0].col_offset):
        data = data[: node.col_offset] + new.encode() + data[node.end_col_offset :]
    return data.decode()


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
            if isinstance(argument, ast.List | ast.Tuple):
                yield from argument.elts
            elif not isinstance(argument, ast.Starred):
                yield argument


def _traced(text: str, scope: Mapping[str, Any], *, sharded: bool = True) -> Any:
    """An expression as a program of its own, with the arrays of its names for arguments."""
    code = compile(text, "<expression>", "eval")
    used = {name: scope[name] for name in _names_of(text) if name in scope}
    leaves, tree = jax.tree.flatten(used)
    arrays = [number for number, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def expression(*values: Any) -> Any:
        own = list(leaves)
        for number, value in zip(arrays, values, strict=True):
            own[number] = value
        return eval(code, {**scope, **jax.tree.unflatten(tree, own)})

    return jax.jit(expression).trace(*(_abstract(leaves[number], sharded) for number in arrays))


def _is_refused(text: str, scope: Mapping[str, Any]) -> bool:
    """Whether JAX refuses an expression by itself, without tracing much of the author's code."""
    calls = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and _is_author_s(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        _traced(text, scope)
    except Exception as error:  # the author's code runs here
        return type(error).__name__ == _ERROR and calls <= _MOST_CALLS
    finally:
        sys.setprofile(before)
    return False


def _names_of(text: str) -> list[str]:
    names = [node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)]
    return list(dict.fromkeys(names))


def _abstract(array: Any, sharded: bool) -> Any:
    type_ = jax.typeof(array)
    sharding = type_.sharding if sharded else None
    return jax.ShapeDtypeStruct(type_.shape, type_.dtype, sharding=sharding)


def _operand(text: str, scope: Mapping[str, Any]) -> Operand | None:
    """What an operand is; None where it is no array on a mesh."""
    try:
        type_ = _type(_traced(text, scope).out_info)
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
