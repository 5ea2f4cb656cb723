"""The ops that explanations of collectives name, against those that XLA's own names lead to.

XLA names a sum after the op that makes what is summed. What moves a value it names after the op
that takes the value or, as of JAX 0.11, mostly after the one that makes it; what takes it is then
followed to in the module that XLA has just partitioned, where every op still has its name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Literal, TypeAlias

from sdyscope.analysis.collectives.origin_needs import kind_of
from sdyscope.analysis.collectives.totals import Collective, Collectives
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.analysis.verify.audited import AuditedStage, Disagreement, LeftOut
from sdyscope.analysis.verify.compiled import CollectiveKey, key_of, shown_key
from sdyscope.analysis.verify.values import numbers
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.graph import OpGraph
from sdyscope.stages.audit.facts import SUMS, Audited, AuditedCollective, AuditedMove, AuditedOp
from sdyscope.values.source import SourceLocation

Verdict: TypeAlias = Literal["agrees", "disagrees", "not told apart", "not in the dump"]

_Name: TypeAlias = tuple[str, str, SourceLocation | None]
"""What a sentence says of an op: its scope, what it is, and its line."""

#: How many ops a disagreement lists.
_LISTED = 3


def ops_stage(shown: Collectives, audited: Audited, graph: OpGraph) -> AuditedStage:
    """Whether each op that is said to need a value, or to sum it, is one that XLA makes that for.

    Args:
        shown: the collectives, explained.
        audited: what was read, with what takes what collectives move; its ops are the graph's.
        graph: the op graph.
    """
    op_names, same_as = OpNames(graph), SameCollectives(shown, audited)
    named_ops = NamedOps(audited.ops)
    left_out: Counter[LeftOut] = Counter()
    wrong: list[Disagreement] = []
    compared = 0
    for collective, origin in certain_causes(shown, left_out):
        same = same_as.of(collective)
        named = op_names.of(origin)
        verdict = named_ops.verdict(None if origin.op == "return" else named, same)
        if verdict in ("not told apart", "not in the dump"):
            left_out[verdict] += 1
            continue
        compared += 1
        if verdict == "disagrees":
            wrong.append(_disagreement(collective, origin, same, op_names.names))
    return AuditedStage("ops", compared, tuple(wrong), dict(left_out))


def certain_causes(
    shown: Collectives, left_out: Counter[LeftOut]
) -> Iterator[tuple[Collective, CollectiveOrigin]]:
    """The causes that can be compared with something, each with its collective.

    Args:
        shown: the collectives, explained.
        left_out: counts the others, by why they can't be compared.
    """
    for collective in shown.collectives:
        for part in collective.parts:
            origin = part.origin
            if origin is None or origin.kind == "unknown":
                left_out["no cause"] += 1
            elif origin.uncertain:
                left_out["uncertain"] += 1
            else:
                yield collective, origin


class OpNames:
    """The ops of a program by what a sentence says of them.

    Args:
        graph: its op graph.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.names: dict[int, _Name] = {}
        self._by_name: dict[_Name, set[int]] = defaultdict(set)
        for node, number in numbers(graph).items():
            op = graph.ops[node]
            scope, primitive = scope_of(op.scope)
            name = self.names[number] = scope, primitive or kind_of(op), op.source
            self._by_name[name].add(number)

    def of(self, origin: CollectiveOrigin) -> set[int]:
        """The ops that have the name of the one that is said to need a value."""
        return self._by_name.get((origin.scope, origin.op, origin.source), set())


class SameCollectives:
    """The collectives that an audit read, by those that are shown.

    Args:
        shown: those that are shown.
        audited: what was read.
    """

    def __init__(self, shown: Collectives, audited: Audited) -> None:
        self._devices = shown.devices
        self._by_key: dict[CollectiveKey, list[AuditedCollective]] = defaultdict(list)
        for each in audited.collectives:
            self._by_key[key_of(each)].append(each)

    def of(self, collective: Collective) -> list[AuditedCollective]:
        """Those that one can be: of its name, or else all that are alike."""
        alike = self._by_key.get(shown_key(collective, self._devices), [])
        return [each for each in alike if each.name == collective.name] or alike


