"""The process in which Shardy propagates once more and writes down why.

Shardy can crash when it writes down origins, on modules that it propagates otherwise; and the
module that it then leaves is not always the one that it leaves without. So this is a run beside
the one that decides, and its answer is a list of what is written where. It imports jaxlib and not
JAX, which saves a second, and has the same names in all versions.
"""

from __future__ import annotations

import gc
import re
from typing import Any

import msgspec
from jaxlib.mlir import ir

from sdyscope.process import worker
from sdyscope.stages.propagated.passes_child import pass_manager, shardy_context
from sdyscope.syntax.strings import string_value

#: The attribute with steps.
EDGES = "sdy.propagation_edges"
#: The attribute with origins.
ORIGINS = "sdy.sharding_origins"
#: What Shardy calls a constraint, or a manual computation, where an axis comes from.
_NAME = "sdy.sharding_origin_name"
_SHARDINGS = ("sdy.sharding", "sharding", "out_sharding", "out_shardings")
#: A name in a location, which is no file's.
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"(?!:\d)')
#: Ops whose regions values flow into or out of, one edge a value.
_OWNERS = frozenset(
    {
        "stablehlo.while",
        "stablehlo.case",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "sdy.manual_computation",
        "sdy.named_computation",
    }
)

Origins = list[tuple[str, str]] | str
"""What is written of one value: (axis, origin); the text of what is no dictionary of these."""


class DebugInfoRequest(msgspec.Struct, array_like=True):
    """A module to propagate.

    Attributes:
        module: bytecode, imported into Shardy's dialect.
        until_flow: the passes after which the edges into and out of regions are still there.
        rest: the passes after these.
    """

    module: bytes
    until_flow: tuple[str, ...]
    rest: tuple[str, ...]


class WrittenMarks(msgspec.Struct, array_like=True):
    """What is written at one place; numbers are those in ``Answer.texts`` and ``Answer.written``.

    Attributes:
        edges: the steps; -1 for none.
        origins: where axes come from; -1 for nothing.
    """

    edges: int
    origins: int


class DebugInfoAnswer(msgspec.Struct, array_like=True):
    """What Shardy wrote down. Nodes are numbered as those of an op graph.

    Attributes:
        error: what Shardy says where it refuses the module; nothing else is told then.
        texts: texts, each once.
        written: origins of the values of one op, each once.
        kinds: the kind of each node, a number in ``texts``; that of a block argument is empty.
        counts: how many results each node has.
        parents: the node that each is inside of.
        shardings: (attribute, value) of the sharding of each node that has one, in ``texts``.
        marks: what is written on ops and arguments, by node.
        results: what is written on results of functions, by (function's node, number).
        owners: nodes with edges into or out of regions.
        flow_results: what is written on edges to a result, by (node, number).
        flow_arguments: what is written on edges to an argument inside, by (node, number).
        names: what Shardy calls a node in origins, in ``texts``.
        locations: names in the location of each node, in ``texts``.
    """

    error: str = ""
    texts: list[str] = []
    written: list[list[Origins]] = []
    kinds: list[int] = []
    counts: list[int] = []
    parents: list[int] = []
    shardings: dict[int, tuple[int, int]] = {}
    marks: dict[int, WrittenMarks] = {}
    results: list[tuple[int, int, WrittenMarks]] = []
    owners: list[int] = []
    flow_results: list[tuple[int, int, WrittenMarks]] = []
    flow_arguments: list[tuple[int, int, WrittenMarks]] = []
    names: dict[int, int] = {}
    locations: list[tuple[int, ...]] = []


