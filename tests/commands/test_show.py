"""`sdyscope show`."""

import re
import textwrap

import pytest

from sdyscope.stages import compat
from sdyscope.words.partitioners import partitioner_name

PROGRAM = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}

def program(mesh):
    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=on(*spec) if spec else None)

    def step(params, unused, free):
        y = jax.lax.with_sharding_constraint(params["w"], on("data", P.UNCONSTRAINED))
        z = jax.lax.with_sharding_constraint(free, on(("data", "model")))
        return y * 2, z

    jitted = jax.jit(step, donate_argnums=0, out_shardings=(on("data"), None))
    arguments = ({"w": array((16, 8), "data")}, array((4,), "data"), array((10,)))
    return Program("step", jitted, arguments)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "shown_program.py"
    path.write_text(PROGRAM)
    return f"{path}:program"


def rows(done):
    """The table's lines as lists of cells, by their first cell."""
    lines = [line.split("  ") for line in done.out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {line[0]: line[1:] for line in cells if line}


def test_a_row_a_tensor(sdyscope):
    done = sdyscope("show", "mlp")
    assert (done.status, done.err) == (0, "")
    row_cells = rows(done)
    w1 = ["f32[128,256]", "P(None, 'model')", "=", "=", "[128,128]", "64.0 KiB", "4"]
    assert row_cells["params['w1']"] == row_cells["opt_state[0].mu['w1']"] == w1
    assert row_cells["result[2]"] == ["f32[]", "P()", "=", "=", "[]", "4 B", "8"]
    (constraint,) = [cells for name, cells in row_cells.items() if name.endswith("mlp.py:98")]
    assert constraint == ["f32[16,128]", "P('data', None)", "=", "=", "[4,128]", "2.0 KiB", "2"]
    assert "mlp; data=4 x model=2, 8 devices; lowered by JAX" in done.out
    assert "arguments: 422.6 KiB, a device holds 209.2 KiB" in done.out


@pytest.mark.parametrize("target", ["mlp", "fsdp-transformer"])
@pytest.mark.parametrize("columns", [80, 120])
def test_reads_well_at_every_width(sdyscope, target, columns):
    done = sdyscope("show", target, columns=columns)
    assert max(map(len, done.out.splitlines())) <= columns
    assert "x: replicas" in done.out or " replicas" in done.out.splitlines()[2]


def test_a_narrow_table_leaves_out_what_every_row_would_say(sdyscope):
    done = sdyscope("show", "mlp", columns=80)
    header = done.out.splitlines()[2]
    assert header.split() == ["tensor", "type", "requested", "block", "bytes", "x"]
    assert "every tensor is lowered as requested under Shardy and GSPMD" in done.out
    assert "(5) in " in done.out


def test_what_is_not_plain_is_counted(sdyscope, program):
    done = sdyscope("show", program)
    row_cells = rows(done)
    assert row_cells["unused"][2:4] == ["dropped", "dropped"]
    assert row_cells["free"] == ["f32[10]", "-", "-", "-", "-", "-", "-"]
    open_row, padded = [cells for name, cells in row_cells.items() if "shown_program.py:" in name]
    assert open_row[:4] == ["f32[16,8]", "P('data', UNCONSTRAINED)", "=", "="]
    assert padded[4:] == ["[2] padded", "8 B", "1"]
    for sentence in (
        "(1 tensor without a sharding, counted as replicated); 1 donated",
        "1 argument is dropped by jit, unused",
        "=  as requested",
        "-  left to the compiler",
        "with UNCONSTRAINED dimensions, block, bytes and replicas are upper bounds",
    ):
        assert sentence in done.out


def test_filters(sdyscope):
    done = sdyscope("show", "mlp", "--match", "params['w?']", "--kind", "argument")
    assert list(rows(done))[3:6] == ["arguments (2)", "params['w1']", "params['w2']"]
    assert "20 tensors left out by the filters" in done.out
    done = sdyscope("show", "mlp", "--kind", "constraint", "--kind", "result", "--json")
    (program,) = done.document("show")["programs"]
    assert {tensor["kind"] for tensor in program["tensors"]} == {"constraint", "result"}
    assert (len(program["tensors"]), program["hidden"]) == (13, 9)
    sdyscope("show", "mlp", "--match", "params").said("No tensor's path or scope matches 'params'")


def test_as_written(sdyscope):
    row_cells = rows(sdyscope("show", "mlp", "--written"))
    assert row_cells["params['w1']"] == [
        "f32[128,256]",
        "P(None, 'model')",
        '<@mesh, [{}, {"model"}]>',
        "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
    ]


def test_json_has_everything(sdyscope, program):
    (found,) = sdyscope("show", program, "--json").document("show")["programs"]
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    w = tensors["params['w']"]
    assert (w["shape"], w["dtype"], w["bytes"], w["donated"]) == ([16, 8], "f32", 512, True)
    assert w["requested"]["text"] == "P('data')"
    assert w["lowered"]["shardy"]["text"] == '<@mesh, [{"data"}, {}]>'
    assert w["lowered"]["shardy"]["short"] == "P('data', None)"
    assert w["lowered"]["gspmd"]["short"] == "P('data', None)"
    assert w["agrees"] == {"shardy": True, "gspmd": True}
    assert w["requested"]["placement"] == {
        "words": "dim 0 split 4 ways over data, dim 1 whole; replicated 2 times over model",
        "shards": [4, 1],
        "replicas": 2,
        "local_shape": [4, 8],
        "bytes_per_device": 128,
        "padding": [0, 0],
    }
    assert tensors["unused"]["dropped"]
    assert tensors["unused"]["lowered"] == {}
    (opened,) = [t for t in found["tensors"] if t["requested"] and t["requested"]["open_dims"]]
    assert opened["lowered"]["gspmd"]["open_dims"] == [1]
    assert opened["source"]["file"].endswith("shown_program.py")
    (mesh,) = found["meshes"].values()
    assert mesh["axes"] == {"data": 4, "model": 2}
    assert found["arguments"]["unplaced"] == 1


def test_another_mesh_and_settings(sdyscope):
    words = ("--mesh", "data=2,model=16", "--set", "hidden=512", "--match", "params*", "--json")
    (program,) = sdyscope("show", "mlp", *words).document("show")["programs"]
    assert program["meshes"]["mesh"]["devices"] == 32
    assert program["tensors"][0]["requested"]["placement"]["local_shape"] == [128, 32]


def test_one_partitioner(sdyscope):
    done = sdyscope("show", "mlp", "--partitioner", "gspmd")
    assert "shardy" not in done.out
    assert rows(done)["params['w1']"][2:4] == ["=", "[128,128]"]


def test_a_file_has_no_requests(sdyscope, mlp_files):
    done = sdyscope("show", mlp_files / "shardy.mlir")
    assert "requested" not in done.out
    assert rows(done)["params['w1']"][:2] == ["f32[128,256]", "P(None, 'model')"]
    assert "shardings for Shardy" in done.out
    done = sdyscope("show", mlp_files / "gspmd.mlir")
    assert rows(done)["params['w1']"][1].startswith("{devices=[1,2,4]<=[4,2]T(1,0)")


def test_a_directory(sdyscope, mlp_files):
    done = sdyscope("show", mlp_files)
    assert done.status == 0
    assert "2 modules; --module shows one" in done.out
    (mlp_files / "zzz.mlir").write_text("module {")
    done = sdyscope("show", mlp_files)
    assert done.status == 1
    assert "1 file could not be read" in done.out
    assert "zzz.mlir:1:" in done.out
    document = sdyscope("show", mlp_files, "--json").document("show")
    assert [len(program["tensors"]) for program in document["programs"]] == [22, 22]
    assert document["unread"][0]["file"].endswith("zzz.mlir")
    done = sdyscope("show", mlp_files, "--module", "shardy.mlir")
    assert (done.status, "params['w1']" in done.out) == (0, True)


LOWERED = """
import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

sharding = NamedSharding(AbstractMesh((4,), ("data",)), P("data"))
array = jax.ShapeDtypeStruct((8, 8), "float32", sharding=sharding)
traced = jax.jit(lambda x: x * 2).trace(array)
lowered = traced.lower(lowering_platforms=("cpu",))
"""


def test_what_jax_traced_and_lowered_before(sdyscope, tmp_path):
    path = tmp_path / "lowered_before.py"
    path.write_text(LOWERED)
    assert rows(sdyscope("show", f"{path}:traced"))["x"][1:4] == ["P('data')", "=", "="]
    # What was asked for is not known any more.
    (program,) = sdyscope("show", f"{path}:lowered", "--json").document("show")["programs"]
    assert program["name"] == "lowered"
    assert program["tensors"][0]["requested"] is None
    partitioner, other = program["partitioners"][0], {"shardy": "gspmd", "gspmd": "shardy"}
    asked = sdyscope("show", f"{path}:lowered", "--partitioner", other[partitioner])
    asked.said(f"The module is written for {partitioner_name(partitioner)}")


def test_rows_that_are_alike_are_one(sdyscope, tmp_path):
    path = tmp_path / "shown_alike.py"
    path.write_text(
        textwrap.dedent(
            """
            import jax
            from jax.sharding import NamedSharding, PartitionSpec as P
            from sdyscope import Program
            def program(mesh):
                def step(x):
                    for _ in range(3):
                        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
                    return x
                return Program("step", jax.jit(step), (jax.ShapeDtypeStruct((8,), "float32"),))
            """
        )
    )
    words = ("show", f"{path}:program", "--mesh", "data=4")
    done = sdyscope(*words, columns=200)
    assert "constraints and shard_map boundaries (3)" in done.out
    assert done.out.count(f"…/{tmp_path.name}/shown_alike.py:8 (×3)") == 1
    assert len(sdyscope(*words, "--json").document("show")["programs"][0]["tensors"]) == 5


def test_slices_in_words(sdyscope):
    done = sdyscope("show", "mlp", "--slices", "--kind", "argument")
    assert (done.status, done.err) == (0, "")
    assert (
        "params['w1']  f32[128,256]  P(None, 'model')\n"
        "likewise opt_state[0].mu['w1'], opt_state[0].nu['w1']\n"
        "  devices 0, 2, 4, 6 hold params['w1'][:, 0:128]\n"
        "  devices 1, 3, 5, 7 hold params['w1'][:, 128:256]\n"
    ) in done.out
    assert "  all 8 devices hold opt_state[0].count\n" in done.out
    assert "13 tensors left out by the filters\n" in done.out


def test_slices_of_a_program_for_32768_devices(sdyscope):
    """The figures of AXLearn's example: 256 slices of 16 rows, each on 128 devices."""
    settings = ("--set", "features=8", "--set", "hidden=4096", "--set", "batch=16")
    words = ("mlp", "--mesh", "data=16,model=256,track=8", *settings, "--slices")
    done = sdyscope("show", *words, "--match", "params['w2']", "--json")
    (program,) = done.document("show")["slices"]
    (tensor,) = program["tensors"]
    assert tensor["different"] == 256
    assert len(tensor["listed"]) == 8
    assert tensor["rule"] == "[16*i:16*i+16, :] where i = d // 8 % 256"
    first, *_, last = tensor["listed"]
    assert first["text"] == "devices 0-7 (+2,048 x16) hold params['w2'][0:16, :]"
    assert (last["index"], last["devices"], last["first"]) == ([[4080, 4096], [0, 10]], 128, 2040)
    assert first["repeats"] == [{"times": 16, "apart": 2048}, {"times": 8, "apart": 1}]


def test_slices_leave_out_what_is_left_to_the_compiler(sdyscope, program):
    done = sdyscope("show", program, "--slices", columns=200)
    assert "2 tensors are left to the compiler: free, result[1]\n" in done.out
    assert "1 tensor is dropped by jit: unused\n" in done.out
    assert "devices 0, 1 hold params['w'][0:4, :]\n" in done.out


def test_slices_of_a_constraint_say_where_it_is(sdyscope, program):
    done = sdyscope("show", program, "--slices", "--kind", "constraint", columns=200)
    line = r"jit\(step\) at \S+shown_program.py:\d+  f32\[16,8\]  .*"
    assert re.search(rf"^{line}\n  devices 0, 1 hold \[0:4, :\]$", done.out, re.MULTILINE)
    (program,) = sdyscope("show", program, "--slices", "--json").document("show")["slices"]
    (constraint, _) = [tensor for tensor in program["tensors"] if tensor["kind"] == "constraint"]
    assert constraint["source"]["file"].endswith("shown_program.py")


def test_slices_say_which_devices_the_positions_of_a_mesh_are(sdyscope, tmp_path):
    """Where the program has its devices in another order than that of their numbers."""
    (tmp_path / "permuted.py").write_text(
        textwrap.dedent("""
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from sdyscope import Program

        def program():
            mesh = Mesh(np.array(jax.devices())[[7, 1, 2, 3, 4, 5, 6, 0]], ("data",))
            x = jax.ShapeDtypeStruct((8,), "float32", sharding=NamedSharding(mesh, P("data")))
            return Program("permuted", jax.jit(lambda x: x * 2), (x,))
        """)
    )
    done = sdyscope("show", f"{tmp_path}/permuted.py:program", "--slices", columns=200)
    assert "device 0 holds x[0:1]\n" in done.out
    assert "whose devices are JAX's 7, 1, 2, 3, 4, 5, 6, 0\n" in done.out


@pytest.mark.skipif(
    compat.version_tuple()[:2] < (0, 9), reason="JAX 0.7 can't trace a shard_map over some axes"
)
def test_slices_in_the_body_of_a_shard_map_are_not_told(sdyscope):
    words = ("show", "shardy-guide", "--set", "example=shard-map-auto", "--slices")
    done = sdyscope(*words, columns=300)
    held = "jit(body) #0 input of body  f32[32,64]  P('data')\n  devices 0, 1 hold [0:8, :]\n"
    assert held in done.out
    assert re.search(r"^[34] tensors are in the body of a shard_map, where each", done.out, re.M)
    # A tensor without a scope is called by its line.
    assert re.search(r"constraint at \S*shardy_guide.py:\d+", done.out)
    assert not re.search(r"(likewise|hold) *\n|^ ", done.out.replace("\n  ", "\n"), re.MULTILINE)


@pytest.mark.skipif(
    compat.version_tuple()[:2] < (0, 9), reason="JAX 0.7 can't trace a shard_map over some axes"
)
def test_a_shard_map_is_shown_with_the_function_that_it_maps(sdyscope):
    words = ("show", "shardy-guide", "--set", "example=shard-map-auto", "--kind", "shard_map")
    assert "#0 input of body " in sdyscope(*words, columns=300).out
    (program,) = sdyscope(*words, "--json").document("show")["programs"]
    assert {(tensor["name"], tensor["mapped"]) for tensor in program["tensors"]} == {
        ("jit(body) #0", "body")
    }
    words = ("propagate", "shardy-guide", "--set", "example=shard-map-auto", "--json")
    values = sdyscope(*words).document("propagate")["values"]
    assert [value["name"] for value in values if value["kind"] == "shard_map input"] == [
        "jit(body) #0 input of body"
    ]


def test_slices_of_a_directory(sdyscope, mlp_files):
    done = sdyscope("show", mlp_files, "--slices", "--match", "params*")
    assert done.out.count("devices 0, 2, 4, 6 hold params['w1'][:, 0:128]\n") == 2


def test_a_tensor_that_is_left_to_the_compiler_keeps_no_columns(sdyscope):
    words = ("show", "shardy-guide", "--match", "w*")
    assert " Shardy " in sdyscope(*words, columns=200).out
    narrow = sdyscope(*words, columns=60).out
    assert " Shardy " not in narrow.partition("\n\n")[2].splitlines()[0]
    assert "every tensor is lowered as requested under Shardy and GSPMD" in narrow


OFFLOADED = """
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4}

def program(mesh):
    def array(shape, spec, memory):
        sharding = NamedSharding(mesh, spec, memory_kind=memory)
        return jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)

    def step(w, x):
        return jax.device_put(w, NamedSharding(mesh, P("data"), memory_kind="device")) + x

    arguments = (array((16, 8), P("data"), "pinned_host"), array((16, 8), P(), "device"))
    return Program("step", jax.jit(step), arguments)
"""


def test_what_is_kept_in_the_host_s_memory_is_not_the_device_s(sdyscope, tmp_path):
    path = tmp_path / "offloaded.py"
    path.write_text(OFFLOADED)
    done = sdyscope("show", f"{path}:program", "--partitioner", "shardy")
    assert done.status == 0, done.err
    assert "arguments: 1.0 KiB, a device holds 512 B, its host 128 B\n" in done.out
