"""What moves do to the blocks that devices hold, against the elements themselves."""

import math

import numpy as np
import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit.facts import Layout
from sdyscope.stages.audit.hlo_dump import DumpedHlo
from sdyscope.stages.audit.pieces import Moves, Pieces, local_shape

pytestmark = pytest.mark.skipif(
    compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
)

DEVICES = 4
SHAPE = (8, 12)
#: Rows over one axis of a mesh of 2 by 2, columns over the other.
LAYOUT = Layout("", [[0, 0], [0, 1], [1, 0], [1, 1]])
LOCAL = (4, 6)


def elements(pieces):
    """By device, the number in the whole of each element that it holds."""
    strides = np.array([SHAPE[1], 1])
    arrays = []
    for start in pieces.starts:
        held = np.full((1,) * len(pieces.shape), start @ strides)
        for dim, steps in enumerate(pieces.steps):
            each = [1] * len(pieces.shape)
            each[dim] = -1
            held = held + (steps @ strides).reshape(each)
        arrays.append(held)
    return arrays


def blocks():
    whole = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    return [whole[r * 4 : r * 4 + 4, c * 6 : c * 6 + 6] for r, c in LAYOUT.blocks]


def exchanged(arrays, groups, dim):
    given = {}
    for group in groups:
        parts = [np.split(arrays[device], len(group), dim) for device in group]
        for place, device in enumerate(group):
            given[device] = np.concatenate([part[place] for part in parts], dim)
    return [given[device] for device in range(DEVICES)]


def gathered(arrays, groups, dim):
    given = {
        device: np.concatenate([arrays[each] for each in group], dim)
        for group in groups
        for device in group
    }
    return [given[device] for device in range(DEVICES)]


ROWS, COLUMNS = [[0, 2], [1, 3]], [[0, 1], [2, 3]]
OFFSETS = [0, 3, 3, 0]
CASES = {
    "all-gather of rows": (
        "f32[8,6] all-gather(%x), replica_groups={{0,2},{1,3}}, dimensions={0}",
        lambda arrays: gathered(arrays, ROWS, 0),
    ),
    "all-gather in another order": (
        "f32[4,12] all-gather(%x), replica_groups={{1,0},{3,2}}, dimensions={1}",
        lambda arrays: gathered(arrays, [[1, 0], [3, 2]], 1),
    ),
    "permutation": (
        "f32[4,6] collective-permute(%x), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
        lambda arrays: [arrays[3], arrays[0], arrays[1], arrays[2]],
    ),
    "all-to-all": (
        "f32[4,6] all-to-all(%x), replica_groups={{0,1},{2,3}}, dimensions={0}",
        lambda arrays: exchanged(arrays, COLUMNS, 0),
    ),
    "transpose": (
        "f32[6,4] transpose(%x), dimensions={1,0}",
        lambda arrays: [array.T for array in arrays],
    ),
    "split": (
        "f32[2,2,6] reshape(%x)",
        lambda arrays: [array.reshape(2, 2, 6) for array in arrays],
    ),
    "merged": ("f32[24] reshape(%x)", lambda arrays: [array.reshape(24) for array in arrays]),
    "slice": (
        "f32[2,6] slice(%x), slice={[1:3], [0:6]}",
        lambda arrays: [array[1:3] for array in arrays],
    ),
    "dynamic slice": (
        "f32[4,3] dynamic-slice(%x, %zero, %at), dynamic_slice_sizes={4,3}",
        lambda arrays: [array[:, at : at + 3] for array, at in zip(arrays, OFFSETS, strict=True)],
    ),
}


def moved(line, pieces):
    module = DumpedHlo.parse(
        f"""HloModule m
ENTRY %main (x: f32[4,6], n: s32[]) -> {line.split()[0]} {{
  %x = f32[4,6] parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %table = s32[4] constant({{0, 3, 3, 0}})
  %id = u32[] partition-id()
  %cell = s32[1] dynamic-slice(%table, %id), dynamic_slice_sizes={{1}}
  %at = s32[] reshape(%cell)
  ROOT %y = {line}
}}""",
        compat.hlo,
    )
    return Moves(module, DEVICES).moved(module.root(module.entry), pieces)


@pytest.mark.parametrize("case", CASES)
def test_a_move_gives_what_it_moves(case):
    line, expected = CASES[case]
    pieces = Pieces.of(LAYOUT, LOCAL, DEVICES)
    for mine, theirs in zip(elements(pieces), blocks(), strict=True):
        assert np.array_equal(mine, theirs)
    after = moved(line, pieces)
    for mine, theirs in zip(elements(after), expected(blocks()), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    "line",
    [
        # Zeros on some devices, numbers that the data says, other elements, steps of two.
        "f32[4,6] collective-permute(%x), source_target_pairs={{0,1},{1,2}}",
        "f32[4,3] dynamic-slice(%x, %zero, %n), dynamic_slice_sizes={4,3}",
        "f32[4,6] negate(%x)",
        "f32[2,6] slice(%x), slice={[0:4:2], [0:6]}",
    ],
)
def test_what_is_no_move_is_not_known(line):
    assert moved(line, Pieces.of(LAYOUT, LOCAL, DEVICES)) is None


def test_blocks_are_those_of_the_value_s_dimensions():
    pieces = Pieces.of(LAYOUT, LOCAL, DEVICES)
    assert pieces.blocks() == LAYOUT.blocks
    whole = moved(CASES["all-gather of rows"][0], pieces)
    assert whole.blocks() == [[0, 0], [0, 1], [0, 0], [0, 1]]
    assert moved(CASES["transpose"][0], pieces).blocks() is None
    assert moved(CASES["all-gather in another order"][0], pieces).blocks() is None
    assert moved(CASES["slice"][0], pieces).blocks() is None


def test_a_block_is_as_large_as_the_largest():
    assert local_shape(LAYOUT, (7, 12)) == (4, 6)
