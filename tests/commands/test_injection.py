"""A stranger's names reach the terminal escaped, whichever command shows them."""

import ast
import re
from pathlib import Path

import pytest

import sdyscope as package

RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

HOSTILE = r"""
module @"jit_\1B[31mevil" attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @"m\1B]0;own\07sh" = <["da\1B[2Jta"=4]>
  func.func public @main(
    %arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@"m\1B]0;own\07sh", [{"da\1B[2Jta"}, {}]>}
        loc("a\C2\9Brg"("f.py":1:1))
  ) -> (tensor<8x4xf32> {jax.result_info = "res\E2\80\AEult\0D"}) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<8x4xf32> loc("sc\1B[31mope"("/tmp/\1B[7mfile.py":3:1))
    return %0 : tensor<8x4xf32>
  }
}
"""


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "hostile.mlir"
    path.write_text(HOSTILE)
    return path


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "command", ["show", "check", "lint", "propagate", "comms", "explain", "graph", "lower"]
)
def test_no_command_passes_an_escape_sequence_on(sdyscope, hostile, command, form):
    done = sdyscope(command, hostile, *(["arg0"] if command == "explain" else []), *form)
    assert done.out or done.err
    assert not RAW.search(done.out + done.err)


LINES = HOSTILE
for escape in (r"\1B[31m", r"\1B]0;own\07", r"\1B[2J", r"\C2\9B", r"\E2\80\AE", r"\1B[7m"):
    LINES = LINES.replace(escape, r"\0Aevil ")


@pytest.mark.parametrize(
    "command", ["show", "check", "lint", "propagate", "comms", "memory", "explain", "graph"]
)
def test_no_name_makes_a_line_of_its_own(sdyscope, tmp_path, command):
    path = tmp_path / "lines.mlir"
    path.write_text(LINES)
    done = sdyscope(command, path, *(["arg0"] if command == "explain" else []))
    assert done.out or done.err
    assert not re.search(r"^\s*evil", done.out + done.err, re.MULTILINE)


def test_no_error_passes_an_escape_sequence_on(sdyscope, tmp_path):
    for name in ("not\x1b[31mthere.mlir", "mo\u202edel"):
        done = sdyscope("show", tmp_path / name)
        assert done.status == 2
        assert not RAW.search(done.err)


def test_all_text_goes_through_the_sink():
    """Only `process/output.py` writes to a stream; recorders run in programs of others."""
    folder = Path(package.__file__).parent
    found = []
    for file in folder.rglob("*.py"):
        if "recorder" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            sinks = ("click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write")
            if called in sinks and file.name != "output.py":
                found.append(f"{file.relative_to(folder)}:{node.lineno}: {called}")
    # The version is the package's own.
    assert [one.partition(":")[0] for one in found] == ["commands/__init__.py"], found
