"""What collectives are for, in hand-written programs whose names are those of JAX 0.12."""

# ruff: noqa: E501 - lines of HLO are long

from typing import Any

import pytest

from sdyscope.analysis.collectives.made_for import is_partial
from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.collectives.totals import Part
from sdyscope.hlo import read_hlo

GROUPS = "channel_id=1, replica_groups=[4,2]<=[8], use_global_device_ids=true"
GENERATED = 'frontend_attributes={is_spmd_generated="true"}'
DOT = 'dot(%s, %s), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot_general" source_file="/a.py" source_line=7}'


def only(lines: str, before: str = "", tags: Any = None) -> Part:
    text = f"HloModule m, num_partitions=8\n{before}\nENTRY e {{\n{lines.strip()}\n}}\n"
    (collective,) = collectives(read_hlo(text), (), tags).collectives
    (part,) = collective.parts
    return part


def gathered(named: str, tags: Any = None) -> Part:
    return only(
        f"""
%p = f32[4,8]{{1,0}} parameter(0), metadata={{op_name="params['w']"}}
%c = f32[4,8]{{1,0}} multiply(%p, %p), metadata={{op_name="jit(f)/mul"}}
%g = f32[8,8]{{1,0}} all-gather(%c), {GROUPS}, dimensions={{0}}, {GENERATED}{named}
%k = f32[8,8]{{0,1}} copy(%g){named}
%q = f32[8,8]{{1,0}} negate(%p)
ROOT %d = f32[8,8]{{1,0}} {DOT % ("%q", "%k")}
""",
        tags=tags,
    )


@pytest.mark.parametrize(
    ("named", "after"),
    [
        (', metadata={op_name="jit(f)/mul"}', "value"),
        (", metadata={op_name=\"params['w']\"}", "value"),
        ("", "nothing"),
    ],
)
def test_a_value_is_followed_to_its_user(named: str, after: str) -> None:
    part = gathered(named)
    assert (part.named_after, part.primitive, str(part.source)) == (after, "dot_general", "/a.py:7")


def test_the_name_of_the_user_is_its_word() -> None:
    part = gathered(', metadata={op_name="jit(f)/dot_general"}')
    assert (part.named_after, part.primitive) == ("op", "dot_general")


def test_tags_of_both_ends() -> None:
    tags = {"c": ((5,),), "g": ((5,),), "k": ((5,),), "d": ((3, 9),)}
    part = gathered(', metadata={op_name="jit(f)/mul"}', tags)
    assert (part.tags, part.makers, part.named_after) == (((3, 9),), ((5,),), "value")
    # Named after the op that needs it.
    part = gathered(
        ', metadata={op_name="jit(f)/dot_general"}', {"c": ((5,),), "g": ((9,),), "d": ((9,),)}
    )
    assert (part.tags, part.makers, part.named_after) == (((9,),), ((5,),), "taker")


