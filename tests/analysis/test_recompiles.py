"""Which programs of a recorded run are one function that was compiled again."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.recompiles import recompiles
from sdyscope.facts.program import Program
from sdyscope.facts.recorded import SCHEMA, read_record
from sdyscope.inspection import Inspection
from sdyscope.words.recompiles import cause


def _again(folder, runs, functions=(jnp.sin, jnp.sin)):
    """What is compiled again of a function that was called with arguments by versions of JAX.

    Args:
        folder: where to record it.
        runs: the argument of each call, and the version.
        functions: what the function is in each of them, by a static argument.
    """
    programs = []
    (folder / "processes").mkdir()
    (folder / "modules").mkdir()
    for number, (argument, version) in enumerate(runs, 1):
        jitted = jax.jit(functions[number - 1])
        program = Inspection(Program(f"f.{number}", jitted, (argument,)), ("shardy",))
        (folder / "modules" / f"m{number}.mlir").write_text(program.lowered["shardy"].text())
        type_ = f"f32[{','.join(map(str, argument.shape))}]"
        process = {
            "line": "process", "schema": SCHEMA, "pid": number, "parent": 1, "host": "here",
            "arguments": ["python"], "python": "3.11.7", "jax": version, "jaxlib": version,
        }  # fmt: skip
        lowered = {
            "line": "lowered", "module": f"m{number}", "name": "jit_f", "defined": ["a.py", 3],
            "by_jax": False, "called": ["a.py", 9], "partitioner": "shardy",
            "arguments": [type_], "paths": ["x"], "results": [type_],
            "seconds": 0.5, "others": {}, "failures": {},
        }  # fmt: skip
        lines = [json.dumps({**line, "at": float(number)}) for line in (process, lowered)]
        (folder / "processes" / f"p{number}.jsonl").write_text("\n".join([*lines, ""]))
        programs.append(program)
    return recompiles(read_record(folder), programs)


@pytest.mark.parametrize(("second", "expected"), [("0.9.0", ["f.2"]), ("0.9.1", [])])
def test_what_another_jax_compiles_is_not_compiled_again(second, expected, tmp_path):
    """As two runs in one folder, each by its own JAX."""
    first, other = (jax.ShapeDtypeStruct((rows,), jnp.float32) for rows in (8, 16))
    again = _again(tmp_path, ((first, "0.9.0"), (other, second)))
    assert [each.program for each in again] == expected


def test_what_is_left_open_on_two_meshes_did_not_change(tmp_path):
    """The result was said to be "without a sharding, then without a sharding"."""
    meshes = [
        AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))
        for sizes, names in (((8,), ("x",)), ((4, 2), ("x", "y")))
    ]
    arguments = [
        jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("x")))
        for mesh in meshes
    ]
    (again,) = _again(tmp_path, [(argument, "0.9.0") for argument in arguments])
    assert [(change.kind, change.moved) for change in again.arguments] == [("argument", True)]
    assert again.meshes


MESH = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
PLACED = NamedSharding(MESH, P("x"))


def constrained(spec):
    return lambda v: jax.lax.with_sharding_constraint(v * 2, NamedSharding(MESH, spec))


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        (
            (constrained(P("x")), constrained(P("y"))),
            'sharding of sdy.sharding_constraint* was <@mesh, [{"x"}]>, then <@mesh, [{"y"}]>',
        ),
        ((constrained(P("x")), lambda v: v * 2), "other ops*: func.return where f.1 has sdy.*"),
        (
            (lambda v: jnp.sin(v) - v, lambda v: v - jnp.sin(v)),
            "operands of stablehlo.subtract* were %*, v, then v, %*",
        ),
        ((jnp.sin, jnp.sin), "only source lines differ"),
    ],
)
def test_constraints_and_operands_are_no_source_lines(functions, text, tmp_path):
    """A static argument that chose a sharding was said to change source lines alone."""
    argument = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=PLACED)
    again = _again(tmp_path, [(argument, "0.9.0")] * 2, functions)
    assert fnmatchcase(cause(again), text.replace("[", "[[]"))
