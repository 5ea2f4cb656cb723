"""The placement picture: the same as `Placement`, and what it shows in the browser."""

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdyscope.inspection import Inspection
from sdyscope.page import svg
from sdyscope.stages.lowered.read import read
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import IotaTile, Mesh, MeshAxis
from sdyscope.values.placement import Digit, Placement
from tests.reports.conftest import made
from tests.reports.placement_cases import JS, in_javascript, in_python
from tests.reports.waiting import until
from tests.strategies import meshes, shapes, shard_counts, tensor_shardings

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

#: Cases that are sent to one run of node.
BATCH = 30


@st.composite
def placed(draw):
    mesh = draw(meshes())
    sharding = draw(tensor_shardings(mesh))
    place = to_placement(sharding, len(sharding.dim_shardings), mesh)
    return place, draw(shapes(shard_counts(mesh, sharding)))


@needs_node
@settings(max_examples=8, deadline=None)
@given(st.lists(placed(), min_size=BATCH, max_size=BATCH))
def test_the_page_places_what_placement_does(cases):
    for (place, shape), said in zip(cases, in_javascript(cases), strict=True):
        assert said == in_python(place, shape), (place, shape)


_COLOURS = """
const { blockColour } = await import(process.argv[1]);
const cases = JSON.parse(process.argv[2]);
console.log(JSON.stringify(cases.map(([block, shards]) => blockColour(block, shards)[0])));
"""


@needs_node
def test_pictures_for_documents_have_the_colours_of_the_page():
    cases = [((), ()), ((0,), (1,)), ((3,), (4,)), ((7, 1), (16, 2)), ((1, 0, 1, 2), (2, 1, 2, 4))]
    module = (JS / "placement/colours.js").as_uri()
    done = subprocess.run(
        ["node", "--input-type=module", "-e", _COLOURS, module, json.dumps(cases)],
        capture_output=True,
        text=True,
        check=True,
    )
    for (block, shards), tones in zip(cases, json.loads(done.stdout), strict=True):
        assert svg.block_colour(block, shards) == svg.oklch(*tones)
    # As browsers convert them.
    assert svg.oklch(0.627955, 0.257683, 29.2339) == "#ff0000"
    assert svg.oklch(1, 0, 0) == "#ffffff"
    style = (JS.parent / "css" / "colours.css").read_text()
    axes = re.findall(r"--axis-\d: light-dark\((#\w+), (#\w+)\)", style)
    assert tuple(axes) == svg.AXES


@needs_node
def test_orders_maximal_manual_and_partial():
    mesh = Mesh((MeshAxis("a", 3), MeshAxis("b", 2)), IotaTile((3, 2), (1, 0)))
    whole = Placement(mesh.size, ((Digit(3, 2),), (Digit(2, 1),)))
    cases = [
        (Placement(6, ((Digit(3, 1),),), order=(5, 1, 2, 0, 4, 3)), (7,)),
        (Placement(4, ((), ()), device=3), (4, 4)),
        (Placement(8, ((Digit(2, 4),), ()), unreduced=(Digit(2, 1),)), (8, 3)),
        (Placement(8, ((Digit(2, 4),),), manual=(Digit(4, 1),)), (1,)),
        (whole, (9, 5)),
        (Placement(8, ()), ()),
    ]
    for (place, shape), said in zip(cases, in_javascript(cases), strict=True):
        assert said == in_python(place, shape), place


# --- in the browser -------------------------------------------------------------------------------

BIG = """module @big {
  sdy.mesh @mesh = <["data"=128, "fsdp"=16, "model"=16]>
  func.func public @main(
      %arg0: tensor<4096x1000x3xf32>
        {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {"model"}, {}]>},
      %arg1: tensor<100xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}]>},
      %arg2: tensor<1024x4096x64xf32>
        {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"fsdp"}, {"model"}]>})
      -> tensor<100xf32> {
    %0 = stablehlo.add %arg1, %arg1 : tensor<100xf32>
    return %0 : tensor<100xf32>
  }
}
"""