def test_what_moves_a_value_for_another_op_does_not_make_it() -> None:
    """One permutation serves two ops; XLA names it after the first."""
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%m = f32[4,8]{{1,0}} collective-permute(%p), channel_id=2, source_target_pairs={{{{0,1}},{{1,0}}}}
%g = f32[8,8]{{1,0}} all-gather(%m), {GROUPS}, dimensions={{0}}
%d = f32[8,8]{{1,0}} {DOT % ("%g", "%g")}
ROOT %t = (f32[4,8]{{1,0}}, f32[8,8]{{1,0}}) tuple(%m, %d)
"""
    text = f"HloModule m, num_partitions=8\n\nENTRY e {{\n{lines.strip()}\n}}\n"
    tags = {"m": ((3,),), "g": ((5,),), "d": ((5,),)}
    gather = next(
        collective
        for collective in collectives(read_hlo(text), (), tags).collectives
        if collective.kind == "all-gather"
    )
    (part,) = gather.parts
    assert (part.tags, part.makers, part.argument) == (((5,),), (), 0)
    assert part.before == "permuted"


def moved(lines: str, tags: Any, before: str = "", on: str = "", name: str = "m") -> Part:
    """What a permutation is of, as XLA names it after the op that needs it.

    Args:
        lines: what is before it.
        tags: the ops that these are named after.
        before: computations.
        on: what takes it.
        name: the collective that is asked for, instead of the permutation.
    """
    permute = "collective-permute(%v), channel_id=9, source_target_pairs={{0,1},{1,0}}"
    text = f"HloModule m, num_partitions=8\n{before}\nENTRY e {{\n{lines.strip()}\n"
    text += f"{'' if on else 'ROOT '}%m = f32[4,8]{{1,0}} {permute}\n{on}\n}}\n"
    all_ = collectives(read_hlo(text), (), {"m": ((9,),), **tags}).collectives
    (part,) = next(each for each in all_ if each.name == name).parts
    return part


def test_what_is_summed_with_others_is_made_by_its_own_op() -> None:
    """The sum of several has the names of all; what takes one out has that of its own."""
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%a = f32[4,8]{{1,0}} multiply(%p, %p)
%b = f32[4,8]{{1,0}} add(%p, %p)
%r = (f32[4,8]{{1,0}}, f32[4,8]{{1,0}}) all-reduce(%a, %b), {GROUPS}
%v = f32[4,8]{{1,0}} get-tuple-element(%r), index=1
"""
    named = {"a": ((1,),), "b": ((2,),), "r": ((1,), (2,)), "v": ((2,),)}
    assert moved(lines, named).makers == ((2,),)
    without = {name: tags for name, tags in named.items() if name != "v"}
    assert moved(lines, without).makers == ((1,), (2,))  # Nothing says which.


def test_a_sum_ends_where_an_op_makes_what_is_moved() -> None:
    """The product is named after nothing: what it takes is not what the op makes."""
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%a = f32[4,8]{{1,0}} negate(%p)
%d = f32[4,8]{{1,0}} multiply(%a, %a)
%v = f32[4,8]{{1,0}} all-reduce(%d), {GROUPS}
"""
    assert moved(lines, {"a": ((1,),), "v": ((9,),)}).makers == ((9,),)


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_moved_for_another_op_is_not_made_by_it(fused: bool) -> None:
    """Be it laid out otherwise behind the move, or cut before; another copy may be a transpose."""
    before = """
f {
  %a.1 = f32[4,8]{0,1} parameter(0)
  ROOT %k.1 = f32[4,8]{1,0} copy(%a.1)
}
s {
  %a.2 = f32[4,16]{0,1} parameter(0)
  ROOT %k.2 = f32[4,8]{0,1} dynamic-slice(%a.2, %a.2, %a.2), dynamic_slice_sizes={4,8}
}
"""
    permute = "collective-permute(%c), channel_id=2, source_target_pairs={{0,1},{1,0}}"
    cut = "dynamic-slice(%a, %o, %o), dynamic_slice_sizes={4,8}"
    cut = "fusion(%a), kind=kLoop, calls=%s" if fused else cut
    copy = "fusion(%g), kind=kLoop, calls=%f" if fused else "copy(%g)"
    lines = f"""
%p = f32[4,16]{{0,1}} parameter(0)
%o = s32[] constant(0)
%a = f32[4,16]{{0,1}} negate(%p)
%c = f32[4,8]{{0,1}} {cut}
%g = f32[4,8]{{0,1}} {permute}
%v = f32[4,8]{{1,0}} {copy}
"""
    named = ((5,),)
    tags = {"a": ((1,),), **dict.fromkeys(("c", "g", "v", "k.1", "k.2"), named)}
    assert moved(lines, tags, before).makers == ((1,),)
    assert moved(lines, {**tags, "g": ((6,),)}, before).makers == named


def test_what_is_moved_on_is_named_after_what_it_was_moved_for_first() -> None:
    """As of JAX 0.11, where XLA names what moves a value after what makes it."""
    permute = "collective-permute(%s), channel_id=%d, source_target_pairs={{0,1},{1,0}}"
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%a = f32[4,8]{{1,0}} negate(%p)
%g = f32[4,8]{{1,0}} {permute % ("%a", 2)}, {GENERATED}
%m = f32[4,8]{{1,0}} {permute % ("%g", 3)}, {GENERATED}
ROOT %d = f32[4,8]{{1,0}} multiply(%m, %m)
"""
    text = f"HloModule m, num_partitions=8\n\nENTRY e {{\n{lines.strip()}\n}}\n"
    for by, makers in ("g", ((1,),)), ("a", ((5,),)):
        tags = {"a": ((1,),), "g": ((5,),), "m": ((5,),), "d": ((9,),), by: ((5,),)}
        all_ = collectives(read_hlo(text), (), tags).collectives
        (part,) = next(each for each in all_ if each.name == "m").parts
        assert (part.tags, part.makers, part.named_after) == (((9,),), makers, "value")


