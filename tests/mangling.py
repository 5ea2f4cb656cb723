"""Texts with small changes, to compare what two parsers accept."""

from collections.abc import Sequence

from hypothesis import strategies as st


@st.composite
def mangled(draw: st.DrawFn, seeds: Sequence[str], pieces: Sequence[str]) -> str:
    """One of ``seeds`` with up to three changes: parts left out, repeated, or one of ``pieces``."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 1, 2, 5])))
        other = draw(st.integers(0, len(text)))
        copied = st.integers(1, 12).map(lambda length, at=other, of=text: of[at : at + length])
        insert = draw(st.one_of(st.just(""), st.sampled_from(pieces), copied))
        text = text[:start] + insert + text[end:]
    return text
