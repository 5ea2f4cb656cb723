"""Runs the program and its edited twin on the same values, and compares what they compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from sdyscope.analysis.run.numerics import TELLS_NOTHING, difference, numeric
from sdyscope.analysis.run.reference import (
    Movement,
    Rounding,
    arguments_before,
    compared_with_one_device,
)
from sdyscope.errors import SdyscopeError
from sdyscope.facts.edits import Numbers, NumbersVerdict
from sdyscope.facts.execution import HostBlock, Idle, InputSource, Reference
from sdyscope.facts.program import Program
from sdyscope.staged import Staged
from sdyscope.stages.executed.execute import Runner, in_words
from sdyscope.stages.executed.turns import idle_parts
from sdyscope.stages.lowered.inputs import concrete_arguments
from sdyscope.values.dtypes import num_bytes

#: How many results were compared, the worst, its error, what is allowed, whether all agree.
_Comparison: TypeAlias = tuple[int, str, float, float, bool]

#: Arguments with more bytes than this are not made and run here.
LARGEST = 2 << 30


class Twin:
    """One program, run once, to compare edited ones with.

    Args:
        program: the program as it is.
        devices: what to run on; None for what JAX finds.
    """

    def __init__(self, program: Staged, devices: Sequence[Any] | None = None) -> None:
        self.program, self.devices = program, devices
        self._runner: Runner | None = None
        self._results: list[Any] | None = None
        self._failure = ""
        self._inputs: InputSource | None = None
        self._before: tuple[Any, ...] = ()
        self._idle = Idle()

    def run(self) -> str:
        """Runs the program itself, once; why it can't be, or nothing."""
        if self._runner is not None or self._failure:
            return self._failure
        program = self.program
        assert program.program is not None
        total = sum(
            num_bytes(math.prod(tensor.shape), tensor.dtype)
            for tensor in program.requested
            if tensor.kind == "argument"
        )
        if total > LARGEST:
            self._failure = f"its arguments have {total:,} bytes"
            return self._failure
        try:
            values, self._inputs = concrete_arguments(program.program, program.traced)
            runner = Runner(
                program.program, program.traced, program.lowered, self.devices, values=values
            )
            self._results = runner.results("shardy")
            self._before = arguments_before(program, runner)
            self._idle = idle_parts(runner)
            self._runner = runner
        except SdyscopeError as error:
            self._failure = error.message.rstrip(".")
        except Exception as error:  # the author's code, JAX and XLA raise every kind of error
            self._failure = in_words(error)
        return self._failure

    def against(
        self,
        edited: Staged,
        alone: Callable[[], Program] | None = None,
        *,
        corrects: bool = False,
        rewrites: bool = False,
        redraws: bool = False,
    ) -> Numbers:
        """Whether an edited program computes the same.

        Args:
            edited: the edited program.
            alone: builds it on a mesh of one device.
            corrects: whether the edit is to make wrong numbers right: then the edited program is
                compared with itself on a mesh of one device.
            rewrites: whether it changes what the code computes with, not annotations alone: then
                every result has to be compared.
            redraws: whether it makes the generator draw other random numbers: results that agree
                then say how little these weigh, not that they are the same.
        """
        from sdyscope.stages.executed.one_device import compute_dtypes, draws_random_numbers

        if why := self.run():
            return Numbers("not compared", reason=why)
        runner, before, given = self._runner, self._results, self._before
        assert runner is not None
        assert before is not None
        assert edited.program is not None
        machine = runner.machine
        devices = f"{len(runner.devices)} {machine.platform} devices"
        computed = compute_dtypes(edited.traced, machine.platform)
        results = [result for result in edited.requested if result.kind == "result"]
        try:
            twin = runner.beside(edited.program, edited.traced)
            after = twin.results("shardy")
            expected, is_simplified = before, True
            known: Iterable[Movement] = Rounding(runner, self.program.tensors, given).movements()
            if corrects:
                reference = self._alone(
                    twin,
                    edited,
                    alone,
                    given,
                    lambda there, moved: _compared(results, after, there, given, computed, moved),
                )
                expected = list(reference.alone or reference.outputs)
                is_simplified = reference.is_simplified
                known = [Movement(reference.moved, reference.jumps)]
        except SdyscopeError as failure:
            reason = failure.message.rstrip(".")
            return Numbers("not compared", devices=devices, reason=reason)
        except Exception as failure:  # likewise
            return Numbers("not compared", devices=devices, reason=in_words(failure))
        if not len(results) == len(after) == len(expected):
            return Numbers("differ", results=len(results), devices=devices, inputs=self._inputs)
        strictly = rewrites or corrects
        own, moved = None, Movement()
        for moved in known:
            own = _compared(results, after, expected, given, computed, moved, strictly=strictly)
            if own is None or own[4]:
                break
        if own is None:
            return Numbers(
                "not compared",
                devices=devices,
                inputs=self._inputs,
                reason=TELLS_NOTHING,
                results=len(results),
            )
        count, worst, error, allowed, within = own
        verdict: NumbersVerdict = "differ"
        draws = draws_random_numbers(edited.traced)
        if redraws and draws:
            verdict = "other random"
        elif within:
            verdict = "same"
            if corrects:
                as_it_is = _compared(results, before, expected, given, computed, moved)
                verdict = "same" if as_it_is is None or as_it_is[4] else "corrected"
        elif draws:
            verdict = "other random"
        reason = ""
        if rewrites and verdict in ("same", "corrected") and count < len(results):
            verdict = "not compared"
            reason = (
                f"only {count:,} of {len(results):,} results tell: the others are not finite, or "
                "zero, or noise, or hardly changed"
            )
        return Numbers(
            verdict,
            count,
            len(results),
            worst,
            error,
            allowed,
            devices,
            self._inputs,
            reason,
            is_simplified,
            self._idle.loops,
            self._idle.branches,
        )

    def _alone(
        self,
        twin: Runner,
        edited: Staged,
        alone: Callable[[], Program] | None,
        before: Sequence[Any],
        compare: Callable[[Sequence[Any], Movement], _Comparison | None],
    ) -> Reference:
        """What the edited program computes on a mesh of one device, to compare with."""
        from sdyscope.errors import TargetError

        if alone is None:
            raise TargetError("The program can't be built for one device.")
        runner = Runner(
            edited.program,  # type: ignore[arg-type]
            edited.traced,
            edited.lowered,
            self.devices,
            alone=alone,
            values=twin.values,
        )

        def differing(reference: Reference) -> int | None:
            if reference.failure or reference.alone_failure:
                return None
            moved = Movement(reference.moved, reference.jumps)
            own = compare(reference.alone or reference.outputs, moved)
            return None if own is None else int(not own[4])

        reference = compared_with_one_device(
            Rounding(runner, edited.tensors, before),
            lambda moved: replace(runner.own_reference(), moved=moved.norms, jumps=moved.jumps),
            differing,
        )
        if reference.failure or reference.alone_failure:
            raise TargetError(reference.failure or reference.alone_failure)
        return reference


