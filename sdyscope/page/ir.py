"""The modules' text for the report, as lowered and after propagation, a line an op.

Each line has its source line and its row of the tensors; of what propagation wrote, it is known
what was there before. Long lines are broken, which MLIR's syntax allows anywhere between tokens,
and large constants are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sdyscope.analysis.naming.pairs import value_pairs
from sdyscope.analysis.naming.resolve import ssa_name, written_name
from sdyscope.annotations import num_partitions
from sdyscope.errors import ConversionError, SdyscopeError
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated
from sdyscope.graph import Op, OpGraph, Sharding, TensorType, ValueId
from sdyscope.graph.tags import sids
from sdyscope.inspection import Inspection
from sdyscope.page.columns import Pool, column, steps
from sdyscope.page.document import Report
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import TensorSharding
from sdyscope.values.source import SourceLocation
from sdyscope.values.tiling import TupleSharding
from sdyscope.words.paths import shortened
from sdyscope.words.places import shown_name

#: Lines are broken from this many characters on.
WIDTH = 150

#: Constants from this many characters on are left out.
CONSTANT = 240

Change: TypeAlias = Literal["added", "changed"]
"""``added``: nothing was written there before propagation; ``changed``: something else was."""

_Span: TypeAlias = tuple[int, int, Change]
"""First character, the one after the last, and what propagation did there."""

_DEFINES = re.compile(r"\s*(%[\w.$-]+)(?::\d+)? = ")
_CONSTANT = re.compile(rf'(?<=dense<)("0x[0-9A-Fa-f]{{{CONSTANT},}}"|\[[^>]{{{CONSTANT},}}\])(?=>)')
_RESOURCE = re.compile(rf'"0x[0-9A-Fa-f]{{{CONSTANT},}}"')
#: Of a module that came through HLO: an entry of a line and a half for each donated argument.
_ALIASES = re.compile(r"\bmhlo\.input_output_alias = \[")
#: A sharding that is written in a line; of Shardy's up to its first bracket.
_WRITTEN = re.compile(
    r"sdy\.(?<=\bsdy\.)(?:sharding = #sdy\.sharding(?:_per_value)?(?=<)"
    r"|(?:reshard|sharding_constraint) (%[\w.$#-]+ )(?=<))"
    r'|mhlo\.(?<=\bmhlo\.)sharding = "(?:[^"\\]|\\.)*"'
)

#: By the bracket that is opened: what can close it, open another, or begin or end a string.
_BRACKETS = {"<": re.compile(r'[<>"]'), "[": re.compile(r'[\[\]"]')}

#: The spaces at which a line is broken: between items but numbers, and before an op's attributes.
_BREAKS = re.compile(r" (?:(?<=, )(?!-?\d)|(?=\{(?:\w+\.)?\w+ = ))")


@dataclass(frozen=True, slots=True)
class IrLine:
    """A line of a module's text.

    Attributes:
        text: it, as the compiler writes it.
        source: the source line that its op comes from.
        scope: its op's scope, without the program's own name.
        names: SSA names, in the first lowered module, of the values that it defines.
        is_copy: whether it is one of several lines that these became, and not the one that is shown
            elsewhere.
        changes: for each sharding that is written in it, what propagation did there.
    """

    text: str
    source: SourceLocation | None = None
    scope: str = ""
    names: tuple[str, ...] = ()
    is_copy: bool = False
    changes: tuple[Change | None, ...] = ()


def text_part(pool: Pool, lines: Iterable[IrLine]) -> dict[str, Any]:
    """The columns of a text, a row a piece of a line; `reports/js/ir/lines.js` reads them.

    Args:
        pool: takes the source lines.
        lines: its lines.
    """
    text: list[str] = []
    wrapped: list[int] = []
    sources: list[int | None] = []
    scopes: list[str] = []
    tensors: list[str] = []
    marks: list[tuple[int | str, ...]] = []
    counts: dict[Change, int] = {"added": 0, "changed": 0}
    for line in lines:
        short = elided(line.text)
        pieces: list[str] = [short]
        spans: list[_Span] = []
        if len(short) > WIDTH or any(line.changes):
            written = written_in(short)
            pieces = list(broken(short, written))
            spans = _spans(written, line.changes)
            for _, _, change in spans:
                counts[change] += 1
        start, count = len(text), len(pieces)
        names = "\n".join(("", *line.names) if line.is_copy else line.names)
        text += pieces
        wrapped += range(start + 1, start + count)
        sources += [pool.source(line.source)] * count
        scopes += [line.scope] * count
        tensors += [names] * count
        marks += _marks(pieces, spans) if spans else [()] * count
    return {
        "text": "\n".join(text),
        "wrapped": steps(wrapped),
        "sources": column(sources),
        "scopes": column(scopes),
        "tensors": _own(tensors, text),
        "marks": column(marks) if any(marks) else None,
        "counts": counts,
    }


def lines_of(text: str, graph: OpGraph) -> Iterator[tuple[str, Op | None]]:
    """Each line, with the op that it defines, or the function.

    Ops are printed in their order, except those that stand for a whole region, as in `stablehlo.
    reduce(...) applies stablehlo.add`: what is in that region is not printed. Where the graph has
    SSA names they are compared.
    """
    ops = (op for op in graph.operations() if op.types)
    functions = (graph.ops[function.op] for function in graph.functions.values())
    hidden: set[int] = set()
    for line in text.splitlines():
        match = _DEFINES.match(line)
        op = None
        if match is not None:
            named = ("", match[1])
            op = next((op for op in ops if op.parent not in hidden and op.name in named), None)
            if op is not None and " applies " in line:
                hidden.add(op.id)
        elif line.lstrip().startswith("func.func "):
            op = next(functions, None)
        yield line, op


def elided(line: str) -> str:
    """The line without its large constants, and a module's without the list of what is donated."""
    aliases = _ALIASES.search(line) if line.startswith("module ") else None
    if aliases is not None:
        end = _closing(line, aliases.end() - 1)
        if end - aliases.end() > CONSTANT:
            said = f"/* {end - aliases.end():,} characters */]"
            line = line[: aliases.end()] + said + line[end + 1 :]
    if len(line) <= CONSTANT:
        return line
    line = _CONSTANT.sub(lambda match: f"/* {len(match[0]):,} characters */", line)
    return _RESOURCE.sub(lambda match: f'"0x… {len(match[0]):,} characters"', line)


