"""Asks XLA about reshardings alone: a module of nothing but constraints, and what is logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sdyscope.stages.compiled.compiler import compile_module
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.values.convert import to_tensor_sharding
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement


@dataclass(frozen=True, slots=True)
class Probe:
    """One resharding.

    Attributes:
        shape: shape of the whole tensor.
        dtype: its MLIR element type.
        before: how it is sharded.
        after: how it is to be.
    """

    shape: tuple[int, ...]
    dtype: str
    before: Placement
    after: Placement


@dataclass(frozen=True)
class Probed:
    """What XLA says.

    Attributes:
        names: what each resharding is called in ``hlo``, as JAX's primitives are.
        hlo: text of the compiled module.
        rematerializations: lines of the log about reshardings that make a tensor whole.
    """

    names: Mapping[str, Probe]
    hlo: str
    rematerializations: tuple[str, ...]


def probe(probes: Sequence[Probe], mesh: Mesh) -> Probed:
    """Compiles the reshardings, one independent of the other, for virtual CPU devices.

    Args:
        probes: the reshardings, each once.
        mesh: the mesh that they are on.

    Raises:
        CompilerError: XLA refuses the module, or the mesh is too large for it.
        ConversionError: a placement follows no axes of the mesh.
    """
    names = {f"reshard{number}": probe for number, probe in enumerate(probes)}
    arguments, results, types, body = [], [], [], []
    for number, probe in enumerate(probes):
        kind = "x".join((*map(str, probe.shape), probe.dtype))
        before, after = (
            to_tensor_sharding(place, len(probe.shape), mesh)
            for place in (probe.before, probe.after)
        )
        arguments.append(f"%arg{number}: tensor<{kind}> {{sdy.sharding = {before.attribute}}}")
        types.append(f"tensor<{kind}> {{sdy.sharding = {after.attribute}}}")
        # XLA names the op whose result it reshards; and of two arguments it would know more.
        body.append(
            f"%made{number} = stablehlo.add %arg{number}, %arg{number} : tensor<{kind}> "
            f'loc("jit(probe)/reshard{number}")\n'
            f"%moved{number} = sdy.sharding_constraint %made{number} {after} : tensor<{kind}>\n"
            f"%used{number} = stablehlo.add %moved{number}, %moved{number} : tensor<{kind}>\n"
        )
        results.append((f"%used{number}", f"tensor<{kind}>"))
    text = (
        f"module @probe attributes {{mhlo.num_partitions = {mesh.size} : i32, "
        "mhlo.num_replicas = 1 : i32} {\n"
        f"sdy.mesh @mesh = {mesh}\n"
        f"func.func public @main({', '.join(arguments)}) -> ({', '.join(types)}) {{\n"
        f"{''.join(body)}"
        f"return {', '.join(name for name, _ in results)} : "
        f"{', '.join(kind for _, kind in results)}\n}}\n}}\n"
    )
    compiled = compile_module(read_bytes(text.encode()), partitioner="shardy")
    return Probed(names, compiled.hlo, compiled.rematerializations)
