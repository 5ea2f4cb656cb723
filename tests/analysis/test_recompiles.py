"""Which programs of a recorded run are one function that was compiled again."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.recompiles import recompiles
from sdyscope.facts.program import Program
from sdyscope.facts.recorded import SCHEMA, read_record
from sdyscope.inspection import Inspection


@pytest.mark.parametrize(("second", "expected"), [("0.9.0", ["f.2"]), ("0.9.1", [])])
def test_what_another_jax_compiles_is_not_compiled_again(second, expected, tmp_path):
    """As two runs in one folder, each by its own JAX."""
    programs = []
    (tmp_path / "processes").mkdir()
    (tmp_path / "modules").mkdir()
    for number, (rows, version) in enumerate(((8, "0.9.0"), (16, second)), 1):
        argument = jax.ShapeDtypeStruct((rows,), jnp.float32)
        program = Inspection(Program(f"f.{number}", jax.jit(jnp.sin), (argument,)), ("shardy",))
        (tmp_path / "modules" / f"m{number}.mlir").write_text(program.lowered["shardy"].text())
        process = {
            "line": "process", "schema": SCHEMA, "pid": number, "parent": 1, "host": "here",
            "arguments": ["python"], "python": "3.11.7", "jax": version, "jaxlib": version,
        }  # fmt: skip
        lowered = {
            "line": "lowered", "module": f"m{number}", "name": "jit_f", "defined": ["a.py", 3],
            "by_jax": False, "called": ["a.py", 9], "partitioner": "shardy",
            "arguments": [f"f32[{rows}]"], "paths": ["x"], "results": [f"f32[{rows}]"],
            "seconds": 0.5, "others": {}, "failures": {},
        }  # fmt: skip
        lines = [json.dumps({**line, "at": float(number)}) for line in (process, lowered)]
        (tmp_path / "processes" / f"p{number}.jsonl").write_text("\n".join([*lines, ""]))
        programs.append(program)
    again = recompiles(read_record(tmp_path), programs)
    assert [each.program for each in again] == expected
