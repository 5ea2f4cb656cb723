"""Names of mesh axes that XLA garbles when it imports a module of Shardy's."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
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
        module = compat.ir.Module.parse(compat.through_hlo(file.getvalue()))
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


CHILD = """
import jax, sys
jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), (sys.argv[1],))
placed = jax.sharding.NamedSharding(mesh, jax.P(sys.argv[1]))
jax.jit(jax.numpy.tanh, in_shardings=placed).lower(jax.ShapeDtypeStruct((8,), "float32")).compile()
"""


FATAL = ["a\\b", "a\x13b", "données"]


def ends_the_process(name: str) -> bool:
    child = subprocess.run([sys.executable, "-c", CHILD, name], capture_output=True)
    assert child.returncode <= 0, child.stderr
    return child.returncode < 0


@pytest.mark.compiles
@pytest.mark.parametrize("name", FATAL)
def test_xla_ends_the_process_on_the_fatal_ones(name: str) -> None:
    inspection = Inspection(program_over(**{name: 8}))
    ends = ends_the_process(name)
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
    flags = os.environ.get("XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", f"{flags} --xla_enable_hlo_sharding_v3={flag}")
    for name in FATAL:
        assert ends_the_process(name) == (flag == "false")
        lowered = lower(program_over(**{name: 8}), "shardy")
        assert fatal_axes(lowered) == ((name,) if flag == "false" else ())


def test_an_axis_is_called_by_its_name() -> None:
    assert axis_text('"donn\\C3\\A9es":(1)2') == "données:(1)2"
    assert axis_text('"a\\22b"') == 'a"b'.replace('"', "")
    assert axis_text('"da\\0Ata"') == "da\\x0ata"
