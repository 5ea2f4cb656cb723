"""What is worked out of a value is worked out once."""

import pickle
from dataclasses import dataclass

from sdyscope.facts.origins import Together
from sdyscope.once import Once


@dataclass(frozen=True)
class Text(Once):
    text: str

    def __hash__(self):
        raise AssertionError("the value itself is no key")


def test_it_is_made_once_for_each_value_and_key():
    value, equal, made = Text("a"), Text("a"), []

    def make():
        made.append(None)
        return len(made)

    assert [value.once("key", make), value.once("key", make)] == [1, 1]
    assert [value.once("other", make), equal.once("key", make)] == [2, 3]
    assert value == equal


def test_what_is_kept_with_a_value_does_not_travel_with_it():
    kept = Together()
    assert kept.once(print, lambda: 1) == 1
    there = pickle.loads(pickle.dumps(kept))
    assert there == kept
    assert "_derived" not in vars(there)