def broken(line: str, written: Sequence[tuple[int, int]]) -> Iterator[str]:
    """A long line in pieces, which are indented further; a function's arguments each on a line.

    Args:
        line: the line.
        written: where the shardings stand that are written in it, which stay in one piece.
    """
    if len(line) <= WIDTH:
        yield line
        return
    indent = _indent(line)
    if line.lstrip().startswith("func.func"):
        pieces = re.split(r"(?<=[>}]), (?=%\w+: )|(?<=[>}]), (?=tensor<)|(?<=\)) (?=-> \()", line)
        for number, piece in enumerate(pieces):
            end = (
                "," if number + 1 < len(pieces) and not pieces[number + 1].startswith("->") else ""
            )
            yield f"{indent if number else ''}{piece}{end}"
        return
    places = [match.start() for match in _BREAKS.finditer(line)]
    for first, last in written:
        places = [at for at in places if not first < at < last]
    start, own = 0, ""
    while len(line) - start + len(own) > WIDTH:
        beyond = bisect_right(places, start + WIDTH - len(own))
        if beyond and places[beyond - 1] > start:
            beyond -= 1  # The last one that fits; else the first that does not.
        if beyond == len(places):
            break
        yield own + line[start : places[beyond]]
        start, own = places[beyond] + 1, indent
    yield own + line[start:]


def written_in(line: str) -> list[tuple[int, int]]:
    """Where the shardings stand that are written in a line: first character, one after the last."""
    return [_span(line, match) for match in _WRITTEN.finditer(line)]


def _indent(line: str) -> str:
    """What stands before the further pieces of a line."""
    return " " * (len(line) - len(line.lstrip()) + 4)


def _spans(written: Sequence[tuple[int, int]], changes: Sequence[Change | None]) -> list[_Span]:
    """Where in a line the shardings stand that propagation added or changed.

    None, where it has others than were said: then it is not known which is which.
    """
    if not any(changes) or len(written) != len(changes):
        return []
    return [
        (*span, change) for span, change in zip(written, changes, strict=True) if change is not None
    ]


def _span(line: str, match: re.Match[str]) -> tuple[int, int]:
    """A written sharding from its first character to the one after its last."""
    if match[0].startswith("mhlo."):
        return match.span()
    start = match.start() if match[1] is None else match.end()
    return start, _closing(line, match.end()) + 1


