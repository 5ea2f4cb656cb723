"""What a notebook shows of an inspection and of shardings, and the pictures for documents."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import jax
import pytest

from sdyscope import show_sharding
from sdyscope.analysis.fix.values import Figures, Fix, Remedy
from sdyscope.errors import SdyscopeError
from sdyscope.facts.edits import Numbers, SourceEdit
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.page import svg as report_svg
from sdyscope.page.markdown import markdown
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding, PartitionSpec

SVG = "{http://www.w3.org/2000/svg}"


def squares(picture):
    """The title and the colour of each device's square."""
    root = ElementTree.fromstring(picture)
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect") is not None]
    return {group[0].text: group.find(f"{SVG}rect").get("fill") for group in groups}


def test_an_inspection_is_its_first_tensors():
    html = Inspection(resolve("mlp"))._repr_html_()
    rows = re.findall(r"<tr><td.*?</tr>", html)
    assert len(rows) == 22
    assert "params[&#39;w1&#39;]" in rows[0]
    assert "as requested" in rows[0]
    assert "64.0 KiB" in rows[0]
    assert "<script" not in html


@pytest.mark.parametrize(
    "sharding",
    [
        NamedSharding(Mesh.of({"data": 4, "model": 2}), PartitionSpec.of("data", "model")),
        parse_tensor_sharding('#sdy.sharding<mesh<["data"=4, "model"=2]>, [{"data"}, {"model"}]>'),
        parse_hlo_sharding("{devices=[4,2]<=[8]}"),
    ],
    ids=["named", "shardy", "hlo"],
)
def test_a_sharding_is_its_devices_in_colours(sharding):
    found = squares(sharding._repr_html_())
    assert len(found) == 8
    assert len(set(found.values())) == 8
    assert "device 5: block 2 of dim 0, block 1 of dim 1" in found


def test_devices_with_the_same_block_have_the_same_colour():
    mesh = Mesh.of({"data": 4, "model": 2})
    found = squares(NamedSharding(mesh, PartitionSpec.of("model"))._repr_html_())
    colours = [colour for _, colour in sorted(found.items())]
    assert colours[0::2] == [colours[0]] * 4
    assert colours[1::2] == [colours[1]] * 4
    assert colours[0] != colours[1]


def test_the_order_of_the_devices_is_the_mesh_s():
    mesh = Mesh.of({"x": 4}, (3, 1, 0, 2))
    picture = NamedSharding(mesh, PartitionSpec.of("x"))._repr_html_()
    assert list(squares(picture)) == [
        "device 3: block 0 of dim 0",
        "device 1: block 1 of dim 0",
        "device 0: block 2 of dim 0",
        "device 2: block 3 of dim 0",
    ]


def test_many_devices_are_counted():
    mesh = Mesh.of({"data": 32, "fsdp": 64, "model": 16})
    picture = NamedSharding(mesh, PartitionSpec.of("fsdp"))._repr_html_()
    assert len(squares(picture)) == 4 * 16 * 16
    assert "1,024 of 32,768 devices are drawn" in picture


def test_names_are_text_and_xml():
    hostile = "</text><script>1</script>&\"'\x00\u202e" + "x" * 10_000
    picture = report_svg.placement_svg(Placement(4, ((),)), None, hostile)
    root = ElementTree.fromstring(picture)
    assert not list(root.iter(f"{SVG}script"))
    assert len(picture) < 10_000


def test_a_symbol_s_mesh_is_not_known():
    assert parse_tensor_sharding('#sdy.sharding<@mesh, [{"x"}]>')._repr_html_() is None


