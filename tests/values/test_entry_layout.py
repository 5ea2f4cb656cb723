"""The first line of HLO modules, as XLA's compilers wrote them."""

import pytest

from sdyscope.errors import CompilerError
from sdyscope.values.entry_layout import read_entry_layout, stored_array

CPU = """\
HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), \
{2}: (1, {}, must-alias) }, buffer_donor={ (3, {}) }, entry_computation_layout={(f32[128,10]{1,0}, \
s32[], pred[7]{0}, bf16[3,5]{1,0}, token[], /*index=5*/s4[9]{0:E(4)}, f32[2]{0:S(5)})->\
(f32[128,10]{1,0}, f32[], s32[])}, num_partitions=8

%main { }
"""


def test_arrays_and_shared_buffers():
    layout = read_entry_layout(CPU)
    assert [parameter.bytes for parameter in layout.parameters] == [5120, 4, 7, 30, 0, 5, 8]
    assert [parameter.shape for parameter in layout.parameters[:4]] == [(128, 10), (), (7,), (3, 5)]
    assert [parameter.memory_space for parameter in layout.parameters[-2:]] == [0, 5]
    assert [result.bytes for result in layout.results] == [5120, 4, 4]
    assert layout.results_are_tuple
    assert not layout.parameters_are_tuple
    assert layout.aliases == {0: 0, 2: 1}
    assert layout.donors == {3}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("f32[128,128]{1,0:T(8,128)}", 65536),
        ("f32[128,10]{0,1:T(8,128)}", 16 * 128 * 4),
        ("f32[2,10]{1,0:T(2,128)}", 2 * 128 * 4),
        ("s32[]{:T(128)}", 512),
        ("bf16[128,10]{0,1:T(8,128)(2,1)}", 16 * 128 * 2),
        ("bf16[1,10]{1,0:T(1,128)(2,1)}", 2 * 128 * 2),
        ("s8[3,5,130]{2,1,0:T(8,128)(4,1)S(1)}", 3 * 8 * 256),
        ("pred[300]{0:T(256)}", 512),
    ],
)
def test_tiles(text, stored):
    layout = read_entry_layout(f"HloModule m, entry_computation_layout={{({text})->{text}}}\n")
    assert [parameter.bytes for parameter in layout.parameters] == [stored]
    assert [result.bytes for result in layout.results] == [stored]
    assert not layout.results_are_tuple


def test_parameters_in_a_tuple():
    text = (
        "HloModule m, input_output_alias={ {1}: (0, {2}, may-alias) }, buffer_donor={ (0, {1}) }, "
        "entry_computation_layout={((f32[1]{0}, f32[2]{0}, f32[3]{0}))->(f32[2]{0}, f32[3]{0})}\n"
    )
    layout = read_entry_layout(text)
    assert [parameter.bytes for parameter in layout.parameters] == [4, 8, 12]
    assert layout.parameters_are_tuple
    assert layout.aliases == {1: 2}
    assert layout.donors == {1}


def test_no_layout():
    with pytest.raises(CompilerError, match="does not say how it stores"):
        read_entry_layout("HloModule m\n")


@pytest.mark.parametrize("number", ["9" * 5_000, ""])
def test_a_bad_number_is_said(number):
    with pytest.raises(CompilerError, match=r"bad number|not the shape"):
        read_entry_layout(CPU.replace("{0}: (0, {}", f"{{{number},}}: (0, {{{number},}}"))
    with pytest.raises(CompilerError, match=r"bad number|not the shape"):
        read_entry_layout(CPU.replace("f32[128,10]", f"f32[128={number}]"))


@pytest.mark.parametrize("layout", ["{7,0}", "{0,0}", "{0}"])
def test_a_layout_of_other_dimensions_is_no_layout(layout):
    with pytest.raises(CompilerError, match="a layout of other dimensions"):
        stored_array(f"f32[4,4]{layout}")


def test_a_tile_of_size_0_is_said():
    with pytest.raises(CompilerError, match="a tile of size 0"):
        stored_array("f32[4,4]{1,0:T(8,0)}")
