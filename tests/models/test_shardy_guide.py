"""The examples of the Shardy guide: what JAX lowers for each is what the guide shows.

The texts are the guide's, which were printed by JAX 0.4.35. `as_then` takes out what newer JAX
prints otherwise, and nothing else.
"""

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sdyscope.analysis.check import check
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.models import shardy_guide
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read
from sdyscope.targets import resolve
from sdyscope.words.findings import finding_of
from sdyscope.words.sharding import short

#: JAX 0.7 raises NotImplementedError for a constraint in the body of a partly manual shard_map.
REFUSED = {"shard-map-auto"} if compat.version_tuple() < (0, 8) else set()
EXAMPLES = [name for name in shardy_guide.EXAMPLES if name not in REFUSED]

#: EXAMPLE.PARTITIONER.mlir, each a part of a module.
GUIDE = sorted(Path(__file__).with_name("shardy_guide").iterdir())

NEWER = [
    # From 0.9 on a mesh is written a second time, in StableHLO's own form.
    (re.compile(r" \{stablehlo\.mesh = \{axes = \[.*?\]\}\}"), ""),
    (re.compile(r"\n  sdy\.mesh @mesh_0 = .*"), ""),
    (re.compile(r'jax\.result_info = "result"'), 'jax.result_info = ""'),
    # From 0.12 on a collective names the axes that it is along.
    (
        re.compile(
            r"#stablehlo\.replica_group_mesh_axes<mesh = @mesh_0, "
            r'axes = \[#stablehlo\.axis_ref<name = "data">\]>'
        ),
        "dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>",
    ),
]


def as_then(text):
    for pattern, before in NEWER:
        text = pattern.sub(before, text)
    return text


@pytest.fixture(scope="module")
def guide():
    """Each example, inspected once: `guide("priorities")`."""
    made = {}

    def inspected(example):
        if example not in made:
            made[example] = Inspection(resolve("shardy-guide", settings={"example": example}))
        return made[example]

    return inspected


def lowered(inspection, partitioner):
    return as_then(inspection.lowered[partitioner].text(debug_info=False))


@pytest.mark.parametrize("path", GUIDE, ids=lambda path: path.stem)
def test_jax_lowers_what_the_guide_shows(guide, path):
    example, partitioner = path.stem.split(".")
    assert path.read_text() in lowered(guide(example), partitioner)


#: EXAMPLE.PARTITIONER.mlir, whole modules as the guide has them.
MODULES = sorted(Path(__file__).with_name("shardy_guide_modules").iterdir())


