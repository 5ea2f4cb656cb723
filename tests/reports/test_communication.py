"""What is sent, in the browser: the bars, what they pick, the collectives, the estimate."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from sdyscope.analysis.profile.profile import profile_document
from sdyscope.facts.calibration import AxisRate, Calibration, ComputeRates
from sdyscope.facts.measured import Trace, TracedProgram
from sdyscope.facts.program import Program
from sdyscope.hardware.names import parse_hardware
from sdyscope.hardware.specs import EstimateError
from sdyscope.hlo import read_hlo
from sdyscope.inspection import Inspection
from sdyscope.page import (
    communication as report_communication,
)
from sdyscope.page import (
    document as report,
)
from sdyscope.page import (
    page as report_page,
)
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.terminal.table import Heading
from sdyscope.values.mesh import Mesh
from sdyscope.views.comms import by_kind, largest
from sdyscope.words.origins import origin_text
from tests.reports.conftest import made

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def estimated():
    """An mlp compiled for TPUs that are not there."""
    inspection = Inspection(resolve("mlp"), ["shardy"])
    document = report.document(inspection, "mlp", on=parse_hardware("tpu:v5e:4x2"))
    return report_page.page(document, inspection)


@pytest.fixture(scope="module")
def bars(differing):
    return report_communication.bars(differing.report.comms.programs)


def test_bars_add_up_to_what_is_sent(differing, bars):
    """A tensor counts once for its kind, axes, scope and pass, and with each annotation.

    A collective of several tensors counts with each of their scopes, none of which has 0 of them.
    """
    for number, program in enumerate(differing.report.comms.programs):
        for name in ("kind", "axis", "scope", "pass"):
            found = [bar["tallies"][number] for bar in bars[name]]
            assert all(count for count, sent in found if sent)
            assert sum(sent for _, sent in found) == program.total.sent
            counts = sum(count for count, _ in found)
            assert counts == program.total.count or (name != "kind" and name != "axis")
            assert counts >= program.total.count
        assert sum(bar["tallies"][number][1] for bar in bars["cause"]) >= program.total.sent


def test_the_command_calls_partitioners_as_the_page_does(differing):
    headers = [column.header for column in by_kind(differing.report.comms).columns]
    assert headers == ["collective", "over", "Shardy", "sent", "GSPMD", "sent"]


def test_layers_are_folded(bars):
    scopes = [bar["label"] for bar in bars["scope"]]
    assert any("layer*" in scope for scope in scopes)
    assert not any(re.search(r"layer\d", scope) for scope in scopes)
    assert any("['layers'][*]" in bar["label"] for bar in bars["cause"])


def test_the_difference_is_said_first_with_its_cause(open_page, differing):
    page = open_page(differing.html, "#communication")
    shardy, gspmd = (one.total.sent for one in differing.report.comms.programs)
    assert shardy > 1.5 * gspmd
    title = page.inner_text(".view-title")
    assert f"Under Shardy a device sends {shardy / gspmd:.1f} times the bytes" in title
    page.wait_for_selector("[data-slot=cause]:not([hidden])")
    cause = page.inner_text("[data-slot=cause]")
    assert "jvp(embed)/gather" in cause
    assert "P(None, None, 'fsdp')" in cause
    assert "P('fsdp', None, None)" in cause
    page.click("[data-slot=cause] >> text=All differences")
    page.wait_for_selector(".view[data-view=differences]")


def test_a_bar_picks_its_collectives(open_page, differing):
    page = open_page(differing.html, "#communication")
    bar = page.locator(".pair-of-bars").first
    kind = bar.locator("strong").inner_text()
    bar.click()
    assert page.locator(".pair-of-bars[aria-pressed=true]").count() == 1
    kinds = page.locator(".collective-what strong").all_inner_texts()
    assert kinds
    assert set(kinds) == {kind}
    other = open_page(differing.html, page.evaluate("location.hash"))
    assert other.locator(".collective-what strong").all_inner_texts() == kinds
    other.click(".picked >> text=Show all")
    assert len(set(other.locator(".collective-what strong").all_inner_texts())) > 1


@pytest.mark.parametrize("by", ["Mesh axis", "Scope", "Pass", "Annotation"])
def test_bars_by_something_else(open_page, differing, bars, by):
    page = open_page(differing.html, "#communication")
    page.click(f"[data-slot=by] >> text={by}")
    name = {"Mesh axis": "axis", "Scope": "scope", "Pass": "pass", "Annotation": "cause"}[by]
    shown = page.locator(".pair-label").all_inner_texts()
    assert shown == [bar["label"] for bar in bars[name]][:10]
    page.locator(".pair-of-bars").first.click()
    assert page.locator(".collective").count() > 0


def test_a_collective_opens_with_its_origin_and_groups(open_page, differing):
    page = open_page(differing.html, "#communication")
    page.locator(".collective-line").first.click()
    largest = differing.report.comms.programs[0].collectives[0]
    text = page.inner_text(".collective[data-open]")
    assert f"%{largest.name}" in text
    assert largest.groups in text
    assert origin_text(largest.parts[0].origin) in text
    link = page.locator(".member-annotations a").first
    name = link.inner_text()
    link.click()
    page.wait_for_selector(".details")
    assert page.inner_text(".details-name") == name
    page.go_back()
    page.wait_for_selector(".collective[data-open]")


def test_the_tensor_of_a_collective_is_a_link(open_page, differing):
    page = open_page(differing.html, "#communication")
    page.locator(".collective-line").first.click()
    link = page.locator(".member-part > p a").first
    primitive = link.inner_text().rpartition("/")[2]
    link.click()
    page.wait_for_selector(".view[data-view=tensors]")
    assert primitive in page.inner_text(".view[data-view=tensors] .grid-body")


def test_the_other_partitioner_and_a_search(open_page, differing):
    page = open_page(differing.html, "#communication?under=gspmd")
    total = differing.report.comms.programs[1].total.count
    assert page.inner_text("[data-slot=count]") == f"{total} collectives"
    page.keyboard.press("/")
    page.keyboard.type("all-to-all")
    assert set(page.locator(".collective-what strong").all_inner_texts()) == {"all-to-all"}
    page.keyboard.type(" nothing of this")
    assert "No collective has all of this." in page.inner_text(".collectives")


def test_what_a_loop_runs_counts_as_often_everywhere(open_page):
    mesh = compat.abstract_mesh(Mesh.of({"data": 4}))
    sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharded)
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, y: jnp.sin(y) / y.sum(), x))
    looped = made(Inspection(Program("step", step, (x,)), ("shardy",)))
    (program,) = looped.report.comms.programs
    assert (len(program.collectives), program.total.count) == (1, 5)
    page = open_page(looped.html, "#communication")
    assert page.inner_text("[data-slot=count]") == "5 collectives"
    assert "in 5 collectives" in page.inner_text(".view[data-view=communication]")
    table = largest(None, looped.report.comms)
    assert [row.text for row in table.rows if isinstance(row, Heading)] == ["all 5 collectives"]


def test_no_times_are_made_up_for_a_cpu(page):
    page.evaluate("location.hash = '#communication'")
    page.wait_for_selector(".estimates")
    text = page.inner_text(".estimates")
    assert "estimate" in text
    assert "no time estimates: no rates are known for cpu" in text


@pytest.mark.libtpu
def test_what_is_estimated_says_so(open_page, estimated):
    page = open_page(estimated, "#communication")
    text = page.inner_text(".estimates")
    assert "estimate" in text
    assert "not a measurement" in text
    assert "limited by" in text
    assert "TPU" in text.upper()
    # The step over time: compute and two mesh axes, and what is exposed most with its cause.
    assert page.locator(".timeline-name").all_inner_texts() == ["compute", "data", "model"]
    assert all(bars.query_selector("rect") for bars in page.query_selector_all(".timeline-bars"))
    assert "models/mlp.py:100" in page.locator(".exposed").first.inner_text()


@pytest.fixture(scope="module")
def traced(mlp):
    """A page with a trace in which every instruction took 10 us on each of eight devices."""
    hlo = mlp.inspection.compiled("shardy").hlo
    module = read_hlo(hlo)
    names = [*module.computations[module.entry].instructions, "copy.of_another_program"]
    ran = {
        name: [(0, device, 20e-6 * at, 10e-6) for device in range(8)]
        for at, name in enumerate(names)
    }
    trace = Trace((Path("trace"),), (TracedProgram("jit_step", hlo, 8, 1, 1, ran, [0] * 8),))
    calibration = Calibration(
        ("other",),
        tuple(AxisRate(axis, 1e9, 1e-6, 1, 0.1) for axis in ("data", "model")),
        ComputeRates({"f32": 1e11}, 1e10, 1e9, 1e10, 1e-6, 1),
        1.0,
        (EstimateError("steps", 0.1, count=1),),
        0,
    )
    profile = profile_document(trace, mlp.inspection, calibration=calibration)
    document = report.document(mlp.inspection, "mlp", profile=profile)
    return report_page.page(document, mlp.inspection)


def test_measured_over_predicted(open_page, traced, violations):
    page = open_page(traced, "#communication")
    assert page.locator(".measured-lane .timeline-name").all_inner_texts()[0] == "compute"
    assert page.locator(".measured-lane .timeline-which").all_inner_texts()[:2] == [
        *("measured", "predicted"),
    ]
    assert all(bars.query_selector("rect") for bars in page.query_selector_all(".timeline-bars"))
    table = page.locator(".measured-table")
    differences = table.locator(".grid-cell:nth-child(6)").all_inner_texts()
    assert differences[0] == "difference"
    assert [text[0] for text in differences[1:3]] == ["+", "+"]
    # What the program does not have is not known, and last, whichever way the rest is sorted.
    for where in ("", "?sort=ratio:asc", "?sort=difference:desc"):
        page.evaluate(f"location.hash = '#communication{where}'")
        table.locator(".grid").focus()
        page.keyboard.press("End")
        last = table.locator("[data-active]").inner_text()
        assert "copy.of_another_program" in last
        assert last.count("not known") == 3
    table.locator("button >> text=measured").click()
    assert page.evaluate("location.hash") == "#communication?sort=seconds:desc"
    page.locator(".collective-line").first.click()
    assert "ratio" in page.inner_text(".member .pairs")
    assert violations(page) == []
    # The last stage has a time, and so has each value whose instructions ran.
    assert "By a trace, jit_step: 1 step on 8 devices" in open_page(traced).inner_text(".stages")
    tensors = open_page(traced, "#tensors?flat=1&sort=time:desc", width=1800)
    headers = tensors.locator(".grid-headcell").all_inner_texts()
    slowest = tensors.locator(".grid-body .grid-row").first.locator(".grid-cell").all_inner_texts()
    assert re.fullmatch(r"(≤ )?[0-9.]+ us", slowest[headers.index("time")])
    narrow = open_page(traced, "#communication", width=400)
    assert narrow.evaluate("document.documentElement.scrollWidth") == 400


def test_accessible(open_page, differing, violations):
    page = open_page(differing.html, "#communication")
    page.wait_for_selector("[data-slot=cause]:not([hidden])")
    page.locator(".collective-line").first.click()
    assert violations(page) == []
