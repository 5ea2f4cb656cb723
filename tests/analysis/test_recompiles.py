"""Which programs of a recorded run are one function that was compiled again."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.recompiles import recompiles
from sdyscope.facts.program import Program
from sdyscope.facts.recorded import SCHEMA, read_record
from sdyscope.inspection import Inspection


def _again(folder, runs):
    """What is compiled again of a function that was called with arguments by versions of JAX."""
    programs = []
    (folder / "processes").mkdir()
    (folder / "modules").mkdir()
    for number, (argument, version) in enumerate(runs, 1):
        program = Inspection(Program(f"f.{number}", jax.jit(jnp.sin), (argument,)), ("shardy",))
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
    arguments = [
        jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(AbstractMesh(*mesh), P("x")))
        for mesh in (((8,), ("x",)), ((4, 2), ("x", "y")))
    ]
    (again,) = _again(tmp_path, [(argument, "0.9.0") for argument in arguments])
    assert [(change.kind, change.moved) for change in again.arguments] == [("argument", True)]
    assert again.meshes
