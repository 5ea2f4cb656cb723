"""What Python shows of values."""

from dataclasses import dataclass, field

from sdyscope.formatters import Summarized
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve


@dataclass(frozen=True, repr=False)
class Whole(Summarized):
    name: str
    parts: tuple[int, ...] = ()
    inner: "Whole | None" = None
    hidden: int = field(default=0, repr=False)


def test_a_summary_says_how_much_there_is():
    whole = Whole("step", tuple(range(9)), Whole("inside"), hidden=5)
    assert repr(whole) == "Whole(name='step', parts=<9>, inner=<Whole>)"
    assert repr(Whole("step")) == "Whole(name='step', parts=(), inner=None)"
    assert len(repr(Whole("x" * 1000))) < 120


def test_what_holds_a_program_fits_on_a_screen():
    inspection = Inspection(resolve("mlp"), ["shardy"])
    for value in (
        *(inspection.source, inspection.lowered["shardy"], inspection.graph("shardy")),
        *(inspection.propagated(), inspection.predicted_collectives(), inspection.tensors),
    ):
        assert len(repr(value)) < 600
