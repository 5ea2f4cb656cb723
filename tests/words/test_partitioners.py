import pytest

from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.words.counts import bound_text
from sdyscope.words.partitioners import needs_sentence, sends_sentence

KIB = 1024


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([("shardy", 0)], "A device sends nothing."),
        ([("shardy", 2 * KIB)], "A device sends 2.0 KiB per step."),
        ([(None, 2 * KIB)], "A device sends 2.0 KiB per step."),
        ([("shardy", KIB), ("gspmd", KIB)], "A device sends 1.0 KiB per step under both."),
        (
            [("shardy", 0), ("gspmd", KIB)],
            "Under GSPMD a device sends 1.0 KiB per step; under Shardy nothing.",
        ),
        (
            [("shardy", 3 * KIB), ("gspmd", 2 * KIB)],
            "Under Shardy a device sends 1.5 times the bytes: 3.0 KiB per step, not 2.0 KiB.",
        ),
        (
            [("shardy", 103 * KIB), ("gspmd", 100 * KIB)],
            "A device sends 103.0 KiB per step under Shardy, 100.0 KiB under GSPMD.",
        ),
    ],
)
def test_sends(sent, words):
    assert sends_sentence(sent) == words


def test_what_is_a_bound_is_said_to_be_one():
    most = bound_text(loops=False, at_most=True)
    assert most
    # A loop of unknown trip count may run never or often: no bound.
    assert bound_text(loops=True, at_most=True) == bound_text(loops=True, at_most=False) == ""
    assert sends_sentence([("shardy", KIB)], loops=True) == (
        "A device sends 1.0 KiB per step with loops of unknown trip count run once."
    )
    assert sends_sentence([("shardy", 0)], loops=True) == "A device sends nothing."
    pair = [("shardy", 3 * KIB), ("gspmd", 2 * KIB)]
    assert "times the bytes: at most 3.0 KiB per step" in sends_sentence(pair, most)


def needed(temporaries, aliases=0):
    return MemoryAnalysis(KIB, KIB, aliases, temporaries, 0)


def test_needs():
    assert needs_sentence([]) == "The compiler does not say what a device needs."
    assert needs_sentence([("gspmd", needed(0))]) == "A device needs 2.0 KiB."
    pair = [("shardy", needed(4 * KIB)), ("gspmd", needed(KIB))]
    words = (
        "Under Shardy a device needs 2.0 times the memory: 6.0 KiB, not 3.0 KiB; temporaries take "
        "4.0 KiB, not 1.0 KiB."
    )
    assert needs_sentence(pair) == needs_sentence(pair[::-1]) == words
    same = [("shardy", needed(0)), ("gspmd", needed(KIB, KIB))]
    assert needs_sentence(same) == "A device needs 2.0 KiB under both."
