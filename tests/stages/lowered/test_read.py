"""Reading files: every form a module comes in, and one sentence for everything else."""

import contextlib
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mangling import mangled
from programs import PROGRAMS

from sdyscope.errors import CompilerError, SdyscopeError, TargetError
from sdyscope.facts.program import Program
from sdyscope.facts.remarks import Remark
from sdyscope.graph import read_text
from sdyscope.stages import compat
from sdyscope.stages.lowered import read
from sdyscope.stages.lowered.lower import lower
from sdyscope.values.mesh import Mesh

MESHES = {"mesh": Mesh.of({"data": 4, "model": 2})}


@pytest.fixture(scope="module")
def shardy():
    return lower(Program("straight", *PROGRAMS["straight"]), "shardy")


@pytest.fixture(scope="module")
def gspmd():
    return lower(Program("straight", *PROGRAMS["straight"]), "gspmd")


@pytest.fixture(scope="module")
def hlo(shardy):
    return shardy.lowered.compiler_ir("hlo").as_hlo_text()


def hlo_proto(text):
    return compat.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def test_text(shardy, gspmd):
    module = read.read_bytes(shardy.text().encode())
    assert (module.name, module.written_for, module.num_devices) == ("jit_straight", "shardy", 8)
    assert module.meshes == MESHES
    assert module.text() == shardy.text()
    assert read.read_bytes(gspmd.text().encode()).written_for == "gspmd"


def test_text_with_a_byte_order_mark_or_windows_line_ends(shardy):
    text = shardy.text()
    assert read.read_bytes(b"\xef\xbb\xbf" + text.encode()).text() == text
    assert read.read_bytes(text.replace("\n", "\r\n").encode()).text() == text


EXPORTED = Path(__file__).parents[2] / "assets" / "forward.jax_export"


def test_what_jax_export_serializes():
    """With its gradient, which is a module of its own behind it."""
    found = read.read(EXPORTED)
    assert (found.name, found.written_for, found.num_devices) == ("jit_forward", "shardy", 8)
    assert found.meshes == MESHES
    assert "stablehlo.tanh" in found.text()
    assert found.notes == (Remark("read from an export"),)


@given(st.integers(0, EXPORTED.stat().st_size - 1), st.binary(max_size=4))
def test_what_jax_export_serializes_and_somebody_damaged(at, other):
    data = EXPORTED.read_bytes()
    # Within the module it is MLIR that finds the damage, and might abort.
    if data.find(b"ML") <= at:
        return
    with contextlib.suppress(TargetError):
        read.read_bytes(data[:at] + other + data[at + len(other) :])


def test_bytecode(shardy):
    module = read.read_bytes(shardy.bytecode())
    assert module.written_for == "shardy"
    assert module.text() == shardy.text()


def test_portable_artifact(gspmd):
    stablehlo = compat.stablehlo
    # Serializing turns the module itself into VHLO.
    copy = compat.ir.Module.parse(gspmd.bytecode(), compat.new_context())
    artifact = stablehlo.serialize_portable_artifact(copy, stablehlo.get_current_version())
    module = read.read_bytes(artifact)
    assert module.written_for == "gspmd"
    assert module.text().count("mhlo.sharding") == gspmd.text().count("mhlo.sharding")


def test_hlo_text_and_protos(hlo):
    proto = hlo_proto(hlo)
    forms = [hlo.encode(), proto, b"\x0a" + varint(len(proto)) + proto]
    for data in forms:
        module = read.read_bytes(data)
        assert (module.name, module.written_for, module.num_devices) == (
            "jit_straight",
            "shardy",
            8,
        )
        assert module.meshes == MESHES
        assert module.notes == (Remark("read from HLO"),)
    comment = b"// a dump\n\n" + hlo.encode()
    assert read.read_bytes(comment).name == "jit_straight"


def test_the_name_of_a_file_is_not_believed(shardy, hlo, tmp_path):
    (tmp_path / "hlo.mlir").write_text(hlo)
    (tmp_path / "mlir.txt").write_bytes(shardy.bytecode())
    (tmp_path / "plain").write_text(shardy.text())
    for path in tmp_path.iterdir():
        found = read.read(path)
        assert (found.name, found.path) == ("jit_straight", path)


