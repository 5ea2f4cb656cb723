"""The mesh that `--mesh`, `--mesh-config`, `--mesh-selector` and `--devices` choose together."""

import math

import click
import pytest
from click.testing import CliRunner

from sdyscope.commands import options
from sdyscope.commands.mesh_choice import devices_of
from sdyscope.commands.run import environment
from sdyscope.errors import SdyscopeError
from sdyscope.hardware.names import Devices, parse_hardware

CONFIG = """
[rules]
mesh_axis_names = ["pipeline", "data", "expert", "fsdp", "seq", "track", "model"]
mesh_shape = {data = -1}
mesh_rules = [["tpu-v5p-4096-8", {data = -1, fsdp = 256, track = 8}]]

[mapped]
axes = {model = 2}

[several]
mesh_shape = {data = -1}
mesh_rules = [["tpu-.*", {data = 2}], ["tpu-v5.*", {data = 4}]]

[context]
axes = {context = 2}
shared_mapping = {position = "context"}
param_mapping = {embed = "data"}

[sized]
mesh_shape = {data = 8, model = 2}

[inner]
mesh_shape = {ici = {data = 2, model = 2}, dcn = {model = 2}}

[only]
mesh_rules = [["a", {data = -1}]]
"""

OWN_MESH = """
from sdyscope import Program


def needs(mesh):
    return Program("needs", None)
"""


@click.command()
@options.target
@options.mesh
@options.on
@options.settings
def show(**parameters):
    click.echo(repr({key: value for key, value in parameters.items() if key == "mesh"}))


@click.command()
@click.argument("targets", nargs=-1)
@options.mesh
def several(**parameters):
    click.echo(repr({"mesh": parameters["mesh"]}))


@click.command()
@options.target
@options.mesh
@click.option("--devices", type=int)
def run(**parameters):
    click.echo(repr(parameters))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "mesh.toml"
    path.write_text(CONFIG)
    return path


def chosen(*words, command=show):
    done = CliRunner().invoke(command, list(map(str, words)))
    if isinstance(done.exception, SdyscopeError):
        raise done.exception
    return done.output if done.exit_code else eval(done.output.splitlines()[-1])


def test_a_mesh_that_is_written_out_is_itself():
    assert chosen("no such target", "--mesh", "data=4,model=2") == {"mesh": {"data": 4, "model": 2}}


@pytest.mark.parametrize(
    ("words", "mesh"),
    [
        (("--on", "cpu:8"), {"data": 4, "model": 2}),
        (("--on", "tpu:v5e:4x4"), {"data": 8, "model": 2}),
        (("--on", "tpu:v6e:4x4x2slices"), {"data": 16, "model": 2}),
        (("--on", "cuda:h100:1x2x8"), {"data": 8, "model": 2}),
        (("--devices", "12"), {"data": 6, "model": 2}),
        (("--devices", "4096x8slices"), {"data": 16_384, "model": 2}),
        (("--devices", "8", "--on", "cpu"), {"data": 4, "model": 2}),
        ((), {"data": 4, "model": 2}),  # mlp's own mesh has 8
    ],
)
def test_a_size_is_inferred(words, mesh):
    assert chosen("mlp", "--mesh", "data=-1,model=2", *words) == {"mesh": mesh}


def test_a_command_with_devices_of_its_own_keeps_them():
    words = ("mlp", "--mesh", "data=-1,model=2")
    assert chosen(*words, "--devices", 4, command=run) == {
        "target": "mlp",
        "mesh": {"data": 2, "model": 2},
        "devices": 4,
    }
    assert chosen("mlp", "--mesh", "data=2", "--devices", 4, command=run)["mesh"] == {"data": 2}
    assert chosen("mlp", "--devices", 4, command=run)["mesh"] is None


