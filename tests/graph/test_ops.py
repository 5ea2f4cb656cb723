"""What an op says of itself."""

from pathlib import Path

import pytest

from sdyscope.graph import OpGraph, read_text

MODULES = Path(__file__).parents[1] / "models" / "shardy_guide"


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_a_constraint_is_one_under_either_partitioner(partitioner: str) -> None:
    graph = _read("constraint", partitioner)
    (op,) = [op for op in graph.operations() if op.is_constraint]
    assert op.mnemonic == ("sharding_constraint" if partitioner == "shardy" else "custom_call")
    assert op.passing == "unchanged"


def test_gspmd_calls_the_body_of_a_shard_map_with_blocks() -> None:
    graph = _read("shard-map", "gspmd")
    (call,) = [op for op in graph.operations() if graph.calls_shard_map_body(op)]
    assert graph.callee(call) is not None
    assert {op.passing for op, _ in graph.operands(call)} == {"block"}
    assert not any(
        graph.calls_shard_map_body(op) for op in _read("shard-map", "shardy").operations()
    )


def _read(name: str, partitioner: str) -> OpGraph:
    return read_text((MODULES / f"{name}.{partitioner}.mlir").read_text())
