"""Compiled programs from files: the HLO text that `compiled.as_text()` and XLA's dumps have.

A lowered module can have the same form. What tells them apart is decided here alone: a compiled
program is scheduled, or is for several devices and has nothing left to shard.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.compiled import Compiled
from sdyscope.hlo import HloModule, read_hlo
from sdyscope.values.mesh import Mesh

#: How much of a file is looked at to tell HLO text from StableHLO.
_BEGINNING = 4096

#: What partitioning removes from all but parameters: how to shard.
_SHARDING = (", sharding={devices=", ", sharding={mesh[", ", sharding={replicated}")
_ANNOTATIONS = ('custom_call_target="Sharding"', "xla.sdy.sharding")
_SCHEDULED = "is_scheduled=true"
_COMMUNICATES = re.compile(r"\b(replica_groups|source_target_pairs)=")


def read_compiled(path: Path, mesh: Mesh | None = None) -> Compiled | None:
    """The compiled program whose text is in a file; None for any other file.

    Args:
        path: the file.
        mesh: the mesh whose axes to name; of as many devices as the program is for.

    Raises:
        SdyscopeError: the text is cut off.
        TargetError: it is a HloModuleProto of a compiled program, which does not say for how many
            devices; or the mesh has another number of devices.
    """
    if not path.is_file() or path.suffix in (".py", ".mlir"):
        return None
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if beginning.startswith(b"\n") and b"\0" in beginning:
        _refuse_compiled_proto(path)
        return None
    lines = [line for line in beginning.splitlines() if not line.lstrip().startswith(b"//")]
    if not any(line.startswith(b"HloModule ") for line in lines[:3]):
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        module = read_hlo(text)
    except SdyscopeError as error:
        if _SCHEDULED not in text[:_BEGINNING]:
            return None  # A lowered module: XLA's own parser says what is wrong, and where.
        error.file = str(path)
        raise
    if not is_compiled(module):
        return None
    compiled = Compiled(
        name=module.name,
        partitioner=None,
        hardware=None,
        devices=module.num_partitions * module.replica_count,
        device_kind="",
        hlo=text,
        parameter_shardings=_parameter_shardings(module),
        path=path,
    )
    return compiled if mesh is None else on_mesh(compiled, mesh)


def on_mesh(compiled: Compiled, mesh: Mesh) -> Compiled:
    """A compiled program's text with the mesh whose axes to name.

    Raises:
        TargetError: the mesh has another number of devices.
    """
    if mesh.size != compiled.devices:
        raise TargetError(
            f"The program is for {compiled.devices:,} devices, and the mesh has {mesh.size:,}.",
            file=compiled.path,
        )
    return replace(compiled, mesh=mesh)


def is_compiled(module: HloModule, *, devices_known: bool = True) -> bool:
    """Whether a module is the program of one device, not one that is still to be partitioned.

    Args:
        module: the module.
        devices_known: whether it says for how many devices it is.
    """
    if module.attributes.get("is_scheduled") == "true":
        return True
    sharded = communicates = False
    for instruction in module.instructions():
        if any(text in instruction.rest for text in _ANNOTATIONS):
            return False
        if any(text in instruction.rest for text in _SHARDING):
            if instruction.opcode != "parameter":
                return False
            sharded = True
        communicates = communicates or _COMMUNICATES.search(instruction.rest) is not None
    # Partitioning leaves parameters their shardings: only a collective shows that it was done.
    if not devices_known:
        return communicates
    return module.num_partitions * module.replica_count > 1 and (communicates or not sharded)


def _parameter_shardings(module: HloModule) -> tuple[str, ...]:
    """The shardings of the entry's parameters, in their order."""
    names = {
        number: parameter.sharding
        for number, parameter in module.computations[module.entry].parameters.items()
    }
    return tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))


def _refuse_compiled_proto(path: Path) -> None:
    """A proto leaves out for how many devices the module is, and collectives need that."""
    from sdyscope.stages.lowered.read import hlo_text

    text = hlo_text(path)
    if text is not None and is_compiled(read_hlo(text), devices_known=False):
        raise TargetError(
            "This HloModuleProto is of a program that was compiled already, and does not say for "
            "how many devices.",
            file=path,
            hint="Give its text: compiled.as_text(), or a dump with --xla_dump_hlo_as_text.",
        )
