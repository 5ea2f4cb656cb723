"""Bad input of every kind: one sentence on standard error, status 2, no answer, no file."""

import pytest
from own_process import in_own_process

from sdyscope.commands import COMMANDS

#: The commands that open a TARGET.
ON_TARGETS = tuple(name for name in COMMANDS if name in ("lower", "show", "graph", "check", "diff"))

HLO = "HloModule m\nENTRY e {{ ROOT p = f32[4] {op}(0), sharding={sharding} }}\n"


def contents(text):
    """Name -> what a file holds, and words of what is said about it."""
    encoded = text.encode()
    return {
        "empty.mlir": (b"", "The file is empty."),
        "blank.hlo": (b" \n\n", "The file is empty."),
        "binary.mlir": (bytes(range(256)) * 20, "This is a binary file"),
        "zeros.pb": (bytes(1000), "This is a binary file"),
        "truncated.mlir": (encoded[: len(encoded) // 2], "MLIR can't read it:"),
        "without_end.mlir": (encoded[:-200], "MLIR can't read it:"),
        "truncated.mlirbc": (b"ML\xefR\x01\x02", "MLIR can't read this bytecode"),
        "latin.mlir": (text.replace("params", "p\xe4rams").encode("latin-1"), "is not UTF-8"),
        "utf16.mlir": (text.encode("utf-16"), "This is a binary file"),
        "python.mlir": (b"import jax\nprint(jax)\n", "This is neither StableHLO nor HLO."),
        "json.pb": (b'{"a": 1}\n', "This is neither StableHLO nor HLO."),
        "archive.mlir": (b"PK\x03\x04rest", "This is a zip archive."),
        "packed.hlo": (b"\x1f\x8brest", "This is a gzip archive."),
        "hlo_in.mlirbc": (b"HloModule x\n", "XLA can't read this HLO"),
        "nothing.mlir": (b"module {\n}\n", "The module has no functions."),
        "unknown_axis.mlir": (
            text.replace('[{}, {"model"}]', '[{}, {"modle"}]', 1).encode(),
            'unknown axis name: "modle"',
        ),
        "wrong_rank.mlir": (
            text.replace('[{}, {"model"}]', '[{"model"}]', 1).encode(),
            "sharding doesn't match tensor rank",
        ),
        "axis_twice.mlir": (
            text.replace('[{}, {"model"}]', '[{"model"}, {"model"}]', 1).encode(),
            'duplicate axis ref: "model"',
        ),
        "no_devices.mlir": (text.replace('"data"=4', '"data"=0', 1).encode(), "axis size must be"),
        "bad_op.hlo": (
            HLO.format(op="paramete", sharding="{replicated}").encode(),
            "XLA can't read this HLO",
        ),
        "bad_tiles.hlo": (
            HLO.format(op="parameter", sharding="{devices=[2,2]<=[3]}").encode(),
            "XLA can't",
        ),
    }


FILES = tuple(contents(""))


@pytest.mark.parametrize("name", FILES)
def test_bad_files(sdyscope, mlp_texts, tmp_path, name):
    content, words = contents(mlp_texts["shardy"])[name]
    path = tmp_path / name
    path.write_bytes(content)
    done = sdyscope("show", path)
    done.said(words, str(path))
    # The place in the file, its caret and a hint may follow the sentence.
    assert len(done.err.splitlines()) <= 4
    assert max(map(len, done.err.splitlines()[1:]), default=0) <= 120


@pytest.mark.parametrize("command", ON_TARGETS)
@pytest.mark.parametrize("name", ["empty.mlir", "truncated.mlir", "latin.mlir"])
def test_every_command_says_it_the_same(sdyscope, mlp_texts, tmp_path, command, name):
    path = tmp_path / name
    path.write_bytes(contents(mlp_texts["shardy"])[name][0])
    answer = tmp_path / "answer"
    output = ("-o", answer) if command in ("lower", "graph") else ()
    sdyscope(command, path, *output).said(str(path))
    sdyscope(command, path, "--json").said(str(path))
    assert [left.name for left in tmp_path.iterdir()] == [name]


def test_a_huge_file(sdyscope, tmp_path):
    path = tmp_path / "huge.mlir"
    with path.open("wb") as file:
        file.truncate(2**31 + 1)  # All of it a hole.
    sdyscope("show", path).said("The file has 2,147,483,649 bytes")


def test_a_file_that_may_not_be_read(sdyscope, tmp_path):
    path = tmp_path / "loop.mlir"
    path.symlink_to(path)
    sdyscope("show", path).said("no such file")


@pytest.mark.parametrize("command", ON_TARGETS)
def test_targets_that_are_not_there(sdyscope, tmp_path, command):
    sdyscope(command).said("Missing argument")
    sdyscope(command, "mpl").said("Did you mean mlp?")
    sdyscope(command, "no/such.mlir").said("There is no such file")
    sdyscope(command, tmp_path).said("There are no modules in this directory.")
    sdyscope(command, "no_such_module_at_all:x").said("There is no module")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--set layerz=3", "mlp has no setting 'layerz'"),
        ("--set layers=x", "layers=x of mlp must be a whole number"),
        ("--set optimizer=none", "optimizer"),
        ("--set hidden=255", "can't be traced"),
        ("--mesh dat=4,model=2", "mlp does not use the mesh axis 'dat'"),
        ("--mesh data=0", "not a whole number from 1"),
        ("--mesh data=3", "3 times"),
        ("--module x", "--module picks one of a directory's modules"),
        ("--partitioner auto", "'auto' is not one of"),
    ],
)
def test_options_that_do_not_fit_a_program(sdyscope, words, message):
    sdyscope("check", "mlp", *words.split()).said(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "layers=3"), "--set can't change a module that was lowered already"),
        (("--mesh", "data=4"), "--mesh can't change a module that was lowered already"),
        (("--partitioner", "gspmd"), "The module is written for Shardy, not for GSPMD."),
        (("--module", "x"), "is not a directory"),
    ],
)
def test_options_that_do_not_fit_a_file(sdyscope, mlp_files, words, message):
    sdyscope("check", mlp_files / "shardy.mlir", *words).said(message)


