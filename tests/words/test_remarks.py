"""Remarks and where a propagation comes from, in words."""

from typing import get_args

import pytest

from sdyscope.facts.remarks import PropagationSource, Remark, RemarkKind
from sdyscope.words.remarks import (
    propagation_source_clause,
    propagation_source_text,
    remark_text,
    remark_texts,
)

#: What begins with a reader's words, or with the name of a side.
_CLAUSES = {"unread line", "sides not propagated"}


@pytest.mark.parametrize("kind", sorted({*get_args(RemarkKind)} - _CLAUSES))
def test_each_remark_is_a_sentence(kind):
    text = remark_text(
        Remark(kind, "It says {so}.", 3, 4, (("a", 0), ("b", 1234)), "crashed", "So {it} is.")
    )
    assert text[:1].isupper() or text.startswith(("3 ", "It says"))
    assert text.endswith(".")
    assert "{so}" in text or "{" not in text


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        (
            Remark("no choice", count=1),
            "1 of the arguments can only stay as it is: no axis divides it.",
        ),
        (
            Remark("sides not propagated", "XLA refuses it.", names=(("JAX 0.7.2", 0),)),
            "JAX 0.7.2: XLA refuses it",
        ),
        (
            Remark("sides not propagated", "It is old.", names=(("a", 0), ("b", 0)), other="No."),
            "a: It is old; b: No",
        ),
        (
            Remark("no choice", count=7),
            "7 of the arguments can only stay as they are: no axis divides them.",
        ),
        (
            Remark("some without origin", count=1, of=341),
            "1 of 341 tensors has no origin.",
        ),
        (
            Remark("constraints stay", count=1),
            "1 constraint inside the program stays as written.",
        ),
        (
            Remark("constraints stay", count=1200),
            "1,200 constraints inside the program stay as written.",
        ),
        (
            Remark("unread origins", count=5, names=(("w", 0), ("x", 0), ("y", 0), ("z", 0))),
            "5 origins could not be read, and are left out: w, x, y, ....",
        ),
        (
            Remark("no steps", "SIGSEGV", process="crashed"),
            "Shardy crashes (SIGSEGV) when it records its steps; where axes come from is not known "
            "here.",
        ),
        (
            Remark("unknown calls", names=(("put_signal", 1),)),
            "What these custom calls send is not known, and not counted: put_signal (1).",
        ),
        (
            Remark("another JAX propagated", "JAX 0.9.1", names=(("JAX 0.10.2", 0),)),
            "JAX 0.9.1 lowered it, and JAX 0.10.2 propagated it.",
        ),
    ],
)
def test_counts_and_names_stand_in_the_sentence(remark, text):
    assert remark_text(remark) == text


def test_a_reader_s_own_words_stay_as_they_are():
    assert remark_texts(["as it {was} said", Remark("inlined")])[0] == "as it {was} said"


def test_what_a_propagation_was_taken_from():
    dump = PropagationSource("dump", devices=8, dump="module.txt")
    assert propagation_source_clause(dump) == "XLA's dump of a compile for 8 CPU devices"
    assert propagation_source_text(dump).endswith("for 8 CPU devices: module.txt")
    passes = PropagationSource("passes", jax="0.10.2")
    assert propagation_source_text(passes) == "Shardy's passes of JAX 0.10.2, run here."
    whole = PropagationSource("lowered module")
    assert propagation_source_clause(whole) == "the lowered module"
    kept = PropagationSource("recorded", jax="0.10.2", devices=8)
    assert propagation_source_clause(kept) == (
        "XLA's dump of a compile for 8 CPU devices by JAX 0.10.2, when it was recorded"
    )

    assert (
        propagation_source_text(whole)
        == "The lowered module: for one partition XLA does not propagate."
    )
