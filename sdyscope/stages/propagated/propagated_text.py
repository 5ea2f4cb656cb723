"""The text of a module after propagation, for people.

What sdyscope had written into it is left out: the tags, and the steps, origins and rules of
Shardy's propagation, which are longer than the ops that they stand on.
"""

from __future__ import annotations

from typing import Any

from sdyscope.errors import CompilerError
from sdyscope.graph.op_kinds import TAKEN_OTHERWISE
from sdyscope.stages import compat
from sdyscope.stages.align.tags import ATTRIBUTE, copy, numbered
from sdyscope.stages.propagated.passes import run

_PASSES = ("sdy-remove-propagation-debug-info", "func.func(sdy-drop-sharding-rules)")
_ORIGIN_NAME = "sdy.sharding_origin_name"
_FRONTEND = "mhlo.frontend_attributes"


def propagated_text(module: Any) -> str:
    """A propagated module in MLIR's text form, without locations.

    Args:
        module: an ``ir.Module`` after Shardy's propagation, or made of HLO after GSPMD's; it stays
            as it is.

    Raises:
        CompilerError: Shardy's own passes fail on it.
    """
    shown = copy(module)
    run(shown, *_PASSES)
    ir = compat.ir
    with module.context:
        for _, operation in numbered(shown):
            attributes = operation.attributes
            for name in (_ORIGIN_NAME, TAKEN_OTHERWISE):
                if name in attributes:
                    del attributes[name]
            if _FRONTEND in attributes:
                frontend = attributes[_FRONTEND]
                if ATTRIBUTE not in frontend:
                    continue
                if len(frontend) == 1:
                    del attributes[_FRONTEND]
                else:
                    left = dict(compat.dictionary_items(frontend))
                    del left[ATTRIBUTE]
                    attributes[_FRONTEND] = ir.DictAttr.get(left)
        try:
            return str(shown.operation.get_asm(enable_debug_info=False))
        except Exception as error:  # MLIRError, by several names
            raise CompilerError(f"MLIR can't print the propagated module: {error}") from error
