"""Having a module compiled and read once more."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit import audit, audit_child
from sdyscope.stages.lowered.read import read_bytes


@pytest.mark.skipif(compat.version_tuple() < (0, 10), reason="this JAX can't read dumps")
def test_progress_names_the_compile(monkeypatch):
    """It is most of what `verify` takes."""

    def ask(request, longest):
        raise KeyboardInterrupt

    activities = []
    monkeypatch.setattr(audit, "doing", activities.append)
    monkeypatch.setattr(audit._worker, "ask", ask)
    module = read_bytes(b"module @jit_step { func.func public @main() { return } }")
    with pytest.raises(KeyboardInterrupt):
        audit.audit(module, "gspmd", 8)
    assert activities == [f"compiling {module.name} with GSPMD, with XLA's dumps"]


LAID_OUT = """
HloModule step

ENTRY main {
  x = f32[64,64]{0,1} parameter(0)
  ROOT y = f32[64,64]{1,0} custom-call(x), custom_call_target="LayoutConstraint",
    operand_layout_constraints={f32[OPERAND]{0,1}}
}
"""


@pytest.mark.skipif(compat.version_tuple() < (0, 10), reason="this JAX can't read dumps")
def test_what_xla_wrote_and_cannot_read_itself_is_left_out(tmp_path):
    """Right behind its partitioner a layout that is asked for is of the whole operand."""
    dump = tmp_path / "dump.txt"
    dump.write_text(LAID_OUT.replace("OPERAND", "128,64"))
    assert audit_child.parsed_partitioned(dump) is None
    dump.write_text(LAID_OUT.replace("OPERAND", "64,64"))
    assert len(audit_child.parsed_partitioned(dump).instructions) == 2
    dump.write_text("no HLO")
    with pytest.raises(Exception, match=r"no HLO|parse"):
        audit_child.parsed_partitioned(dump)
