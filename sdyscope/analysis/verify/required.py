"""What explanations of collectives say of the value, against what XLA moves and how that arrives.

Three things are compared: which value is moved or summed, how it is sharded, and how the op that it
is moved for requires it. XLA's module right behind its partitioner tells them, instruction by
instruction: what makes the value, the layout that the dump before has of that, and the blocks that
devices have of it where the op takes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import permutations
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.boundaries import SHARD_MAP, Boundaries
from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.analysis.naming.names import ValueNames
from sdyscope.analysis.naming.structure import Structures, structures
from sdyscope.analysis.verify.audited import AuditedStage, Disagreement, LeftOut
from sdyscope.analysis.verify.ops import OpNames, SameCollectives, certain_causes
from sdyscope.analysis.verify.values import numbers
from sdyscope.errors import ConversionError
from sdyscope.facts.origins import CollectiveOrigin, Spec
from sdyscope.facts.propagated import ValueId
from sdyscope.graph import Op, OpGraph
from sdyscope.stages.audit.facts import SUMS, Audited, AuditedCollective, AuditedWay, Blocks
from sdyscope.stages.audit.ways import RETURN
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import PartitionSpec, TensorSharding, entry_axes

_Verdict: TypeAlias = Literal["agrees", "disagrees", "not followed"]

#: The best first: of several collectives that can be meant one is.
_IN_ORDER: tuple[_Verdict, ...] = ("agrees", "not followed", "disagrees")


def required_stage(shown: Collectives, audited: Audited, graph: OpGraph) -> AuditedStage:
    """Whether the value of each cause, its sharding and the one required are as XLA has them.

    Args:
        shown: the collectives, explained.
        audited: what was read, with the ways of what collectives move; its ops are the graph's.
        graph: the op graph.
    """
    if shown.mesh is None:
        return AuditedStage("required", 0)
    causes = _Causes(shown.mesh, audited, graph)
    same_as = SameCollectives(shown, audited)
    left_out: Counter[LeftOut] = Counter()
    wrong: list[Disagreement] = []
    compared = 0
    for collective, origin in certain_causes(shown, left_out):
        for verdict, disagreement in causes.compared(collective, origin, same_as.of(collective)):
            if verdict == "not followed":
                left_out[verdict] += 1
                continue
            compared += 1
            wrong += [disagreement] if verdict == "disagrees" else []
    return AuditedStage("required", compared, tuple(wrong), dict(left_out))


class _Causes:
    """Compares causes with the ways of what collectives move.

    Args:
        mesh: whose axes shardings name.
        audited: what was read.
        graph: the op graph.
    """

    def __init__(self, mesh: Mesh, audited: Audited, graph: OpGraph) -> None:
        self.mesh = mesh
        self.audited = audited
        self.graph = graph
        self.names = ValueNames(graph)
        self.boundaries = Boundaries(graph)
        self.op_names = OpNames(graph)
        self.numbers = numbers(graph)
        self.node_of = {number: node for node, number in self.numbers.items()}

    def compared(
        self, collective: Collective, origin: CollectiveOrigin, same: Sequence[AuditedCollective]
    ) -> Iterator[tuple[_Verdict, Disagreement]]:
        """The verdicts on one cause, each with what it says if it disagrees."""
        what = f"{collective.name}, {collective.kind}"

        def disagreement(of: str, mine: str, theirs: Iterable[str]) -> Disagreement:
            in_xla = ", ".join(dict.fromkeys(theirs)) or "nothing that has a name"
            return Disagreement(f"{what}: {of}", mine, in_xla, origin.source)

        if not origin.value:
            return
        if origin.kind == "rearrangement":
            # It says which dimension is in pieces, and not how XLA lays out what it makes of these.
            yield "not followed", disagreement("the value", origin.value, ())
            return
        if collective.kind in SUMS:
            values = {value for each in same for value in self.summed(each, origin)}
            yield (
                self.value(origin, values),
                disagreement("the value", origin.value, map(self.names.name, sorted(values))),
            )
            return
        ways = [move.way for each in same for move in each.moves if move.way is not None]
        if origin.kind == "reduction":
            # What is no sum, as a largest one, is gathered: what each device has of the result.
            reduced = {value for way in ways for value in self.reduced(way)}
            yield (
                self.value(origin, reduced),
                disagreement("the value", origin.value, map(self.names.name, sorted(reduced))),
            )
            return
        on_it = [way for way in ways if self.value(origin, self.moved(way)) == "agrees"]
        verdicts = [self.value(origin, self.moved(way)) for way in ways]
        names = (self.names.name(value) for way in ways for value in sorted(self.moved(way)))
        yield _best(verdicts), disagreement("the value", origin.value, names)
        if not on_it:
            return  # What is said of another value says nothing of this one.
        if origin.before is not None:
            # As what makes it gives it, or a constraint on the way: the sentence says not which.
            given = [
                None if self.is_block(origin, way) else blocks
                for way in on_it
                for blocks in (way.given, *way.constrained)
            ]
            yield (
                _best(self.alike(origin.before, [each]) for each in given),
                disagreement(
                    "its sharding",
                    f"{origin.value} is {origin.before}",
                    (layout_text(self.mesh, each) for each in given),
                ),
            )
        if origin.after is not None:
            yield (
                _best(self.alike(origin.after, self.arrived(origin, way)) for way in on_it),
                disagreement(
                    "the sharding required",
                    f"{origin.value} is required as {origin.after}",
                    (
                        f"it arrives as {layout_text(self.mesh, blocks)}"
                        for way in on_it
                        for blocks in self.arrived(origin, way)
                    ),
                ),
            )

    def reduced(self, way: AuditedWay) -> Iterator[ValueId]:
        """What is reduced to what is moved; what is moved where nothing reduces it."""
        for value in self.moved(way):
            op = self.graph.ops[value[0]]
            if op.kind != "stablehlo.reduce":
                yield value
                continue
            for producer, edge in self.graph.operands(op):
                yield producer.id, edge.result

    def value(self, origin: CollectiveOrigin, values: Iterable[ValueId]) -> _Verdict:
        """Whether the value that a cause names is one of some values, or another form of it."""
        sources = {self.names.source(value) for value in self.gone_on(values)}
        names = {name for source in sources for name in self.by_source.get(source, ())}
        if not names:
            return "not followed"
        # What a function is given by several calls has the names of all, and such a name itself.
        shown = {origin.value, *origin.value.split(" or ")}
        if names.intersection(shown):
            return "agrees"
        named = [op for op in self.graph.ops if shown & self.names_of(op)]
        # XLA makes one of two that compute alike.
        alike = {self.structures.inside(node) for node, _ in self.gone_on(values)}
        if any(self.structures.inside(op.id) in alike for op in named):
            return "agrees"
        # What it has folded or merged otherwise has no name of its own.
        is_there = not named or any(map(self.is_there, named))
        return "disagrees" if is_there else "not followed"

    @cached_property
    def structures(self) -> Structures:
        """Numbers of what ops compute, by which two that compute alike are known."""
        return structures(self.graph, self.graph)[0]

    def is_there(self, op: Op) -> bool:
        """Whether XLA has what an op makes, or an argument, under its own name."""
        return op.is_argument or self.numbers.get(op.id, -1) in self.audited.values

    def names_of(self, op: Op) -> set[str]:
        """The names of what an op makes."""
        return {self.names.name((op.id, result)) for result in range(len(op.types))}

    def gone_on(self, values: Iterable[ValueId]) -> list[ValueId]:
        """Values, and what ops make of them that XLA took away, or that only constrain them.

        So did the `shard_map`s whose bodies return them.
        """
        reached = list(dict.fromkeys(values))
        for value in reached:
            reached += [each for each in self.out_of_map(value) if each not in reached]
            type_ = self.graph.ops[value[0]].types[value[1]]
            for user, _ in self.graph.uses(*value):
                is_gone = self.numbers.get(user.id, -1) not in self.audited.values
                is_form = list(user.types) == [type_] and (is_gone or user.is_constraint)
                if is_form and (user.id, 0) not in reached:
                    reached.append((user.id, 0))
        return reached

    def out_of_map(self, value: ValueId) -> Iterator[ValueId]:
        """What `shard_map`s give whose bodies return a value: it is a device's block of that."""
        for given in self.boundaries.passed.get(value, ()):
            op = self.graph.ops[given[0]]
            if op.mnemonic == SHARD_MAP or self.graph.calls_shard_map_body(op):
                yield given

    def is_block(self, origin: CollectiveOrigin, way: AuditedWay) -> bool:
        """Whether a cause names what a `shard_map` gives, of which what is moved is a block.

        Or the block of what it takes, of which that is moved. Layouts on the way are not those of
        what is named then.
        """
        named = self.op_names.of(origin)
        moved = [self.numbers.get(node, -1) for node, _ in self.moved(way)]
        if named and all(map(self.is_mapped, named)) and not any(map(self.is_mapped, moved)):
            return True
        values = self.gone_on(self.moved(way))
        given = [each for value in values for each in self.out_of_map(value)]
        return self.value(origin, given) == "agrees"

    def is_mapped(self, number: int) -> bool:
        """Whether an op is in the body of a `shard_map`, or in what that calls."""
        if number not in self.node_of:
            return False
        op, *calls = self.graph.called_from(self.graph.ops[self.node_of[number]])
        around = [each.parent for each in (op, *calls)]
        for node in around:
            if node is not None:
                around.append(self.graph.ops[node].parent)
        nodes = {node for node in around if node is not None}
        is_called = any(map(self.graph.calls_shard_map_body, calls))
        return is_called or any(self.graph.ops[node].mnemonic == SHARD_MAP for node in nodes)

    @cached_property
    def by_source(self) -> dict[ValueId, set[str]]:
        """By value, its name and those of its other forms."""
        names: dict[ValueId, set[str]] = defaultdict(set)
        for op in self.graph.ops:
            for result in range(len(op.types)):
                value = op.id, result
                names[self.names.source(value)].add(self.names.name(value))
        return names

    def summed(self, collective: AuditedCollective, origin: CollectiveOrigin) -> set[ValueId]:
        """The values that the ops take of which a sum is; what is left unreduced sums them, too."""
        values: set[ValueId] = set()
        for number in collective.ops:
            node = self.node_of[number]
            values.update(self.graph.operand_values[node])
            if any(_is_unreduced(annotation.spec) for annotation in origin.annotations):
                op = self.graph.ops[node]
                values.update((node, result) for result in range(len(op.types)))
        return values

    def moved(self, way: AuditedWay) -> set[ValueId]:
        """The values that a collective moves one of."""
        values = {
            (node, result)
            for number in way.makers
            for node in [self.node_of[number]]
            for result in range(len(self.graph.ops[node].types))
        }
        main = self.graph.main
        if main is not None:
            values |= {
                (argument.node, 0) for argument in main.arguments if argument.index in way.arguments
            }
        calls = {self.node_of[number] for number in way.calls}
        return {given for value in values for given in self.given(value, calls)}

    def given(self, value: ValueId, calls: Collection[int]) -> Iterator[ValueId]:
        """A value, or what it is where one of some calls of its function gives it.

        A function that is called several times gives its argument in another form: that of one.
        """
        source = self.names.source(value)
        op = self.graph.ops[source[0]]
        given = {
            (producer, edge.result)
            for producer, edge in self.graph.entering(op)
            if op.is_argument and edge.kind == "call" and edge.via in calls
        }
        if not given:
            yield value
        for each in given:
            yield from self.given(each, calls)

    def arrived(self, origin: CollectiveOrigin, way: AuditedWay) -> list[Blocks | None]:
        """The layouts in which a value arrives where it is said to be required."""
        named = {RETURN} if origin.op == "return" else self.op_names.of(origin)
        arrived = [blocks for op, blocks in way.arrived if op in named]
        if any(self.audited.ops[op].is_constraint for op in named if op != RETURN):
            # It leaves nothing, and is where what takes its result is, or somewhere on the way.
            arrived += way.passed
        if any(self.audited.ops[op].kind == "stablehlo.scatter" for op in named if op != RETURN):
            # XLA cuts what a scatter takes once more, over axes that are idle, as it likes.
            arrived += way.passed[1:]
        # An op makes its own result, before it moves that, with axes of XLA's choice.
        is_own = not named.isdisjoint(way.makers) or any(
            self.audited.ops[op].kind == "stablehlo.scatter" for op in way.makers
        )
        return [None] * len(arrived) if is_own or self.is_block(origin, way) else arrived

    def alike(self, spec: Spec, layouts: Sequence[Blocks | None]) -> _Verdict:
        """Whether a sharding lays a value out as one of some layouts, all that can be meant."""
        known = [blocks for blocks in layouts if blocks is not None]
        rows = [(self.rows(spec, len(blocks[0])), blocks) for blocks in known]
        if any(own is not None and own == _rows(blocks) for own, blocks in rows):
            return "agrees"
        is_known = len(known) == len(layouts) and all(own is not None for own, _ in rows)
        return "disagrees" if known and is_known else "not followed"

    def rows(self, spec: Spec, rank: int) -> Blocks | None:
        """The blocks that a sharding gives devices; None where it leaves that open."""
        if isinstance(spec, str):
            return None
        if isinstance(spec, PartitionSpec):
            if len(spec.entries) > rank or not all(
                entry is None or isinstance(entry, (str, tuple)) for entry in spec.entries
            ):
                return None
            dims = [[AxisRef(name) for name in entry_axes(entry)] for entry in spec.entries]
        else:
            if len(spec.dim_shardings) != rank:
                return None
            dims = [list(dim.axes) for dim in spec.dim_shardings]
        dims += [[]] * (rank - len(dims))
        return _over(self.mesh, dims)