def _closing(line: str, at: int) -> int:
    """Where the bracket at a place is closed; the last character where it is not."""
    opens = line[at]
    depth, quoted = 0, False
    for match in _BRACKETS[opens].finditer(line, at):
        if match[0] == '"':
            quoted = not quoted
        elif not quoted:
            depth += 1 if match[0] == opens else -1
            if depth == 0:
                return match.start()
    return len(line) - 1


def _marks(pieces: Sequence[str], spans: Sequence[_Span]) -> Iterator[tuple[int | str, ...]]:
    """Of each piece of a line the parts of spans that are in it, one behind the other."""
    indent = len(_indent(pieces[0]))
    start = 0
    for number, piece in enumerate(pieces):
        own = indent if number else 0
        end = start + len(piece) - own
        marked: list[int | str] = []
        for first, last, change in spans:
            if first < end and last > start:
                marked += (max(first, start) - start + own, min(last, end) - start + own, change)
        yield tuple(marked)
        start = end + 1  # the space at which it is broken


def _own(names: list[str], text: list[str]) -> dict[str, Any]:
    """Names of tensors; `=` where it is the name that the line itself defines."""
    return column(
        "=" if name and (match := _DEFINES.match(line)) and match[1] == name else name
        for name, line in zip(names, text, strict=True)
    )


def part(report: Report, pool: Pool, inspection: Inspection) -> dict[str, Any]:
    """The text under each partitioner; `reports/js/ir/view.js` shows it.

    Args:
        report: not needed.
        pool: takes the source lines.
        inspection: the program.
    """
    return {
        "modules": [
            {"partitioner": name, **_lowered(inspection, pool, name)} for name in inspection.lowered
        ],
        "failures": [
            (name, shortened(error.message)) for name, error in inspection.failures.items()
        ],
    }


def later(report: Report, pool: Pool, inspection: Inspection) -> dict[str, dict[str, Any]]:
    """The text after propagation under each partitioner, read when it is first asked for.

    Args:
        report: what was propagated.
        pool: takes the source lines.
        inspection: the program.
    """
    parts = {}
    for name in inspection.lowered if report.propagate is not None else ():
        try:
            parts[f"ir-propagated-{name}"] = _propagated(inspection, pool, name)
        except SdyscopeError as error:
            parts[f"ir-propagated-{name}"] = {"unavailable": shortened(str(error))}
    return parts


def _lowered(inspection: Inspection, pool: Pool, partitioner: Partitioner) -> dict[str, Any]:
    graph = inspection.graph(partitioner)
    names = _Names(inspection, partitioner)
    text = inspection.lowered[partitioner].text(debug_info=False)
    lines = (
        IrLine(line)
        if op is None or not op.types
        else IrLine(line, op.source, _scope(op), names.of([(op.id, 0)]))
        for line, op in lines_of(text, graph)
    )
    return {**text_part(pool, lines), "arguments": _arguments(graph, names, {})}


def _propagated(inspection: Inspection, pool: Pool, partitioner: Partitioner) -> dict[str, Any]:
    propagated = inspection.propagated(partitioner)
    names = _Names(inspection, partitioner)
    compared = _Compared(inspection.graph(partitioner), propagated)
    lines = (
        _line(line, op, compared, names) for line, op in lines_of(propagated.text, propagated.graph)
    )
    return {
        **text_part(pool, lines),
        "arguments": _arguments(propagated.graph, names, compared.before),
        "exactness": propagated.exactness,
    }


def _line(line: str, op: Op | None, compared: _Compared, names: _Names) -> IrLine:
    if op is None:
        return IrLine(line)
    if not op.types:
        return IrLine(line, changes=tuple(compared.signature(op)))
    values, is_copy = compared.lowered(op)
    change = compared.change(op)
    changes = (change,) if any(sharding is not None for sharding in op.shardings) else ()
    if not values:
        return IrLine(line, changes=changes)
    own = compared.graph.ops[values[0][0]]
    source = own.source
    return IrLine(line, source, _scope(own), names.of(values), is_copy, changes)


def _scope(op: Op) -> str:
    return shown_name(op.scope, "")


