"""What the page says first."""

from types import SimpleNamespace

import pytest

from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.page import document as report
from sdyscope.page.headlines import _between_partitioners
from tests.lint_cases import no_way_there


def test_where_partitioners_begin_to_differ_is_said_once():
    held, sent = [], []
    for partitioner, factor in (("shardy", 3), ("gspmd", 1)):
        needs = MemoryAnalysis(1 << 20, 1 << 20, 0, factor << 24, 0)
        held.append(SimpleNamespace(partitioner=partitioner, compiler=needs))
        total = SimpleNamespace(sent=factor << 24)
        sent.append(SimpleNamespace(partitioner=partitioner, total=total))
    needs, sends = _between_partitioners(
        SimpleNamespace(differing=3),
        SimpleNamespace(compiled=held),
        SimpleNamespace(programs=sent),
        (),
    )
    assert needs.words.startswith("Under Shardy a device needs 2.8 times the memory")
    assert sends.words.startswith("Under Shardy a device sends 3.0 times the bytes")
    assert (needs.detail, sends.detail) == ("They place 3 values differently.", "")
    # Nor is how many they are.
    (alone,) = _between_partitioners(SimpleNamespace(differing=3), None, None, ())
    assert (alone.words, alone.detail) == ("Shardy and GSPMD place 3 values differently.", "")


@pytest.mark.compiles
def test_a_full_rematerialization_is_told_by_its_axes_and_line():
    document = report.document(no_way_there(), "step")
    (said,) = [each for each in document.headlines if "whole tensor on every" in each.words]
    assert said.detail.startswith("Involuntary full rematerialization of f32[")
    assert said.detail.endswith("from P('y', None, 'x') to P(None, ('x', 'y'), None).")
    assert said.line in said.detail
    assert document.findings
