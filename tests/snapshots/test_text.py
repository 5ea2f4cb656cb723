"""Snapshots as text: what is written is read back, and what is changed is found and rewritten."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdyscope.errors import SyntaxTextError, TargetError
from sdyscope.snapshots import (
    Item,
    Key,
    Snapshot,
    StageText,
    compare,
    read_snapshots,
    update,
    write,
)
from sdyscope.snapshots.folding import expanded, fold
from sdyscope.snapshots.items import counted, placed
from sdyscope.snapshots.read import read_file, read_sections
from sdyscope.snapshots.values import KINDS
from sdyscope.snapshots.write import MARK

V1 = Path(__file__).parent / "version_1.snap"

hostile = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            " ",
            "  ",
            "a  b",
            "{0..3}",
            "\\{",
            "\\",
            "#",
            "×3 lowered =",
            "shardy: x",
            "gspmd:",
            "=",
            "\r",
            "\n\nprogram  x",
            "\u2028",
            "<<<<<<< HEAD",
        ]
    ),
    st.text(st.characters(), max_size=8),
)
names = st.one_of(
    st.builds("params['layers'][{}]['w{}']".format, st.integers(0, 6), st.integers(1, 2)),
    st.builds("jvp(layer{})/block{}/dot".format, st.integers(0, 12), st.integers(0, 3)),
    st.builds("{}[{}]{}{}".format, hostile, st.integers(0, 3), hostile, st.integers(0, 12)),
    hostile,
)
# The forms that a sharding is written in, and anything else; in Shardy's form axes have no quotes.
texts = st.one_of(
    st.sampled_from(["replicated", "P('data', None)", "P(None, 'x')"]), hostile
).filter(lambda text: '"' not in text)
cells = st.lists(
    st.builds(
        StageText,
        st.sampled_from(["requested", "lowered", "propagated"]),
        texts,
        st.sampled_from([None, "shardy", "gspmd"]),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
unordered = st.lists(st.builds(Item, cells, st.integers(1, 12)), min_size=1, max_size=3)
in_order = st.lists(cells, min_size=1, max_size=4).flatmap(
    lambda all_cells: st.lists(
        st.builds(Item, st.sampled_from(all_cells)), min_size=1, max_size=40
    ).flatmap(
        lambda single: st.sampled_from(
            [(), tuple(f"{number % 3:08x}" for number in range(len(single)))]
        ).map(lambda marks: placed(single, marks))
    )
)
items = st.one_of(unordered, in_order).map(counted)


@st.composite
def keys(draw):
    kind = draw(st.sampled_from(KINDS))
    over = draw(hostile) if kind == "collective" else ""
    return Key(kind, draw(names), draw(st.one_of(st.just("f32[8]"), hostile)), over)


@st.composite
def snapshots(draw, name=None):
    found = draw(st.dictionaries(keys(), items, max_size=12))
    return Snapshot(
        draw(hostile) if name is None else name,
        draw(hostile),
        draw(st.sampled_from([("shardy",), ("gspmd",), ("shardy", "gspmd")])),
        ("requested", "lowered", "propagated"),
        draw(hostile),
        found,
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(snapshots(), max_size=3, unique_by=lambda snapshot: snapshot.name))
def test_what_is_written_is_read_back(programs):
    text = write(programs)
    assert sorted(read_snapshots(text), key=lambda snapshot: snapshot.name) == sorted(
        programs, key=lambda snapshot: snapshot.name
    )
    assert all(line.isprintable() for line in text.split("\n"))
    # The order in which things were found makes no difference.
    turned = [replace(program, items=dict(reversed(program.items.items()))) for program in programs]
    assert write(reversed(turned)) == text
    # A checkout with other newlines is the same snapshot.
    assert read_snapshots(text.replace("\n", "\r\n")) == read_snapshots(text)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(keys(), st.sampled_from(["a", "b"]), max_size=20))
def test_folding_loses_nothing(found):
    again = {}
    for first, template, content in fold(found):
        for name in expanded(template):
            key = replace(first, name=name)
            assert key not in again
            again[key] = content
    assert again == found


@settings(max_examples=40, deadline=None)
@given(snapshots(name="step"), st.data())
def test_exactly_what_changed_is_found_and_rewritten(before, data):
    changed = dict(before.items)
    picked = data.draw(st.sets(st.sampled_from(list(changed)))) if changed else set()
    picked = {key for key in picked if key.kind not in ("argument", "result")}
    for key in picked:
        if data.draw(st.booleans()):
            del changed[key]
        else:
            changed[key] = (Item((StageText("requested", "what it is now"),)),)
    added = set()
    for key in data.draw(st.lists(keys(), max_size=3)):
        if key not in before.items and key.kind not in ("argument", "result"):
            changed[key] = (Item((StageText("lowered", "new"),)),)
            added.add(key)
    after = replace(before, items=changed)
    comparison = compare(before, after)
    assert comparison.different == len(picked) + len(added)
    assert comparison.same == len(before.items) - len(picked)
    assert comparison.is_same == (not picked and not added)
    text = write([before])
    updated = update(text, [after])
    assert read_snapshots(updated) == (after,)
    # Nothing else is left, either; a file stays of its version.
    assert updated.partition("\n")[2] == write([after]).partition("\n")[2]
    kept = {tuple(block.says): block.text for block in read_sections(text)[0].blocks}
    for block in read_sections(updated)[0].blocks:
        if not set(block.says) & (picked | added):
            assert kept.get(tuple(block.says), block.text) == block.text


WRITTEN = """sdyscope snapshot 1

