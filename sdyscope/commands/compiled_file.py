"""A TARGET that is the HLO text of a compiled program: `compiled.as_text()`, or XLA's dump."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdyscope.analysis.collectives.read import Collectives
    from sdyscope.errors import SdyscopeError
    from sdyscope.hlo import HloModule
    from sdyscope.values.mesh import Mesh

#: How much of a file is looked at to tell HLO text from StableHLO.
_BEGINNING = 4096

#: What partitioning removes from all but parameters: how to shard.
_SHARDING = (", sharding={devices=", ", sharding={mesh[", ", sharding={replicated}")
_ANNOTATION = 'custom_call_target="Sharding"'


def compiled_file(word: str) -> Path | None:
    """The file that a TARGET names, if it holds the text of an HLO module.

    Raises:
      TargetError: it is a HloModuleProto of a program that was compiled already.
    """
    path = Path(word)
    if not path.is_file() or path.suffix in (".py", ".mlir"):
        return None
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if beginning.startswith(b"\n") and b"\0" in beginning:
        _refuse_compiled_proto(path)
        return None
    lines = [line for line in beginning.splitlines() if not line.lstrip().startswith(b"//")]
    is_hlo = any(line.startswith(b"HloModule ") for line in lines[:3])
    return path if is_hlo else None


def check_not_compiled(word: str) -> None:
    """Finds that a TARGET has nothing but its last stage left, and the shapes of one device.

    Raises:
      TargetError: it is the text of a program that was compiled already.
    """
    from sdyscope.errors import TargetError

    file = compiled_file(word)
    if file is None:
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        header = next((line for line in lines if line.startswith("HloModule ")), "")
    if "is_scheduled=true" in header:
        raise TargetError(
            f"{word} is the text of a program that was compiled already; the stages before are "
            "not in it.",
            hint="`sdyscope comms` and `sdyscope memory` read it. Or name the program itself.",
        )


def read_compiled(
    path: Path, axes: dict[str, int] | None = None, meshes: Iterable[Mesh] = ()
) -> tuple[HloModule, Collectives]:
    """The module in a file, and its collectives.

    Args:
      path: the file.
      axes: the mesh whose axes to name.
      meshes: others, of which one may fit.

    Raises:
      SdyscopeError: it can't be read, is for another number of devices than the mesh has, or is
        not partitioned yet.
    """
    from sdyscope.analysis.collectives.read import collectives
    from sdyscope.errors import SdyscopeError, TargetError
    from sdyscope.values.mesh import Mesh

    module = read_module(path)
    try:
        total = module.num_partitions * module.replica_count
        mesh = None if axes is None else Mesh.of(axes)
        if mesh is not None and mesh.size != total:
            raise TargetError(
                f"The program is for {total:,} devices, and the mesh has {mesh.size:,}."
            )
        found = collectives(module, meshes if mesh is None else (mesh,))
    except SdyscopeError as error:
        _in_file(error, path)
        raise
    return module, found


def read_module(path: Path) -> HloModule:
    """The module in a file.

    Args:
      path: the file.

    Raises:
      SdyscopeError: it can't be read, or is not partitioned yet.
    """
    from sdyscope.errors import SdyscopeError, TargetError
    from sdyscope.hlo import read_hlo

    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            module = read_hlo(lines)
        if _is_to_partition(module):
            raise TargetError(
                "The program in this file is not partitioned yet: it still says how to shard it.",
                hint="Use the text after partitioning, such as compiled.as_text().",
            )
    except SdyscopeError as error:
        _in_file(error, path)
        raise
    return module


def _is_to_partition(module: HloModule) -> bool:
    """Whether anything but parameters still says how to shard it.

    Or parameters do, in a module that is for one device: before partitioning the text of what JAX
    lowered does not say for how many it is.
    """
    alone = module.num_partitions == 1
    return any(
        alone and any(text in one.rest for text in _SHARDING[:2])
        if one.opcode == "parameter"
        else _ANNOTATION in one.rest or any(text in one.rest for text in _SHARDING)
        for one in module.instructions()
    )


def _refuse_compiled_proto(path: Path) -> None:
    """A proto leaves out for how many devices the module is, and collectives need that."""
    from sdyscope.errors import TargetError
    from sdyscope.hlo import read_hlo
    from sdyscope.stages.lowered.read import hlo_text

    text = hlo_text(path)
    if text is None or _is_to_partition(read_hlo(text)):
        return
    if "is_scheduled=true" in text.partition("\n")[0] or "replica_groups=" in text:
        raise TargetError(
            "This HloModuleProto is of a program that was compiled already, and does not say for "
            "how many devices.",
            file=path,
            hint="Give its text: compiled.as_text(), or a dump with --xla_dump_hlo_as_text.",
        )


def _in_file(error: SdyscopeError, path: Path) -> None:
    if error.file is None:
        error.file = str(path)
