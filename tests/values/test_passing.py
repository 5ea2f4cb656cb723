"""How ops pass their operand on, and that the compilers know ops by these names."""

import pytest

from sdyscope.hlo import read_hlo
from sdyscope.stages import compat
from sdyscope.values.passing import _PASSING, passes, passing

HLO = """HloModule ops

ENTRY main {
  a = f32[4,1]{1,0} parameter(0)
  start = (f32[4,1]{1,0}, f32[4,1]{1,0}, u32[]) copy-start(a)
  done = f32[4,1]{1,0} copy-done(start)
  ROOT same = f32[4,1]{1,0} opt-barrier(done)
}
"""


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("sdy.sharding_constraint", "unchanged"),
        ("stablehlo.optimization_barrier", "unchanged"),
        ("opt-barrier", "unchanged"),
        ("mhlo.copy", "unchanged"),
        ("stablehlo.convert", "type"),
        ("bitcast-convert", "bits"),
        ("reshape", "shape"),
        ("stablehlo.transpose", "order"),
        ("broadcast_in_dim", "repeated"),
        ("dynamic-slice", "part"),
        ("stablehlo.add", None),
        ("custom-call", None),
    ],
)
def test_an_op_is_known_by_its_name_in_any_dialect(name: str, way: str | None) -> None:
    assert passing(name) == way
    assert passes(name, "unchanged", "part") == (way in ("unchanged", "part"))


def test_every_name_is_an_op_of_a_dialect_or_of_hlo() -> None:
    context = compat.new_context()
    unknown = {
        name.replace("_", "-")
        for name in _PASSING
        if not any(
            context.is_registered_operation(f"{dialect}.{name}")
            for dialect in ("stablehlo", "sdy", "mhlo")
        )
    }
    module = read_hlo(compat.hlo.hlo_module_from_text(HLO).to_string())
    opcodes = {
        instruction.opcode for instruction in module.computations["main"].instructions.values()
    }
    assert unknown <= opcodes
