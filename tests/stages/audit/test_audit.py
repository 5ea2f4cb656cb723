"""Having a module compiled and read once more."""

import pytest

from sdyscope.stages import compat
from sdyscope.stages.audit import audit
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
