"""What a step is estimated to take, for the view of communication."""

from __future__ import annotations

from typing import Any

from sdyscope.analysis.cost.cost import Cost, cost_document
from sdyscope.analysis.cost.remarks import basis, doubts, limits
from sdyscope.errors import SdyscopeError
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page.document import Report
from sdyscope.words.cost import limit_texts
from sdyscope.words.rates import time_text
from sdyscope.words.remarks import remark_text, remark_texts


def estimates(report: Report, inspection: Inspection) -> dict[str, Any]:
    """Seconds by resource, mesh axis and kind, or why there are none.

    Args:
      report: the inspection as a document; says what was compiled for.
      inspection: the program.
    """
    try:
        hardware = parse_hardware(report.hardware) if report.hardware else None
        found = cost_document(inspection, hardware)
    except SdyscopeError as error:
        return {"unavailable": str(error)}
    return {
        "words": remark_text(found.estimate),
        "programs": list(map(_program, found.programs)),
    }


def _program(cost: Cost) -> dict[str, Any]:
    return {
        "partitioner": cost.partitioner,
        "words": limit_texts(limits(cost)),
        "roofs": [
            {
                "name": roof.axis or roof.resource,
                "axis": bool(roof.axis),
                "seconds": roof.seconds,
                "time": time_text(roof.seconds),
            }
            for roof in cost.roofs
        ],
        "notes": [] if cost.limit is None else remark_texts((*doubts(cost), *basis(cost))),
    }
