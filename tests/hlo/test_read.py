"""The reader of HLO text: every form of line, shape and attribute; what is cut off or foreign."""

# ruff: noqa: E501 - lines of HLO are long

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.collectives.read import collectives
from sdyscope.errors import SdyscopeError
from sdyscope.hlo import executions, parse_shape, read_hlo, split_attributes, trip_count
from sdyscope.hlo.attributes import metadata_fields
from sdyscope.syntax.replica_groups import parse_replica_groups
from sdyscope.values.mesh import Mesh
from sdyscope.values.replica_groups import CollectiveDeviceList

MODULE = r"""HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}, num_partitions=8

FileNames
1 "/home/a \"b\".py"
2 "/lib/site-packages/optax/x.py"

FunctionNames
1 "step"
2 "update.<locals>.f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=3 end_column=9}
2 {file_name_id=2 function_name_id=2 line=40 end_line=40 column=0 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%x, %y)
}

ENTRY %main.1_spmd (p: f32[4], q: (s32[], /*index=1*/f32[2,3])) -> (f32[4], f32[]) {
  %p = f32[4]{0:T(128)} parameter(0), sharding={devices=[8]<=[8]}, metadata={op_name="params[\'w\']"}
  %q = (s32[], /*index=1*/f32[2,3]{1,0:T(8,128)(2,1)S(1)}) parameter(1)
  %all-reduce = f32[4]{0:T(128)} all-reduce(%p), channel_id=3, replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}, use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(step)/jvp(f)/a(b,c)/psum" stack_frame_id=2}, backend_config={"a":["}{",1]}
  %c = f32[] constant(3)
  ROOT %tuple = (f32[4]{0}, f32[]) tuple(f32[4]{0:T(128)} %all-reduce, /*index=1*/f32[] %c)
}
"""


def test_a_whole_module():
    module = read_hlo(MODULE)
    assert (module.name, module.num_partitions, module.entry) == ("jit_step", 8, "main.1_spmd")
    assert module.not_understood == ()
    assert list(module.computations) == ["add", "main.1_spmd"]
    entry = module.computations[module.entry]
    assert list(entry.instructions) == ["p", "q", "all-reduce", "c", "tuple"]
    assert entry.root.name == "tuple"
    assert entry.root.operands == ("all-reduce", "c")
    p, q, reduce, constant, _ = entry.instructions.values()
    assert p.sharding == "{devices=[8]<=[8]}"
    assert p.op_name == "params['w']"
    assert str(q.shape) == "(s32[], f32[2,3])"
    assert constant.operand_text == "3"
    assert reduce.channel_id == 3
    assert reduce.called("to_apply") == ("add",)
    assert reduce.op_name == "jit(step)/jvp(f)/a(b,c)/psum"
    assert reduce.attributes["backend_config"] == '{"a":["}{",1]}'
    assert reduce.replica_groups == parse_replica_groups(
        "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}"
    )
    innermost, outer = module.stack(reduce)
    assert (innermost.line, innermost.function) == (40, "update.<locals>.f")
    assert (outer.file, outer.line, outer.column) == ('/home/a "b".py', 7, 3)
    assert module.stack(p) == ()


def test_lines_are_as_good_as_text():
    assert read_hlo(line + "\n" for line in MODULE.split("\n")) == read_hlo(MODULE)


def entry(*lines, header="", before=""):
    """A module of one computation."""
    body = "\n".join(f"  {line}" for line in lines)
    return read_hlo(f"HloModule m{header}\n\n{before}\nENTRY e {{\n{body}\n}}\n")


@pytest.mark.parametrize(
    ("line", "name", "opcode", "shape", "operands"),
    [
        ("%a.1 = f32[2]{0} add(%x, %y)", "a.1", "add", "f32[2]", ("x", "y")),
        ("a = f32[2] add(x, y)", "a", "add", "f32[2]", ("x", "y")),
        ("ROOT %a-b = (f32[], token[]) tuple(%x, %t)", "a-b", "tuple", "(f32[], token[])", "xt"),
        ("%a = f32[<=8,2]{1,0} negate(f32[<=8,2]{1,0} %x)", "a", "negate", "f32[8,2]", ("x",)),
        ("%a = ((f32[2]{0}), u8[0]{0}) foo((f32[2]{0}, f32[1]) %t)", "a", "foo", None, ("t",)),
        ('%a = f32[] custom-call(%x), custom_call_target="f(,"', "a", "custom-call", "f32[]", "x"),
        ("%a = () tuple()", "a", "tuple", "()", ()),
        ("%a = s4[3]{0:E(4)} copy-start(%x)", "a", "copy-start", "s4[3]", ("x",)),
    ],
)
def test_instructions(line, name, opcode, shape, operands):
    (instruction,) = entry(line).instructions()
    assert (instruction.name, instruction.opcode, instruction.operands) == (
        name,
        opcode,
        tuple(operands),
    )
    assert shape is None or str(instruction.shape) == shape
    assert instruction.line == 5