class _Reader:
    """Reads a propagated module op by op."""

    def __init__(self) -> None:
        self.answer = DebugInfoAnswer(texts=[""])
        self.texts: dict[str, int] = {"": 0}
        self.known: dict[Any, int] = {}
        self.origins: dict[Any, int] = {}
        #: By number of the op with such edges: what is written on them.
        self.flow_results: list[tuple[int, int, WrittenMarks]] = []
        self.flow_arguments: list[tuple[int, int, WrittenMarks]] = []

    def text(self, text: str) -> int:
        """The number of a text."""
        number = self.texts.get(text)
        if number is None:
            number = self.texts[text] = len(self.answer.texts)
            self.answer.texts.append(text)
        return number

    def attribute(self, attribute: Any) -> int:
        """The number of an attribute's text; equal attributes are one object of MLIR."""
        number = self.known.get(attribute)
        if number is None:
            number = self.known[attribute] = self.text(str(attribute))
        return number

    def written(self, attribute: Any) -> int:
        """The number of origins: ``{data = "input: 0"}``, or a list of such."""
        number = self.origins.get(attribute)
        if number is None:
            number = self.origins[attribute] = len(self.answer.written)
            each = list(attribute) if isinstance(attribute, ir.ArrayAttr) else [attribute]
            self.answer.written.append([_origins(origins) for origins in each])
        return number

    def marks(self, attributes: Any) -> WrittenMarks | None:
        """What is written among attributes."""
        edges = self.attribute(attributes[EDGES]) if EDGES in attributes else -1
        origins = self.written(attributes[ORIGINS]) if ORIGINS in attributes else -1
        return None if edges == origins == -1 else WrittenMarks(edges, origins)

    # --- the edges into and out of regions, before Shardy removes them ---------------------------

    def flow(self, module: Any) -> None:
        """Reads the data-flow edges of a module's functions."""
        owners = 0

        def visit(block: Any, owner: int) -> None:
            nonlocal owners
            numbers: dict[int, int] = {}
            for view in block.operations:
                operation = view.operation
                if operation.name == "sdy.data_flow_edge":
                    marks = self.marks(operation.attributes) or WrittenMarks(-1, -1)
                    value = operation.operands[0]
                    number = numbers.get(hash(value))
                    if number is not None:
                        result = int(ir.OpResult(value).result_number)
                        self.flow_results.append((number, result, marks))
                    elif owner >= 0 and isinstance(value.owner, ir.Block):
                        argument = int(ir.BlockArgument(value).arg_number)
                        self.flow_arguments.append((owner, argument, marks))
                    continue
                inside = -1
                if operation.name in _OWNERS:
                    inside, owners = owners, owners + 1
                    for result in operation.results:
                        numbers[hash(result)] = inside
                for region in operation.regions:
                    for inner in region.blocks:
                        visit(inner, inside)

        for view in module.body.operations:
            if view.operation.name == "func.func":
                for region in view.operation.regions:
                    for block in region.blocks:
                        visit(block, -1)

    # --- the module after propagation ------------------------------------------------------------

    def module(self, operation: Any) -> DebugInfoAnswer:
        """Reads a propagated module."""
        self.node(operation.name, 0, 0)
        self.inside(operation, 0, False)
        by_number = dict(enumerate(self.answer.owners))
        for answers, read in (
            (self.answer.flow_results, self.flow_results),
            (self.answer.flow_arguments, self.flow_arguments),
        ):
            answers += [
                (by_number[owner], number, marks)
                for owner, number, marks in read
                if owner in by_number
            ]
        self.answer.locations.append(())
        self.locations(operation)
        return self.answer

    def inside(self, operation: Any, node: int, in_function: bool) -> None:
        """Reads what is inside an op."""
        kinds = self.answer.kinds
        is_function = operation.name == "func.func"
        in_function = in_function or is_function
        if is_function:
            self.function(operation, node)
        for region in operation.regions:
            for number, block in enumerate(region.blocks):
                entry = is_function and number == 0
                self.arguments(operation, node, block, entry)
                for view in block.operations:
                    inner = view.operation
                    own = len(kinds)
                    name = inner.name
                    self.node(name, len(inner.results), node)
                    attributes = inner.attributes
                    if len(attributes):
                        self.op(own, attributes)
                    if in_function and name in _OWNERS:
                        self.answer.owners.append(own)
                    if len(inner.regions):
                        self.inside(inner, own, in_function)

    def node(self, kind: str, count: int, parent: int) -> None:
        self.answer.kinds.append(self.text(kind))
        self.answer.counts.append(count)
        self.answer.parents.append(parent)

    def op(self, node: int, attributes: Any) -> None:
        marks = self.marks(attributes)
        if marks is not None:
            self.answer.marks[node] = marks
        for name in _SHARDINGS:
            if name in attributes:
                value = self.attribute(attributes[name])
                self.answer.shardings[node] = (self.text(name), value)
                break
        if _NAME in attributes:
            self.answer.names[node] = self.text(string_value(ir.StringAttr(attributes[_NAME])))

    def arguments(self, operation: Any, parent: int, block: Any, entry: bool) -> None:
        written: Any = ()
        if entry and "arg_attrs" in operation.attributes:
            written = operation.attributes["arg_attrs"]
        for number in range(len(block.arguments)):
            node = len(self.answer.kinds)
            self.node("", 1, parent)
            if number < len(written):
                self.op(node, written[number])

    def function(self, operation: Any, node: int) -> None:
        if "res_attrs" not in operation.attributes:
            return
        for number, attributes in enumerate(operation.attributes["res_attrs"]):
            marks = self.marks(attributes)
            if marks is not None:
                self.answer.results.append((node, number, marks))

    def locations(self, operation: Any) -> None:
        """Reads the locations of all nodes inside an op."""
        for region in operation.regions:
            for block in region.blocks:
                self.answer.locations += [()] * len(block.arguments)
                for view in block.operations:
                    inner = view.operation
                    self.answer.locations.append(self.location(inner.location))
                    if len(inner.regions):
                        self.locations(inner)

    def location(self, location: Any) -> tuple[int, ...]:
        """The numbers of the names in a location."""
        if (
            type(location).__name__ == "NameLoc"
            and type(location.child_loc).__name__ == "UnknownLoc"
        ):
            return (self.text(location.name_str),)  # A tag and nothing else, as nearly all are.
        return tuple(map(self.text, _NAMED.findall(str(location))))


def _origins(attribute: Any) -> Origins:
    if not isinstance(attribute, ir.DictAttr):
        return str(attribute)
    pairs = []
    items: Any = attribute
    for item in items:
        # They iterate over pairs or, since JAX 0.10, names.
        name, value = (item, items[item]) if isinstance(item, str) else (item.name, item.attr)
        text = string_value(value) if isinstance(value, ir.StringAttr) else str(value)
        pairs.append((name, text))
    return pairs


def _answer(request: DebugInfoRequest) -> DebugInfoAnswer:
    with shardy_context():
        try:
            module = ir.Module.parse(request.module)
            reader = _Reader()
            pass_manager(request.until_flow).run(module.operation)
            reader.flow(module)
            pass_manager(request.rest).run(module.operation)
        except Exception as error:  # MLIRError, by several names
            return DebugInfoAnswer(
                error=str(error).strip().partition("\n")[0] or type(error).__name__
            )
        return reader.module(module.operation)


def serve() -> None:
    """Answers requests until the parent ends."""
    # What is read of a module is kept until it is answered, and has no cycles.
    gc.disable()
    decoder, encoder = msgspec.msgpack.Decoder(DebugInfoRequest), msgspec.msgpack.Encoder()
    worker.serve(lambda request: encoder.encode(_answer(decoder.decode(request))))
