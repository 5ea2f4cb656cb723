"""What custom calls are, by their targets."""

from sdyscope.graph.custom_calls import is_for_partitioner, primitive_of


def test_what_jax_writes_for_gspmd_has_its_primitive() -> None:
    targets = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")
    primitives = ["sharding_constraint", "shard_map", "shard_map"]
    assert list(map(primitive_of, targets)) == primitives
    assert all(map(is_for_partitioner, targets))
    assert primitive_of("Qr") is None
    assert primitive_of(None) is None
