"""Reads back what `sdyscope run --json` printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec

from sdyscope.analysis.run.values import Run
from sdyscope.errors import TargetError
from sdyscope.facts.sharded import requested_sharding
from sdyscope.facts.tensors import TensorTable
from sdyscope.terminal import document
from sdyscope.words.findings import observed

_HINT = "Give what `sdyscope run TARGET --json > FILE` has written."


def read_run(file: Path) -> Run:
    """The document in a file, as ``document.read`` gives it, with what was found as in a run.

    Raises:
        TargetError: there is no such file, or something else is in it.
    """
    try:
        parsed: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise TargetError(f"cannot read: {error.strerror}", file=file) from error
    except ValueError as error:
        raise TargetError(f"This is not JSON: {error}", file=file, hint=_HINT) from error
    _numbers_that_json_has_no_form_for(parsed)
    try:
        run: Any = document.read(Run, parsed)
    except msgspec.ValidationError as error:
        raise TargetError(f"This is not a run document: {error}", file=file, hint=_HINT) from error
    whole: Run = msgspec.structs.replace(run, findings=tuple(map(observed, run.findings)))
    return whole


def check_run_of(run: Run, name: str, table: TensorTable, file: Path) -> None:
    """Checks that a run is one of a program, on the same mesh.

    Args:
        run: the run.
        name: the program's name.
        table: what was requested and lowered.
        file: where the run was read from.

    Raises:
        TargetError: it is another one's.
    """
    ran = {
        (tensor.kind, tensor.index): (
            tensor.path,
            tensor.shape,
            tensor.dtype,
            document.plain(tensor.requested),
        )
        for tensor in run.tensors
    }
    here = {
        (tensor.kind, tensor.index or 0): (
            *(tensor.path, tensor.shape, tensor.dtype),
            document.plain(requested_sharding(tensor.requested)),
        )
        for tensor in table.tensors
        if tensor.kind in ("argument", "result") and tensor.requested is not None
    }
    if run.name == name and ran == here:
        return
    others = [key for key in (*here, *ran) if ran.get(key) != here.get(key)]
    path = (ran.get(others[0]) or here[others[0]])[0] if others else ""
    raise TargetError(
        f"This run is not of {name} as it is here: "
        + (f"{path} differs there." if path else f"it is of {run.name}."),
        file=file,
        hint="Run it again, or give the same --mesh and --set.",
    )


def _numbers_that_json_has_no_form_for(node: Any) -> None:
    """What is not finite was written as null; of an error it is infinite."""
    if isinstance(node, list):
        for item in node:
            _numbers_that_json_has_no_form_for(item)
    elif isinstance(node, dict):
        for key in ("error", "max_abs") if "tolerance" in node else ():
            if key in node and node[key] is None:
                node[key] = math.inf
        for item in node.values():
            _numbers_that_json_has_no_form_for(item)
