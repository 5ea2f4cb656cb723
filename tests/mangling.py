"""Texts with small changes, to compare what two parsers accept."""

from collections.abc import Sequence

from hypothesis import strategies as st

from sdyscope.errors import SyntaxTextError


@st.composite
def mangled(draw: st.DrawFn, seeds: Sequence[str], pieces: Sequence[str], behind: int = 0) -> str:
    """One of ``seeds`` with up to three changes: parts left out, repeated, or one of ``pieces``.

    Its first characters are kept, as many as ``behind`` says.
    """
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(behind, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 1, 2, 5])))
        other = draw(st.integers(behind, len(text)))
        copied = st.integers(1, 12).map(lambda length, at=other, of=text: of[at : at + length])
        insert = draw(st.one_of(st.just(""), st.sampled_from(pieces), copied))
        text = text[:start] + insert + text[end:]
    return text


def in_the_text(error: SyntaxTextError, text: str) -> bool:
    """Whether an error names a place of the text, and shows it."""
    lines = text.split("\n")
    return (
        error.line is not None
        and error.column is not None
        and 1 <= error.line <= len(lines)
        and 1 <= error.column <= len(lines[error.line - 1]) + 1
        and "\n" in str(error)
    )
