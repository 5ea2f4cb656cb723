"""What a compiler says that a compiled program takes. No JAX is imported."""

from __future__ import annotations

from typing import Any


def memory_statistics(executable: Any) -> dict[str, int]:
    """The compiler's memory statistics of a compiled program, in bytes, by their names."""
    stats = executable.get_compiled_memory_stats()
    names = (name for name in dir(stats) if name.endswith("_in_bytes"))
    return {name.removesuffix("_in_bytes"): int(getattr(stats, name)) for name in names}