def _compared(
    results: Sequence[Any],
    here: Sequence[Any],
    there: Sequence[Any],
    given: Sequence[Any],
    computed: Iterable[str],
    moved: Movement,
    *,
    strictly: bool = False,
) -> _Comparison | None:
    """What comes of comparing results; None where none can be compared.

    Args:
        results: what they are called.
        here: their values.
        there: what they should be.
        given: of each the argument that it may be the next value of; None, or none, for none.
        computed: element types that the step computes in.
        moved: how far rounding the arguments moves each, as far as that was looked at.
        strictly: whether one whose change rounding would hide counts as not compared.
    """
    count, within = 0, True
    worst: tuple[float, str, float, float] = (-1.0, "", 0.0, 0.0)
    arguments = [*given, *[None] * (len(results) - len(given))]
    norms = moved.norms or (0.0,) * len(results)
    jumps = moved.jumps or (None,) * len(results)
    each = zip(results, here, there, arguments, norms, jumps, strict=False)
    for result, before, after, argument, distance, jump in each:
        if before is None or after is None or not np.asarray(after).size:
            continue
        if np.asarray(after).dtype.kind in "fc" and not np.isfinite(after).any():
            continue
        if not np.any(before) and not np.any(after):
            continue  # that nothing is nothing says nothing
        apart = difference(HostBlock.whole(before), after, argument, jump)
        own = numeric(result.path, 0, result.dtype, computed, [apart], distance)
        if own.is_noise:
            continue  # nor does noise
        count += not (strictly and own.hides_change)
        within = within and own.within
        if own.excess > worst[0]:
            worst = (own.excess, result.path, own.error, own.tolerance)
    if worst[0] < 0:
        return None
    return count, worst[1], worst[2], worst[3], within
