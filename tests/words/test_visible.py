"""Nothing that is shown steers the terminal."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from sdyscope.words.visible import visible


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_shown_has_no_control_or_bidirectional_character(text):
    for character in visible(text).replace("\n", "").replace("\t", ""):
        assert unicodedata.category(character) not in ("Cc", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        )


@given(st.text())
def test_a_json_document_means_the_same(text):
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


def test_plain_text_is_kept():
    assert visible("data=4 · ×2 → a\tb\n") == "data=4 · ×2 → a\tb\n"