@pytest.mark.parametrize("make", [f"all-reduce(%a), {GROUPS}", "negate(%a)"])
@pytest.mark.parametrize(("name", "is_own"), [(((5,),), True), (((6,),), False)])
def test_what_was_made_under_the_name_that_it_is_moved_under(
    name: Any, make: str, is_own: bool
) -> None:
    """A sum can be of another op; what is no form of another value is what the op makes."""
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%a = f32[4,8]{{1,0}} negate(%p)
%v = f32[4,8]{{1,0}} {make}
"""
    assert moved(lines, {"a": ((5,),), "v": name, "m": ((5,),)}).own is is_own


def test_the_pairs_of_all_that_moves_blocks_say_where_they_go() -> None:
    """Of blocks that are cut before, or moved on for the same op, they do not."""
    lines = """
%p = f32[4,8]{1,0} parameter(0)
%o = s32[] constant(0)
%v = f32[4,8]{1,0} negate(%p)
"""
    tags = {"v": ((1,),)}
    assert moved(lines, tags).pairs == ((0, 1), (1, 0))
    cut = "dynamic-slice(%p, %o, %o), dynamic_slice_sizes={4,8}"
    assert moved(lines.replace("negate(%p)", cut), tags).pairs == ()
    on = f"ROOT %g = f32[8,8]{{1,0}} all-gather(%m), {GROUPS}, dimensions={{0}}"
    assert moved(lines, {**tags, "g": ((9,),)}, on=on).pairs == ()
    assert moved(lines, {**tags, "g": ((10,),)}, on=on).pairs == ((0, 1), (1, 0))


def test_a_gather_has_the_pairs_of_the_permutation_right_before_it() -> None:
    """Not of one that moves what XLA joins for the same op; what another joins is made so."""
    lines = """
%p = f32[4,4]{1,0} parameter(0)
%v = f32[4,8]{1,0} concatenate(%p, %p), dimensions={1}
"""
    on = f"ROOT %g = f32[8,8]{{1,0}} all-gather(%m), {GROUPS}, dimensions={{0}}"
    tags = dict.fromkeys(("m", "g"), ((5,),))
    for joined_for, pairs in (((5,),), ()), (((1,),), ((0, 1), (1, 0))):
        part = moved(lines, {**tags, "v": joined_for}, on=on, name="g")
        assert (part.before, part.pairs) == ("permuted", pairs)


def test_what_is_made_of_what_was_permuted_was_not_itself() -> None:
    """A permutation for the op that makes a value, of which all is gathered later."""
    on = f"""
%c = f32[4,16]{{1,0}} concatenate(%m, %m), dimensions={{1}}
ROOT %g = f32[8,16]{{1,0}} all-gather(%c), {GROUPS}, dimensions={{0}}"""
    tags = {"v": ((1,),), "m": ((2,),), "c": ((2,),), "g": ((5,),)}
    lines = "%v = f32[4,8]{1,0} parameter(0)"
    part = moved(lines, tags, on=on, name="g")
    assert (part.before, part.pairs) == ("exchanged", ())


def test_what_is_gathered_as_it_is_made_was_not_exchanged() -> None:
    assert not gathered(', metadata={op_name="jit(f)/dot_general"}').before


def test_an_argument_is_known_by_its_name() -> None:
    part = only(
        f"""
