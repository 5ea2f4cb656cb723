"""Budgets: what counts to which limit, and what is said where one is overrun."""

import pytest

from sdyscope.analysis.budgets import (
    Budgets,
    CommunicationLimit,
    ReplicationLimit,
    communication_spent,
    memory_spent,
    replication_spent,
)
from sdyscope.analysis.collectives.read import collectives
from sdyscope.facts.compiled import MemoryAnalysis
from sdyscope.facts.memory import Held
from sdyscope.hlo import read_hlo
from sdyscope.values.entry_layout import StoredArray
from sdyscope.values.mesh import Mesh
from sdyscope.words.findings import finding_of

MESH = Mesh.of({"a": 4, "b": 2})

#: Over b, over a, over both, and over no set of axes. What each sends a step is beside it.
HLO = """HloModule m, num_partitions=8

body {
  %v = f32[16]{0} parameter(0)
  ROOT %r = f32[16]{0} all-reduce(%v), channel_id=4, replica_groups=[2,4]<=[4,2]T(1,0), \
use_global_device_ids=true, to_apply=%add
}

condition {
  %w = f32[16]{0} parameter(0)
  ROOT %c = pred[] custom-call(%w), custom_call_target="unknown"
}

ENTRY e {
  %p = f32[4]{0} parameter(0)
  %x = f32[8]{0} all-gather(%p), channel_id=1, replica_groups=[4,2]<=[8], \
use_global_device_ids=true, dimensions={0}
  %y = f32[4]{0} all-reduce(%p), channel_id=2, replica_groups=[1,8]<=[8], \
use_global_device_ids=true, to_apply=%add
  %z = f32[4]{0} all-reduce(%p), channel_id=3, replica_groups={{0,3},{1,2},{4,7},{5,6}}, \
use_global_device_ids=true, to_apply=%add
  %q = f32[16]{0} parameter(1)
  ROOT %l = f32[16]{0} while(%q), condition=%condition, body=%body
}
"""
#: Bytes that a device sends, by the formulas of docs/comms.md.
OVER_B, OVER_BOTH, OVER_NONE, IN_LOOP = 16, 28, 16, 96


@pytest.fixture(scope="module")
def found():
    program_collectives = collectives(read_hlo(HLO), [MESH])
    assert [collective.axes is None for collective in program_collectives.collectives].count(
        True
    ) == 1
    return program_collectives


def used(collectives, *limits, unlisted=None):
    budgets = Budgets(communication=limits, unlisted=unlisted)
    return [spent.used for spent in communication_spent(budgets, collectives, "shardy")]


@pytest.mark.parametrize(
    ("limit", "sent", "count"),
    [
        (CommunicationLimit(), OVER_B + OVER_BOTH + OVER_NONE + IN_LOOP, 4),
        (CommunicationLimit("all-gather"), OVER_B, 1),
        (CommunicationLimit("all-to-all"), 0, 0),
        # What runs over both axes counts to each, what runs over none that is known, too.
        (CommunicationLimit(axis="a"), OVER_BOTH + OVER_NONE + IN_LOOP, 3),
        (CommunicationLimit(axis="b"), OVER_B + OVER_BOTH + OVER_NONE, 3),
        (CommunicationLimit("all-reduce", "b"), OVER_BOTH + OVER_NONE, 2),
    ],
)
def test_what_counts_to_a_limit(found, limit, sent, count):
    limits = CommunicationLimit(limit.kind, limit.axis, bytes=0, count=0)
    assert used(found, limits) == [sent, count]


def test_what_no_limit_covers_is_unlisted(found):
    assert used(found, CommunicationLimit("all-reduce", bytes=10**6), unlisted=0)[-1] == OVER_B
    assert used(found, unlisted=0) == [OVER_B + OVER_BOTH + OVER_NONE + IN_LOOP]
    assert used(found, CommunicationLimit(bytes=10**6), unlisted=0)[-1] == 0


