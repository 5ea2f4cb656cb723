"""Directories of dumps, as JAX and XLA write them."""

import os
import subprocess
import sys

import pytest

from sdyscope.errors import TargetError
from sdyscope.stages.lowered.dumps import dumped_files
from sdyscope.stages.lowered.read import read

TEXT = """module @jit_{0} {{
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ return %x : tensor<4xf32> }}
}}
"""

SCRIPT = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("data")))

@jax.jit
def step(x):
    return x * 2

step(x).block_until_ready()
"""


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TEXT.format(path.stem.replace(".", "_")))


def test_jax_dumps_in_the_order_they_were_written(tmp_path):
    write(
        tmp_path,
        "jax_ir0010_jit_last_compile.mlir",
        "jax_ir0002_jit_second_compile.mlir",
        "jax_ir00001_jit_first_compile.mlir",
        "other.mlir",
    )
    names = [path.name.split("_")[3] for path in dumped_files(tmp_path)]
    assert names == ["first", "second", "last"]


def test_xla_dumps_as_shardy_got_them(tmp_path):
    write(
        tmp_path,
        "module_0000.jit_a.before_optimizations.txt",
        "shardy/module_0000.jit_a/00.input_module.mlir",
        "shardy/module_0000.jit_a/02.after_propagation.mlir",
        "shardy/module_0003.jit_b/00.input_module.mlir",
    )
    folders = [path.parent.name for path in dumped_files(tmp_path)]
    assert folders == ["module_0000.jit_a", "module_0003.jit_b"]


@pytest.mark.parametrize("folder", ["shardy/", "shardy/module_0001.jit_f/"])
def test_the_dump_of_which_shardys_guide_speaks(tmp_path, folder):
    """`sdy_module_after_sdy_export.mlir`, beside many that are the Shardy team's."""
    write(
        tmp_path,
        "module_0001.jit_f.before_optimizations.txt",
        f"{folder}sdy_module_before_sdy_import.mlir",
        f"{folder}sdy_module_after_sdy_export.mlir",
    )
    assert dumped_files(tmp_path) == [tmp_path / folder / "sdy_module_after_sdy_export.mlir"]


def test_any_other_modules(tmp_path):
    write(tmp_path, "b.mlir", "a.mlirbc", "notes.md")
    assert [path.name for path in dumped_files(tmp_path)] == ["a.mlirbc", "b.mlir"]


def test_no_modules(tmp_path):
    with pytest.raises(TargetError, match="no modules in this directory"):
        dumped_files(tmp_path)
    with pytest.raises(TargetError, match="no such directory"):
        dumped_files(tmp_path / "missing")


@pytest.mark.compiles
def test_what_a_script_really_dumps(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    jax_dir, xla_dir = tmp_path / "jax", tmp_path / "xla"
    environment = {
        **os.environ,
        "JAX_DUMP_IR_TO": str(jax_dir),
        "JAX_DUMP_IR_MODES": "stablehlo",
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_dump_to={xla_dir}",
    }
    subprocess.run([sys.executable, str(script)], check=True, env=environment)
    for folder in (jax_dir, xla_dir):
        (path,) = [path for path in dumped_files(folder) if "jit_step" in str(path)]
        module = read(path)
        assert (module.written_for, module.num_devices) == ("shardy", 8)
