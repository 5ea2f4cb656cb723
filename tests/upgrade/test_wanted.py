"""What `--what` names."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.facts.versions import Reading
from sdyscope.upgrade.wanted import parse_wanted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("comms.bytes", "figure"),
        ("comms.all-gather.count", "figure"),
        ("comms.fsdp.bytes", "figure"),
        ("memory.total > 16GiB", "figure"),
        ("collectives", "collectives"),
        ("all-gather over fsdp", "collectives"),
        ("all-reduce for *attention*", "collectives"),
        ("params['layers'][0]['wq']", "tensor"),
        ("layer0/attention/dot_general", "tensor"),
        ("model.py:42", "tensor"),
    ],
)
def test_a_text_is_a_figure_collectives_or_a_tensor(text, kind):
    assert parse_wanted(text).kind == kind


def test_collectives_are_of_a_kind_over_an_axis_for_an_op():
    wanted = parse_wanted("all-gather over fsdp for *mlp*")
    assert (wanted.collective, wanted.axis, wanted.name) == ("all-gather", "fsdp", "*mlp*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "names nothing"),
        ("comms.byte", "no figure 'comms.byte'"),
        ("memory.all", "no figure 'memory.all'"),
        ("comms.count > many", "not a number"),
    ],
)
def test_what_is_none_is_refused(text, message):
    with pytest.raises(TargetError, match=message):
        parse_wanted(text)


def test_a_figure_is_good_as_long_as_it_is_the_same_or_below_a_limit():
    def of(number):
        return Reading("figure", "bytes", number, key=number)

    same, limit = parse_wanted("comms.bytes"), parse_wanted("comms.bytes > 2KiB")
    assert [same.is_good(of(n), of(1024)) for n in (1024, 1025, 4096)] == [True, False, False]
    assert [limit.is_good(of(n), of(1024)) for n in (1024, 2048, 2049)] == [True, True, False]