def test_an_unknown_dialect_leaves_the_text(shardy):
    text = shardy.text().replace("stablehlo.dot_general", "newhlo.dot_general")
    module = read.read_bytes(text.encode())
    assert module.module is None
    assert (module.name, module.written_for) == ("jit_straight", "shardy")
    assert "Dialect `newhlo' not found" in module.notes[0].said
    assert module.text() == text
    assert module.meshes == {}
    assert any(op.kind == "newhlo.dot_general" for op in read_text(text).ops)
    with pytest.raises(CompilerError):
        module.bytecode()


GOOD = """module @m {
  sdy.mesh @mesh = <["a"=2]>
  func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>})
      -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
"""


@pytest.mark.parametrize(
    ("data", "position", "sentence"),
    [
        (b"", "x.mlir", "The file is empty."),
        (b" \n\n", "x.mlir", "The file is empty."),
        (GOOD[:60].encode(), "x.mlir:3:", "MLIR can't read it: "),
        (GOOD.replace('{"a"}', '{"b"}').encode(), "x.mlir:3:3", 'unknown axis name: "b"'),
        (GOOD.replace('"a"=2', '"a"=0').encode(), "x.mlir:2:22", "axis size must be at least 1"),
        (GOOD.replace("4xf32> {sdy", "4x> {sdy").encode(), "x.mlir:3:", "MLIR can't read it"),
        (GOOD.replace("return %x", "return %y").encode(), "x.mlir:5:12", "undeclared SSA value"),
        (b"module {}", "x.mlir", "The module has no functions."),
        (bytes(range(256)) * 4, "x.mlir", "This is a binary file"),
        (b"module {\0}", "x.mlir", "This is a binary file"),
        (b"\x0a\x02\xff\xfe\x00\x01", "x.mlir", "This is a binary file"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00", "x.mlir", "This is a binary file"),
        (b"module {\n // caf\xe9\n}", "x.mlir:2:8", "Byte 0xe9 is not UTF-8."),
        (b"\x1f\x8b\x08\x00rest", "x.mlir", "This is a gzip archive."),
        (b"PK\x03\x04rest", "x.mlir", "This is a zip archive."),
        (b"import jax\nprint(jax.numpy)\n", "x.mlir", "This is neither StableHLO nor HLO."),
        (b"Dear module,\nhow are you?", "x.mlir", "This is neither StableHLO nor HLO."),
        (b"HloModule", "x.mlir:1:", "XLA can't read this HLO"),
        (b"HloModule m\nENTRY e {", "x.mlir:2:", "XLA can't read this HLO"),
        (b"HloModule m\nENTRY e { ROOT x = f32[2]{0} frob() }", "x.mlir:2:30", "frob"),
        (b"ML\xefR", "x.mlir", "MLIR can't read this bytecode"),
        (b"ML\xefR" + bytes(50), "x.mlir", "MLIR can't read this bytecode"),
    ],
)
def test_bad_content_is_one_sentence_with_its_place(data, position, sentence, tmp_path, capfd):
    path = tmp_path / "x.mlir"
    path.write_bytes(data)
    with pytest.raises(TargetError) as caught:
        read.read(path)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{tmp_path}/{position}")
    assert sentence in first
    assert "Traceback" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_every_truncation_of_text_and_bytecode(shardy):
    """Whatever is cut off, it is said; only what is whole reads."""
    for whole in (shardy.text(debug_info=False).rstrip().encode(), shardy.bytecode()):
        for end in range(0, len(whole), max(1, len(whole) // 60)):
            with pytest.raises(TargetError):
                read.read_bytes(whole[:end])


HLO = """HloModule m, num_partitions=2

ENTRY e {
  x = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = f32[4]{0} negate(x), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@m, [{}]>"}
}
"""


@given(mangled([GOOD, HLO], ["{", "}", '"', "#sdy", "f32", "@", "\0", "\n", "%x", "é"]))
def test_any_damage_to_text_is_said(text):
    with contextlib.suppress(SdyscopeError):
        module = read.read_bytes(text.encode())
        assert module.text()
        assert module.written_for in ("shardy", "gspmd", "both", "none")


def test_what_the_file_system_refuses(tmp_path):
    with pytest.raises(TargetError, match="There is no such file"):
        read.read(tmp_path / "missing.mlir")
    with pytest.raises(TargetError, match="can't be read: Is a directory"):
        read.read(tmp_path)


def test_a_huge_file_is_not_even_opened(tmp_path):
    path = tmp_path / "huge.mlir"
    with path.open("wb") as file:
        file.truncate(read.LARGEST + 1)  # sparse
    with pytest.raises(TargetError, match="2,147,483,649 bytes"):
        read.read(path)


def test_probe(shardy, tmp_path):
    good, bad = tmp_path / "good.mlir", tmp_path / "bad.mlir"
    good.write_text(shardy.text())
    bad.write_text(shardy.text()[:200])
    read.probe(good)
    with pytest.raises(SdyscopeError) as caught:
        read.probe(bad)
    assert str(caught.value).startswith(f"{bad}:")


def test_probe_survives_an_abort(tmp_path, monkeypatch):
    killed = [read.sys.executable, "-c", f"import os; os.kill(os.getpid(), {signal.SIGABRT})"]
    run = read.subprocess.run
    monkeypatch.setattr(read.subprocess, "run", lambda _, **options: run(killed, **options))
    with pytest.raises(CompilerError, match="made the compiler abort"):
        read.probe(tmp_path / "any.mlir")


NEWER = """\
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=4, "model"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}], \
later=max{"model"}>}) -> tensor<8x4xf32> {
    return %arg0 : tensor<8x4xf32>
  }
}
"""


def test_a_newer_syntax_of_shardy_is_read_as_text(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(NEWER)
    found = read.read(path)
    assert found.module is None
    assert "line 3" in found.notes[0].said
    assert [line.attribute for line in read_text(found.source_text).not_understood] == [
        "sdy.sharding"
    ]


def test_what_is_wrong_outside_of_shardy_s_attributes_is_the_text_s_fault(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(NEWER.replace(", later=max", ", unreduced=").replace("8x4xf32> {\n", "8x4 {\n"))
    with pytest.raises(TargetError, match="MLIR can't read it"):
        read.read(path)


@pytest.mark.parametrize("newer", [False, True], ids=["by MLIR", "as text"])
@pytest.mark.parametrize("count", ["0 : i32", "-3 : i32", '"eight"', "4.5 : f32"])
def test_a_number_of_partitions_that_is_none(tmp_path, count, newer):
    path = tmp_path / "m.mlir"
    text = NEWER if newer else NEWER.replace(', later=max{"model"}', "")
    path.write_text(text.replace("partitions = 8 : i32", f"partitions = {count}"))
    with pytest.raises(
        TargetError, match=r"mhlo.num_partitions is .*, which is not a number"
    ) as raised:
        read.read(path)
    assert raised.value.hint == "It is an integer of 1 or more, such as 8 : i32."


@pytest.mark.parametrize("meshes", ["xx", "[1]", "{mesh = 1}"])
def test_meshes_that_are_none_are_said_to_be(meshes):
    text = f"""
    module attributes {{mhlo.frontend_attributes = {{xla.sdy.meshes = "{meshes}"}}}} {{
      func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
        return %x : tensor<8xf32>
      }}
    }}
    """
    with pytest.raises(CompilerError, match=re.escape(f"not a dictionary of meshes: {meshes}")):
        assert read.read_bytes(text.encode()).meshes


def test_what_xla_converts_and_mlir_refuses_is_no_bytecode_of_the_users():
    text = """HloModule m, num_partitions=8, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

ENTRY e {
  p = f32[4]{0} parameter(0)
  a = (f32[4]{0}, f32[4]{0}) all-to-all(p, p), channel_id=1, replica_groups=mesh['a'=4,'b'=2] {'b'}
  ROOT r = f32[4]{0} get-tuple-element(a), index=0
}
"""
    try:
        read.read_bytes(text.encode())
    except TargetError as error:
        said = error
    else:
        pytest.skip("this JAX reads it")
    if said.message.startswith("XLA can't read this HLO"):
        pytest.skip("XLA knows no meshes in replica groups before JAX 0.10")
    assert "bytecode" not in said.message
    assert said.message.startswith("XLA converts this HLO to StableHLO that MLIR refuses: ")
    assert "`sdyscope comms`" in said.hint
