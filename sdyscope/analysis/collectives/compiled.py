"""The collectives of a compiled program, with what its lowered module and propagation explain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sdyscope.analysis.collectives.origins import with_origins
from sdyscope.analysis.collectives.rematerializations import (
    rematerializations,
    with_rematerializations,
)
from sdyscope.analysis.collectives.slices import collectives_of
from sdyscope.analysis.collectives.totals import Collectives
from sdyscope.analysis.propagation.explain import Explainer
from sdyscope.errors import SdyscopeError
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.remarks import Remark
from sdyscope.staged import Staged
from sdyscope.values.mesh import Mesh


def compiled_collectives(
    compiled: Compiled, meshes: Iterable[Mesh], lowered: Staged | None = None
) -> Collectives:
    """The collectives of a compiled program, each with its origin.

    Args:
        compiled: the program.
        meshes: meshes to name axes of.
        lowered: the module that it was compiled from; without it no origins are looked for.

    Raises:
        SdyscopeError: the program can't be read.
    """
    return explained(read_collectives(compiled, meshes), compiled, lowered)


def read_collectives(compiled: Compiled, meshes: Iterable[Mesh]) -> Collectives:
    """The collectives of a compiled program, without origins.

    Args:
        compiled: the program.
        meshes: meshes to name axes of.

    Raises:
        SdyscopeError: the program can't be read.
    """
    collectives = collectives_of(compiled, compiled.module, meshes)
    remade = rematerializations(compiled.rematerializations, compiled.module, collectives.mesh)
    return replace(collectives, rematerializations=remade)


def explained(
    collectives: Collectives, compiled: Compiled, lowered: Staged | None = None
) -> Collectives:
    """The same collectives with their origins, or why there are none.

    Args:
        collectives: those of the program.
        compiled: the program.
        lowered: the module that it was compiled from; without it no origins are looked for.
    """
    if not collectives.collectives:
        return collectives
    if compiled.recorded_by is not None:
        return replace(collectives, origins_missing=Remark("not told"))
    if lowered is None:
        return replace(collectives, origins_missing=Remark("not asked for"))
    if collectives.mesh is None:
        return replace(collectives, origins_missing=Remark("no mesh"))
    try:
        propagated = lowered.propagated(compiled.partitioner, explained=True)
    except SdyscopeError as error:
        return replace(collectives, origins_missing=Remark("not propagated", error.message))
    pointers = None
    if propagated.partitioner == "shardy" and propagated.steps:
        pointers = Explainer.of(lowered, compiled.partitioner).pointers
    graph, annotations = (
        lowered.graph(compiled.partitioner),
        lowered.annotations(compiled.partitioner),
    )
    return with_rematerializations(
        with_origins(collectives, graph, propagated, annotations, pointers)
    )
