"""What snapshots say of collectives: in which order devices work together, too."""

from sdyscope.analysis.collectives.compiled import read_collectives
from sdyscope.facts.compiled import Compiled
from sdyscope.hardware.names import Hardware
from sdyscope.snapshots import Snapshot, compare, read_snapshots, update, write
from sdyscope.snapshots.collectives import communicated
from sdyscope.values.mesh import Mesh

GLOBAL = "channel_id=1, use_global_device_ids=true"
GATHER = "f32[8]{0} all-gather(%p), replica_groups=GROUPS, dimensions={0}, " + GLOBAL
SUM = "f32[2]{0} all-reduce(%p), replica_groups=GROUPS, to_apply=%add, " + GLOBAL
PERMUTE = "f32[2]{0} collective-permute(%p), source_target_pairs=GROUPS, channel_id=1"


def taken(collective, *groups, partitioners=("shardy",)):
    """A snapshot with a collective over each of some groups, the same under each partitioner."""
    lines = "\n".join(
        f'  %x{n} = {collective.replace("GROUPS", text)}, metadata={{op_name="jit(f)/mix/x"}}'
        for n, text in enumerate(groups)
    )
    hlo = f"""HloModule f, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

ENTRY %e (p: f32[2]) -> f32[2] {{
  %p = f32[2]{{0}} parameter(0)
{lines}
  ROOT %r = f32[2]{{0}} copy(%p)
}}
"""
    compiled = {
        under: Compiled("f", under, Hardware("cpu"), 4, "cpu", hlo, topology=None)
        for under in partitioners
    }
    meshes = [Mesh.of({"a": 2, "b": 2})]
    sent = {under: read_collectives(program, meshes) for under, program in compiled.items()}
    items = {key: (item,) for key, item in communicated(sent, partitioners)}
    return Snapshot("f", "a=2, b=2", partitioners, ("compiled",), "cpu:4", items)


def text_of(snapshot):
    ((item,),) = snapshot.items.values()
    return [cell.text for cell in item.cells]


IN_ORDER, TURNED = "[1,4]<=[4]", "[1,4]<=[2,2]T(1,0)"


def test_a_gather_that_puts_blocks_together_otherwise_is_a_change():
    in_order, turned = taken(GATHER, IN_ORDER), taken(GATHER, TURNED)
    (was,), (became,) = text_of(in_order), text_of(turned)
    assert was.endswith(" B; devices in order")
    assert became.endswith(" B; devices in the order 1-0")
    assert compare(in_order, turned).different == 1
    for same in ("{{0,1,2,3}}", "{}"):
        assert compare(in_order, taken(GATHER, same)).is_same
    assert compare(turned, taken(GATHER, "{{0,2,1,3}}")).is_same
    listed, other = taken(GATHER, "{{0,3,1,2}}"), taken(GATHER, "{{0,3,2,1}}")
    assert compare(listed, other).different == 1
    text = write([turned])
    assert text.startswith("sdyscope snapshot 7\n")
    assert read_snapshots(text) == (turned,)


def test_sums_have_no_order_and_permutations_are_told_by_their_pairs():
    sums = [taken(SUM, groups) for groups in (IN_ORDER, TURNED)]
    assert compare(*sums).is_same
    assert "devices" not in "".join(text_of(sums[0])).partition("B")[2]
    assert write(sums[:1]).startswith("sdyscope snapshot 3\n")
    up = taken(PERMUTE, "{{0,1},{1,2},{2,3},{3,0}}")
    down = taken(PERMUTE, "{{0,3},{1,0},{2,1},{3,2}}")
    assert compare(up, down).different == 1
    assert compare(up, taken(PERMUTE, "{{1,2},{0,1},{3,0},{2,3}}")).is_same


def test_several_of_one_op_are_counted_by_their_order():
    (text,) = text_of(taken(GATHER, TURNED, IN_ORDER, TURNED))
    assert text.endswith("; devices in order ×1, in the order 1-0 ×2")


def test_an_older_file_says_nothing_of_it():
    both = "shardy", "gspmd"
    now = taken(GATHER, TURNED, partitioners=both)
    old = write([now]).replace("; devices in the order 1-0", "").replace("snapshot 7", "snapshot 3")
    (before,) = read_snapshots(old)
    for groups in (IN_ORDER, TURNED):
        comparison = compare(before, taken(GATHER, groups, partitioners=both))
        assert comparison.is_same
        assert comparison.not_compared == ("devices",)
    assert not compare(before, taken(GATHER, TURNED, TURNED, partitioners=both)).is_same
    assert update(old, [now]) == write([now])
    assert compare(before, before).not_compared == ()
