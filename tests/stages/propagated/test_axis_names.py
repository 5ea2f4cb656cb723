"""Names of mesh axes that XLA garbles when it imports a module of Shardy's."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from functools import cache

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.conversion import through_hlo
from sdyscope.stages.lowered.axis_names import fatal_axes, garbled_axes
from sdyscope.stages.lowered.lower import LoweredModule, lower
from sdyscope.stages.propagated.shardy_import import import_module
from sdyscope.values.mesh import Mesh
from sdyscope.words.mesh import axis_text

#: Every character of ASCII but the one that ends a string in C, and those that XLA crashes on.
ASCII = [chr(code) for code in range(1, 128) if chr(code) not in "\\\x12\x13\x14"]


def program_over(**axes: int) -> Program:
    mesh = compat.abstract_mesh(Mesh.of(axes))
    placed = NamedSharding(mesh, P(tuple(axes)))
    x = jax.ShapeDtypeStruct((len(axes) * 8,), "float32")
    return Program("step", jax.jit(jax.numpy.tanh, in_shardings=placed), args=(x,))


def names_after_import(lowered: LoweredModule) -> list[str]:
    """What XLA calls the axes, in the module that it propagates on."""
    file = io.BytesIO()
    lowered.module.operation.write_bytecode(file)
    with lowered.context:
        module = compat.ir.Module.parse(through_hlo(file.getvalue()))
        import_module(module)
        [mesh] = (
            operation
            for operation in module.body.operations
            if operation.operation.name == "sdy.mesh"
        )
        return list(compat.mesh_of_attribute(mesh.operation.attributes["mesh"]).shape)


def test_the_axes_told_are_those_that_xla_garbles() -> None:
    # One axis a character, in one module: all of them are asked at once.
    names = [f"a{char}b" for char in ASCII]
    lowered = lower(program_over(**dict.fromkeys(names, 1)), "shardy")
    after = names_after_import(lowered)
    assert len(after) == len(names)
    garbled = tuple(name for name, there in zip(names, after, strict=True) if there != name)
    assert garbled_axes(lowered) == garbled
    assert len(garbled) == 23  # 21 control characters, the quote, and delete


@pytest.mark.parametrize("name", ["da\nta", 'da"ta', "da\x1bta", "a\\b", "données", "データ"])
def test_they_are_propagated_on_without_xlas_import(name: str) -> None:
    inspection = Inspection(program_over(**{name: 8}))
    propagated = inspection.propagated("shardy")
    assert [doubt.kind for doubt in propagated.doubts] == ["not imported"]
    [sharding] = {
        value.sharding for value in propagated.values.values() if value.sharding is not None
    }
    assert [axis.name for axis in sharding.dim_shardings[0].axes] == [name]


def test_others_are_exact() -> None:
    propagated = Inspection(program_over(**{"a/b'c d~": 8})).propagated("shardy")
    assert propagated.doubts == ()


#: Compiles for each name in a process of its own, all forked from one that has imported JAX.
CHILD = """
import os, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
for name in sys.argv[1:]:
    process = os.fork()
    if process:
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    mesh = jax.make_mesh((2,), (name,))
    placed = jax.sharding.NamedSharding(mesh, jax.P(name))
    step = jax.jit(jax.numpy.tanh, in_shardings=placed)
    step.lower(jax.ShapeDtypeStruct((8,), "float32")).compile()
    os._exit(0)
"""


FATAL = ["a\\b", "a\x13b", "données"]


@cache
def ends_the_process(flags: str) -> dict[str, bool]:
    """Whether XLA with these flags ends the process, by name."""
    command = [sys.executable, "-c", CHILD, *FATAL]
    child = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=True
    )
    statuses = list(map(int, child.stdout.split()))
    assert max(statuses) <= 0, child.stderr
    return {name: status < 0 for name, status in zip(FATAL, statuses, strict=True)}


@pytest.mark.compiles
@pytest.mark.parametrize("name", FATAL)
def test_xla_ends_the_process_on_the_fatal_ones(name: str) -> None:
    inspection = Inspection(program_over(**{name: 8}))
    ends = ends_the_process(os.environ.get("XLA_FLAGS", ""))[name]
    assert fatal_axes(inspection.lowered["shardy"]) == ((name,) if ends else ())
    assert ends == (not compat.named_hlo_shardings())
    if ends:
        with pytest.raises(CompilerError, match="XLA aborts on names of mesh axes") as caught:
            inspection.compiled("shardy")
        assert repr(name) in caught.value.message
    else:
        [sharding] = inspection.compiled("shardy").parameter_shardings
        assert str(sharding) == "{devices=[8]<=[8]}"
    assert fatal_axes(inspection.lowered["gspmd"]) == ()


@pytest.mark.compiles
@pytest.mark.parametrize("flag", ["true", "false"])
def test_named_shardings_in_hlo_decide_it(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if compat.version_tuple() < (0, 10):
        pytest.skip("this XLA has no such flag")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_enable_hlo_sharding_v3={flag}"
    monkeypatch.setenv("XLA_FLAGS", flags)
    ends = ends_the_process(flags)
    for name in FATAL:
        assert ends[name] == (flag == "false")
        lowered = lower(program_over(**{name: 8}), "shardy")
        assert fatal_axes(lowered) == ((name,) if flag == "false" else ())


def test_an_axis_is_called_by_its_name() -> None:
    assert axis_text('"donn\\C3\\A9es":(1)2') == "données:(1)2"
    assert axis_text('"a\\22b"') == 'a"b'.replace('"', "")
    assert axis_text('"da\\0Ata"') == "da\\x0ata"