def test_one_of_several_targets_has_a_mesh_to_infer_from():
    words = ("--mesh", "data=-1,model=2")
    assert chosen("mlp", *words, command=several) == {"mesh": {"data": 4, "model": 2}}
    assert chosen("a", "b", *words, "--devices", 4, command=several)["mesh"]["data"] == 2
    with pytest.raises(SdyscopeError, match="of data can't be inferred from 2 targets at once"):
        chosen("a", "b", *words, command=several)


def test_rules_by_the_name_of_the_hardware(config):
    words = ("mlp", "--mesh-config", f"{config}:rules", "--devices", "4096x8slices")
    mesh = chosen(*words, "--mesh-selector", "tpu-v5p-4096-8")["mesh"]
    assert list(mesh.values()) == [1, 16, 1, 256, 1, 8, 1]
    assert math.prod(mesh.values()) == 32_768
    done = CliRunner().invoke(show, [*words, "--mesh-selector", "other"])
    assert f"note: no mesh rule of {config} matches 'other'; its mesh_shape is used." in done.stderr
    assert "'data': 32768" in done.stdout


def test_the_first_of_several_rules_is_taken_and_that_is_said(config):
    words = ["mlp", "--mesh-config", f"{config}:several", "--mesh-selector", "tpu-v5p"]
    done = CliRunner().invoke(show, [*words, "--devices", "2"])
    assert done.stdout == "{'mesh': {'data': 2}}\n"
    assert (
        f"note: 2 mesh rules of {config} match 'tpu-v5p', 'tpu-.*' and 'tpu-v5.*'; the first is "
        "used." in done.stderr
    )


def test_mappings_that_commands_do_not_use_are_said(config):
    done = CliRunner().invoke(show, ["mlp", "--mesh-config", f"{config}:context"])
    assert "'context': 2" in done.stdout
    assert (
        f"note: only the mesh of {config}:context is used, not its shared_mapping and "
        "param_mapping: mlp takes no parameter `mapping`" in done.stderr
    )
    done = CliRunner().invoke(show, ["mlp", "--mesh-config", f"{config}:mapped"])
    assert done.stderr == ""


def test_merged_defaults(config):
    words = ("mlp", "--mesh-config", f"{config}:mapped")
    assert list(chosen(*words)["mesh"].values()) == [1, 1, 4, 2]
    assert list(chosen(*words, "--devices", "8x4slices")["mesh"].values()) == [4, 1, 4, 2]
    assert list(chosen(*words, "--on", "tpu:v5e:4x4x2slices")["mesh"].values()) == [2, 1, 8, 2]


def test_sizes_that_are_all_known_need_no_devices(config):
    words = ("no such target", "--mesh-config", f"{config}:sized")
    assert chosen(*words) == {"mesh": {"data": 8, "model": 2}}


def test_an_order_that_is_not_that_of_the_numbers_is_said(config):
    words = ["mlp", "--mesh-config", f"{config}:inner", "--devices", "4x2slices"]
    done = CliRunner().invoke(show, words)
    assert (
        "note: on 2 slices JAX does not order the devices of data=2,model=4 by their" in done.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mesh", "data=-1,model=3"), "size of data can't be inferred: model=3 does not divide"),
        (
            ("--mesh", "data=-1,model=3"),
            "As many as the target's own mesh has. Say how",
        ),
        (("--mesh", "data=-1,model=3", "--on", "cpu:8"), "8 devices.\nChange one of these sizes"),
        (("--mesh", "data=2", "--devices", "4"), "The sizes are data=2, and there are 4 devices."),
        (("--devices", "4"), "there is no mesh.\nGive one with --mesh"),
        (("--mesh-selector", "x"), "among the mesh rules of a file.\nGive the file with"),
        (("--mesh", "a=-1", "--devices", "8", "--on", "cpu:4"), "says 8 devices, and --on has 4."),
        (("--mesh", "a=1", "--mesh-config", "x.toml"), "both define the mesh"),
        (("--mesh-config", ""), "--mesh-config names no file"),
        (("--mesh-config", "nope.toml"), "nope.toml: The mesh configuration can't be read"),
        (("--mesh-config", "CONFIG"), "There are 7 mesh configurations in the file"),
        (("--mesh-config", "CONFIG:mapped", "--mesh-selector", "a"), "this configuration has none"),
        (("--mesh-config", "CONFIG:only", "--mesh-selector", "b"), "mesh.toml: No mesh rule match"),
        (("--mesh-config", "CONFIG:only"), "There are only mesh rules, and no mesh_shape."),
    ],
)
def test_what_is_wrong_is_said(config, words, message):
    with pytest.raises(SdyscopeError) as caught:
        chosen("mlp", *(word.replace("CONFIG", str(config)) for word in words))
    assert message in str(caught.value)


