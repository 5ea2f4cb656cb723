"""What propagation says that a device holds, against what XLA says when it has compiled."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope import Program
from sdyscope.errors import SdyscopeError
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh

pytestmark = pytest.mark.compiles

#: The models, and of the larger ones under which partitioner each run of the tests compiles them.
MODELS = {
    "mlp": ("shardy", "gspmd"),
    "fsdp-transformer": (),
    "axlearn-transformer": (),
    "parallel-3d": (),
    "parallel-3d:decode": ("gspmd",),
}


def facts(tensors):
    """What both can know of a tensor; on CPUs no tile is padded."""
    return [
        (
            one.kind,
            one.number,
            one.name,
            one.group,
            one.bytes_per_device,
            one.replicas,
            one.stored.dtype,
            one.stored.bytes,
            one.stored.memory,
            one.donated,
            one.shares,
            str(one.best),
        )
        for one in tensors
    ]


def assert_alike(inspection, partitioner):
    predicted = inspection.predicted_memory(partitioner)
    compiled = inspection.memory(partitioner)
    assert compiled.equal
    assert facts(predicted.tensors) == facts(compiled.tensors)
    assert predicted.groups == compiled.groups
    assert predicted.stored == compiled.stored
    assert predicted.savings == compiled.savings
    assert predicted.devices == compiled.devices
    return predicted


@pytest.mark.parametrize(
    ("model", "partitioner"),
    [
        pytest.param(model, partitioner, marks=() if partitioner in often else pytest.mark.thorough)
        for model, often in MODELS.items()
        for partitioner in ("shardy", "gspmd")
    ],
)
def test_reference_models(model, partitioner):
    assert_alike(Inspection(resolve(model), [partitioner]), partitioner)


def on_mesh(function, *tensors, **jit):
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    arguments = tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for shape, dtype, spec in tensors
    )
    return Inspection(Program("step", jax.jit(function, **jit), arguments), ["shardy"])


def test_results_that_only_propagation_places():
    found = on_mesh(
        lambda x, w: (x @ w, x.sum(1)),
        ((16, 8), "float32", P("data", None)),
        ((8, 6), "float32", P(None, "model")),
    )
    predicted = assert_alike(found, "shardy")
    assert [one.origin for one in predicted.tensors[2:]] == ["propagated", "propagated"]
    assert [one.bytes_per_device for one in predicted.tensors[2:]] == [4 * 3 * 4, 4 * 4]


@pytest.mark.parametrize("donated", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_buffers_that_xla_chooses(donated):
    """Whose result is not placed yet: JAX leaves them to XLA, which goes by their sizes."""
    found = on_mesh(
        lambda x, y, z: (jnp.tanh(z), x + 1, y.astype("float32"), (x * 2).sum()),
        ((16, 8), "float32", P("data", None)),
        ((16, 8), "int32", P("data", "model")),
        ((32, 8), "bfloat16", P("data", None)),
        donate_argnums=donated,
    )
    assert_alike(found, "shardy")


def test_any_number_of_devices_and_no_compile(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("it compiles")

    monkeypatch.setattr("sdyscope.stages.compiled.compiler._start", refuse)
    program = resolve(
        "fsdp-transformer",
        mesh={"fsdp": 512, "model": 64},
        settings={"d_model": 8192, "heads": 64, "batch": 512},
    )
    found = Inspection(program, ["shardy"]).predicted_memory()
    assert found.devices == 32768
    (wq,) = (one for one in found.tensors if one.name == "params['layers'][0]['wq']")
    assert wq.bytes_per_device == wq.bytes // 32768


def test_the_text_of_a_compiled_program_has_no_propagation():
    compiled = Inspection(resolve("mlp"), ["shardy"]).compiled()
    with pytest.raises(SdyscopeError):
        Inspection(replace(compiled, partitioner=None)).predicted_memory()