@pytest.mark.parametrize(
    ("text", "shown", "size"),
    [
        ("f32[4,128]{1,0:T(8,128)}", "f32[4,128]", 2048),
        ("bf16[]", "bf16[]", 2),
        ("pred[3]{0}", "pred[3]", 3),
        ("s4[3]{0:E(4)}", "s4[3]", 2),
        ("c64[2]", "c64[2]", 16),
        ("f8e4m3fn[10]{0}", "f8e4m3fn[10]", 10),
        ("token[]", "token[]", 0),
        (
            "(f32[2]{0}, (s32[], /*index=1*/u8[4]{0}), token[])",
            "(f32[2], (s32[], u8[4]), token[])",
            16,
        ),
        ("f32[<=6]{0}", "f32[6]", 24),
    ],
)
def test_shapes(text, shown, size):
    shape = parse_shape(text)
    assert (str(shape), shape.bytes) == (shown, size)


@pytest.mark.parametrize("text", ["", "f32", "f32[", "(f32[]", "f32[])", "f32[a]", "f32[2] f32[2]"])
def test_what_is_no_shape(text):
    with pytest.raises(SdyscopeError, match="is not an HLO shape"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{0,1},{2,3}}", CollectiveDeviceList(((0, 1), (2, 3)))),
        ("{}", CollectiveDeviceList()),
        ("[2,4]<=[8]", parse_replica_groups("[2,4]<=[8]")),
        ("[2,4]<=[4,2]T(1,0)", parse_replica_groups("[2,4]<=[4,2]T(1,0)")),
        ("mesh['x'=4,'y'=2] {'x'}", parse_replica_groups("mesh['x'=4,'y'=2] {'x'}")),
    ],
)
def test_replica_groups_in_all_forms(text, value):
    (instruction,) = entry(
        f"%a = f32[2] all-gather(%x), replica_groups={text}, dimensions={{0}}"
    ).instructions()
    assert instruction.replica_groups == value
    assert instruction.attributes["dimensions"] == "{0}"


def test_replica_groups_that_cannot_be_read_name_the_line():
    (instruction,) = entry("%a = f32[2] all-gather(%x), replica_groups={{0,}").instructions()
    with pytest.raises(SdyscopeError, match="line 5"):
        _ = instruction.replica_groups


def test_attributes():
    text = ', channel_id=1, a={x=1, y="},{"}, b={%c, %d}, window={size=2x2 pad=0_1}, metadata={op_name="q\\"r" source_line=3}'
    attributes = split_attributes(text)
    assert list(attributes) == ["channel_id", "a", "b", "window", "metadata"]
    assert attributes["a"] == '{x=1, y="},{"}'


def test_metadata_of_older_versions_has_the_line_itself():
    module = entry(
        '%a = f32[] add(%x, %y), metadata={op_name="jit(f)/add" source_file="/a b.py" source_line=12}'
    )
    (instruction,) = module.instructions()
    (place,) = module.stack(instruction)
    assert str(place) == "/a b.py:12"


def test_an_instruction_may_go_on_in_the_next_line():
    module = entry(
        "%a = f32[2,2] constant({", "  { 1, 2 },", "  { 3, 4 }", '}), metadata={op_name="c"}'
    )
    (instruction,) = module.instructions()
    assert instruction.op_name == "c"
    assert module.not_understood_count == 0


def test_what_is_not_understood_is_listed():
    module = entry("%a = f32[] add(%x, %y)", "something else", "%b = what", before="and here\n")
    assert module.not_understood_count == 3
    assert [(line.line, line.text) for line in module.not_understood] == [
        (3, "and here"),
        (7, "something else"),
        (8, "%b = what"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "begins with HloModule"),
        ("module @m {\n}", "line 1: This is not HLO text"),
        ("\x00\x01\x02", "line 1: This is not HLO text"),
        (MODULE[: MODULE.index("%c = f32")], "ends inside the computation main.1_spmd"),
        (MODULE[: MODULE.index("ENTRY")], "no entry computation"),
        (MODULE[:30], "no entry computation"),
    ],
)
def test_cut_off_and_foreign_text_is_one_sentence(text, words):
    with pytest.raises(SdyscopeError, match=words) as caught:
        read_hlo(text)
    assert caught.value.line is not None


def test_an_instruction_that_is_cut_off_says_so():
    (instruction,) = entry("%a = f32[] add(%x, %y").instructions()
    with pytest.raises(SdyscopeError, match="line 5: the operands of %a do not end"):
        _ = instruction.operands


