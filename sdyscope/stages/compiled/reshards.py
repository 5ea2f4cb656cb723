"""Shardy's own reshardings and collectives: what a program would send, without compiling it.

After propagation Shardy's passes put a reshard wherever an op can't work on its operands as they
are sharded, and an all-reduce behind each op that reduces over a sharded dimension; then they turn
reshards into collectives. XLA does not run these passes but partitions by its own rules, so what
comes out predicts XLA's collectives and is not a list of them. It takes milliseconds, whatever the
number of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sdyscope.graph import OpGraph, build
from sdyscope.graph.locations import UNKNOWN, Location
from sdyscope.graph.tags import sids
from sdyscope.stages.compiled.explicit_collectives import ExplicitCollective, ExplicitCollectives
from sdyscope.stages.compiled.read_collectives import Readers, read_collectives
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.propagated.annotate import ModuleEdit, annotate
from sdyscope.stages.propagated.imported_module import ImportedModule

#: From a propagated module to collectives.
_EXPLICIT = (
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    "canonicalize{enable-patterns=sdy-reshard}",
    "func.func(sdy-reshard-to-collectives)",
    "canonicalize{enable-patterns=sdy-collective}",
)

#: The same where there is no loop that could carry what nobody uses, which is all else that
#: simplifying regions takes away.
_WITHOUT_LOOPS = tuple(
    each.replace("}", " region-simplify=disabled}") if each.startswith("canonicalize") else each
    for each in _EXPLICIT
)


#: How many collectives of other predictions are remembered.
_REMEMBERED = 1 << 15


class Resharder:
    """What a program would communicate, also if its arguments were sharded otherwise.

    The program is imported once (``ImportedModule``). What has no place of its own in the imported
    module takes an import of its own.

    Args:
        lowered: the module, lowered under Shardy or read from a file with Shardy's shardings.
        graph: its op graph.

    Attributes:
        doubts: why XLA might propagate otherwise than Shardy here.

    Raises:
        CompilerError: the module is not for Shardy.
    """

    def __init__(self, lowered: LoweredModule, graph: OpGraph) -> None:
        self.lowered, self.graph = lowered, graph
        self._imported = ImportedModule(lowered, graph)
        self.doubts = self._imported.doubts
        self._readers = Readers()
        #: By the locations of the readers, which are there once each.
        self._located: dict[tuple[int, ...], Location] = {}
        #: By the `id` of a collective as it is read: that, and the same with its op's location.
        self._at_ops: dict[int, tuple[ExplicitCollective, ExplicitCollective]] = {}

    def collectives(self, changes: Sequence[ModuleEdit] = ()) -> ExplicitCollectives:
        """The collectives, with these changes.

        Args:
            changes: what to write instead on arguments, results and constraints of the program.

        Raises:
            CompilerError: a pass of Shardy failed; with the compiler's message.
            TargetError: a change that the module can't carry; says which and why.
        """
        module = self.module(changes)
        if module is None:
            changed = annotate(self.lowered, self.graph, changes)
            return Resharder(changed, build(changed.module)).collectives()
        read = read_collectives(module, self._readers)
        return replace(read, collectives=tuple(map(self._at_its_op, read.collectives)))

    def module(self, changes: Sequence[ModuleEdit] = ()) -> Any:
        """A new module in which every resharding is a collective of Shardy's; see ``collectives``.

        Its ops have the tags of those that they come from (``stages.align.tags``). None where a
        change has no one place in the imported module.
        """
        further = _EXPLICIT if self._imported.has_loops else _WITHOUT_LOOPS
        return self._imported.propagated(changes, further)

    def _at_its_op(self, collective: ExplicitCollective) -> ExplicitCollective:
        """With the location of the op that it stands at; the same for the same."""
        known = self._at_ops.get(id(collective))
        if known is None:
            where = self._where(collective.location, collective.around)
            known = collective, replace(collective, location=where)
            if len(self._at_ops) >= _REMEMBERED:
                self._at_ops.clear()
            self._at_ops[id(collective)] = known
        return known[1]

    def _where(self, location: Location, around: Sequence[Location]) -> Location:
        key = (id(location), *map(id, around))
        if key not in self._located:
            self._located[key] = self._location(location, around)
        return self._located[key]

    def _location(self, location: Location, around: Sequence[Location]) -> Location:
        """Scope and source lines of the op that a collective stands at, by its tag.

        Of an op in a function that was called, HLO keeps the calls and the op, and no lines.
        """
        outside = [node for each in around for node in sids(each.names)]
        for name in location.names:
            own = sids(name)
            if not own:
                continue
            path = [self.graph.ops[node] for node in dict.fromkeys((*outside, *own))]
            scope = self.graph.scope_along(path)
            lines = (op.location for op in reversed(path) if op.location.frames)
            return replace(next(lines, UNKNOWN), scope=scope, names=())
        return location
