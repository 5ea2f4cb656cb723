"""What takes what a collective gives, in HLO whose meaning is plain."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit.facts import AuditedMove
from sdyscope.stages.audit.hlo_dump import DumpedHlo
from sdyscope.stages.audit.names import named_ops
from sdyscope.stages.audit.takers import Takers

pytestmark = pytest.mark.skipif(
    compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
)

GROUPS = "replica_groups={{0,1}}, dimensions={0}"

MODULE = """
HloModule m

%body (p: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {
  %p = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %y = f32[8]{0} get-tuple-element(%p), index=2
  %sin = f32[8]{0} sine(%x), metadata={op_name="audit5./audit6."}
  %cos = f32[8]{0} cosine(%y), metadata={op_name="audit5./audit7."}
  ROOT %t = (s32[], f32[8]{0}, f32[8]{0}) tuple(%i, %sin, %y)
}

%cond (p.1: (s32[], f32[8], f32[8])) -> pred[] {
  %p.1 = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(5)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}

%then (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %neg = f32[8]{0} negate(%a), metadata={op_name="audit10./audit11."}
}

%other (b: f32[8]) -> f32[8] {
  %b = f32[8]{0} parameter(0)
  ROOT %abs = f32[8]{0} abs(%b), metadata={op_name="audit10./audit12."}
}

ENTRY %main (v: f32[4], w: pred[]) -> (f32[8], f32[8], f32[16], f32[8], f32[8]) {
  %v = f32[4]{0} parameter(0), metadata={op_name="v"}
  %w = pred[] parameter(1)
  %zero = s32[] constant(0)
  %exp = f32[4]{0} exponential(%v), metadata={op_name="audit1."}

  %carried = f32[8]{0} all-gather(%exp), GROUPS, metadata={op_name="audit1."}
  %zero2 = f32[] constant(0)
  %ready = f32[8]{0} broadcast(%zero2), dimensions={}
  %start = (s32[], f32[8]{0}, f32[8]{0}) tuple(%zero, %carried, %ready)
  %while = (s32[], f32[8]{0}, f32[8]{0}) while(%start), condition=%cond, body=%body, \
metadata={op_name="audit5."}
  %result = f32[8]{0} get-tuple-element(%while), index=1
  %behind = f32[8]{0} tanh(%result), metadata={op_name="audit8."}

  %chosen = f32[8]{0} all-gather(%exp), GROUPS, metadata={op_name="audit10."}
  %branch = f32[8]{0} conditional(%w, %chosen, %ready), true_computation=%then, \
false_computation=%other, metadata={op_name="audit10."}

  %edge = f32[8]{0} all-gather(%exp), GROUPS, metadata={op_name="audit20."}
  %joined = f32[16]{0} concatenate(%edge, %ready), dimensions={0}, metadata={op_name="audit20."}
  %next = f32[16]{0} log(%joined), metadata={op_name="audit21."}

  %laid = f32[8]{0} all-gather(%v), GROUPS, metadata={op_name="v"}
  %copy = f32[8]{0} copy(%laid), metadata={op_name="audit30."}
  %turned = f32[2,4]{1,0} reshape(%copy), metadata={op_name="v"}
  %whole = f32[8]{0} reshape(%turned), metadata={op_name="audit31."}
  %last = f32[8]{0} sqrt(%whole), metadata={op_name="audit32."}

  %out = f32[8]{0} all-gather(%exp), GROUPS, channel_id=7, \
frontend_attributes={is_spmd_generated="true"}, metadata={op_name="audit1."}
  ROOT %results = (f32[8]{0}, f32[8]{0}, f32[16]{0}, f32[8]{0}, f32[8]{0}) \
tuple(%behind, %branch, %next, %last, %out)
}
""".replace("GROUPS", GROUPS)


@pytest.fixture(scope="module")
def module():
    return DumpedHlo.parse(MODULE, compat.hlo)


@pytest.mark.parametrize(
    ("name", "move"),
    [
        # Of what a loop carries only what is in its place, and not what that becomes.
        ("carried", AuditedMove([5, 6], False, True, False, False)),
        # The branch that is given it.
        ("chosen", AuditedMove([10, 11], False, False, True, False)),
        # What is made of several values is another one.
        ("edge", AuditedMove([20], False, False, True, False)),
        # A constraint's copy leaves it what it is; what has no other name does, and a reshape of
        # the program's is an op that takes it.
        ("laid", AuditedMove([30, 31], False, False, False, False)),
        ("out", AuditedMove([], True, True, False, True)),
    ],
)
def test_what_takes_a_value(module, name, move):
    collective = module.instructions[name]
    assert Takers(module, 2).move(collective, named_ops(collective.op_name)) == move


def _compiled(line):
    module = DumpedHlo.parse(
        f"""HloModule m
ENTRY %main (v: f32[4]) -> f32[8] {{
  %v = f32[4]{{0}} parameter(0)
  ROOT {line}
}}""",
        compat.hlo,
    )
    return module.root(module.entry)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ('%carried = f32[8] all-gather(%v), GROUPS, metadata={op_name="audit1."}', {"carried"}),
        # XLA renames what it copies: each that is named alike, over the same devices.
        ('%ag = f32[8] all-gather(%v), GROUPS, metadata={op_name="audit1."}', {"carried", "out"}),
        ('%ag = f32[8] all-gather(%v), GROUPS, metadata={op_name="audit4./audit20."}', {"edge"}),
        ('%ag = f32[8] all-gather(%v), GROUPS, metadata={op_name="audit2."}', set()),
        # But for its channel.
        ("%ag = f32[8] all-gather(%v), GROUPS, channel_id=7", {"out"}),
        ("%ag = f32[8] all-gather(%v), GROUPS, channel_id=8", set()),
        (
            "%ag = f32[8] all-gather(%v), replica_groups={{0,2}}, dimensions={0}, "
            'metadata={op_name="audit1."}',
            set(),
        ),
    ],
)
def test_what_a_collective_was_before(module, line, names):
    before = Takers(module, 2).before(_compiled(line.replace("GROUPS", GROUPS)))
    assert {each.name for each in before} == names


def test_the_ops_that_a_joined_name_names():
    assert named_ops("audit7./audit9.;audit3.") == [9, 3]
    assert named_ops("(audit7./audit9.:audit3.)") == [9, 3]
    assert named_ops("params['w']") == []
