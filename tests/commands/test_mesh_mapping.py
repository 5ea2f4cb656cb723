"""Mappings of `--mesh-config` decide where the arrays of a program are that takes a `mapping`."""

import jax
import pytest
from levanter_document import CONTEXT, EXPLICIT, TENSOR

from sdyscope.mesh_config import MappedMesh
from sdyscope.targets import resolve, takes_mapping

#: Examples of Levanter's document on its mesh, word for word, with the model's own kind of
#: parallelism that says the same, its mesh, and the devices.
DOCUMENT = [
    pytest.param(
        *(EXPLICIT, "fsdp", {"replica_dcn": 1, "replica": 1, "data": 8, "model": 1}),
        marks=pytest.mark.thorough,
    ),
    (TENSOR, "tensor", {"replica_dcn": 1, "replica": 1, "data": 4, "model": 2}),
    (
        CONTEXT,
        "context",
        {"replica_dcn": 1, "replica": 1, "data": 2, "context": 4, "model": 1},
    ),
]

#: A configuration as MaxText has it, whose `embed` has an alternative.
RULES = """
mesh_axes: [data, fsdp, tensor]
ici_data_parallelism: 1
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 2
logical_axis_rules:
- [batch, [data, fsdp]]
- [mlp, [fsdp, tensor]]
- [embed, [fsdp]]
- [embed, [tensor]]
- [embed, [data]]
"""

LINEN = """
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from sdyscope import Program
from sdyscope.mesh_config import MappedMesh


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        init = nn.initializers.lecun_normal()
        up = nn.with_logical_partitioning(init, ("embed", "mlp"))
        x = nn.Dense(64, kernel_init=up, use_bias=False)(x)
        x = nn.with_logical_constraint(x, ("batch", "mlp"))
        down = nn.with_logical_partitioning(init, ("mlp", "embed"))
        return nn.Dense(32, kernel_init=down, use_bias=False)(x)


def program(mesh, mapping: MappedMesh | None = None):
    mapping = mapping or MappedMesh()
    stored = mapping.resolved_param_mapping.rules(mesh.axis_names)
    compute = mapping.resolved_compute_mapping.rules(mesh.axis_names)
    model, x = Mlp(), jax.ShapeDtypeStruct((16, 32), jnp.float32)

    def step(params, x):
        here = jax.sharding.use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh))
        with nn.logical_axis_rules(compute), here:
            return model.apply(params, x).sum()

    def placed(tree, specs, rules):
        shardings = nn.logical_to_mesh_sharding(specs, mesh, rules)
        return jax.tree.map(
            lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at),
            tree, shardings,
        )

    params = jax.eval_shape(model.init, jax.random.key(0), x)
    params = placed(nn.unbox(params), nn.get_partition_spec(params), stored)
    return Program("mlp", jax.jit(step), (params, placed(x, P("batch", None), compute)))
"""

NNX = """
import jax
import jax.numpy as jnp
from flax import nnx

from sdyscope import Program
from sdyscope.mesh_config import MappedMesh


class Mlp(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), ("embed", "mlp"))
        self.up = nnx.Linear(32, 64, kernel_init=init, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.up(x)


def program(mesh, mapping: MappedMesh | None = None):
    stored = (mapping or MappedMesh()).resolved_param_mapping.rules(mesh.axis_names)
    abstract = getattr(mesh, "abstract_mesh", mesh)
    with nnx.logical_axis_rules(stored), jax.sharding.use_abstract_mesh(abstract):
        graph, state = nnx.split(nnx.eval_shape(lambda: Mlp(nnx.Rngs(0))))
        shardings = nnx.get_named_sharding(state, mesh)
    state = jax.tree.map(
        lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at),
        nnx.to_pure_dict(state), nnx.to_pure_dict(shardings),
    )

    def step(state, x):
        model = nnx.eval_shape(lambda: Mlp(nnx.Rngs(0)))
        nnx.update(model, state)
        return model(x)

    return Program("mlp", jax.jit(step), (state, jax.ShapeDtypeStruct((16, 32), jnp.float32)))
"""


def specs(program):
    return [
        str(tuple(leaf.sharding.spec))
        for leaf in jax.tree.leaves((program.args, program.kwargs))
        if getattr(leaf, "sharding", None) is not None
    ]


@pytest.mark.parametrize(("text", "parallelism", "mesh"), DOCUMENT)
def test_what_levanters_document_configures(sdyscope, tmp_path, text, parallelism, mesh):
    pytest.importorskip("haliax")
    config = tmp_path / "mesh.yaml"
    config.write_text(text)
    words = ("show", "levanter-gpt2", "--partitioner", "shardy", "--json", "--set", "layers=1")
    document = sdyscope(*words, "--mesh-config", config, "--devices", "8").document("show")
    sizes = ",".join(f"{name}={size}" for name, size in mesh.items())
    own = ("--set", f"parallelism={parallelism}", "--mesh", sizes)
    expected = sdyscope(*words, *own).document("show")
    placed = [
        [
            (row["path"], row["lowered"]["shardy"]["placement"])
            for row in one["programs"][0]["tensors"]
        ]
        for one in (document, expected)
    ]
    assert placed[0] == placed[1]