def loop(condition, body, init="%zero = s32[] constant(0)", attributes="", before=""):
    return read_hlo(f"""HloModule m

{before}
cond {{
  %arg = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
{condition}
}}

body {{
  %arg.1 = (s32[], f32[4]) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg.1), index=0
  %x = f32[4] get-tuple-element(%arg.1), index=1
{body}
  ROOT %next = (s32[], f32[4]) tuple(%j, %x)
}}

ENTRY e {{
  %p = f32[4] parameter(0)
  {init}
  %start = (s32[], f32[4]) tuple(%zero, %p)
  ROOT %w = (s32[], f32[4]) while(%start), condition=%cond, body=%body{attributes}
}}
""")


LESS = """  %n = s32[] constant(10)
  ROOT %less = pred[] compare(%i, %n), direction=LT"""
BY_ONE = """  %one = s32[] constant(1)
  %j = s32[] add(%i.1, %one)"""


def trips(module):
    entry = module.computations["e"]
    return trip_count(module, entry, entry.instructions["w"])


@pytest.mark.parametrize(
    ("module", "times"),
    [
        (loop(LESS, BY_ONE), 10),
        (loop(LESS, BY_ONE, "%zero = s32[] constant(4)"), 6),
        (loop(LESS, BY_ONE.replace("(1)", "(3)")), 4),
        (loop(LESS, BY_ONE.replace("%i.1, %one", "%one, %i.1")), 10),
        (loop(LESS.replace("LT", "LE"), BY_ONE), 11),
        (loop(LESS.replace("LT", "NE"), BY_ONE), 10),
        (loop(LESS.replace("%i, %n", "%n, %i").replace("LT", "GT"), BY_ONE), 10),
        (loop(LESS, BY_ONE, "%zero = s32[] constant(12)"), 0),
        (
            loop(
                LESS.replace("(10)", "(0)").replace("LT", "GE"),
                BY_ONE.replace("add", "subtract"),
                "%zero = s32[] constant(9)",
            ),
            10,
        ),
        (loop(LESS, BY_ONE, "%c = s32[] constant(0)\n  %zero = s32[] copy(%c)"), 10),
        (loop(LESS, BY_ONE, attributes=', backend_config={"known_trip_count":{"n":"7"}}'), 7),
        (
            loop(
                LESS, BY_ONE, attributes=r', backend_config="{\"known_trip_count\":{\"n\":\"7\"}}"'
            ),
            7,
        ),
        (loop(LESS, BY_ONE, "%zero = s32[] parameter(1)"), None),
        (loop(LESS.replace("constant(10)", "get-tuple-element(%arg), index=1"), BY_ONE), None),
        (loop(LESS, BY_ONE.replace("%i.1, %one", "%i.1, %i.1")), None),
        (loop(LESS.replace("LT", "EQ"), BY_ONE), None),
    ],
)
def test_trip_counts(module, times):
    assert trips(module) == times


def test_a_fused_condition_is_looked_into():
    fused = """fused {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}
"""
    text = """  %n = s32[] constant(10)
  ROOT %less = pred[] fusion(%i, %n), kind=kLoop, calls=%fused"""
    assert trips(loop(text, BY_ONE, before=fused)) == 10


@pytest.mark.parametrize("names", [("calls",), ("to_apply",), ("to_apply", "calls")])
def test_what_a_fusion_calls_is_what_its_attributes_say(names):
    line = '%f = f32[2]{0} fusion(%a), kind=kLoop, calls=%inner.1, metadata={op_name="x"}'
    text = f"HloModule m\n\nENTRY e {{\n  %a = f32[2]{{0}} parameter(0)\n  ROOT {line}\n}}\n"
    fusion = next(each for each in read_hlo(text).instructions() if each.name == "f")
    written = [fusion.attributes[name] for name in names if name in fusion.attributes]
    assert list(fusion.called(*names)) == [each.removeprefix("%") for each in written]