def test_a_value_alone_is_shown_by_the_page_which_is_loaded_only_then():
    code = """
import sys
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec
assert not {"jinja2", "sdyscope.page", "sdyscope.views"} & sys.modules.keys()
print(NamedSharding(Mesh.of({"x": 4}), PartitionSpec.of("x"))._repr_html_())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert len(squares(done.stdout)) == 4


@pytest.mark.compiles
def test_bars_of_what_is_sent(mlp):
    picture = report_svg.communication_svg(mlp.report.comms)
    root = ElementTree.fromstring(picture)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "all-reduce" in texts
    assert "mlp: what a device sends in a step" in texts
    assert len(list(root.iter(f"{SVG}rect"))) == sum(
        len(program.by_kind) for program in mlp.report.comms.programs
    )


@pytest.mark.compiles
def test_of_a_recorded_run_the_device_is_named(mlp):
    comms = replace(mlp.report.comms, hardware=None, device_kind="NVIDIA H200")
    assert "compiled for NVIDIA H200" in report_svg.communication_svg(comms)
    over_time = mlp.report.memory.over_time[0]
    ran = replace(over_time.compiled, hardware=None, device_kind="NVIDIA H200")
    assert "compiled for NVIDIA H200" in replace(over_time, compiled=ran)._repr_html_()
    recorded = replace(mlp.report, hardware=None, device_kind="NVIDIA H200")
    assert "compiled for NVIDIA H200" in markdown(recorded)


# --- any sharding ---------------------------------------------------------------------------------


def test_a_sharding_of_jax_is_shown_with_its_blocks():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data", "model"))
    shown = show_sharding(sharding, (16, 128))
    assert str(shown) == (
        "dim 0 split 4 ways over data, dim 1 split 2 ways over model; "
        "blocks of [4, 64] of [16, 128]"
    )
    assert shown._repr_html_() == shown.svg
    found = squares(shown.svg)
    assert len(set(found.values())) == 8
    own = NamedSharding(Mesh.of({"data": 4, "model": 2}), PartitionSpec.of("data", "model"))
    assert squares(show_sharding(own).svg) == found


def test_an_array_says_its_own_shape():
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    spec = jax.sharding.PartitionSpec(None, "data")
    sharding = jax.sharding.NamedSharding(mesh, spec)
    shown = show_sharding(jax.ShapeDtypeStruct((6, 8), "float32", sharding=sharding))
    assert str(shown).endswith("blocks of [6, 2] of [6, 8]")


@pytest.mark.parametrize(
    ("sharding", "says"),
    [
        (lambda: jax.numpy.ones(3), "names no mesh axes"),
        (lambda: parse_tensor_sharding('#sdy.sharding<@m, [{"x"}]>'), "how many devices"),
        (lambda: NamedSharding(Mesh.of({"x": 4}), PartitionSpec.of("x", "y")), "y"),
    ],
    ids=["one device", "a symbol", "no such axis"],
)
def test_what_has_no_picture_says_why(sharding, says):
    with pytest.raises(SdyscopeError, match=says):
        show_sharding(sharding())


def test_differences_edits_and_memory_are_shown():
    """Each as a part of a page that is well-formed, with names as text."""
    inspection = Inspection(resolve("mlp"))
    diff = inspection.diff()
    shown = ElementTree.fromstring(diff._repr_html_())
    assert shown.find("p/b").text == "mlp"
    assert "✓ 22 tensors, the same under" in "".join(shown.itertext())
    spec = PartitionSpec.of("data")
    edit = SourceEdit("new constraint", "x['<b>']", None, spec, None)
    before, after = (Figures(2, sent, (), None, 1, 1, 1, None, None) for sent in (2048, 1024))
    remedy = Remedy((edit,), "pays", after, True, Numbers("same", 1, 1), "-<b>\n+<i>\n")
    fix = Fix(
        name="mlp", finding="", jax_version="0", hardware=parse_hardware("cpu:8"), meshes={},
        before=before, predicted=None, remedies=(remedy,),
    )  # fmt: skip
    shown = ElementTree.fromstring(fix._repr_html_())
    assert shown.find("pre").text == "-<b>\n+<i>\n"
    text = "".join(shown.itertext())
    assert "constrain x['<b>'] to P('data')" in text
    assert "sent per step: 2.0 KiB → 1.0 KiB" in text


def test_memory_over_a_step_is_a_picture(mlp):
    over_time = mlp.report.memory.over_time[0]
    shown = ElementTree.fromstring(over_time._repr_html_())
    areas = shown.findall(".//path")
    categories = {name for moment in over_time.moments for name in moment.by_category}
    assert {area.find("title").text for area in areas} == categories
    # The highest point of all areas is the peak, at the top of the picture.
    lowest = min(float(corner.split()[1]) for area in areas
                 for corner in area.get("d").strip("MZ").split("L"))  # fmt: skip
    assert lowest == pytest.approx(0, abs=0.1)
    assert "held at the peak" in "".join(shown.itertext())
