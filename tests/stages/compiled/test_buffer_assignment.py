"""What is read of XLA's dump before there is code."""

import pytest

from sdyscope.stages.compiled.buffer_assignment import (
    dumped,
    is_accepted,
    statistics_of,
)
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


def instructions(folder, *written):
    """The dump of a module of some instructions: opcodes, and targets of custom calls."""
    messages = [field(2, field(2, opcode) + field(28, target)) for opcode, target in written]
    whole = dump(folder, field(1, field(3, b"".join(messages))) + field(3, b""))
    assert whole is not None
    return whole


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("opcode", [b"custom-call", b"ragged-all-to-all"])
def test_what_may_be_refused_is_compiled_to_its_end(tmp_path, opcode, platform):
    assert is_accepted(instructions(tmp_path, (b"dot", b"")), platform)
    assert not is_accepted(instructions(tmp_path, (opcode, b"mine")), platform)


def test_what_is_asynchronous_is_on_gpus_alone(tmp_path):
    whole = instructions(tmp_path, (b"async-start", b""))
    assert (is_accepted(whole, "cuda"), is_accepted(whole, "cpu")) == (True, False)


def test_calls_to_the_libraries_of_gpus_have_code(tmp_path):
    calls = [(b"custom-call", b"__cublas$gemm"), (b"custom-call", b"__gpu$TopK")]
    assert is_accepted(instructions(tmp_path, *calls), "cuda")
    assert not is_accepted(instructions(tmp_path, *calls, (b"custom-call", b"mine")), "cuda")


def number(at, value):
    return bytes((at << 3, value))


def event(kind, buffer, shared=0):
    return field(1, number(1, kind) + number(2, buffer) + (number(5, shared) if shared else b""))


ALLOC, FREE, SHARE = 0, 1, 2


@pytest.mark.parametrize(
    ("events", "peak"),
    [
        ([(ALLOC, 1), (FREE, 1), (ALLOC, 2), (ALLOC, 3)], 100),
        # Shared while it is held, it is there until both are freed, once.
        ([(ALLOC, 1), (SHARE, 3, 1), (FREE, 1), (ALLOC, 2), (FREE, 3)], 70),
        # Shared when it has just been freed, it is there again.
        ([(ALLOC, 1), (FREE, 1), (SHARE, 3, 1), (ALLOC, 2), (FREE, 3), (ALLOC, 3)], 100),
    ],
)
def test_the_peak_is_what_stays_and_the_most_of_the_heap(events, peak):
    sizes = {1: 20, 2: 50, 3: 50}
    buffers = b"".join(field(1, number(1, at) + number(2, size)) for at, size in sizes.items())
    stays = field(3, number(2, 7) + number(5, 1))
    temporaries = field(3, number(2, 120))
    trace = field(4, b"".join(event(*one) for one in events))
    statistics = statistics_of(buffers + stays + temporaries + trace, "cuda")
    assert statistics["peak_memory"] == 7 + peak
    assert (statistics["argument_size"], statistics["temp_size"]) == (7, 120)


def test_what_is_in_the_hosts_memory_is_counted_apart():
    host = field(3, number(2, 9) + number(5, 1) + number(8, 5) + number(13, 1))
    statistics = statistics_of(host + field(3, number(2, 3) + number(7, 1)), "cuda")
    assert {name: size for name, size in statistics.items() if size} == {
        "host_argument_size": 9,
        "host_alias_size": 9,
        "output_size": 3,
        "peak_memory": 12,
    }