class _Names:
    """The names that values of a lowered module have in the first one: those of the tensors."""

    def __init__(self, inspection: Inspection, partitioner: Partitioner) -> None:
        first = next(iter(inspection.lowered))
        self.graph = inspection.graph(first)
        self.same: Mapping[ValueId, ValueId] | None = None
        if partitioner != first:
            pairs = value_pairs(self.graph, inspection.graph(partitioner))
            self.same = {theirs: ours for ours, theirs in pairs.items()}

    def of(self, values: list[ValueId]) -> tuple[str, ...]:
        """The names of some values, those that are known."""
        graph, same = self.graph, self.same
        ours = values if same is None else [same.get(value) for value in values]
        known = dict.fromkeys(ours)
        return tuple(
            [
                ssa_name(graph, value)
                for value in known
                if value is not None and graph.ops[value[0]].name
            ]
        )


def _arguments(
    graph: OpGraph, names: _Names, before: Mapping[ValueId, list[ValueId]]
) -> dict[str, str]:
    """Of each block argument whose name is the only one of its function: what tensor it is."""
    own_names: dict[str, str | None] = {}
    for op in graph.ops:
        if not op.is_argument:
            continue
        own = written_name(graph, op)
        known = names.of(before.get((op.id, 0), []) if before else [(op.id, 0)])
        own_names[own] = known[0] if known and own not in own_names else None
    return {own: name for own, name in own_names.items() if name is not None}


class _Compared:
    """A propagated module beside the lowered one: which values became which, and what was written.

    Attributes:
        graph: op graph of the lowered module.
        before: for each value after propagation, those of the lowered module that became it.
    """

    def __init__(self, graph: OpGraph, propagated: Propagated) -> None:
        self.graph = graph
        self.after = propagated.graph
        self.before: dict[ValueId, list[ValueId]] = {}
        for value in propagated.values.values():
            if value.node is not None:
                self.before.setdefault((value.node, value.result), []).append(value.id)
        #: How many devices a classic HLO sharding is for.
        self.devices = num_partitions(graph)

    def lowered(self, op: Op) -> tuple[list[ValueId], bool]:
        """The values of the lowered module that an op's first result was; whether it is a copy.

        An op of a function's second call, and a constant's second copy, are found by their tags.
        """
        value = self.before.get((op.id, 0))
        if value is not None:
            return value, False
        ops = self.graph.ops
        for node in sids(op.location.names):
            if node < len(ops) and [type_.text for type_ in ops[node].types] == [
                type_.text for type_ in op.types
            ]:
                return [(node, 0)], True
        return [], False

    def change(self, op: Op) -> Change | None:
        """What propagation did to the shardings that are written on an op."""
        changes = {
            self._change(sharding, self._written(op, number), op.types[number])
            for number, sharding in enumerate(op.shardings)
            if sharding is not None
        }
        return "changed" if "changed" in changes else "added" if "added" in changes else None

    def _written(self, op: Op, number: int) -> list[Sharding | None]:
        """What the lowered module has written on the values that a result was."""
        was = self.before.get((op.id, number))
        if was is None:
            was = [(node, number) for node, _ in self.lowered(op)[0]]
        ops = self.graph.ops
        return [ops[node].shardings[at] for node, at in was if at < len(ops[node].types)]

    def signature(self, function: Op) -> Iterator[Change | None]:
        """The same for each sharding on the arguments and results of a function."""
        main = self.after.main
        before = self.graph.main
        if main is None or before is None or function.id != main.op:
            return
        for ours, theirs in (
            (before.arguments, main.arguments),
            (before.results, main.results),
        ):
            written = [value.sharding for value in ours] if len(ours) == len(theirs) else []
            for value in theirs:
                if value.sharding is not None:
                    yield self._change(
                        value.sharding, written[value.index : value.index + 1], value.type
                    )

    def _change(
        self, sharding: Sharding, written: Sequence[Sharding | None], type_: TensorType
    ) -> Change | None:
        known = [before for before in written if before is not None]
        if not known:
            return "added"
        rank = len(type_.shape or ())
        place = self._place(sharding, rank, self.after)
        same = any(
            before == sharding
            or (place is not None and place == self._place(before, rank, self.graph))
            for before in known
        )
        return None if same else "changed"

    def _place(self, sharding: Sharding, rank: int, graph: OpGraph) -> Placement | None:
        """Where a sharding puts the blocks; None where that is not known."""
        if isinstance(sharding, str | TupleSharding):
            return None
        named = sharding.mesh if isinstance(sharding, TensorSharding) else None
        mesh = graph.meshes.get(named) if isinstance(named, str) else named
        try:
            place = to_placement(
                sharding, rank, mesh if isinstance(mesh, Mesh) else None, self.devices
            )
        except ConversionError:
            return None
        return place.without_manual
