"""What each partitioner makes of the reference transformer, right after SPMD partitioning.

    python benchmarks/partitioners.py [--layers 2]

A train step on 4 x 2 and on 8 devices, its activations constrained or not, compiled for CPUs under
Shardy and GSPMD. Collectives are counted in XLA's dump after partitioning, before anything joins or
rewrites them: how many of each kind, and the bytes that a device has after all of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sdyscope.facts.program import Partitioner
from sdyscope.hlo import HloModule, read_hlo
from sdyscope.inspection import Inspection
from sdyscope.staged import PARTITIONERS
from sdyscope.targets import resolve_program
from sdyscope.terminal.table import Column, Table, number, print_table

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute")

CASES: Mapping[str, tuple[dict[str, int], bool]] = {
    "4 x 2, activations constrained": ({"fsdp": 4, "model": 2}, True),
    "4 x 2, no constraints": ({"fsdp": 4, "model": 2}, False),
    "FSDP on 8, no constraints": ({"fsdp": 8}, False),
}


def after_partitioning(
    mesh: dict[str, int], partitioner: Partitioner, **settings: object
) -> HloModule:
    """The transformer's step as XLA has it after SPMD partitioning for CPUs."""
    import jax

    from sdyscope.stages import compat

    program = resolve_program("fsdp-transformer", mesh=mesh, settings=settings)
    lowered = Inspection(program, (partitioner,)).lowered[partitioner].lowered
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "xla_dump_to": folder,
            "xla_dump_hlo_pass_re": "spmd-partitioning",
            "xla_backend_optimization_level": 0,
        }
        devices = tuple(jax.devices("cpu")[:8])
        with compat.partitioner(partitioner):
            lowered.compile(device_assignment=devices, compiler_options=options)
        (dump,) = Path(folder).glob("*after_spmd-partitioning*.txt")
        return read_hlo(dump.read_text())


def counted(module: HloModule) -> tuple[tuple[int, ...], int]:
    """How many collectives there are of each of KINDS, and the bytes of their results."""
    collectives = [
        instruction for instruction in module.instructions() if instruction.opcode in KINDS
    ]
    kinds = Counter(collective.opcode for collective in collectives)
    return tuple(kinds[kind] for kind in KINDS), sum(
        collective.shape.bytes for collective in collectives
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=2)
    asked = parser.parse_args()
    # JAX reads them when it is imported, which is later. Tests that import this need neither.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
    rows = []
    for case, (mesh, constrained) in CASES.items():
        for partitioner in PARTITIONERS:
            module = after_partitioning(
                mesh, partitioner, layers=asked.layers, constrained=constrained
            )
            kinds, size = counted(module)
            rows.append((case, partitioner, *map(str, kinds), f"{size / 1e6:.1f}"))
    columns = (Column("case"), Column("partitioner"), *map(number, (*KINDS, "MB a device")))
    print_table(Table(columns, tuple(rows)))


if __name__ == "__main__":
    main()
