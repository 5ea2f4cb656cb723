"""What rules look at: one program under one partitioner, each stage made when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.collectives.totals import Collective, Collectives, Part
from sdyscope.analysis.memory.memory import Memory, memory_of
from sdyscope.analysis.naming.batches import batches
from sdyscope.analysis.naming.names import ValueNames
from sdyscope.analysis.naming.next_values import NextValue, next_values_of_rows
from sdyscope.analysis.naming.paths import kept_for
from sdyscope.analysis.naming.roles import pass_rows
from sdyscope.analysis.naming.scopes import is_differentiated
from sdyscope.annotations import Annotation
from sdyscope.errors import CompilerError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.findings import Fact, Observation, Severity
from sdyscope.facts.lint import NextValueRelation, Sending, ValueName
from sdyscope.facts.memory import HeldKind
from sdyscope.facts.program import Partitioner
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.sharded import Sharded
from sdyscope.graph import Op, OpGraph
from sdyscope.hardware.names import Hardware
from sdyscope.hlo import HloModule
from sdyscope.lint.check import checked
from sdyscope.lint.placed import Placed, placed
from sdyscope.lint.rule import NotApplicable, Sighting, Unavailable
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.source import SourceLocation
from sdyscope.words.lint import NO_LOGICAL, NOT_COMPILED
from sdyscope.words.remarks import remark_text

if TYPE_CHECKING:
    from sdyscope.lint.logical import LogicalAxes


@dataclass(eq=False)
class Subject:
    """One program under one partitioner.

    Attributes:
        program: the program.
        partitioner: under which it is looked at; None for a compiled program's text.
        compiles: whether the program may be compiled.
        on: what to compile for; by default virtual CPU devices.
        not_compiled: why it may not be compiled, else.
        logical: the logical axes of its tensors, where they are known.
        no_logical: why they are not, else.
    """

    program: Staged
    partitioner: Partitioner | None
    _: KW_ONLY
    compiles: bool
    on: Hardware | str | None
    not_compiled: str = NOT_COMPILED
    logical: LogicalAxes | None = None
    no_logical: str = NO_LOGICAL

    @property
    def under(self) -> Partitioner:
        """The partitioner, of which there is a module.

        Raises:
            MissingStageError: it is a compiled program's text.
        """
        return self.program.chosen(self.partitioner)

    @property
    def checked(self) -> tuple[Observation, ...]:
        """What the program's check found, which is one for all partitioners."""
        return self.program.once((checked,), lambda: checked(self.program)).observations

    def require_shardy(self) -> None:
        """For rules that read Shardy's module alone.

        Raises:
            NotApplicable: it is looked at under Shardy, too, where the rule finds it.
            Unavailable: it is not.
        """
        if self.partitioner != "shardy":
            if "shardy" in self.program.lowered:
                raise NotApplicable("It is reported of Shardy's module.")
            # A file or recording may have none.
            how = "" if self.program.program is None else ": --partitioner shardy"
            raise Unavailable(f"It reads Shardy's module{how}.")

    @property
    def module(self) -> Any:
        """The lowered module, a ``LoweredModule``."""
        return self.program.lowered[self.under]

    @cached_property
    def graph(self) -> OpGraph:
        """The op graph of the lowered module."""
        return self.program.graph(self.partitioner)

    @cached_property
    def annotations(self) -> tuple[Annotation, ...]:
        """What is written in the lowered module."""
        return self.program.annotations(self.partitioner)

    @cached_property
    def names(self) -> ValueNames:
        """What to call values of the lowered module."""
        return ValueNames(self.graph)

    def named(self, value: ValueId) -> ValueName:
        """What to call a value of the lowered module in a sentence."""
        return ValueName(self.names.name(value), self.names.is_carried(value))

    @cached_property
    def mesh(self) -> Mesh:
        """The program's mesh.

        Raises:
            NotApplicable: it has none, or several.
        """
        mesh = self.program.only_mesh(self.partitioner)
        if mesh is None:
            raise NotApplicable("The program has no mesh, or more than one.")
        return mesh

    @cached_property
    def propagated(self) -> Propagated:
        """The propagation, by XLA where Shardy's own passes alone can't do it.

        Raises:
            SdyscopeError: there is none.
        """
        try:
            return self.program.propagated(self.partitioner)
        except CompilerError:
            if not self.compiles or self.partitioner == "gspmd":
                raise
            return self.program.propagated(self.partitioner, by_xla=True)

    @property
    def compiled(self) -> Compiled:
        """The compiled program.

        Raises:
            SdyscopeError: it is not compiled, or can't be.
        """
        if isinstance(self._compiled_once, CompilerError):
            raise self._compiled_once
        return self._compiled_once

    @cached_property
    def _compiled_once(self) -> Compiled | CompilerError:
        """Compiled once, also where that fails."""
        if not self.compiles:
            raise Unavailable(self.not_compiled)
        try:
            return self.program.compiled(self.partitioner, self.on)
        except CompilerError as error:
            return error

    @cached_property
    def hlo(self) -> HloModule:
        """The text of the compiled program, read; raises as ``compiled`` does."""
        return self.compiled.module

    @cached_property
    def memory(self) -> Memory:
        """What a device holds; raises as ``compiled`` does."""
        _ = self.compiled
        return memory_of(self.program, self.partitioner, self.on)

    @cached_property
    def collectives(self) -> Collectives:
        """What a device sends, without origins; raises as ``compiled`` does."""
        _ = self.compiled
        return collectives_under(self.program, self.partitioner, self.on, origins=False)

    @cached_property
    def explained_collectives(self) -> Collectives:
        """What a device sends, with origins; raises as ``compiled`` does."""
        _ = self.compiled
        return collectives_under(self.program, self.partitioner, self.on)

    @property
    def caused_collectives(self) -> Collectives:
        """Likewise, for rules that find nothing without origins.

        Raises:
            Unavailable: no origins are known, as of what a run's own compiler made.
        """
        if missing := self.explained_collectives.origins_missing:
            raise Unavailable(remark_text(missing))
        return self.explained_collectives

    @cached_property
    def arguments(self) -> tuple[Placed, ...]:
        """The arguments, and where they are as far as that is known."""
        return self._placed("argument")

    @cached_property
    def results(self) -> tuple[Placed, ...]:
        """The results, likewise."""
        return self._placed("result")

    def _placed(self, kind: HeldKind) -> tuple[Placed, ...]:
        mesh = self.program.only_mesh(self.partitioner)
        return placed(self.program.tensors, kind, self.under, self._compiled, mesh)

    @property
    def next_values(self) -> Mapping[int, int]:
        """Which results are the next values of which arguments, by their numbers."""
        return {result: value.argument for result, value in self._next_values.items()}

    @property
    def relations(self) -> Mapping[int, NextValueRelation]:
        """What each result of ``next_values`` is to its argument."""
        return {result: value.relation for result, value in self._next_values.items()}

    @cached_property
    def _next_values(self) -> Mapping[int, NextValue]:
        results, arguments = (
            [each.row for each in placed] for placed in (self.results, self.arguments)
        )
        return next_values_of_rows(results, arguments, self.under, self.graph)

    @cached_property
    def batches(self) -> tuple[Placed, ...]:
        """The arguments that hold a batch."""
        leaves = [argument.leaf for argument in self.arguments]
        kept = set(self.next_values.values())
        differentiated = is_differentiated(op.scope for op in self.graph.operations())
        certain = batches(leaves, kept, differentiated=differentiated).certain
        return tuple(self.arguments[number] for number in certain)

    @cached_property
    def parameters(self) -> Mapping[int, int]:
        """Of each argument that an optimizer keeps of a parameter that parameter, by number."""
        rows = [argument.row for argument in self.arguments]
        in_passes = pass_rows(self.graph, rows, self.under)
        leaves = [argument.leaf for argument in self.arguments]
        return kept_for(leaves, in_passes, set(self.next_values.values()))

    @property
    def compiled_already(self) -> Compiled | None:
        """The compiled program, if a rule asked for it and there is one."""
        compiled = self.__dict__.get("_compiled_once")
        return compiled if isinstance(compiled, Compiled) else None

    @property
    def sent_already(self) -> Collectives | None:
        """Its collectives, if a rule asked for them and they are known."""
        return self.__dict__.get("collectives")

    @property
    def _compiled(self) -> Compiled | None:
        """What is known without it is known where the program can't be compiled, too."""
        try:
            return self.compiled if self.compiles else None
        except CompilerError:
            return None

    def placement(self, value: ValueId) -> Placement | None:
        """Where a value of the lowered module is after propagation; None where that is not known.

        Raises:
            SdyscopeError: there is no propagation.
        """
        propagated_value = self.propagated.values.get(value)
        return None if propagated_value is None else propagated_value.placement

    def source(self, op: Op) -> SourceLocation | None:
        """The line of an op, or of the call that it is from where only that has one."""
        sources = (location.source for location in self.graph.called_from(op))
        return next((source for source in sources if source is not None), None)

    def scope(self, op: Op) -> str:
        """The scope of an op, with that of the calls that it is from."""
        return self.graph.scope_along([*self.graph.called_from(op)][::-1])

    def sharded(self, place: Placement) -> Sharded:
        """A placement with the axes of the program's mesh, where it has one."""
        return Sharded(None, None, "", place, self.program.only_mesh(self.partitioner))

    def at_argument(
        self, argument: Placed, fact: Fact, severity: Severity | None = None, *, of_all: bool = True
    ) -> Sighting:
        """What is seen of an argument, of the modules of all partitioners or of this one's."""
        under = None if of_all else self.partitioner
        return Sighting(fact, argument.name, argument.row.kind, None, under, severity)

    def at_annotation(
        self, annotation: Annotation, fact: Fact, severity: Severity | None = None
    ) -> Sighting:
        """What is seen of a constraint, or of what else is annotated."""
        source, under = annotation.source, self.partitioner
        return Sighting(fact, annotation.path, annotation.kind, source, under, severity)

    def at_op(self, op: Op, fact: Fact) -> Sighting:
        """What is seen of an op."""
        name = self.scope(op) or op.call_target or ""
        return Sighting(fact, name, "op", self.source(op), self.partitioner)

    def sending(self, collectives: Sequence[Collective], sent: int | None = None) -> Sending:
        """What collectives send that are alike, the first of which says their axes.

        Args:
            collectives: the collectives.
            sent: bytes; by default all that they send in a step.
        """
        first = collectives[0]
        return Sending(
            first.kind,
            first.axes,
            self.collectives.mesh,
            sum(each.sent for each in collectives) if sent is None else sent,
            sum(each.count for each in collectives),
            first.unknown_trips,
        )

    def at_part(
        self, part: Part, name: str, fact: Fact, severity: Severity | None = None
    ) -> Sighting:
        """What is seen of a collective by one of its tensors; a name for where that has none."""
        at = f"{part.scope}/{part.primitive}".strip("/") or name
        return Sighting(fact, at, "collective", part.source, self.partitioner, severity)