@pytest.mark.parametrize("command", ["show", "lint", "comms"])
def test_one_mesh_axis_for_two_dimensions_is_said_in_the_mappings_words(
    sdyscope, tmp_path, command
):
    pytest.importorskip("haliax")
    config = tmp_path / "mesh.toml"
    config.write_text(
        '[trainer.mesh]\naxes = {model = 2}\nparam_mapping = {embed = [], vocab = "model"}\n'
        'shared_mapping = {mlp = [], position = "data"}\n'
    )
    sdyscope(command, "levanter-gpt2", "--mesh-config", config).said(
        "compute_mapping shards input_ids [batch, position] over the mesh axis 'data' twice, for "
        "batch and position.",
        "Map 'position' to another mesh axis",
    )
    # No array of decoding has both, and what is advised works.
    if command == "show":
        assert sdyscope(command, "levanter-gpt2:decode", "--mesh-config", config).out
        text = config.read_text() + "compute_mapping = {position = []}\n"
        config.write_text(text)
        assert sdyscope(command, "levanter-gpt2", "--mesh-config", config).out


def test_each_line_decides(sdyscope, tmp_path):
    pytest.importorskip("haliax")
    words = ("show", "levanter-gpt2", "--partitioner", "shardy", "--match", "model*token_emb*")
    config = tmp_path / "mesh.toml"
    for mapping, spec in {
        "": "P(None, 'data')",
        'param_mapping = {vocab = "model"}': "P('model', 'data')",
        'param_mapping = {embed = [], vocab = "model"}': "P('model', None)",
        'param_mapping = {embed = "model"}\nshared_mapping = {mlp = [], heads = []}': (
            "P(None, 'model')"
        ),
        "param_mapping = {embed = []}": "P(None, None)",
    }.items():
        config.write_text(f"[mesh]\naxes = {{model = 2}}\n{mapping}\n")
        done = sdyscope(*words, "--mesh-config", config)
        assert f" {spec} " in done.out, (mapping, done.out)


@pytest.mark.parametrize("text", [LINEN, NNX], ids=["linen", "nnx"])
def test_rules_of_flax(tmp_path, text):
    nnx = pytest.importorskip("flax.nnx")
    if text is NNX and not hasattr(nnx, "logical_axis_rules"):
        pytest.skip("this Flax has no rules in NNX")
    (tmp_path / "of_flax.py").write_text(text)
    word = f"{tmp_path / 'of_flax.py'}:program"
    assert takes_mapping(word)
    mesh = {"replica_dcn": 1, "replica": 1, "data": 4, "model": 2}
    first = specs(resolve(word, mesh=mesh))[0]
    assert first == "('data', 'model')"
    mapping = MappedMesh(axes={"model": 2}, param_mapping={"embed": []})
    first = specs(resolve(word, mesh=mesh, settings={"mapping": mapping}))[0]
    assert first == "(None, 'model')"


def test_rules_of_maxtext_drive_a_program_of_flax(sdyscope, tmp_path):
    pytest.importorskip("flax")
    (tmp_path / "of_maxtext.py").write_text(LINEN)
    config = tmp_path / "base.yml"
    config.write_text(RULES)
    words = ("show", f"{tmp_path / 'of_maxtext.py'}:program", "--mesh-config", config)
    programs = sdyscope(*words, "--devices", "8", "--json").document("show")["programs"][0]
    assert programs["meshes"]["mesh"]["axes"] == {"data": 1, "fsdp": 4, "tensor": 2}
    rows = {row["path"]: row for row in programs["tensors"]}
    kernels = [row["requested"]["text"] for path, row in rows.items() if "kernel" in path]
    # fsdp and tensor are taken by mlp: the third rule of embed.
    assert kernels == ["P('data', ('fsdp', 'tensor'))", "P(('fsdp', 'tensor'), 'data')"]
    said = sdyscope("show", "mlp", "--mesh-config", config, "--devices", "8")
    assert "not its logical_axis_rules: mlp takes no parameter `mapping`" in said.err


def test_the_difference_of_two_configurations(sdyscope, tmp_path):
    pytest.importorskip("flax")
    (tmp_path / "two_meshes.py").write_text(LINEN)
    config = tmp_path / "mesh.toml"
    config.write_text(
        "[one]\naxes = {model = 2}\n[two]\naxes = {model = 2}\nparam_mapping = {embed = []}\n"
    )
    asked = ("--partitioner", "shardy", "--devices", "8")
    words = ("diff", f"{tmp_path / 'two_meshes.py'}:program", *asked)
    one, two = ("--mesh-config", f"{config}:one"), ("--mesh-config", f"{config}:two")
    done = sdyscope(*words, *one, *two)
    assert done.status == 1
    assert "2 of 5 tensors differ" in done.out
    assert sdyscope(*words, *one, *one).status == 0
    compiled = sdyscope(*words, *one, *two, "--at", "compiled", "--json").document("diff")
    (changes,) = [compiled_program["collectives"] for compiled_program in compiled["compiled"]]
    gathers = [row for row in changes if row["key"]["kind"] == "all-gather"]
    assert [row["change"] for row in gathers] == ["only in a"] * 2
    assert {tuple(row["key"]["axes"]) for row in gathers} == {("data",)}
    sdyscope(*words, *one, *two, *one).said("--mesh-config takes one file per side.")


def test_a_program_that_takes_none_does_without(sdyscope, tmp_path):
    config = tmp_path / "mesh.toml"
    config.write_text('[mesh]\naxes = {model = 2}\nshared_mapping = {hidden = "model"}\n')
    done = sdyscope("show", "mlp", "--mesh-config", config, "--devices", "8")
    assert done.status == 0
    assert "mlp takes no parameter `mapping` (`sdyscope docs mesh`)" in done.err
    assert not takes_mapping("mlp")
    assert not takes_mapping("no.such:thing")