#: Two meshes of one size, and a tensor with five dimensions.
MESHES = """module @meshes {
  sdy.mesh @mesh = <["data"=2, "fsdp"=2, "expert"=2, "model"=4]>
  sdy.mesh @other = <["replica"=4, "batch"=2, "tensor"=4]>
  func.func public @main(
      %arg0: tensor<4x2x8x16x32xf32>
        {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}, {"fsdp"}, {"expert"}, {"model"}]>},
      %arg1: tensor<16x32xf32>
        {sdy.sharding = #sdy.sharding<@other, [{"batch"}, {"tensor", "replica"}]>})
      -> tensor<16x32xf32> {
    %0 = stablehlo.add %arg1, %arg1 : tensor<16x32xf32>
    return %0 : tensor<16x32xf32>
  }
}
"""

FIRST = "[data-picture={}] [data-cell='0']"


@pytest.fixture(scope="session")
def big(tmp_path_factory):
    file = tmp_path_factory.mktemp("big") / "big.mlir"
    file.write_text(BIG)
    return made(Inspection(read(file)), str(file), compiled=False)


@pytest.fixture(scope="session")
def two_meshes(tmp_path_factory):
    file = tmp_path_factory.mktemp("meshes") / "meshes.mlir"
    file.write_text(MESHES)
    return made(Inspection(read(file)), str(file), compiled=False)


def opened(open_page, report, tensor, more="", **options):
    page = open_page(report.html, f"#tensors?tensor={tensor}{more}", **options)
    page.wait_for_selector(".placement-picture")
    return page


def states(page, picture):
    return page.evaluate(
        """(name) => [...document.querySelectorAll(`[data-picture=${name}] [data-cell]`)]
        .map((cell) => cell.dataset.state ?? "")""",
        picture,
    )


@pytest.mark.compiles
class TestSmall:
    @pytest.fixture
    def page(self, open_page, mlp):
        return opened(open_page, mlp, "params['w1']")

    def test_a_device_has_the_colour_of_its_block(self, page):
        fills = page.evaluate(
            """() => Object.fromEntries(["devices", "blocks"].map((name) => [name,
            [...document.querySelectorAll(`[data-picture=${name}] [data-cell]`)].map((cell) =>
              [cell.textContent, cell.querySelector("rect").style.fill])]))"""
        )
        blocks = dict(fills["blocks"])
        assert set(blocks) == {"0 2 4 6", "1 3 5 7"}
        assert len(set(blocks.values())) == 2
        for device, fill in fills["devices"]:
            assert fill == next(of for text, of in blocks.items() if device in text.split())

    def test_pointing_at_a_device_shows_its_block_and_copies(self, page):
        page.hover("[data-picture=devices] [data-cell='3']")
        assert (
            states(page, "devices") == ["other", "same", "other", "itself"] + ["other", "same"] * 2
        )
        assert states(page, "blocks") == ["other", "same"]
        assert page.inner_text(".placement-said") == (
            "Device 3 (data 1, model 1) holds all 128 rows and columns 128..255 of 256; "
            "4 replicas, also on 1, 5 and 7."
        )

    def test_pointing_at_a_block_shows_its_devices(self, page):
        page.hover("[data-picture=blocks] [data-cell='0']")
        assert states(page, "devices") == ["same", "other"] * 4
        assert "on devices 0, 2, 4 and 6" in page.inner_text(".placement-said")

    def test_a_chosen_device_is_in_the_address(self, page, open_page, mlp):
        page.click("[data-picture=devices] [data-cell='5']")
        where = page.evaluate("location.hash")
        assert "device=5" in where
        other = open_page(mlp.html, where)
        other.wait_for_selector(".placement-said strong")
        assert other.inner_text(".placement-said strong") == "Device 5"

    def test_the_keyboard_goes_from_device_to_device(self, page):
        page.focus("[data-picture=devices]")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        words = page.inner_text(".placement-said")
        assert words.startswith(("Device 2 ", "Device 3 "))
        page.keyboard.press("Enter")
        assert "device=" in page.evaluate("location.hash")

    def test_nothing_keeps_people_from_using_it(self, page, violations):
        assert violations(page) == []