def _best(verdicts: Iterable[_Verdict]) -> _Verdict:
    known = set(verdicts)
    return next((each for each in _IN_ORDER if each in known), "not followed")


def _rows(blocks: Blocks) -> Blocks:
    """A single row where all are alike."""
    return blocks if any(row != blocks[0] for row in blocks) else blocks[:1]


def _is_unreduced(spec: Spec) -> bool:
    if isinstance(spec, TensorSharding):
        return bool(spec.unreduced_axes)
    return isinstance(spec, PartitionSpec) and bool(spec.unreduced)


def _over(mesh: Mesh, dims: Sequence[Sequence[AxisRef]]) -> Blocks:
    """The blocks that devices have of dimensions over some axes."""
    sizes = mesh.shape
    rows: dict[int, list[int]] = {}
    for place, device in enumerate(mesh.devices()):
        coordinates, rest = {}, place
        for name in reversed(list(sizes)):
            rest, coordinates[name] = divmod(rest, sizes[name])
        row = []
        for axes in dims:
            block = 0
            for axis in axes:
                pre, size = 1, sizes[axis.name]
                if (part := axis.sub_axis_info) is not None:
                    pre, size = part.pre_size, part.size
                after = sizes[axis.name] // (pre * size)
                block = block * size + coordinates[axis.name] // after % size
            row.append(block)
        rows[device] = row
    return _rows([rows[device] for device in sorted(rows)])


def layout_text(mesh: Mesh, blocks: Blocks | None) -> str:
    """A layout as axes of the mesh where some have it, else as its blocks.

    Args:
        mesh: the mesh; its axes of size 1 split nothing.
        blocks: of each device the block that it has of each dimension.
    """
    if blocks is None:
        return "not known"
    dims: list[tuple[str, ...]] = []
    split = [axis.name for axis in mesh.axes if axis.size > 1]
    for dim in range(len(blocks[0])):
        column = _rows([[row[dim]] for row in blocks])
        axes = next(
            (
                names
                for count in range(len(split) + 1)
                for names in permutations(split, count)
                if _over(mesh, [[AxisRef(name) for name in names]]) == column
            ),
            None,
        )
        if axes is None:
            return f"blocks {blocks}"
        dims.append(axes)
    try:
        return str(PartitionSpec(tuple(dims)))
    except ConversionError:  # Two dimensions over one axis: only a part of the blocks is there.
        return f"blocks {blocks}"
