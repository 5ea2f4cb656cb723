"""What devices send in several programs."""

from sdyscope.facts.traffic import Traffic, sent_side_by_side


def test_what_one_program_alone_sends_is_nothing_in_the_other():
    gather, summed = Traffic("all-gather", ("data",), 1, 8), Traffic("all-reduce", ("data",), 1, 32)
    assert sent_side_by_side([(gather, gather), (gather, summed)]) == [
        (("all-reduce", ("data",)), [0, 32]),
        (("all-gather", ("data",)), [16, 8]),
    ]
    assert sent_side_by_side([(), ()]) == []