def test_executions_multiply_and_add_up():
    module = read_hlo("""HloModule m

leaf {
  %p.0 = f32[] parameter(0)
}

twice {
  %p.1 = f32[] parameter(0)
  %a = f32[] call(%p.1), to_apply=%leaf
  ROOT %b = f32[] call(%a), to_apply=%leaf
}

cond {
  %p.2 = f32[] parameter(0)
  ROOT %f = pred[] fusion(%p.2), kind=kLoop, calls=%test
}

test {
  %p.3 = f32[] parameter(0)
}

unknown {
  %p.4 = f32[] parameter(0)
  ROOT %c.1 = f32[] call(%p.4), to_apply=%branch
}

branch {
  %p.5 = f32[] parameter(0)
}

never {
  %p.6 = f32[] parameter(0)
}

ENTRY e {
  %p = f32[] parameter(0)
  %w = f32[] while(%p), condition=%cond, body=%twice, backend_config={"known_trip_count":{"n":"5"}}
  %v = f32[] while(%p), condition=%cond, body=%unknown
  %c = f32[] conditional(%p, %w, %v), branch_computations={%branch, %leaf}
  ROOT %s = ((f32[]), f32[], u32[]) async-start(%c), calls=%leaf
}
""")
    found = executions(module)
    assert "never" not in found
    assert found["twice"].times == 5
    assert found["leaf"].times == 12
    assert (found["leaf"].conditional, found["leaf"].asynchronous) == (True, True)
    assert (found["cond"].times, found["cond"].unknown_trips) == (7, True)
    assert (found["test"].times, found["test"].fused) == (7, True)
    assert (found["branch"].times, found["branch"].unknown_trips) == (2, True)


def test_a_computation_that_calls_itself_is_refused():
    module = read_hlo("""HloModule m

a {
  ROOT %c = f32[] call(), to_apply=%b
}

b {
  ROOT %d = f32[] call(), to_apply=%a
}

ENTRY e {
  ROOT %f = f32[] call(), to_apply=%a
}
""")
    with pytest.raises(SdyscopeError, match="calls itself"):
        executions(module)


@pytest.mark.parametrize("end", range(0, len(MODULE), 37))
def test_no_cut_is_more_than_an_error(end):
    try:
        module = read_hlo(MODULE[:end])
    except SdyscopeError:
        return
    assert module.entry


@given(st.data())
def test_spoilt_text_is_an_error_or_is_listed(data):
    text = MODULE
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 40, len(text))))
        text = text[:start] + data.draw(st.text('(){}[],="\\\n% <>0a', max_size=6)) + text[end:]
    with contextlib.suppress(SdyscopeError):
        module = read_hlo(text)
        program_collectives = collectives(module, [Mesh.of({"x": 8})])
        assert program_collectives.not_understood_count >= module.not_understood_count


ATTRIBUTES = st.lists(
    st.sampled_from(
        (
            "channel_id=1",
            'metadata={op_name="jit(f)/add" stack_frame_id=3}',
            'metadata={op_type="a" op_name="q\\"{r"}',
            "metadata={source_line=3}",
            'metadata={op_name="\\303\\274" profile_type={1}}',
            'backend_config="x, metadata={op_name=\\"other\\"}"',
            'frontend_attributes={a="b", metadata={op_name="inner"}}',
            "replica_groups={{0,1},{2,3}}",
            "replica_groups=mesh['a'=2], device_ids=(1,0) {'a'}",
        )
    ),
    max_size=4,
)


@given(attributes=ATTRIBUTES, operands=st.sampled_from(("%x", "f32[2]{0} %x, %y", '"a)"', "")))
def test_metadata_is_what_the_attributes_say(attributes, operands):
    (instruction,) = entry(f"%a = f32[2] add({operands}), {', '.join(attributes)}").instructions()
    whole = metadata_fields(instruction.attributes.get("metadata", "{}"))
    assert instruction.metadata == whole
    assert instruction.op_name == whole.get("op_name", "")


def of_a_helper(*, reshapes):
    """A step that calls `put` at lines 8 and 9; of its constraints XLA has left the first alone."""
    column = 11 if reshapes else 4  # Another op of the helper, of which nothing is left.
    return read_hlo(f"""HloModule jit_step

FileNames
1 "/home/step.py"

FunctionNames
1 "step"
2 "put"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=8 end_line=8 column=0 end_column=9}}
2 {{file_name_id=1 function_name_id=1 line=9 end_line=9 column=0 end_column=9}}
3 {{file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=9}}
4 {{file_name_id=1 function_name_id=2 line=3 end_line=3 column={column} end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=3 parent_frame_id=2}}
3 {{file_location_id=2 parent_frame_id=1}}
4 {{file_location_id={4 if reshapes else 3} parent_frame_id=4}}

ENTRY %main (p: f32[4]) -> f32[8] {{
  %p = f32[4] parameter(0)
  ROOT %g = f32[8] all-gather(%p), dimensions={{0}}, metadata={{op_name="jit(step)/sharding_constraint" stack_frame_id=2}}
}}
""")


@pytest.mark.parametrize(("reshapes", "line"), [(False, 8), (True, 3)])
def test_a_helper_is_known_for_one_though_one_of_its_constraints_is_left(reshapes, line):
    module = of_a_helper(reshapes=reshapes)
    assert module.source(module.computations["main"].root).line == line
