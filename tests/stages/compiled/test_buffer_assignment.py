"""What is read of XLA's dump before there is code."""

import pytest

from sdyscope.stages.compiled.buffer_assignment import dumped, is_accepted
from sdyscope.syntax.protobuf import encoded as field

TEXT = b"""HloModule jit_step, is_scheduled=true

%wrapped (param: f32[4]) -> f32[4] {
  ROOT %param = f32[4]{0} parameter(0)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0), metadata={op_name="x"}
  ROOT %copy = f32[4]{0} copy(%x)
}

"""


def dump(folder, proto, text=TEXT):
    (folder / "module_0001.jit_step.cpu_after_optimizations.txt").write_bytes(text)
    (folder / "module_0001.jit_step.cpu_after_optimizations.hlo.pb").write_bytes(proto)
    return dumped(folder)


WHOLE = field(1, field(1, b"jit_step")) + field(3, field(3, bytes((2 << 3, 4))))


def test_a_dump_is_whole_when_the_assignment_is(tmp_path):
    assert dumped(tmp_path) is None
    for end in range(len(WHOLE)):
        assert dump(tmp_path, WHOLE[:end]) is None
    whole = dump(tmp_path, WHOLE)
    assert whole is not None
    assert (whole.module, whole.assignment) == (WHOLE[2:12], WHOLE[14:])


def test_a_dump_is_whole_when_the_text_is(tmp_path):
    for end in range(len(TEXT)):
        assert dump(tmp_path, WHOLE, TEXT[:end]) is None
    whole = dump(tmp_path, WHOLE)
    assert whole is not None
    assert whole.text == TEXT.decode()


def test_of_two_modules_there_is_no_telling_which(tmp_path):
    dump(tmp_path, WHOLE)
    (tmp_path / "module_0002.jit_init.cpu_after_optimizations.hlo.pb").write_bytes(WHOLE)
    assert dumped(tmp_path) is None


@pytest.mark.parametrize("opcode", [b"custom-call", b"ragged-all-to-all"])
def test_what_may_be_refused_is_compiled_to_its_end(tmp_path, opcode):
    instruction = field(1, b"op") + field(2, opcode)
    whole = dump(tmp_path, field(1, field(3, field(2, instruction))) + field(3, b""))
    assert whole is not None
    assert not is_accepted(whole)
