"""What the text of a compiled program says of memory, against the compiler's own count."""

import pytest

from sdyscope.analysis.memory.text import text_memory
from sdyscope.errors import CompilerError
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

HLO = r"""HloModule jit_step, input_output_alias={ {0}: (1, {}, may-alias) }, buffer_donor={ (2, {}) }, entry_computation_layout={(f32[4]{0}, bf16[8,2]{1,0:T(8,128)(2,1)}, s32[]{:S(5)})->(bf16[8,2]{1,0:T(8,128)(2,1)}, f32[])}, num_partitions=4

ENTRY e {
  %p = f32[4]{0} parameter(0), metadata={op_name="params[\'w\'].x"}
  %q = bf16[8,2]{1,0} parameter(1), metadata={op_name="params[\'v\']"}
  %r = s32[] parameter(2)
  %z = f32[] constant(0)
  ROOT %t = (bf16[8,2]{1,0}, f32[]) tuple(%q, %z)
}
"""  # noqa: E501


def test_names_groups_and_shared_buffers():
    found = text_memory(read_hlo(HLO))
    said = [(one.name, one.group, one.stored, one.donated, one.shares) for one in found.blocks]
    assert said == [
        ("params['w'].x", "params", 16, False, ""),
        ("params['v']", "params", 8 * 128 * 2, True, "result 0"),
        ("argument 2", "argument 2", 4, True, ""),
        ("result 0", "results", 8 * 128 * 2, False, "params['v']"),
        ("result 1", "results", 4, False, ""),
    ]
    assert [(one.name, one.tensors, one.stored, one.shared) for one in found.groups] == [
        ("params", 2, 16 + 2048, 2048),
        ("argument 2", 1, 4, 0),
        ("results", 2, 2052, 2048),
    ]
    assert (found.devices, found.total) == (4, 16 + 2048 + 4 + 4)
    assert [one.memory_space for one in found.blocks] == [0, 0, 5, 0, 0]


def test_without_a_layout_there_is_nothing_to_say():
    text = HLO.replace("entry_computation_layout", "other_layout")
    with pytest.raises(CompilerError, match="does not say how it stores"):
        text_memory(read_hlo(text))


def test_parameters_in_one_tuple_have_numbers():
    text = HLO.replace("={(f32[4]{0}, ", "={((f32[4]{0}, ").replace(")->", "))->")
    found = text_memory(read_hlo(text))
    assert [one.name for one in found.blocks][:3] == ["argument 0", "argument 1", "argument 2"]


@pytest.mark.compiles
@pytest.mark.parametrize("model", ["mlp", "fsdp-transformer"])
def test_is_what_the_compiler_counts(model):
    program = resolve(model, settings={"donate": True})
    made = Inspection(program, ["shardy"]).compiled()
    found = text_memory(read_hlo(made.hlo))
    said = made.memory
    assert said is not None
    arguments = [one for one in found.blocks if one.kind == "argument"]
    results = [one for one in found.blocks if one.kind == "result"]
    assert sum(one.stored for one in arguments) == said.arguments
    assert sum(one.stored for one in results) + 8 * len(results) == said.outputs
    assert sum(one.stored for one in results if one.shares) == said.aliases > 0
    assert [group.name for group in found.groups] == ["params", "opt_state", "batch", "results"]