def test_what_runs_over_no_known_axes_is_listed_by_no_axis(found):
    limits = (CommunicationLimit(axis="a", bytes=10**6), CommunicationLimit(axis="b", bytes=10**6))
    assert used(found, *limits, unlisted=0)[-1] == OVER_NONE
    *_, unlisted = communication_spent(Budgets(limits, unlisted=OVER_NONE), found, "shardy")
    [note] = unlisted.findings
    assert note.severity == "note"
    assert "1 of them run over no known mesh axes" in finding_of(note).message


@pytest.mark.parametrize(("allowed", "errors"), [(OVER_B - 1, 1), (OVER_B, 0), (OVER_B + 1, 0)])
def test_just_as_much_as_is_allowed_is_well(found, allowed, errors):
    budgets = Budgets(communication=(CommunicationLimit("all-gather", bytes=allowed),))
    (spent,) = communication_spent(budgets, found, "shardy")
    assert (spent.used, spent.allowed, len(spent.findings)) == (OVER_B, allowed, errors)
    for finding in map(finding_of, spent.findings):
        assert (finding.rule, finding.severity) == ("over-communication", "error")
        assert finding.message == "A device sends 16 bytes in a step; 15 are allowed."
        assert finding.found.startswith("16 bytes: all-gather")


@pytest.mark.parametrize(("strict", "severity"), [(True, "warning"), (False, "note")])
def test_what_a_count_is_not_sure_of_may_be_too_much(found, strict, severity):
    budgets = Budgets(communication=(CommunicationLimit(axis="a", bytes=10**6),))
    (spent,) = communication_spent(budgets, found, "shardy", strict=strict)
    once, to_all_axes = spent.findings
    assert once.severity == severity
    # What counts to all axes, whatever it runs over, is no less than what there is.
    assert to_all_axes.severity == "note"
    messages = " ".join(finding_of(finding).message for finding in spent.findings)
    assert "1 of them are in loops that run an unknown number of times" in messages
    assert "1 of them run over no known mesh axes" in messages


def held(name, kind="argument", copies=1, size=64, shares=""):
    stored = StoredArray("f32", (size // 4,), "0", size)
    return Held(
        name,
        kind,
        name,
        0,
        (size // 4,),
        "f32",
        "requested",
        None,
        copies,
        size,
        size,
        stored,
        shares=shares,
    )


HELD = [
    held("params['w']", copies=4),
    held("params['b']", copies=2, size=8),
    held("batch", copies=1),
    held("result[0]", "result", copies=4, shares="params['w']"),
    held("result[1]", "result", copies=2),
]


@pytest.mark.parametrize(
    ("glob", "used"), [("*", 48 + 4 + 32), ("params[*]", 52), ("batch", 0), ("result*", 32)]
)
def test_bytes_that_others_hold_too(glob, used):
    budgets = Budgets(replicated=(ReplicationLimit(glob, 0),))
    (spent,) = replication_spent(budgets, HELD, "gspmd")
    assert spent.used == used
    assert [finding.rule for finding in spent.findings] == ["over-replication"] * bool(used)


def test_a_limit_of_tensors_that_are_not_there_is_told():
    budgets = Budgets(replicated=(ReplicationLimit("parms*", 0),))
    (spent,) = replication_spent(budgets, HELD, "gspmd")
    assert [finding.severity for finding in spent.findings] == ["warning"]
    assert "No argument or result is called parms*" in finding_of(spent.findings[0]).message


MEMORY = MemoryAnalysis(arguments=100, outputs=50, aliases=20, temporaries=30, generated_code=5)


def test_memory_is_the_compiler_s():
    budgets = Budgets(arguments=99, temporaries=30, total=164)
    arguments, temporaries, total = memory_spent(budgets, MEMORY, HELD, "shardy")
    assert (arguments.used, temporaries.used, total.used) == (100, 30, 165)
    assert not temporaries.findings
    assert [one.rule for one in (*arguments.findings, *total.findings)] == ["over-memory"] * 2
    assert finding_of(arguments.findings[0]).found.startswith("64 bytes: params['w']")
    assert "30 bytes: results" in finding_of(total.findings[0]).found


def test_memory_that_the_compiler_does_not_tell_is_told():
    (spent,) = memory_spent(Budgets(total=1), None, HELD, "shardy")
    assert spent.used is None
    assert [finding.rule for finding in spent.findings] == ["budget-uncertain"]
