r"""Names of mesh axes that XLA does not read as JAX writes them.

MLIR writes a byte that is not printable ASCII as two hexadecimal digits (``\0A``), a quote as
``\22`` and a backslash twice. XLA carries Shardy's shardings through HLO as such texts, and reads
them back with C's escapes (``cunescape`` in ``xla/service/spmd/shardy/utils.h``), whose digits are
octal: the axis gets another name, or the process ends.
"""

from __future__ import annotations

import re

from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import LoweredModule

#: `\01` to `\07` are the same in both.
_GARBLED = re.compile(r'[^ -~\x01-\x07]|["\\]')
#: What is no escape of C ends XLA with a failed check; a line break or a lone backslash that comes
#: out of one is no string of MLIR, and XLA goes on without the mesh until it crashes.
_FATAL = re.compile(r"[^\x00-\x7f]|[\x12-\x14\\]")


def garbled_axes(lowered: LoweredModule) -> tuple[str, ...]:
    """Axes of the module's meshes that have another name, or none, in what XLA propagates on."""
    return _those(lowered, _GARBLED)


def fatal_axes(lowered: LoweredModule) -> tuple[str, ...]:
    """Axes of the module's meshes on which XLA's compile aborts or crashes.

    There are none where XLA writes shardings with the names of axes in HLO
    (:func:`compat.named_hlo_shardings`): it compiles what it garbles elsewhere.
    """
    return () if compat.named_hlo_shardings() else _those(lowered, _FATAL)


def _those(lowered: LoweredModule, pattern: re.Pattern[str]) -> tuple[str, ...]:
    names = (name for mesh in lowered.meshes.values() for name in mesh.shape)
    return tuple(dict.fromkeys(name for name in names if pattern.search(name)))