%x = f32[2]{{0}} parameter(0), metadata={{op_name="x"}}
%p = f32[4]{{0}} parameter(1), metadata={{op_name="params['w']"}}
ROOT %g = f32[8]{{0}} all-gather(%p), {GROUPS}, dimensions={{0}}, {GENERATED}, metadata={{op_name="params['w']"}}
"""
    )
    assert (part.argument, part.result, part.named_after) == (1, 0, "value")


def test_fusions_and_tuples_are_gone_through() -> None:
    """The first element of the tuple is what a fusion multiplies, behind a slice of the other."""
    fusion = """
f {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %s = f32[8]{0} copy(%b)
  %n = f32[8]{0} negate(%a), metadata={op_name="jit(f)/neg"}
  ROOT %m = f32[8]{0} multiply(%n, %s), metadata={op_name="jit(f)/mul"}
}
"""
    lines = f"""
%p = f32[4]{{0}} parameter(0)
%o = f32[8]{{0}} parameter(1)
%g = f32[8]{{0}} all-gather(%p), {GROUPS}, dimensions={{0}}
%t = (f32[8]{{0}}, f32[8]{{0}}) tuple(%g, %o)
%x = f32[8]{{0}} get-tuple-element(%t), index=INDEX
%y = f32[8]{{0}} get-tuple-element(%t), index=OTHER
ROOT %r = f32[8]{{0}} fusion(%x, %y), kind=kLoop, calls=%f
"""
    part = only(lines.replace("INDEX", "0").replace("OTHER", "1"), fusion)
    assert part.primitive == "neg"
    part = only(lines.replace("INDEX", "1").replace("OTHER", "0"), fusion)
    assert part.primitive == "mul"


def test_a_sum_is_named_for_what_makes_it() -> None:
    part = only(
        f"""
%p = f32[4]{{0}} parameter(0)
%m = f32[4]{{0}} multiply(%p, %p), metadata={{op_name="jit(f)/loss/mul"}}
%c = f32[4]{{0}} copy(%m)
%r = f32[4]{{0}} all-reduce(%c), {GROUPS}
ROOT %n = f32[4]{{0}} negate(%r), metadata={{op_name="jit(f)/neg"}}
"""
    )
    assert (part.scope, part.primitive, part.named_after) == ("loss", "mul", "nothing")


def test_sums_that_are_returned_as_they_are_have_their_own_lines() -> None:
    """Nothing takes them out of the tuple; what is no sum of its own has the line of the tuple."""
    name = 'metadata={{op_name="jit(f)/{}" source_file="/a.py" source_line={}}}'
    text = f"""HloModule m, num_partitions=8
ENTRY e {{
%p = f32[4]{{0}} parameter(0)
%a = f32[4]{{0}} multiply(%p, %p), {name.format("reduce_sum", 7)}
%b = f32[4]{{0}} add(%p, %p), {name.format("reduce_sum", 8)}
%c = f32[4]{{0}} negate(%p), {name.format("neg", 9)}
ROOT %r = (f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}) all-reduce(%a, %b, %c), {GROUPS}, {name.format("reduce_sum", 7)}
}}
"""
    tags = {"a": ((1,),), "b": ((2,),), "c": ((3,),), "r": ((1,), (2,))}
    for known, of in ((tags, [((1,),), ((2,),), ((1,), (2,))]), (None, [(), (), ()])):
        (collective,) = collectives(read_hlo(text), (), known).collectives
        assert [str(part.source) for part in collective.parts] == ["/a.py:7", "/a.py:8", "/a.py:7"]
        assert [part.tags for part in collective.parts] == of


@pytest.mark.parametrize("joins", ["select(%c, %m, %e)", "concatenate(%m, %e), dimensions={1}"])
def test_an_edge_is_for_the_op_that_puts_it_to_its_block(joins: str) -> None:
    """As of JAX 0.11, where a name can be that of what makes the value, and is followed on."""
    shape = "f32[4,8]{1,0}" if joins.startswith("select") else "f32[4,16]{1,0}"
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%c = pred[4,8]{{1,0}} parameter(1)
%v = f32[4,8]{{1,0}} negate(%p)
%e = f32[4,8]{{1,0}} slice(%v), slice={{[0:4], [0:8]}}
%m = f32[4,8]{{1,0}} collective-permute(%e), channel_id=9, source_target_pairs={{{{0,1}},{{1,2}}}}, {GENERATED}
%s = {shape} {joins}
ROOT %d = {shape} multiply(%s, %s)
"""
    tags = {"v": ((1,),), **dict.fromkeys(("e", "m", "s"), ((5,),)), "d": ((9,),)}
    part = only(lines, tags=tags)
    assert (part.tags, part.named_after) == (((5,),), "taker")
    # Where another op puts it together, it is for that.
    part = only(lines, tags={**tags, "s": ((7,),)})
    assert (part.tags, part.named_after) == (((7,),), "value")