def test_modules_of_a_directory(sdyscope, mlp_files):
    sdyscope("check", mlp_files).said("There are 2 modules", "gspmd.mlir, shardy.mlir")
    sdyscope("check", mlp_files, "--module", "jit_setp").said("Did you mean jit_step?")
    sdyscope("check", mlp_files, "--module", "other").said("It has gspmd.mlir, shardy.mlir.")
    sdyscope("check", mlp_files, "--module", "jit_step").said("2 modules are called 'jit_step'")
    (mlp_files / "gspmd.mlir").write_text("module {")
    sdyscope("check", mlp_files, "--module", "gspmd").said("MLIR can't read it")
    assert sdyscope("check", mlp_files, "--module", "jit_step").status == 0


# --- from the shell: what only a process of its own can show ------------------------------------


def from_the_shell(*words, folder):
    return in_own_process(*words, cwd=folder, TMPDIR=str(folder))


def test_a_module_that_makes_the_compiler_abort(tmp_path):
    # JAX 0.10 aborts on it, others refuse it; the tool survives either.
    (tmp_path / "abort.hlo").write_text(HLO.format(op="parameter", sharding="{mesh['a'=0], []}"))
    done = from_the_shell("lower", "abort.hlo", "-o", "answer.mlir", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["abort.hlo"]


def test_bad_input_from_the_shell(tmp_path):
    (tmp_path / "cut.mlir").write_text("module {\n  func.func @main(")
    done = from_the_shell("graph", "cut.mlir", "-o", "answer.json", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: cut.mlir:2:")
    assert [path.name for path in tmp_path.iterdir()] == ["cut.mlir"]


COMPILED = """HloModule jit_f, is_scheduled=true, num_partitions=2

ENTRY %main.1 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}, metadata={op_name="x"}
  ROOT %sine.1 = f32[4]{0} sine(%x.1), metadata={op_name="jit(f)/sin"}
}
"""


COMMANDS = ["show", "check", "propagate", "explain", "search", "run", "fix", "verify"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_compiled_program_has_the_shapes_of_one_device(sdyscope, tmp_path, command):
    """Its shardings, put on those shapes, would be in pieces twice."""
    path = tmp_path / "after.txt"
    path.write_text(COMPILED)
    value = ["x"] if command == "explain" else []
    sdyscope(command, path, *value).said("is a compiled program", "sdyscope comms")


def test_nothing_is_propagated_in_the_graph_of_a_compiled_program(sdyscope, tmp_path):
    path, folder = tmp_path / "after.txt", tmp_path / "data"
    path.write_text(COMPILED)
    form = ("--format", "model-explorer", "--node-data", folder)
    for words in (("--at", "propagated"), form):
        sdyscope("graph", path, *words).said("is a compiled program", "sdyscope comms")
    assert not folder.exists()


@pytest.mark.parametrize("command", ["lower", "graph"])
def test_the_text_of_a_compiled_program_is_a_module(sdyscope, tmp_path, command):
    path = tmp_path / "after.txt"
    path.write_text(COMPILED)
    assert sdyscope(command, path).status == 0


def test_a_compiled_program_among_dumps_is_told(sdyscope, tmp_path, mlp_files):
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "after.txt").write_text(COMPILED)
    (folder / "before.mlir").write_text((mlp_files / "shardy.mlir").read_text())
    done = sdyscope("show", folder)
    assert done.status == 1
    assert "1 module" in done.out
    assert "1 file could not be read" in done.out
    assert "is a compiled program" in done.out


WRONG_RANK = """module @m attributes {mhlo.num_partitions = 8 : i32} {
  func.func public @main(%arg0: tensor<24x8xf32> {mhlo.sharding = "SHARDING"}) -> tensor<24x8xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<24x8xf32>
    return %0 : tensor<24x8xf32>
  }
}
"""


@pytest.mark.compiles
@pytest.mark.parametrize("command", ["comms", "memory", "cost"])
def test_what_the_compiler_refuses_is_told_with_the_impossible_sharding(
    sdyscope, tmp_path, command
):
    path = tmp_path / "wrong_rank.mlir"
    path.write_text(WRONG_RANK.replace("SHARDING", "{devices=[3]<=[3]}"))
    done = sdyscope(command, path)
    done.said("compiler refuses", "is for a tensor of rank 1, not 2")
    # Neither a place in the text that the compiler was handed, nor advice that can't help.
    assert "-:" not in done.err
    assert "--on" not in done.err


@pytest.mark.compiles
@pytest.mark.parametrize("command", ["comms", "memory", "cost"])
def test_what_could_not_be_read_is_in_the_account(sdyscope, tmp_path, command):
    path = tmp_path / "malformed.mlir"
    path.write_text(WRONG_RANK.replace("SHARDING", "{devices=[3]<=[8}"))
    done = sdyscope(command, path)
    assert "not known (1)" in done.out
    assert "{devices=[3]<=[8} could not be read: " in " ".join(done.out.split())
    document = sdyscope(command, path, "--json").document(command)
    (unknown,) = document["account"]["unknowns"]
    assert (unknown["kind"], unknown["stage"]) == ("not understood", "lowered")
    assert sdyscope(command, path, "--strict").status == 1


RAISING = """
import jax
import jax.numpy as jnp
from sdyscope import Program


def helper(x):
    raise ValueError("first\\nsecond\\n\\nfourth of " + "many " * 40)


def traced():
    argument = jax.ShapeDtypeStruct((8,), jnp.float32)
    return Program("mine", jax.jit(lambda x: helper(x)), (argument,))


def built():
    helper(1)
"""


@pytest.mark.parametrize(("name", "what"), [("traced", "mine can't be traced"), ("built", "built")])
def test_an_exception_of_the_user_s_is_told_whole(sdyscope, tmp_path, name, what):
    file = tmp_path / f"raising_{name}.py"
    file.write_text(RAISING)
    done = sdyscope("show", f"{file}:{name}")
    done.said(f"{file}:8: ", what, "ValueError: first\n  second\n\n  fourth of " + "many " * 39)
    assert done.err.endswith("\n--verbose shows the traceback.\n")
    done = sdyscope("show", f"{file}:{name}", "--verbose")
    assert done.status == 2
    assert 'Traceback (most recent call last):\n  File "' in done.err
    assert f'File "{file}", line 8, in helper\n    raise ValueError(' in done.err