def places(inspection, partitioner):
    """Of every tensor for which the module says something, where it is and what is left open."""
    return [
        (row.kind, row.shape, there.placement, there.open_dims)
        for row in inspection.tensors.tensors
        if (there := row.lowered.get(partitioner)) is not None and there.placement is not None
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_guides_text_is_read_as_what_todays_jax_writes(guide, path):
    """Whole modules, as JAX 0.4.35 printed them."""
    example, partitioner = path.stem.split(".")
    module = read(path)
    assert (module.written_for, module.num_devices) == (partitioner, 8)
    found = places(Inspection(module, [partitioner]), partitioner)
    assert found == places(guide(example), partitioner)
    assert len(found) > 0


@pytest.mark.parametrize(
    ("spec", "gspmd", "shardy"),
    [
        (
            PartitionSpec("data", None),
            "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
            '<@mesh, [{"data"}, {}]>',
        ),
        (
            PartitionSpec(None, "model"),
            "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
            '<@mesh, [{}, {"model"}]>',
        ),
        (None, "", ""),
    ],
)
def test_the_guides_tables_of_shardings(guide, spec, gspmd, shardy):
    rows = [row for row in guide("in-out-shardings").tensors.tensors if row.kind == "argument"]
    asked = [
        None if row.requested.sharding is None else row.requested.sharding.spec for row in rows
    ]
    row = rows[[str(one) for one in asked].index(str(spec))]
    written = {p: there.sharded({}, None).text for p, there in row.lowered.items()}
    assert written == {"gspmd": gspmd, "shardy": shardy}


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_is_lowered_is_what_was_requested(guide, example):
    assert guide(example).check().passed
    assert guide(example).failures == {}


@pytest.mark.skipif("shard-map-auto" in REFUSED, reason="JAX 0.7 can't trace it")
def test_an_axis_that_is_not_manual_is_left_to_the_compiler(guide):
    shardy = lowered(guide("shard-map-auto"), "shardy")
    assert (
        'in_shardings=[<@mesh, [{"data", ?}, {?}]>] out_shardings=[<@mesh, [{?}, {?}]>] '
        'manual_axes={"data"}' in shardy
    )
    assert 'sdy.sharding_constraint %2 <@mesh, [{}, {"model"}]> : tensor<8x64xf32>' in shardy
    gspmd = lowered(guide("shard-map-auto"), "gspmd")
    assert (
        '@SPMDFullToShardShape(%0) {backend_config = "unspecified_dims=[0,1]", mhlo.sharding = '
        '"{devices=[1,1,4,2]<=[8] last_tile_dims={manual, replicated}}"}' in gspmd
    )


def test_each_form_of_a_sharding_rule_is_lowered_to_the_same(guide):
    rules = {}
    for form in shardy_guide.RULES:
        inspection = guide(f"custom-partitioning-{form}")
        text = lowered(inspection, "shardy")
        (rules[form],) = re.findall(r"sdy\.sharding_rule = (#.*?custom>)", text)
        # GSPMD has no rules: it asks the callback.
        assert "sdy." not in lowered(inspection, "gspmd")
    assert set(rules.values()) == {
        "#sdy.op_sharding_rule<([i, j, k, l], [i, j, l, m])->([i, j, k, m]) "
        "{i=2, j=3, k=16, l=8, m=16}, custom>"
    }


PRIORITIES = """module @jit_f {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(%arg0: tensor<4x8x16xf32>) -> tensor<4x8x16xf32> {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{}, {"x"}p0, {"y"}p1]> : tensor<4x8x16xf32>
    return %0 : tensor<4x8x16xf32>
  }
}
"""


def test_the_guides_priorities_are_read(tmp_path):
    """PartitionSpec(None, 'x', 'y', priorities=(None, 0, 1)), which JAX does not have."""
    file = tmp_path / "priorities.mlir"
    file.write_text(PRIORITIES)
    (row,) = [
        row
        for row in Inspection(read(file), ["shardy"]).tensors.tensors
        if row.kind == "constraint"
    ]
    sharding = row.lowered["shardy"].sharding
    assert [dim.priority for dim in sharding.dim_shardings] == [None, 0, 1]


M, N = 2, 4


def guides_partition(mesh, arg_shapes, result_shape):
    """The guide's, for operands of any rank on a mesh of 2M x M."""
    arg_shardings = jax.tree.map(lambda s: s.sharding, arg_shapes)
    rank = len(arg_shapes[0].shape)

    def lower_fn(x, y):
        axis_name = arg_shardings[1].spec[rank - 2][0]
        i = jax.lax.axis_index(axis_name)
        return jax.lax.psum(
            jax.lax.dynamic_slice_in_dim(
                jax.lax.dynamic_slice_in_dim(x, i * 0, N, axis=rank - 2), i * N, N, axis=rank - 1
            )
            @ y,
            (axis_name),
        )

    return mesh, lower_fn, result_shape.sharding, arg_shardings


@pytest.mark.compiles
@pytest.mark.parametrize("form", shardy_guide.RULES)
def test_the_guides_custom_partitioning(form):
    """With its rule in each of the three forms, its mesh, and its check of every shard."""
    function = custom_partitioning(lambda x, y: jnp.matmul(x, y))
    function.def_partition(
        infer_sharding_from_operands=None,
        propagate_user_sharding=None,
        partition=guides_partition,
        sharding_rule=shardy_guide.RULES[form],
    )
    devices = np.array(jax.devices()[: 2 * M * M]).reshape(2 * M, M)
    mesh = Mesh(devices, ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    sharding_x = NamedSharding(mesh, PartitionSpec(None, None, "x"))
    sharding_y = NamedSharding(mesh, PartitionSpec(None, None, "y"))
    jitted = jax.jit(
        lambda x, y: function(x, y),
        in_shardings=(sharding_x, sharding_y),
        out_shardings=sharding_x,
    )
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, (2, 3, 4 * N, 2 * N)).astype(np.float32)
    y = rng.integers(0, 20, (2, 3, 2 * N, 4 * N)).astype(np.float32)
    program = Program("f", jitted, (x, y), mesh=mesh)
    inspection = Inspection(program, ["shardy"])
    assert inspection.check().passed
    assert "sdy.op_sharding_rule" in inspection.lowered["shardy"].text()
    with compat.partitioner("shardy"):
        result = jitted(x, y)
    for i in range(devices.size):
        j = (i // M) * N
        np.testing.assert_array_equal(
            np.asarray(result.addressable_shards[i].data), (x @ y)[:, :, j : j + N, :]
        )
    assert inspection.run(steps=1).passed


def propagated(example):
    """The name of every value, and its sharding under Shardy in its most readable form."""
    program = resolve("shardy-guide", settings={"example": example})
    rows = propagate_document(Inspection(program, ["shardy"])).values
    return [(row.name, short(row.propagated["shardy"].sharding)) for row in rows]


def test_priorities_decide_who_wins(guide):
    written = lowered(guide("priorities"), "shardy")
    assert 'sdy.sharding_constraint %arg1 <@mesh, [{"model"}p1, {"data"}p2]>' in written
    assert 'sdy.sharding_constraint %arg1 <@mesh, [{"model"}, {"data"}]>' in lowered(
        guide("no-priorities"), "shardy"
    )
    assert lowered(guide("priorities"), "gspmd") == lowered(guide("no-priorities"), "gspmd")
    assert ("result", "P('data', None, None)") in propagated("priorities")
    assert ("result", "P(None, None, 'data')") in propagated("no-priorities")


def test_an_axis_is_split_by_a_reshape(guide):
    found = [sharding for _, sharding in propagated("sub-axes")]
    assert found.count("[{data:(1)2}, {data:(2)2}, {}]") == 2
    # Nothing in the module that JAX lowers says so.
    assert ":(1)2" not in lowered(guide("sub-axes"), "shardy")


@pytest.mark.compiles
@pytest.mark.parametrize("example", EXAMPLES)
def test_eight_devices_compute_what_one_does(guide, example):
    ran = guide(example).run(steps=1)
    assert ran.passed
    for execution in ran.executions.values():
        assert execution.failure == ""
        # Nobody asked for one device only.
        assert {len(array.shards) for array in execution.arrays} == {8}


def test_custom_partitioning_needs_devices():
    with pytest.raises(TargetError, match="needs 4,096 devices"):
        resolve(
            "shardy-guide",
            mesh={"data": 512, "model": 8},
            settings={"example": "custom-partitioning-rule"},
        )
    # Without them the others are lowered all the same.
    resolve("shardy-guide", mesh={"data": 512, "model": 8}, settings={"example": "shard-map"})


def test_the_axes_are_the_guides():
    with pytest.raises(TargetError, match="has the axes data and model"):
        resolve("shardy-guide", mesh={"data": 8})


def test_a_priority_is_part_of_the_request(guide):
    """What is lowered with another priority than was asked for is found."""
    table = guide("priorities").tensors
    rows = [
        row
        if row.kind != "constraint" or row.requested is None
        else replace(row, requested=replace(row.requested, priorities=(0, 1)))
        for row in table.tensors
    ]
    found = check(replace(table, tensors=tuple(rows)))
    assert [finding_of(one).message for one in found.observations] == [
        "The module gives dimensions a priority that was not requested."
    ]
