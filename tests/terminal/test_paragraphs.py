from sdyscope.terminal.paragraphs import alike


def test_groups_come_in_the_order_of_their_first():
    assert alike(["b1", "a1", "b2", "c1", "a2"], lambda word: {word[0]}) == [
        ["b1", "b2"],
        ["a1", "a2"],
        ["c1"],
    ]
    assert alike([], str) == []
