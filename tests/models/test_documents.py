"""Programs of a few lines from the documents that the reference models come from."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.slices import program_slices
from sdyscope.errors import ConversionError
from sdyscope.inspection import inspect
from sdyscope.page.notebook import show_sharding
from sdyscope.words.slices import slice_text


def mesh_of(**sizes):
    axes = (AxisType.Auto,) * len(sizes)
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=axes)


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def held(found, kind):
    """Who holds what of the arguments or results, in words."""
    rows = [row for row in found.tensors.tensors if row.kind == kind]
    slices = program_slices("", rows).tensors
    return [[slice_text(part) for part in tensor.listed] for tensor in slices]


# --- the 3-D tutorial's foundations ---------------------------------------------------------------


def vec_addition(a, b):
    return a + b


def gathered_vec_addition(a, b):
    local_result = a + b
    local_result = jax.lax.all_gather(local_result, axis_name="x", tiled=True, axis=0)
    return jax.lax.all_gather(local_result, axis_name="y", tiled=True, axis=1)


def haliax():
    """Haliax, where it works with this JAX: its `dot` asks for what JAX 0.12 no longer has."""
    hax = pytest.importorskip("haliax", reason="needs Haliax: pip install 'haliax>=1.4.dev0'")
    if not hasattr(jax.core, "is_constant_dim"):
        pytest.skip("this Haliax does not work with this JAX")
    return hax


@pytest.mark.parametrize(
    ("function", "out_specs", "expected"),
    [
        (
            vec_addition,
            P("x", "y"),
            [
                f"device {4 * i + j} holds result[{i}:{i + 1}, {j}:{j + 1}]"
                for i in (0, 1)
                for j in range(4)
            ],
        ),
        (gathered_vec_addition, P(), ["all 8 devices hold result[:, :]"]),
    ],
)
def test_what_visualize_array_sharding_shows(function, out_specs, expected):
    """Of a result that nothing but the shard_map's out_specs places."""
    mesh = mesh_of(x=2, y=4)
    shard_add = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(P("x", "y"), P("x", "y")),
        out_specs=out_specs,
        check_vma=False,
    )
    a = jax.ShapeDtypeStruct((2, 4), jnp.int32)
    found = inspect(jax.jit(shard_add), a, a)
    assert held(found, "result") == [expected]
    (row,) = [row for row in found.tensors.tensors if row.kind == "result"]
    picture = show_sharding(row)
    assert row._repr_html_() == picture.svg
    assert f"blocks of {[1, 1] if out_specs else [2, 4]} of [2, 4]" in picture.words


def test_a_result_that_is_computed_with_is_left_to_the_compiler():
    mesh = mesh_of(x=2, y=4)
    spec = (P("x", "y"), P("x", "y"))
    mapped = jax.shard_map(vec_addition, mesh=mesh, in_specs=spec, out_specs=P("x", "y"))
    a = jax.ShapeDtypeStruct((2, 4), jnp.int32)
    found = inspect(jax.jit(lambda a, b: mapped(a, b) + 1), a, a)
    assert held(found, "result") == [[]]
    (row,) = [row for row in found.tensors.tensors if row.kind == "result"]
    assert row._repr_html_() is None
    with pytest.raises(ConversionError, match="result is left to the compiler"):
        show_sharding(row)


# --- Levanter's overview: pjit, and the same with names -------------------------------------------


def test_a_matrix_product_by_rows_of_the_batch():
    """Each device has 128 / 8 rows of the inputs and of the outputs; nothing is sent."""
    mesh = mesh_of(data=8)
    matmul = jax.jit(
        lambda weights, inputs: inputs @ weights, out_shardings=NamedSharding(mesh, P("data", None))
    )
    weights, inputs = array(mesh, (64, 32)), array(mesh, (128, 64), "data", None)
    found = inspect(matmul, weights, inputs, partitioners=("shardy",))
    assert held(found, "argument")[0] == ["all 8 devices hold weights[:, :]"]
    assert held(found, "result")[0][0] == "device 0 holds result[0:16, :]"
    assert found.predicted_collectives().collectives.collectives == ()