class NamedOps:
    """Tells whether a collective is for an op.

    Args:
        ops: those of the lowered module.
    """

    def __init__(self, ops: Iterable[AuditedOp]) -> None:
        self.users: dict[int, set[int]] = defaultdict(set)
        self.ops = list(ops)
        for number, op in enumerate(self.ops):
            for maker, region, _ in op.operands:
                if region < 0:
                    self.users[maker].add(number)

    def verdict(self, named: Collection[int] | None, same: Iterable[AuditedCollective]) -> Verdict:
        """Whether one of several collectives, of which one is meant, is for what is named.

        Args:
            named: the ops of one name; None for the program's return.
            same: the collectives.
        """
        verdicts = {each for collective in same for each in self.verdicts(named, collective)}
        in_order: tuple[Verdict, ...] = ("agrees", "not told apart", "not in the dump", "disagrees")
        return next((each for each in in_order if each in verdicts), "not in the dump")

    def verdicts(
        self, named: Collection[int] | None, collective: AuditedCollective
    ) -> set[Verdict]:
        """Likewise of one, for each of those that it can have been before."""
        own = set(collective.ops)
        is_named = not own.isdisjoint(named or ())
        if collective.kind in SUMS and own:
            return {"agrees" if is_named else "disagrees"}
        if not collective.moves:
            return {"not in the dump"}
        return {
            self.of_taker(named, move, is_named=is_named)
            if own and is_after_taker(move)
            else self.of_move(named, move, is_named=is_named)
            for move in collective.moves
        }

    def of_taker(
        self, named: Collection[int] | None, move: AuditedMove, *, is_named: bool
    ) -> Verdict:
        """Whether a value is moved for what is named, where XLA names that after what takes it.

        Arguments as in ``of_move``.
        """
        if is_named:
            return "agrees"
        if named is None and (move.is_returned or self.is_ended(move)):
            return "not told apart"
        # The op can also have moved what it makes, which the next one takes.
        is_taken = move.is_named_as_maker and any(self.is_taker(op, move) for op in named or ())
        return "not told apart" if is_taken else "disagrees"

    def of_move(
        self, named: Collection[int] | None, move: AuditedMove, *, is_named: bool
    ) -> Verdict:
        """Whether a value is moved for what is named, where XLA may name that after its maker.

        Args:
            named: as in ``verdict``.
            move: what takes the value.
            is_named: whether XLA names the collective after what is named.
        """
        if named is None:
            if move.is_returned:
                return "agrees"
            return "not told apart" if self.is_ended(move) else "disagrees"
        if any(self.is_taker(op, move) for op in named):
            return "agrees"
        return "not told apart" if is_named else "disagrees"

    def is_ended(self, move: AuditedMove) -> bool:
        """Whether a constraint takes a value that is then returned, as the constraint leaves it.

        XLA names what it moves for the one as for the other.
        """
        return any(
            self.ops[taker].is_constraint
            and any(self.ops[user].kind == "func.return" for user in self.users[taker])
            for taker in move.takers
        )

    def is_taker(self, op: int, move: AuditedMove) -> bool:
        """Whether a value reaches an op; of a constraint, which leaves nothing, what takes that."""
        if op in move.takers:
            return True
        # What a function is given is moved under the name of the call, and goes on inside.
        is_given = any(self.ops[taker].kind == "func.call" for taker in move.takers)
        if is_given and move.way is not None and op in {at for at, _ in move.way.arrived}:
            return True
        return self.ops[op].is_constraint and any(
            user in move.takers or (move.is_returned and self.ops[user].kind == "func.return")
            for user in self.users[op]
        )


def is_after_taker(move: AuditedMove) -> bool:
    """Whether a collective is named after the op that it is for, and not after its value's maker.

    Its own pieces can be cut or moved before under its name, too. As of JAX 0.11, where XLA writes
    that it generated a collective, copies of the value behind can have the name of the maker.
    """
    if move.is_generated:
        return move.is_named_as_taker and not move.is_named_as_maker
    return move.is_named_as_taker or not move.is_named_as_maker


def _disagreement(
    collective: Collective,
    origin: CollectiveOrigin,
    same: Iterable[AuditedCollective],
    names: Mapping[int, _Name],
) -> Disagreement:
    own = dict.fromkeys(op for each in same for op in each.ops)
    taking = dict.fromkeys(op for each in same for move in each.moves for op in move.takers)
    by_own, by_taking = (_listed(names[op] for op in ops if op in names) for ops in (own, taking))
    in_xla = [f"named after {by_own}"] if own else []
    in_xla += [f"taken by {by_taking}"] if taking else []
    return Disagreement(
        f"{collective.name}, {collective.kind}",
        _listed([(origin.scope, origin.op, origin.source)]),
        "; ".join(in_xla) or "for no op that has a name",
        origin.source,
    )


def _listed(names: Iterable[_Name]) -> str:
    texts = list(dict.fromkeys(map(_text, names)))
    more = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _text(name: _Name) -> str:
    scope, primitive, source = name
    where = f" at {PurePath(source.file).name}:{source.line}" if source is not None else ""
    return f"{scope}/{primitive}".lstrip("/") + where
