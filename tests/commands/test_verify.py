"""`sdyscope verify`."""

import pytest

from sdyscope.stages import compat

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

SMALL = """
module @small attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["a"=2]>
  func.func public @main(%arg0: tensor<8x8xf32>
      {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}) -> tensor<8x8xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.add %0, %arg0 : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
}
"""
#: XLA refuses it when it compiles.
NO_TARGET = SMALL.replace(
    "stablehlo.add %0, %arg0 : tensor<8x8xf32>",
    "stablehlo.custom_call @nowhere(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>",
)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "jax_ir0001_jit_small_compile.mlir").write_text(SMALL)
    (folder / "jax_ir0002_jit_refused_compile.mlir").write_text(NO_TARGET)
    (folder / "jax_ir0003_jit_damaged_compile.mlir").write_text(SMALL[:200])
    return folder


def test_a_corpus_is_audited_and_what_can_not_be_is_counted_with_its_reason(sdyscope, corpus):
    done = sdyscope("verify", "--corpus", corpus, "--json")
    assert done.status == 0
    document = done.document("verify")
    assert document["agrees"]
    (program,) = document["programs"]
    assert program["name"] == "jax_ir0001_jit_small_compile.mlir"
    assert program["devices"] == 2
    assert all(stage["agreed"] == stage["compared"] for stage in program["stages"])
    reasons = {failure["name"]: failure["reason"] for failure in document["not_verified"]}
    assert "nowhere" in reasons["jax_ir0002_jit_refused_compile.mlir"]
    assert "jax_ir0003_jit_damaged_compile.mlir" in reasons
    assert not any(failure["crashed"] for failure in document["not_verified"])


def test_a_crash_takes_its_module_alone_down(sdyscope, corpus, monkeypatch):
    from sdyscope.commands import verify_corpus

    killed = """
import os
from pathlib import Path
from sdyscope.commands import verify_corpus
answer = verify_corpus._answer
def dies(request):
    if b"0001" in request:
        os.kill(os.getpid(), 11)
    return answer(request)
verify_corpus._answer = dies
verify_corpus.serve()
"""
    monkeypatch.setattr(verify_corpus, "_SERVE", f"exec({killed!r})")
    (corpus / "jax_ir0004_jit_after_compile.mlir").write_text(SMALL)
    done = sdyscope("verify", "--corpus", corpus)
    assert done.status == 1
    assert "all agree" in done.out
    assert "3 modules not audited" in done.out
    assert "The process auditing it ended (SIGSEGV). (jax_ir0001_jit" in done.out


def test_what_is_for_the_other_partitioner_is_left_out(sdyscope, corpus):
    done = sdyscope("verify", "--corpus", corpus, "--partitioner", "gspmd")
    assert done.status == 1
    assert "nothing could be audited" in done.out


def test_what_is_not_known_is_told_and_strict_fails(sdyscope, tmp_path):
    module = tmp_path / "modules" / "jax_ir0001_jit_m_compile.mlir"
    module.parent.mkdir()
    module.write_text(
        """module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<24x8xf32> {mhlo.sharding = "{devices=[3]<=[8}"})
      -> (tensor<24x8xf32>) {
    return %x : tensor<24x8xf32>
  }
}
"""
    )
    for arguments, name in (
        ((module,), "m"),
        (("--corpus", module.parent), "jax_ir0001_jit_m_compile.mlir"),
    ):
        done = sdyscope("verify", *arguments, "--strict")
        assert done.status == 1
        assert f"not known of {name} (1)" in done.out
        assert "{devices=[3]<=[8} could not be read" in " ".join(done.out.split())
    document = sdyscope("verify", module, "--json").document("verify")
    assert document["agrees"]
    assert document["accounts"]["m"]["unknowns"]


def test_a_module_that_xla_refuses(sdyscope, corpus):
    done = sdyscope("verify", corpus / "jax_ir0002_jit_refused_compile.mlir")
    assert done.status == 1
    assert "nothing could be audited" in done.out
    assert "nowhere" in done.out


def test_bad_input(sdyscope, corpus):
    sdyscope("verify", "--corpus", corpus / "none").said("directory")
    sdyscope("verify", "--corpus", corpus, "--mesh", "a=2").said("--mesh", "--corpus")
    sdyscope("verify", corpus).said("2 modules")
    sdyscope("verify", corpus / "jax_ir0003_jit_damaged_compile.mlir").said("jax_ir0003")