def test_a_matrix_product_over_a_dimension_in_pieces_is_summed():
    """Weights by rows and inputs by columns, on no axis afterwards: partial products are added."""
    mesh = mesh_of(data=8)
    matmul = jax.jit(
        lambda weights, inputs: inputs @ weights, out_shardings=NamedSharding(mesh, P(None, None))
    )
    weights, inputs = array(mesh, (4096, 512), "data", None), array(mesh, (256, 4096), None, "data")
    found = inspect(matmul, weights, inputs, partitioners=("shardy",))
    (one,) = found.predicted_collectives().collectives.collectives
    assert (one.kind, [axis.name for axis in one.axes]) == ("all-reduce", ["data"])
    assert one.bytes == 256 * 512 * 4


def test_on_a_mesh_of_data_and_model_no_device_shares_the_intermediate():
    """c_fc by columns of `model`, the batch once for each row of it, the product over both axes."""
    mesh = mesh_of(data=4, model=2)
    c_fc, inputs = array(mesh, (4, 16), None, "model"), array(mesh, (8, 4), "data", None)
    found = inspect(
        jax.jit(lambda c_fc, inputs: inputs @ c_fc), c_fc, inputs, partitioners=("shardy",)
    )
    columns, rows = held(found, "argument")
    assert columns == [
        "devices 0, 2, 4, 6 hold c_fc[:, 0:8]",
        "devices 1, 3, 5, 7 hold c_fc[:, 8:16]",
    ]
    assert rows[0] == "devices 0, 1 hold inputs[0:2, :]"
    graph = found.graph("shardy")
    (product,) = [
        value
        for (op, _), value in found.propagated("shardy").values.items()
        if graph.ops[op].kind == "stablehlo.dot_general"
    ]
    assert str(product.sharding) == '<@mesh, [{"data"}, {"model"}]>'
    assert product.placement.replication == 1


def test_a_named_product_over_the_axis_that_is_mapped_is_summed():
    """named_pjit with {"Embed": "data"}: batch and mlp are whole, and so is the result."""
    hax = haliax()
    mesh = mesh_of(data=8)
    batch, embed, mlp = (
        hax.Axis(name, size) for name, size in (("Batch", 256), ("Embed", 4096), ("Mlp", 512))
    )
    with hax.axis_mapping({"Embed": "data"}):
        inputs, weights = (
            hax.NamedArray(
                array(mesh, [axis.size for axis in axes], *hax.partitioning.pspec_for_axis(axes)),
                axes,
            )
            for axes in ((batch, embed), (embed, mlp))
        )

    def matmul(weights, inputs):
        with jax.sharding.use_abstract_mesh(mesh), hax.axis_mapping({"Embed": "data"}):
            return hax.auto_sharded(hax.dot(inputs, weights, axis=embed))

    found = inspect(jax.jit(matmul), weights, inputs, partitioners=("shardy",))
    specs = [str(row.requested.sharding.spec) for row in found.tensors.tensors[:2]]
    assert specs == ["P('data', None)", "P(None, 'data')"]
    (one,) = found.predicted_collectives().collectives.collectives
    assert (one.kind, one.bytes) == ("all-reduce", 256 * 512 * 4)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"intermediate": "model", "batch": "data"}, "P('data', 'model')"),
        ({"batch": "data"}, "P('data', None)"),
    ],
)
def test_the_same_with_names_and_another_mapping_for_outputs(output, expected):
    """named_jit's axis_resources, and its out_axis_resources."""
    hax = haliax()
    mesh = mesh_of(model=4, data=2)
    resources = {"intermediate": "model", "batch": "data"}
    batch, embed, wide = (
        hax.Axis(name, size)
        for name, size in (("batch", 128), ("embed", 64), ("intermediate", 512))
    )

    def named(*axes):
        spec = [resources.get(axis.name) for axis in axes]
        return hax.NamedArray(array(mesh, [axis.size for axis in axes], *spec), axes)

    def matmul(weights, inputs):
        with jax.sharding.use_abstract_mesh(mesh), hax.axis_mapping(output):
            return hax.auto_sharded(hax.dot(inputs, weights, axis=embed))

    found = inspect(
        jax.jit(matmul), named(embed, wide), named(batch, embed), partitioners=("shardy",)
    )
    rows = {row.kind: row for row in found.tensors.tensors}
    assert str(rows["constraint"].requested.sharding.spec) == expected
    assert str(found.tensors.tensors[0].requested.sharding.spec) == "P(None, 'model')"
