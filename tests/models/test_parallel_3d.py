"""Data, pipeline and tensor parallelism by hand: each against what it is without devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection
from sdyscope.models import parallel_3d
from sdyscope.targets import resolve

TINY = {
    "layers": 2,
    "microbatches": 2,
    "batch": 2,
    "sequence": 4,
    "features": 8,
    "heads": 2,
    "latent": 8,
    "rotary": 4,
    "hidden": 16,
    "vocab": 8,
    "optimizer": "sgd",
    "donate": False,
}


def mesh_of(*shape):
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return Mesh(devices, ("dp", "pp", "tp"), axis_types=(AxisType.Auto,) * 3)


def on_each(function, mesh, in_specs, out_specs):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 1), (4, 8), (8, 3), (1, 2)])
def test_the_schedule_is_right_and_its_bubble_is_the_formulas(stages, microbatches):
    """Each stage multiplies by its number and adds one; the last one's outputs come out."""
    mesh = mesh_of(1, stages, 1)
    x = np.arange(microbatches * 3.0, dtype=np.float32).reshape(microbatches, 3)

    def body(x):
        stage = jax.lax.axis_index("pp")
        outputs, idle = parallel_3d.pipeline(lambda x: x * (stage + 1) + 1, x)
        return outputs[None], idle[None]

    outputs, idle = on_each(body, mesh, P(), (P("pp"), P("pp")))(x)
    expected = functools.reduce(lambda x, stage: x * (stage + 1) + 1, range(stages), x)
    np.testing.assert_allclose(outputs[-1], expected, rtol=1e-6)
    steps = stages + microbatches - 1
    assert list(idle) == [stages - 1] * stages
    ratio = float(np.sum(idle)) / (stages * steps)
    assert ratio == pytest.approx(parallel_3d.bubble_ratio(stages, microbatches))


def test_a_dense_layer_in_pieces_is_a_dense_layer():
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((4, 6, 8), (8, 12), (12,))
    )
    specs = (P("dp", None, "tp"), {"kernel": P("tp", "dp"), "bias": P(None)})
    run = on_each(parallel_3d.dense, mesh_of(2, 1, 4), specs, P("dp", None, "tp"))
    np.testing.assert_allclose(
        run(x, {"kernel": kernel, "bias": bias}), x @ kernel + bias, rtol=1e-5, atol=1e-5
    )


def test_a_norm_and_rotary_angles_in_pieces_are_whole_ones():
    x = np.random.default_rng(0).standard_normal((2, 6, 3, 8)).astype(np.float32)
    spec = P(None, None, None, "tp")

    def body(x):
        ones = jnp.ones(x.shape[-1])
        return parallel_3d.rms_norm(x, ones), parallel_3d.rotate(x, 8)

    pieces, whole = (on_each(body, mesh_of(1, 1, size), spec, (spec, spec))(x) for size in (4, 1))
    for one, other in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    norm, turned = whole
    np.testing.assert_allclose(np.mean(np.square(norm), axis=-1), 1, rtol=1e-4)
    # A rotation keeps lengths, and does nothing at the first position.
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5
    )
    np.testing.assert_allclose(turned[:, 0], x[:, 0], rtol=1e-6)


def test_specs_are_by_path_and_rank():
    declared = parallel_3d.parameters(parallel_3d.Settings())
    layers, embedding = declared["layers"], declared["embedding"]
    assert layers["attention"]["q"]["kernel"].axes == ("pp", "tp", "dp")
    assert layers["attention"]["q"]["bias"].axes == ("pp", None)
    assert layers["norm1"]["gamma"].axes == ("pp", "tp")
    assert embedding["norm"]["gamma"].axes == ("tp",)
    assert embedding["table"].axes == (None, None)


@pytest.mark.parametrize(
    ("mesh", "settings", "said"),
    [
        ({"dp": 2, "tp": 2}, {}, "no axis 'pp'"),
        ({"dp": 1, "pp": 1, "tp": 3}, {}, "heads=4 must be divisible by tp=3"),
    ],
)
def test_what_can_not_be_is_refused(mesh, settings, said):
    with pytest.raises(TargetError, match=said):
        resolve("parallel-3d", mesh=mesh, settings=settings)


# --- the step -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inspection():
    return Inspection(resolve("parallel-3d", settings=TINY))


def test_what_is_lowered_is_what_was_requested(inspection):
    assert inspection.check().passed
    assert set(inspection.lowered) == {"shardy", "gspmd"}


def step(*shape):
    """The loss, and what a step of plain gradient descent changes."""
    program = parallel_3d.program(mesh_of(*shape), parallel_3d.Settings(**TINY))
    args, _ = program.inputs()
    placed = jax.device_put(args, jax.tree.map(lambda leaf: leaf.sharding, program.args))
    params, _, loss = program.fun(*placed)
    moved = jax.tree.map(lambda new, old: np.asarray(new) - old, params, args[0])
    return float(loss), jax.tree.leaves(moved)


@pytest.mark.compiles
def test_data_and_pipeline_parallelism_change_no_gradient():
    """How features are cut changes which channels a head has, so tp is the same in both."""
    loss, moved = step(2, 2, 2)
    alone, moved_alone = step(1, 1, 2)
    assert loss == pytest.approx(alone, rel=1e-5)
    for one, other in zip(moved, moved_alone, strict=True):
        assert np.max(np.abs(one - other)) <= 1e-3 * np.max(np.abs(other)) + 1e-8


@pytest.mark.compiles
def test_eight_devices_compute_what_one_does():
    """Manual over every axis: nothing is left for either partitioner to decide."""
    program = resolve("parallel-3d", settings=TINY)
    ran = Inspection(program, ["shardy"]).run(steps=1)
    assert ran.passed
    (execution,) = ran.executions.values()
    assert {len(one.shards) for one in execution.arrays} == {8}
    assert [finding.rule for finding in ran.findings if finding.rule == "not-compared"] == []
