"""Which lines of a compiler's log matter. The lines are real ones."""

import pytest

from sdyscope.process.compiler_log import (
    failed_pass,
    last_words,
    noteworthy,
    refusal,
    rematerializing_lines,
)
from sdyscope.values.source import SourceLocation

UNKNOWN_FLAG = (
    "F1120 09:22:34.845518    8444 parse_flags_from_env.cc:234] "
    "Unknown flag in XLA_FLAGS: --no_such_flag=1"
)
FATAL = "Unknown flag in XLA_FLAGS: --no_such_flag=1 (parse_flags_from_env.cc:234)"
REMAT = (
    "W1120 09:22:34.845518    8444 spmd_partitioner.cc:652] [SPMD] Involuntary full "
    "rematerialization. The compiler cannot go from sharding {devices=[2,1]<=[2]} to {replicated}"
)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", ""),
        ("nothing in particular\n", ""),
        (UNKNOWN_FLAG, FATAL),
        (f"{UNKNOWN_FLAG}\n*** Check failure stack trace: ***\n    @ 0x7f main\n", FATAL),
        ("LLVM ERROR: out of memory\n", "LLVM ERROR: out of memory"),
        ("a.mlir:1:2: error: expected ')'\n", "a.mlir:1:2: error: expected ')'"),
        ("terminate called after throwing\n  what():  vector\n", "what():  vector"),
    ],
)
def test_last_words(log, words):
    assert last_words(log) == words


def test_last_words_are_not_a_novel():
    assert len(last_words("LLVM ERROR: " + "x" * 10_000)) < 500


@pytest.mark.parametrize(
    "place", ["", "INVALID_ARGUMENT: ", "-:3:1: error: ", '<unknown>:0: error: loc("sid5"): ']
)
def test_a_refusal_is_a_sentence_without_a_place(place):
    assert refusal(f"{place}Too few devices.\nsee current operation\n") == "Too few devices"


def test_noteworthy_keeps_warnings_and_drops_noise():
    log = "\n".join(
        (
            "WARNING: All log messages before absl::InitializeLog() is called",
            "I0000 00:00:1763630554.845518    8444 service.cc:145] XLA service initialized",
            REMAT,
            "",
            "2026-11-20 09:22:34.8: E cuda_fft.cc:485] Unable to register cuFFT factory",
            "loc(unknown): note: called from",
        )
    )
    assert list(noteworthy(log)) == [REMAT, "loc(unknown): note: called from"]


def test_what_xla_only_tries_is_no_rematerialization():
    way = "from sharding {[{'a'}, {}]} to {[{}, {'a'}]} efficiently for HLO operation"
    tried, taken = (
        f"{REMAT.partition(' from')[0]} {way} %{operand} = f32[4,8]{{1,0}} {opcode}, sharding={{}}."
        for operand, opcode in (("fake_parameter.2", "parameter(2)"), ("copy.7", "copy(%p.1)"))
    )
    said = tuple(line.partition("] ")[2] for line in (taken, REMAT))
    assert rematerializing_lines(f"{tried}\n{taken}\n{REMAT}\n{taken}\n") == said
    assert said[1].startswith("[SPMD] Involuntary")


NOT_WELL_FORMED = """\
INTERNAL: during context [hlo verifier]: Expected instruction to have shape equal to f32[6]:
%concatenate.5 = f32[4]{0} concatenate(%slice.1, %slice), metadata={op_name="jit(f)/concatenate"}

Suspected Python Code Location:
  /home/me/step.py:11:12 [concat.<locals>.f]
  /home/me/train.py:8 [<module>]

Failed after spmd-partitioning"""


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        (NOT_WELL_FORMED, ("spmd-partitioning", SourceLocation("/home/me/step.py", 11))),
        ("INTERNAL: during context [hlo verifier]: No.\n\nFailed after x", ("x", None)),
        ("UNIMPLEMENTED: ragged-all-to-all is not supported", ("", None)),
        (NOT_WELL_FORMED.replace("hlo verifier", "Unknown"), ("", None)),
        (NOT_WELL_FORMED.replace("spmd-partitioning", "pipeline-start"), ("", None)),
    ],
)
def test_a_pass_that_makes_what_xla_itself_refuses_is_named(said, failed):
    assert failed_pass(said) == failed
