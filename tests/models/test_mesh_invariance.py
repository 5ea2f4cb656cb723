"""Every reference model computes the same on any mesh, and what its document's formulas say.

The parameters and the batch are the same everywhere. Losses and gradients are compared with those
of an implementation for one device (`model_references.py`) that shares no code with the model.
Adam's first moment after one step is a tenth of the gradient, and nothing else is rounded.

One mesh of the two smallest models is compared in every run of the tests, and all meshes of all of
them with `-m thorough`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import model_references as references
import numpy as np
import pytest

from sdyscope.staged import PARTITIONERS
from sdyscope.stages import compat
from sdyscope.targets import resolve

#: What rounding may do to a gradient, in parts of its largest number; and to a loss.
GRADIENT, LOSS = 2e-4, 1e-5


@dataclass(frozen=True)
class Case:
    """A model, what it should compute, and the meshes to compare.

    Attributes:
      model: its name.
      settings: the smallest sizes.
      axes: names of the mesh axes.
      meshes: sizes of them; the first is one device.
      reference: of parameters and batch, the loss.
      parts: of a step's arguments, the parameters and the batch.
      moment: of a step's results, the loss and Adam's first moment.
      others: settings that differ from the rest on some meshes, by mesh.
    """

    model: str
    settings: dict[str, Any]
    axes: tuple[str, ...]
    meshes: tuple[tuple[int, ...], ...]
    reference: Callable[..., Any]
    parts: Callable[[tuple[Any, ...]], tuple[Any, Any]]
    moment: Callable[[tuple[Any, ...]], tuple[Any, Any]]
    others: dict[tuple[int, ...], dict[str, Any]] = field(default_factory=dict)

    @property
    def several(self):
        """The mesh that is larger than 1 on most axes."""
        return max(self.meshes, key=lambda sizes: sum(size > 1 for size in sizes))


def of_step(args):
    return args[0], args[2]


def after_step(results):
    return results[2], results[1][0].mu


CASES = (
    Case(
        "mlp",
        {"features": 8, "hidden": 8, "outputs": 8, "batch": 8, "layers": 2},
        ("data", "model"),
        ((1, 1), (8, 1), (1, 8), (4, 2), (2, 4), (2, 1), (1, 2)),
        references.mlp,
        of_step,
        after_step,
    ),
    Case(
        "fsdp-transformer",
        {
            "layers": 2,
            "scan": True,
            "d_model": 8,
            "heads": 4,
            "head_dim": 4,
            "d_ff": 8,
            "vocab": 16,
            "batch": 8,
            "sequence": 4,
            "dtype": "float32",
        },
        ("data", "fsdp", "model"),
        ((1, 1, 1), (1, 8, 1), (1, 2, 4), (2, 2, 2), (8, 1, 1), (1, 1, 4)),
        references.fsdp_transformer,
        of_step,
        after_step,
    ),
    Case(
        "parallel-3d",
        {
            "layers": 4,
            "microbatches": 4,
            "batch": 2,
            "sequence": 4,
            "features": 16,
            "heads": 4,
            "latent": 8,
            "rotary": 8,
            "hidden": 16,
            "vocab": 8,
            "donate": False,
        },
        ("dp", "pp", "tp"),
        ((1, 1, 1), (2, 2, 2), (1, 4, 2), (2, 1, 4), (1, 2, 1), (1, 1, 4), (1, 4, 1)),
        functools.partial(references.parallel_3d, heads=4),
        of_step,
        after_step,
    ),
    Case(
        "levanter-gpt2",
        {
            "layers": 2,
            "embed": 8,
            "heads": 4,
            "vocab": 16,
            "positions": 8,
            "batch": 8,
            "dtype": "float32",
            "donate": False,
        },
        ("replica_dcn", "replica", "data", "context", "model"),
        (
            *((1, 1, 1, 1, 1), (1, 1, 8, 1, 1), (1, 1, 4, 1, 2), (2, 2, 2, 1, 1)),
            *((1, 1, 2, 2, 2), (1, 1, 2, 1, 4)),
        ),
        references.gpt2,
        lambda args: (args[0], args[2].array),
        lambda results: (results[2], results[1][0].mu),
        {(1, 1, 2, 2, 2): {"parallelism": "context"}},
    ),
    Case(
        "axlearn-transformer",
        {
            "blocks": 2,
            "repeat": True,
            "microbatches": 2,
            "d_model": 8,
            "heads": 2,
            # With one sequence a microbatch and device GSPMD's gradients are wrong (JAX 0.10.2).
            "head_dim": 4,
            "d_ff": 8,
            "vocab": 16,
            "batch": 16,
            "sequence": 4,
            "experts": 2,
            "capacity": 0.75,
            "donate": False,
        },
        ("pipeline", "data", "expert", "fsdp", "seq", "track", "model"),
        (
            *((1, 1, 1, 1, 1, 1, 1), (1, 1, 2, 2, 1, 2, 1), (2, 1, 1, 2, 1, 2, 1)),
            *((1, 2, 1, 2, 1, 1, 2), (1, 1, 2, 1, 2, 2, 1), (2, 2, 1, 1, 1, 1, 2)),
        ),
        functools.partial(references.axlearn_transformer, heads=2, capacity=0.75, microbatches=2),
        lambda args: (args[0].model, args[1]),
        lambda results: (results[1]["loss"], results[0].learner[0].mu),
    ),
)


def program_on(case, sizes):
    mesh = dict(zip(case.axes, sizes, strict=True))
    settings = {**case.settings, **case.others.get(sizes, {})}
    return resolve(case.model, mesh=mesh, settings=settings, devices=jax.devices())


@functools.cache
def wanted(case_number):
    """The arguments of a step on the host, and the loss and gradients of the reference."""
    case = CASES[case_number]
    args, _ = program_on(case, case.meshes[0]).inputs()
    params, batch = case.parts(args)
    loss, gradients = jax.jit(jax.value_and_grad(case.reference))(params, batch)
    return args, float(loss), list(map(np.asarray, jax.tree.leaves(gradients)))


def compare(number, sizes, partitioners):
    """A step's loss and gradients on a mesh, against the reference's."""
    case = CASES[number]
    if case.model == "levanter-gpt2":
        pytest.importorskip("haliax", reason="needs Haliax: pip install 'haliax>=1.4.dev0'")
    args, loss, gradients = wanted(number)
    program = program_on(case, sizes)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, program.args)
    placed = jax.device_put(args, shardings)
    traced = program.fun.trace(*placed)  # once, and lowered for each partitioner
    for partitioner in partitioners:
        with compat.partitioner(partitioner):
            compiled = traced.lower().compile()
        step_loss, moment = case.moment(compiled(*placed))
        assert float(step_loss) == pytest.approx(loss, rel=LOSS), (sizes, partitioner)
        leaves = jax.tree.leaves(moment)
        assert len(leaves) == len(gradients)
        for leaf, gradient in zip(leaves, gradients, strict=True):
            error = np.max(np.abs(10 * np.asarray(leaf) - gradient))
            assert error <= GRADIENT * np.max(np.abs(gradient)) + 1e-8, (sizes, partitioner)


models = pytest.mark.parametrize("number", range(len(CASES)), ids=[case.model for case in CASES])
QUICK = ("mlp", "fsdp-transformer")


@pytest.mark.compiles
@pytest.mark.parametrize("model", QUICK)
def test_a_mesh_of_several_axes_computes_what_the_reference_does(model):
    number = [case.model for case in CASES].index(model)
    compare(number, CASES[number].several, PARTITIONERS)


@pytest.mark.compiles
@pytest.mark.thorough
@models
def test_losses_and_gradients_are_the_references_on_every_mesh(number):
    case = CASES[number]
    assert len(case.meshes) >= 6
    for sizes in case.meshes:
        compare(number, sizes, PARTITIONERS)


MESHES = ((1, 1), (8, 1), (1, 8), (4, 2), (2, 4), (2, 2))


def results(model, settings, sizes, partitioner):
    """What a program without parameters returns, and its arguments."""
    mesh = dict(zip(("data", "model"), sizes, strict=True))
    with compat.partitioner(partitioner):
        program = resolve(model, mesh=mesh, settings=settings, devices=jax.devices())
        args, _ = program.inputs()
        asked = [getattr(leaf, "sharding", None) for leaf in program.args]
        placed = [
            value if sharding is None else jax.device_put(value, sharding)
            for value, sharding in zip(args, asked, strict=True)
        ]
        return np.asarray(program.fun(*placed)), args


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", PARTITIONERS)
@pytest.mark.parametrize("example", references.GUIDE)
def test_the_guides_examples_compute_the_same_on_every_mesh(example, partitioner):
    for sizes in MESHES:
        found, args = results("shardy-guide", {"example": example}, sizes, partitioner)
        wanted = references.GUIDE[example](*map(np.asarray, args))
        # Sines of products of hundreds, whose rounding is a part of ten thousand of a turn.
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-4, err_msg=str(sizes))


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_random_numbers_are_the_same_on_every_mesh(partitioner):
    settings = {"generator": "threefry", "split": True, "rows": 16, "columns": 8}
    for sizes in MESHES:
        found, (key_data,) = results("rng-gotcha", settings, sizes, partitioner)
        wanted = references.matrix_of_rows(key_data, 16, 8)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=str(sizes))