# Which program.
program  step
  partitioners  shardy
  stages lowered

# Reviewed: stays.
value   a  f32[2]
  lowered    x
"""


def file_with(*layers, extra=""):
    blocks = [f"value  layer{n}/a  f32[2]\n  lowered {text}\n" for n, text in layers]
    head = "sdyscope snapshot 1\n\nprogram  step\n  partitioners shardy\n  stages lowered\n"
    return "\n".join([head, *blocks]) + extra


def program(**says):
    found = {
        Key("value", name, "f32[2]"): (Item((StageText("lowered", t),)),)
        for name, t in says.items()
    }
    return Snapshot("step", "", ("shardy",), ("lowered",), "", found)


def test_what_did_not_change_keeps_its_bytes_and_its_comments():
    text = file_with()
    text += "\n# As it is by hand:   odd spaces.\nvalue  a  f32[2]\n      lowered x\n"
    text += "\n# Why it is so.\nvalue  b  f32[2]\n  lowered x\n"
    assert update(text, [program(a="x", b="x")]) == text
    updated = update(text, [program(a="x", b="y", c="z")])
    assert updated == text.replace(
        "value  b  f32[2]\n  lowered x\n",
        "value  b  f32[2]\n  lowered y\n\nvalue  c  f32[2]\n  lowered z\n",
    )
    turned = update(text.replace("\n", "\r\n"), [program(a="x", b="y", c="z")])
    assert turned == updated.replace("\n", "\r\n")


def test_a_layer_that_differs_leaves_its_range_and_the_comment_stays():
    says = {f"layer{n}/a": "x" for n in range(4)}
    text = write([program(**says)])
    assert "value  layer{0..3}/a  f32[2]\n" in text
    text = text.replace("value ", "# Checked.\nvalue ")
    says["layer2/a"] = "y"
    updated = update(text, [program(**says)])
    assert "# Checked.\nvalue  layer{0..1,3}/a  f32[2]\n  lowered x\n" in updated
    assert "\n\nvalue  layer2/a  f32[2]\n  lowered y\n" in updated
    (change,) = compare(*map(read_snapshots_one, (text, updated))).changes
    assert (change.name, change.count, change.what) == ("layer2/a", 1, "changed")


def read_snapshots_one(text):
    (snapshot,) = read_snapshots(text)
    return snapshot


def test_an_argument_of_another_type_is_the_same_argument():
    def taken(type_, text):
        key = Key("argument", "x", type_)
        return replace(program(), items={key: (Item((StageText("lowered", text),)),)})

    (change,) = compare(taken("f32[2]", "a"), taken("f32[4]", "a")).changes
    assert (change.what, change.key.type, change.type_after) == ("changed", "f32[2]", "f32[4]")


def test_fewer_stages_are_compared_in_full():
    key = Key("argument", "x", "f32[2]")

    def taken(stages, *stage_texts):
        return Snapshot("step", "", ("shardy",), stages, "", {key: (Item(stage_texts),)})

    whole = taken(
        ("requested", "lowered", "propagated"),
        StageText("requested", "P('a')"),
        StageText("lowered", "="),
        StageText("propagated", "="),
    )
    less = taken(
        ("requested", "propagated"),
        StageText("requested", "P('a')"),
        StageText("propagated", "P('a')"),
    )
    comparison = compare(whole, less)
    assert comparison.is_same
    assert comparison.not_compared == ("lowered",)
    # What is asked for and was never recorded is a difference.
    assert not compare(less, whole).is_same


def test_version_1_is_read():
    one, two = read_snapshots(V1.read_text())
    assert (one.name, two.name) == ("mlp", "step")
    assert one.mesh == "data=4, model=2"
    assert len(one.items) == 36
    weights = [key for key in two.items if key.kind == "argument"]
    assert [key.name for key in weights] == [f"params['layers'][{n}]['w1']" for n in (0, 1, 2, 7)]
    assert two.items[Key("constraint", "jvp(layer)", "f32[4]")] == (
        Item(
            (StageText("requested", "P('data',)"), StageText("lowered", "replicated", "gspmd")), 2
        ),
        Item((StageText("requested", "nothing"),), 1),
    )
    now = update(V1.read_text(), [one, two])
    assert now.startswith("sdyscope snapshot 3\n")
    assert read_snapshots(now) == (one, two)
    was = V1.read_text().splitlines()
    changed = [line for line, old in zip(now.splitlines(), was, strict=True) if line != old]
    assert changed[1:] == [
        line.replace("partitioned", "compiled")
        for line in was[1:]
        if re.match(r"  (stages .*)?partitioned", line)
    ]


@pytest.mark.parametrize(
    ("old", "text"),
    [
        (r'[\{"a":(1)2\}, \{?\}]', "[{a:(1)2}, {?}]"),
        (r'<@mesh, [\{"a"\}p0, \{\}], replicated=\{"b"\}>', "[{a}p0, {}], replicated={b}"),
    ],
)
def test_version_3_has_quotes_in_shardys_form(old, text):
    head = "sdyscope snapshot 3\n\nprogram  step\n  partitioners shardy\n  stages lowered\n\n"
    (snapshot,) = read_snapshots(f"{head}argument  x  f32[4,4]\n  lowered {old}\n")
    assert snapshot.items[Key("argument", "x", "f32[4,4]")] == (
        Item((StageText("lowered", text),)),
    )
    assert write([snapshot]).startswith("sdyscope snapshot 4\n")
    assert read_snapshots(write([snapshot])) == (snapshot,)


def test_version_2_is_read():
    text = V1.with_name("version_2.snap").read_text()
    (snapshot,) = read_snapshots(text)
    held = {key.name: items for key, items in snapshot.items.items() if key.kind == "memory"}
    assert held["argument params"] == (
        Item((StageText("compiled", "a device holds 70,656 B, 52,992 B of it replicated"),)),
    )
    now = (
        text.replace(f"{MARK} 2\n", f"{MARK} 3\n")
        .replace("propagated, partitioned\n", "propagated, compiled\n")
        .replace("  partitioned a device", "  compiled a device")
        .replace("  partitioned 1", "  compiled 1")
    )
    assert "partitioned" in text.replace("partitioners", "")
    assert "partitioned" not in now
    # What reads the same stays as it is written.
    assert update(text, [snapshot]) == now
    written = now.replace("of it copies", "of it replicated").replace("× a step,", "× per step,")
    assert write([snapshot]) == written
    with pytest.raises(SyntaxTextError, match="no stage 'partitioned'"):
        read_snapshots(now.replace("propagated, compiled\n", "propagated, partitioned\n"))


def test_a_part_of_an_axis_is_read_with_or_without_its_size():
    head = (
        f"{MARK} 3\n\nprogram  step\n  mesh a=4\n  partitioners shardy\n  stages compiled\n"
        "  hardware cpu:4\n\n"
    )
    block = "collective  all-gather over a:(1)2  dot  f32[8]\n  compiled 1 × per step, a device\n"
    (now,) = read_snapshots(head + block)
    (before,) = read_snapshots(head + block.replace("(1)2", "(1)2=2"))
    assert now == before


BAD = {
    "": "this is not a snapshot",
    "module {}": "this is not a snapshot",
    "sdyscope snapshot 10\n": "is of version 10, and version 9 is the latest",
    "sdyscope snapshot 0\n": "is of version 0",
    "sdyscope snapshot 1\n\nvalue  a\n  lowered x\n": "expected a program",
    file_with((0, "x"), (0, "y")): "is in the file twice",
    file_with((0, "x")) + "\nprogram  step\n  partitioners shardy\n  stages lowered\n": "twice",
    file_with((0, "x"), extra="\nvalue  a\n  ×2 lowered x\n     places 1\n"): "expected 2 places",
    file_with((0, "x"), extra="\nvalue  a\n  ×2 lowered x\n     places 2,1\n"): "expected 2 places",
    file_with(
        (0, "x"), extra="\nvalue  a\n  ×2 lowered x\n     places 0..1\n"
    ): "expected 2 places",
    file_with(
        (0, "x"), extra="\nvalue  a\n  lowered x\n  places 1\n  ×1 lowered y\n  places 1\n"
    ): "two of these have one place",
    file_with(
        (0, "x"), extra="\nvalue  a\n  ×2 lowered x\n     places 1,2\n     on 0123abcd\n"
    ): "expected eight hexadecimal digits for each",
    file_with((0, "x"), extra="\nvalue  a\n  lowered x\n  on 0123abcd\n"): "for each of the places",
    file_with((0, "x"), extra="\nvalues  a\n  lowered x\n"): "unexpected 'values'",
    file_with((0, "x"), extra="\nvalue  a\n"): "nothing is said of this one",
    file_with((0, "x"), extra="\nvalue  a\n  propagated x\n"): "expected a stage of this snapshot",
    file_with((0, "x"), extra="\nvalue  a\n  lowered\n"): "expected a stage of this snapshot",
    file_with((0, "x"), extra="\nvalue  a\n  lowered x\nvalue  b\n"): "expected an empty line",
    file_with((0, "x"), extra="\nvalue  a{3..1}\n  lowered x\n"): "ascending, between braces",
    file_with((0, "x"), extra="\nvalue  a{0..999999999}\n  lowered x\n"): "between braces",
    file_with((0, "x"), extra="\nvalue  {0..999}{0..999}\n  lowered x\n"): "more than 100,000",
    file_with((0, "x"), extra="\nvalue  a\n  lowered x\\q\n"): "unexpected '\\\\q'",
    file_with((0, "x"), extra="\nvalue  a  b  c  d\n  lowered x\n"): "each behind two spaces",
    file_with((0, "x"), extra="\n# alone\n"): "a comment belongs to what it stands before",
    file_with((0, "x")).replace("\nvalue", "\n<<<<<<< HEAD\nvalue"): "merge conflict",
    file_with().replace("stages lowered", "stages lowered, guessed"): "no stage 'guessed'",
    file_with().replace("  stages lowered\n", ""): "has no line for stages",
    file_with().replace("  partitioners shardy\n", ""): "has no line for partitioners",
    file_with().replace("  stages", "  colour red\n  stages"): "expected one line each",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_no_snapshot_has_a_sentence_and_a_caret(text):
    with pytest.raises(SyntaxTextError) as caught:
        read_snapshots(text, "golden.snap")
    assert BAD[text] in str(caught.value)
    assert str(caught.value).startswith(f"golden.snap:{caught.value.line}:{caught.value.column}: ")
    assert "^" in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(data):
    text = V1.read_text()
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(at + 40, len(text))))
    damaged = text[:at] + data.draw(st.text(max_size=5)) + text[end:]
    with contextlib.suppress(SyntaxTextError):
        write(read_snapshots(damaged))


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path):
    path = tmp_path / "x.snap"
    path.write_bytes(b"sdyscope snapshot 1\n\xff")
    with pytest.raises(TargetError, match="byte 20 is not UTF-8 text"):
        read_file(path)
    with pytest.raises(TargetError, match="cannot read this file"):
        read_file(tmp_path / "gone.snap")