@pytest.mark.parametrize(
    ("pairs", "partial"),
    [("{{0,1},{1,0}}", False), ("{{0,1},{1,2}}", True), ("", False), ("{{0,0},{2,2}}", False)],
)
def test_a_permutation_that_gives_some_devices_nothing(pairs: str, partial: bool) -> None:
    assert is_partial(pairs) is partial


def test_what_moves_on_what_nothing_is_known_to_make_is_not_made_by_it() -> None:
    permute = "collective-permute(%s), channel_id=%d, source_target_pairs={{0,1},{1,0}}"
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%g = f32[4,8]{{1,0}} {permute % ("%p", 2)}, {GENERATED}
%m = f32[4,8]{{1,0}} {permute % ("%g", 3)}, {GENERATED}
ROOT %d = f32[4,8]{{1,0}} multiply(%m, %m)
"""
    text = f"HloModule m, num_partitions=8\n\nENTRY e {{\n{lines.strip()}\n}}\n"
    tags = {"g": ((5,),), "m": ((5,),), "d": ((9,),)}
    all_ = collectives(read_hlo(text), (), tags).collectives
    (part,) = next(each for each in all_ if each.name == "m").parts
    assert (part.tags, part.makers, part.argument) == (((9,),), (), 0)


@pytest.mark.parametrize(("taken", "cut"), [("dynamic-slice", True), ("copy", False)])
def test_what_is_cut_right_behind_a_gather(taken: str, cut: bool) -> None:
    forms = {
        "dynamic-slice": "dynamic-slice(%g, %o, %o), dynamic_slice_sizes={8,8}",
        "copy": "copy(%g)",
    }
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%o = s32[] parameter(1)
%g = f32[8,8]{{1,0}} all-gather(%p), {GROUPS}, dimensions={{0}}
%k = f32[8,8]{{1,0}} {forms[taken]}
ROOT %d = f32[8,8]{{1,0}} multiply(%k, %k)
"""
    assert only(lines).moved_on is cut


@pytest.mark.parametrize(
    ("name", "cut"), [("", True), (', metadata={op_name="jit(f)/convert_element_type"}', False)]
)
def test_what_is_cut_behind_the_type_that_it_was_moved_as(name: str, cut: bool) -> None:
    """CPUs gather bf16 as f32; a conversion that the program has is another value."""
    lines = f"""
%p = bf16[4,8]{{1,0}} parameter(0)
%o = s32[] parameter(1)
%w = f32[4,8]{{1,0}} convert(%p)
%g = f32[8,8]{{1,0}} all-gather(%w), {GROUPS}, dimensions={{0}}, metadata={{op_name="jit(f)/mul"}}
%h = bf16[8,8]{{1,0}} convert(%g){name}
%k = bf16[8,4]{{1,0}} dynamic-slice(%h, %o, %o), dynamic_slice_sizes={{8,4}}, metadata={{op_name="jit(f)/mul"}}
ROOT %d = bf16[8,4]{{1,0}} multiply(%k, %k), metadata={{op_name="jit(f)/mul"}}
"""
    assert only(lines).moved_on is cut


def test_what_is_cut_behind_a_gather_that_a_cpu_makes_in_f32() -> None:
    """The conversion back to bf16 has no name, and is no op of the program."""
    lines = f"""
%p = bf16[4,8]{{1,0}} parameter(0)
%o = s32[] parameter(1)
%n = bf16[4,8]{{1,0}} negate(%p), metadata={{op_name="jit(f)/neg"}}
%c = f32[4,8]{{1,0}} convert(%n)
%g = f32[8,8]{{1,0}} all-gather(%c), {GROUPS}, dimensions={{0}}, {GENERATED}, metadata={{op_name="jit(f)/neg"}}
%b = bf16[8,8]{{1,0}} convert(%g)
%k = bf16[4,8]{{1,0}} dynamic-slice(%b, %o, %o), dynamic_slice_sizes={{4,8}}, metadata={{op_name="jit(f)/mul"}}
ROOT %d = bf16[4,8]{{1,0}} multiply(%k, %k), metadata={{op_name="jit(f)/mul"}}
"""
    part = only(lines)
    assert (part.named_after, part.moved_on) == ("value", True)


