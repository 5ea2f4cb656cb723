"""JSON documents: what `--json` prints, and the JSON Schema of each.

A document is a frozen dataclass whose first field is `schema: Literal["sdyscope.COMMAND/1"]`. The
number is raised when a reader of the old form could misread the new one; new fields do not raise
it. `python -m sdyscope.views.document docs/schema` writes the schemas again.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sdyscope.views.output import write_atomically

#: The document of each command, as `module:class`.
DOCUMENTS: Mapping[str, str] = {
    "models": "sdyscope.views.models:Models",
    "lower": "sdyscope.views.lower:Lower",
    "show": "sdyscope.views.show:Show",
    "graph": "sdyscope.views.graph_json:Graph",
    "check": "sdyscope.views.check:Check",
    "diff": "sdyscope.views.diff:Diff",
    "propagate": "sdyscope.views.propagate:Propagate",
    "explain": "sdyscope.views.explain:Explain",
    "memory": "sdyscope.views.memory:Memory",
    "comms": "sdyscope.views.comms:Comms",
    "cost": "sdyscope.views.cost:Cost",
    "search": "sdyscope.views.search:Search",
    "run": "sdyscope.views.run:Run",
    "report": "sdyscope.views.report:Report",
    "lint": "sdyscope.views.lint:Lint",
    "snapshot": "sdyscope.views.snapshot:Snapshot",
    "ci": "sdyscope.views.ci:Ci",
    "record": "sdyscope.recorded:Record",
    "doctor": "sdyscope.views.doctor:Doctor",
}


def encode(document: Any) -> bytes:
    """A document as indented UTF-8 JSON with a newline at its end.

    A float that is not finite becomes null, as JSON has no form for it.
    """
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def schema(document_type: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document."""
    made = msgspec.json.schema(document_type)
    _state_what_encode_does(made)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def document_type(command: str) -> type:
    """The dataclass of a command's document."""
    module, name = DOCUMENTS[command].split(":")
    made: type = getattr(importlib.import_module(module), name)
    return made


def schema_text(command: str) -> str:
    """The schema of a command's document, as its file in docs/schema holds it."""
    made = msgspec.json.encode(schema(document_type(command)), order="deterministic")
    return msgspec.json.format(made, indent=2).decode() + "\n"


def _state_what_encode_does(node: Any) -> None:
    """Every field is always there, default or not; a float that is not finite is null.

    Python 3.13 takes the indentation off docstrings; here it is taken off for all.
    """
    if isinstance(node, list):
        for item in node:
            _state_what_encode_does(item)
    elif isinstance(node, dict):
        if node.get("type") == "number":
            node["type"] = ["number", "null"]
        if isinstance(node.get("description"), str):
            node["description"] = inspect.cleandoc(node["description"])
        if isinstance(node.get("properties"), dict):
            node["required"] = list(node["properties"])
        for item in node.values():
            _state_what_encode_does(item)


def main() -> None:
    """Writes every schema into the folder that is named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for command in DOCUMENTS:
        write_atomically(folder / f"{command}.json", schema_text(command))


if __name__ == "__main__":
    main()
