"""Scopes of ops in HLO, and involuntary full rematerializations in XLA's log."""

# ruff: noqa: E501 - lines of HLO are long

from dataclasses import replace

import pytest

from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.collectives.rematerializations import (
    rematerializations,
    with_rematerializations,
)
from sdyscope.analysis.naming.scopes import phase_of, scope_of
from sdyscope.facts.origins import CollectiveOrigin
from sdyscope.hlo import read_hlo
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec
from sdyscope.words.origins import spec_text
from sdyscope.words.rematerializations import resharding_text

MESH = Mesh.of({"a": 2, "b": 2, "c": 2})


@pytest.mark.parametrize(
    ("op_name", "scope", "primitive"),
    [
        ("jit(step)/jvp(layer0)/mlp/dot_general", "jvp(layer0)/mlp", "dot_general"),
        ("jit(step)/dot_general", "", "dot_general"),
        ("pjit(step)/a/b", "a", "b"),
        ("jit(step)/jit(inner)/add", "jit(inner)", "add"),
        ("jit(f)/jvp(a)/(x/mul:y/add)", "jvp(a)", ""),
        ("reduce", "", "reduce"),
        ("", "", ""),
    ],
)
def test_scopes(op_name, scope, primitive):
    assert scope_of(op_name) == (scope, primitive)


def test_phases():
    assert phase_of("jit(f)/transpose(jvp(a))/mul", True) == "backward"
    assert phase_of("jit(f)/jvp(a)/mul", True) == "forward"
    assert phase_of("jit(f)/optimizer/mul", True) == "other"
    assert phase_of("jit(f)/mul", False) == "forward"
    assert phase_of("", False) == "other"


WARNING = (
    "W1120 11:04:25.392020   28289 spmd_partitioner.cc:656] [SPMD] Involuntary full rematerialization."
    " The compiler cannot go from sharding {devices=[4,1,2]<=[2,4]T(1,0)} to {devices=[1,8,1]<=[8]}"
    " efficiently for HLO operation %c.0 = f32[2,16,16]{2,1,0} copy(%sin.0),"
    " sharding={devices=[4,1,2]<=[2,4]T(1,0)}, "
    'metadata={op_name="jit(step)/layer/sharding_constraint" stack_frame_id=1}. As the last resort, ...'
)


def test_a_rematerialization_is_tied_to_its_op_and_line():
    module = read_hlo("""HloModule m, num_partitions=8

FileNames
1 "/a.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=8 end_line=8 column=12 end_column=20}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  ROOT %p = f32[] parameter(0)
}
""")
    (rematerialization,) = rematerializations([WARNING, WARNING], module, MESH)
    assert (
        rematerialization.operation,
        rematerialization.opcode,
        str(rematerialization.shape),
    ) == ("c.0", "copy", "f32[2,16,16]")
    assert (rematerialization.before, rematerialization.after) == (
        "{devices=[4,1,2]<=[2,4]T(1,0)}",
        "{devices=[1,8,1]<=[8]}",
    )
    assert (
        resharding_text(rematerialization)
        == "from P(('b', 'c'), None, 'a') to P(None, ('a', 'b', 'c'), None)"
    )
    assert (rematerialization.scope, rematerialization.primitive) == (
        "layer",
        "sharding_constraint",
    )
    assert str(rematerialization.source) == "/a.py:8"
    (unknown,) = rematerializations(
        ["[SPMD] Involuntary full rematerialization of something."], module
    )
    assert (unknown.operation, unknown.source, unknown.is_cut) == ("", None, True)
    assert resharding_text(unknown) == ""
    tuples = WARNING.replace("{devices=[1,8,1]<=[8]}", "{{replicated}, {maximal device=0}}")
    (unread,) = rematerializations([tuples.replace("{replicated}, ", "")], module, MESH)
    assert unread.moved_to is None
    assert resharding_text(unread).endswith(f" to {unread.after}")
    # What a callback returns is on one device.
    lone = WARNING.replace("{devices=[4,1,2]<=[2,4]T(1,0)}", "{single_device[device_id=0]}")
    (moved,) = rematerializations([lone], module, MESH)
    assert resharding_text(moved) == "from device 0 to P(None, ('a', 'b', 'c'), None)"


def test_a_rematerialization_that_is_cut_short_says_so():
    module = read_hlo("HloModule m\n\nENTRY e {\n  ROOT %p = f32[] parameter(0)\n}\n")
    end = WARNING.index("As the last resort")
    for length in range(len(WARNING)):
        (rematerialization,) = rematerializations([WARNING[:length]], module)
        assert rematerialization.is_cut == (length < end), WARNING[:length]


def required(
    log: str,
    primitive: str = "dot_general",
    value: str = "sin in layer",
    taken: str = "dynamic-slice",
):
    """The sharding that is required of what is gathered whole and then taken, with this log."""
    name = f'metadata={{op_name="jit(step)/layer/{primitive}"}}'
    module = read_hlo(f"""HloModule m, num_partitions=8

ENTRY e {{
  %p = f32[2,16,16] parameter(0)
  %g = f32[8,16,32] all-gather(%p), channel_id=1, replica_groups=[1,8]<=[8], {name}
  ROOT %d = f32[8,2,32] {taken}(%g), dynamic_slice_sizes={{8,2,32}}, {name}
}}
""")
    read = collectives(module, [MESH])
    origin = CollectiveOrigin(
        kind="resharding",
        value=value,
        before=PartitionSpec((("b", "c"), None, "a")),
        after=PartitionSpec((None, None, None)),
        op=primitive,
        scope="layer",
        source=None,
        annotations=(),
    )
    (collective,) = read.collectives
    known = replace(collective, parts=(replace(collective.parts[0], origin=origin),))
    logged = rematerializations(log.splitlines(), module, MESH)
    (collective,) = with_rematerializations(
        replace(read, collectives=(known,), rematerializations=logged)
    ).collectives
    assert collective.parts[0].origin is not None
    return spec_text(collective.parts[0].origin.after)


def test_what_is_gathered_whole_is_needed_as_the_log_says():
    whole, after = "P(None, None, None)", "P(None, ('a', 'b', 'c'), None)"
    assert required(WARNING, primitive="sharding_constraint") == after
    assert required(WARNING, value="sharding_constraint in layer") == after
    # Nothing cuts it: what the log warns of came to nothing.
    assert required(WARNING, primitive="sharding_constraint", taken="negate") == whole
    # Of another op; of another size; from another sharding.
    assert required(WARNING) == whole
    assert required(WARNING.replace("f32[2,", "f32[4,"), "sharding_constraint") == whole
    assert required(WARNING.replace("[4,1,2]", "[4,2,1]"), "sharding_constraint") == whole
    # Cut for two ops, of which it may be for either.
    other = WARNING.replace("[1,8,1]", "[1,1,8]")
    assert required(f"{WARNING}\n{other}", "sharding_constraint") == ""