@pytest.mark.parametrize(("exchanged_for", "moved_on"), [("add", True), ("sub", False)])
def test_what_is_exchanged_behind_a_gather_for_the_op_that_takes_it(
    exchanged_for: str, moved_on: bool
) -> None:
    """The gather has the name of what makes the value, and its pieces that of what takes it."""
    lines = f"""
%p = f32[4,8]{{1,0}} parameter(0)
%c = f32[4,8]{{1,0}} negate(%p), metadata={{op_name="jit(f)/mul"}}
%g = f32[8,8]{{1,0}} all-gather(%c), {GROUPS}, dimensions={{0}}, {GENERATED}, metadata={{op_name="jit(f)/mul"}}
%r = f32[2,4,8]{{2,1,0}} reshape(%g), metadata={{op_name="jit(f)/add"}}
%e = f32[2,4,8]{{2,1,0}} all-to-all(%r), channel_id=2, replica_groups={{{{0,1}}}}, dimensions={{0}}, metadata={{op_name="jit(f)/{exchanged_for}"}}
ROOT %d = f32[2,4,8]{{2,1,0}} add(%e, %e), metadata={{op_name="jit(f)/{exchanged_for}"}}
"""
    text = f"HloModule m, num_partitions=8\n\nENTRY e {{\n{lines.strip()}\n}}\n"
    both = collectives(read_hlo(text), ()).collectives
    (part,) = next(each for each in both if each.kind == "all-gather").parts
    assert (part.named_after, part.moved_on) == ("value", moved_on)


@pytest.mark.parametrize(
    ("loop", "argument", "makers"),
    [("jit(f)/dot_general", 1, ()), ("jit(f)/while", None, ((9,),))],
    ids=["XLA's", "the program's"],
)
def test_blocks_that_xla_hands_round_for_a_product_are_its_operand(
    loop: str, argument: int | None, makers: Any
) -> None:
    """In place of gathering it, as compilers for TPUs do: in a loop, under the product's name."""
    carried = "(f32[4,8]{1,0}, f32[4,8]{1,0}, f32[4,8]{1,0})"
    text = f"""HloModule m, num_partitions=8

body {{
  %s = {carried} parameter(0)
  %x = f32[4,8]{{1,0}} get-tuple-element(%s), index=0
  %w = f32[4,8]{{1,0}} get-tuple-element(%s), index=1
  %y = f32[4,8]{{1,0}} get-tuple-element(%s), index=2
  %m = f32[4,8]{{1,0}} collective-permute(%w), channel_id=9, source_target_pairs={{{{0,1}},{{1,0}}}}
  %a = f32[4,8]{{1,0}} add(%y, %w)
  ROOT %t = {carried} tuple(%x, %m, %a)
}}

cond {{
  %s.1 = {carried} parameter(0)
  ROOT %b = pred[] constant(true)
}}

ENTRY e {{
  %p = f32[4,8]{{1,0}} parameter(0)
  %q = f32[4,8]{{1,0}} parameter(1)
  %z = f32[4,8]{{1,0}} broadcast(%p), dimensions={{0,1}}
  %i = {carried} tuple(%p, %q, %z)
  %l = {carried} while(%i), condition=cond, body=body, metadata={{op_name="{loop}"}}
  ROOT %r = f32[4,8]{{1,0}} get-tuple-element(%l), index=2
}}
"""
    tags = dict.fromkeys(("m", "a", "l", "r"), ((9,),))
    (collective,) = collectives(read_hlo(text), (), tags).collectives
    (part,) = collective.parts
    assert (part.argument, part.makers, part.own) == (argument, makers, bool(makers))