#: The texts of titles, and whether each ends before the next picture begins.
TITLES = """() => [...document.querySelectorAll('.placement-picture')].map((picture) => {
  const groups = [...picture.querySelectorAll(':scope > g')];
  const titles = groups.map((group) => group.querySelectorAll(':scope > text'));
  const edge = picture.parentElement.nextElementSibling?.getBoundingClientRect().left ?? innerWidth;
  return {
    words: titles.map((texts) => texts[0].textContent),
    fits: titles.every((texts) => [...texts].every((text) =>
      text.getBoundingClientRect().right <= edge)),
    colours: [...titles[0][0].querySelectorAll('tspan')].map((part) => part.style.fill),
  };
})"""


@pytest.mark.compiles
class TestMoreDimensions:
    def test_each_block_is_beside_its_device(self, open_page, two_meshes):
        page = opened(open_page, two_meshes, "main(0)")
        devices, blocks = page.evaluate(TITLES)
        assert devices["words"] == [
            "data 0, fsdp 0",
            "data 0, fsdp 1",
            "data 1, fsdp 0",
            "data 1, fsdp 1",
        ]
        assert devices["colours"] == ["var(--axis-0)", "var(--axis-1)"]
        assert len(blocks["words"]) == 4
        assert devices["fits"]
        assert blocks["fits"]
        page.hover("[data-picture=devices] [data-cell='25']")
        assert states(page, "blocks").index("same") == 25

    def test_a_tensor_is_drawn_on_its_own_mesh(self, open_page, two_meshes):
        page = opened(open_page, two_meshes, "main(1)")
        devices, _ = page.evaluate(TITLES)
        assert devices["words"] == [f"replica {number}" for number in range(4)]
        page.hover("[data-picture=devices] [data-cell='9']")
        said = page.inner_text(".placement-said")
        assert said.startswith("Device 9 (replica 1, batch 0, tensor 1) holds")
        # Axes of both meshes have colours of their own.
        axes = page.evaluate(
            "[...document.querySelectorAll('.placement-said .axis')].map((one) => one.dataset.axis)"
        )
        assert axes == ["4", "5", "6"]

    def test_a_picture_for_documents_has_the_same_colours_and_axes(self, two_meshes):
        five = svg.tensor_svg(two_meshes.inspection, "main(0)")
        assert '<tspan class="axis-0">data 0</tspan>' in five
        assert "below each device its block of dims 0, 2, 3 and 4" in five
        assert ">1,0,1,2<" in five
        assert '<tspan class="axis-4">replica 3</tspan>' in svg.tensor_svg(
            two_meshes.inspection, "main(1)"
        )


@pytest.mark.compiles
class TestBig:
    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_never_has_an_element_a_device(self, open_page, big, number):
        page = opened(open_page, big, f"main({number})")
        assert page.evaluate("document.querySelectorAll('.placement *').length") < 6000
        assert "32,768 devices" in page.inner_text(".placement")

    def test_axes_along_which_all_is_the_same_are_said(self, open_page, big):
        page = opened(open_page, big, "main(1)")
        assert "the same for each of data 128" in page.inner_text(".placement-pictures")

    def test_padding_is_hatched_and_said(self, open_page, big):
        page = opened(open_page, big, "main(1)", "&at=lowered.shardy")
        assert page.locator(".placement-padding").count() == 1
        assert "Uneven: padded in dim 0 by 12 (hatched)." in page.inner_text(".placement-head")
        page.hover("[data-picture=blocks] [data-cell='15']")
        assert "nothing but padding" in page.inner_text(".placement-said").lower()

    def test_dimensions_that_are_not_laid_out_are_sliced(self, open_page, big):
        page = opened(open_page, big, "main(2)", "&slice=3")
        assert "3 of 16" in page.inner_text(".placement-picks")
        page.hover("[data-picture=blocks] [data-cell='0']")
        assert page.inner_text(".placement-said") == "4 blocks, each on one device."
        elsewhere = page.locator("[data-picture=devices] [data-elsewhere]")
        assert elsewhere.count() == 0
        page.select_option(".placement-pick:has-text('across') select >> nth=0", "1")
        until(page, "location.hash", lambda found: "dims=" in found)
        assert "dims=0.1" in page.evaluate("location.hash")