@pytest.mark.parametrize("word", ["0", "-1", "8x", "8x0slices", "eight"])
def test_what_is_no_number_of_devices_is_wrong_usage(word):
    assert f"{word!r} is not a number of devices" in chosen("mlp", "--devices", word)


def test_targets_without_a_mesh_of_their_own(tmp_path, config):
    file = tmp_path / "module.mlir"
    file.write_text("module {}")
    with pytest.raises(SdyscopeError, match="size of data can't be inferred from a file"):
        chosen(file, "--mesh", "data=-1")
    script = tmp_path / "script.py"
    script.write_text(OWN_MESH)
    with pytest.raises(SdyscopeError, match="no mesh of its own to infer the size of data from"):
        chosen(f"{script}:needs", "--mesh", "data=-1")
    with pytest.raises(SdyscopeError, match="to infer the sizes of replica_dcn and data from"):
        chosen(f"{script}:needs", "--mesh-config", f"{config}:mapped")


@pytest.mark.parametrize(
    ("word", "devices"),
    [
        ("cpu", None),
        ("devices", None),
        ("gpu:4", Devices(4)),
        ("tpu:v5p:2x2x2", Devices(8)),
        ("tpu:v3:2x2", Devices(8)),
        ("tpu:tpu7x:2x2x1", Devices(8)),
        ("tpu:v6e:4x4x2slices", Devices(32, 2)),
        ("cuda:h100:2x4x8", Devices(64, 2)),
    ],
)
def test_devices_of_hardware(word, devices):
    assert devices_of(parse_hardware(word)) == devices


def test_run_makes_as_many_devices_as_a_configuration_says(config, monkeypatch):
    monkeypatch.setattr("os.environ", {})
    for words, count in (
        ({"mesh": {"data": 32}}, "32"),
        ({"mesh": None, "mesh_config": f"{config}:sized"}, "16"),
        ({"mesh": {"data": -1}}, "8"),
        ({"mesh": {"data": -1}, "devices": 12}, "12"),
        ({"mesh": {"data": -1}, "devices": Devices(12)}, "12"),
        ({"mesh": None, "mesh_config": "nope.toml"}, "8"),
        ({"mesh": None, "meshes": ({"data": 4}, {"data": 4, "model": 6})}, "24"),
    ):
        assert environment(**words)["JAX_NUM_CPU_DEVICES"] == count, words


def test_show_on_a_mesh_that_was_inferred(sdyscope):
    done = sdyscope("show", "mlp", "--mesh", "data=-1,model=4")
    assert done.status == 0
    assert done.out.startswith("mlp; data=2 x model=4, 8 devices")


def test_every_command_that_takes_a_mesh_takes_a_configuration():
    import importlib

    from sdyscope.commands import COMMANDS

    for name in COMMANDS:
        command = importlib.import_module(f"sdyscope.commands.{name}").command
        taken = {parameter.name for parameter in command.params}
        if "mesh" in taken:
            assert {"mesh_config", "mesh_selector", "devices"} <= taken, name
            assert {"target", "targets", "first"} & taken, name
