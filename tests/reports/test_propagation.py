"""Propagation in the report: what `explain` and `propagate` say, played step by step."""

import json
import shutil
from itertools import accumulate

import pytest

from sdyscope.analysis.naming.resolve import named_value, ssa_name
from sdyscope.analysis.propagation.explain import explain_document
from sdyscope.analysis.propagation.propagate import propagate_document
from sdyscope.analysis.propagation.replay import Replay
from sdyscope.annotations import op_name
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.page import document as report
from sdyscope.page import propagation as report_propagation
from sdyscope.page.columns import Pool
from sdyscope.page.graph import part
from sdyscope.page.tensors import rows
from sdyscope.targets import resolve
from sdyscope.words.mesh import axis_text
from sdyscope.words.paths import file_text
from sdyscope.words.propagation import (
    allowed_text,
    beginning_text,
    closed_texts,
    stop_text,
    tensor_text,
)
from sdyscope.words.sharding import short
from tests.programs import PROGRAMS
from tests.reports.propagation_cases import in_javascript
from tests.reports.waiting import until

pytestmark = pytest.mark.compiles

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def line(source):
    return None if source is None else [file_text(source.file), source.line]


def explained(inspection, row, value):
    """What `explain` says of a row."""
    named = named_value(inspection.graph("shardy"), value)
    found = []
    for chain in inspection.explainer("shardy").explain(named).chains:
        begins = chain.beginning
        moves = [
            [
                move.step,
                axis_text(move.axis),
                op_name(move.through),
                line(move.through.source),
                move.direction,
                allowed_text(move.rule),
                move.dimension,
            ]
            for move in chain.moves
        ]
        start = begins and [beginning_text(begins), begins.priority, line(begins.source)]
        found.append([chain.dimension, axis_text(chain.axis), start, moves])
    return json.loads(json.dumps(found))


def check(inspection, document):
    """That the page says of every value what Python says."""
    explainer = inspection.explainer("shardy")
    replay = Replay(explainer.decisions)
    steps = sorted({0, replay.last // 3, 2 * replay.last // 3, replay.last})
    said = in_javascript(inspection, document, steps)
    assert said["lengths"] == [len(explainer.propagated.steps), replay.last]
    compared = moves = 0
    for number, row in enumerate(rows(document)):
        value = None if row.value is None else row.value.id_under("shardy")
        if value is None:
            continue
        wanted = explained(inspection, row, value)
        assert said["chains"][number] == wanted, row.key
        compared += 1
        moves += sum(len(one[3]) for one in wanted)
    for step, shown in zip(steps, said["at"], strict=True):
        values = propagate_document(inspection, at_step=step).values
        for number, (row, value) in enumerate(zip(rows(document), values, strict=True)):
            if shown[number] is not None:
                assert shown[number] == short(value.propagated["shardy"].sharding), (step, row.key)
    return compared, moves


@needs_node
def test_every_chain_of_the_mlp_is_what_explain_says(mlp):
    compared, moves = check(mlp.inspection, mlp.report)
    assert compared == len(mlp.report.propagate.values)
    assert moves > 100


@needs_node
def test_every_chain_of_a_transformer_is_what_explain_says(unconstrained):
    compared, moves = check(unconstrained.inspection, unconstrained.report)
    assert compared > 300
    assert moves > 1000


def test_what_stopped_axes_is_what_explain_says(unconstrained):
    document = report_propagation.part(unconstrained.report, Pool({}, 8), unconstrained.inspection)
    listed = list(rows(unconstrained.report))
    stops = document["stops"]
    inside = [at for at, row in enumerate(listed) if row.section == "inside"]
    told = [at for at in inside if document["values"][at] in stops]
    # One is beyond what arguments and results take, near the end.
    for at in (told[0], told[len(told) // 2], told[-1]):
        (found,) = explain_document(unconstrained.inspection, listed[at].value.ssa).values
        wanted = [
            (
                axis_text(one.axis),
                one.dimension,
                one.reason,
                stop_text(one),
            )
            for one in found.absences
        ]
        value = document["values"][at]
        stopped = stops[value]
        shown = [(axis, dimension, reason, words) for axis, dimension, words, _, reason in stopped]
        assert shown == wanted, listed[at].key
        reasons = [document["reasons"][number] for number in document["whole"].get(value, ())]
        assert reasons == closed_texts(found.closed, found.absences)
    assert document["whole"]
    none = next(at for at in inside if document["values"][at] not in stops)
    (found,) = explain_document(unconstrained.inspection, listed[none].value.ssa).values
    assert not found.absences


#: Loops, branches, calls and manual computations: where axes move without steps.
BOUNDARIES = (
    "cond",
    "jit_twice_grad",
    "remat_grad",
    "scan_grad",
    "shard_map_grad",
    "shard_map_nested",
    "vmap_over_axis",
    "while_loop",
)


@needs_node
@pytest.mark.parametrize("name", [name for name in BOUNDARIES if name in PROGRAMS])
def test_chains_across_boundaries(name):
    inspection = Inspection(Program(name, *PROGRAMS[name]), ("shardy",))
    check(inspection, report.document(inspection, name, compiled=False))


def test_steps_are_those_of_propagate(mlp):
    pool = Pool({}, 8)
    made = report_propagation.part(mlp.report, pool, mlp.inspection)
    columns = made["steps"]["columns"]

    def column(name):
        one = columns[name]
        return [one["distinct"][c] for c in one["codes"]] if "codes" in one else one["values"]

    listed = propagate_document(mlp.inspection, steps=True).steps
    assert list(accumulate(column("number"))) == [step.step for step in listed]
    assert column("from") == [tensor_text(step.source) for step in listed]
    assert column("to") == [tuple(map(tensor_text, step.targets)) for step in listed]
    axes = [made["axes"][number] for number in column("axis")]
    assert axes == [axis_text(step.axis) for step in listed]


def test_without_shardy_it_says_why():
    inspection = Inspection(resolve("mlp"), ("gspmd",))
    made = report.document(inspection, "mlp", compiled=False)
    with pytest.raises(TargetError, match="Only Shardy says how it propagates"):
        report_propagation.part(made, Pool({}, 8), inspection)


# --- in the browser -------------------------------------------------------------------------------


def count(page):
    return page.inner_text("[data-slot=count]")


@pytest.fixture
def player(open_page, mlp):
    page = open_page(mlp.html, "#propagation?show=table")
    page.wait_for_selector(".player-play")
    return page


def sharding_of(page, ssa):
    return page.evaluate(
        """(ssa) => [...document.querySelectorAll('.propagation-values .grid-body .grid-row')]
        .find((row) => [...row.querySelectorAll('.ssa')].some((one) => one.textContent === ssa))
        ?.querySelectorAll('.grid-cell')[2].title""",
        ssa,
    )


def test_a_step_is_played_back_and_forth(player, mlp):
    taken = mlp.inspection.explainer("shardy").propagated.steps
    last = taken[-1].number
    assert count(player).startswith(f"0 of {taken.step_count} steps")
    player.keyboard.press("End")
    assert count(player).startswith(f"{taken.step_count} of {taken.step_count} steps")
    assert player.get_attribute("[data-slot=count]", "title") == f"Shardy's number: step-{last}"
    assert f"{len(taken)} moves of an axis in {taken.step_count} steps" in player.inner_text(
        "[data-slot=note]"
    )
    assert mlp.report.propagate.propagations[0].step_count == taken.step_count
    player.keyboard.press("Home")
    assert count(player).startswith("0 of ")
    assert player.locator(".propagation-title").nth(1).inner_text().startswith("Before the first")
    player.keyboard.press("ArrowRight")
    assert count(player).startswith(f"1 of {taken.step_count} steps")
    until(player, "location.hash", lambda found: "step=0" in found)
    first = propagate_document(mlp.inspection, steps=True).steps[0]
    assert axis_text(first.axis) in player.inner_text(".player-now")
    assert tensor_text(first.source) in player.inner_text(".player-now")
    assert player.locator(".grid-cell[data-touched=to]").count() >= 1


def test_playing_comes_to_the_end(player):
    player.select_option("[data-slot=speed]", "25")
    player.keyboard.press("Home")
    player.click(".player-play")
    slider = "(({ value, max }) => [value, max])(document.querySelector('[data-slot=slider]'))"
    until(player, slider, lambda found: found[0] == found[1])
    player.wait_for_selector(".player-play[aria-label^=Play]")


def test_values_are_as_of_the_step(open_page, mlp):
    step = 12
    page = open_page(mlp.html, f"#propagation?show=table&step={step}&all=1")
    page.wait_for_selector(".propagation-values .ssa")
    replay = Replay(mlp.inspection.explainer("shardy").decisions)
    known = replay.at(step)
    graph = mlp.inspection.graph("shardy")
    seen = 0
    for value, sharding in known.items():
        shown = sharding_of(page, ssa_name(graph, value))
        if shown is None:
            continue
        seen += 1
        axes = [axis.name for dim in sharding.dim_shardings for axis in dim.axes]
        assert all(f"'{axis}'" in shown for axis in axes), (value, shown)
        assert (shown == "replicated") == (not axes)
    assert seen > 5


def test_the_values_are_drawn_once_with_the_columns_that_there_is_room_for(open_page, mlp):
    page = open_page(mlp.html, "#overview")
    page.evaluate(
        """() => {
          globalThis.drawn = [];
          new MutationObserver(() => {
            const row = document.querySelector('.propagation-values .grid-body .grid-row');
            if (row) drawn.push(row.children.length);
          }).observe(document, { childList: true, subtree: true });
          location.hash = '#propagation?show=table&all=1';
        }"""
    )
    page.wait_for_selector(".propagation-values .ssa")
    page.wait_for_timeout(300)
    assert set(page.evaluate("drawn")) == {4}


def test_a_narrow_table_says_the_sharding_and_no_sign_covers_a_name(open_page, mlp):
    page = open_page(mlp.html, "#propagation?show=table&step=12", width=420)
    page.wait_for_selector(".propagation-values .touch")
    titles = page.locator(".propagation-values .grid-title").all_inner_texts()
    assert titles[:2] == ["value", "sharding then"]
    row = page.locator(".propagation-values .grid-row:has(.touch)").first
    sign, name = (row.locator(each).first.bounding_box() for each in (".touch", ".leaf"))
    assert sign["x"] + sign["width"] <= name["x"]


def test_a_chain_is_followed_to_a_step(open_page, mlp):
    page = open_page(mlp.html, "#propagation?value=%254")
    page.wait_for_selector(".path-line")
    words = page.inner_text(".propagation-chain")
    assert "from the annotation {data} on dim 0 of the constraint" in words
    page.click(".path-line p a >> nth=0")
    until(page, "location.hash", lambda found: "step=" in found)
    page.keyboard.press("Escape")
    page.wait_for_selector(".propagation-chain", state="hidden")
    assert "value=" not in page.evaluate("location.hash")


def test_the_details_of_a_tensor_have_its_chain(open_page, mlp):
    page = open_page(mlp.html, "#tensors?tensor=%254")
    page.wait_for_selector(".details .path-line")
    assert "from the annotation {data}" in page.inner_text(".details")
    page.click(".details .path-line p a >> nth=0")
    page.wait_for_selector(".view[data-view=propagation]")


def boxes(page):
    """What the graph says of ops that are drawn in full: name, type, sharding by item."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.propagation .graph-item')].map((one) => ({
          item: Number(one.dataset.item),
          form: one.dataset.form,
          title: one.querySelector('.graph-name').textContent,
          spec: one.querySelector('.graph-spec')?.textContent ?? '',
          step: one.dataset.step ?? '',
          decided: one.dataset.decided ?? '',
        }))"""
    )


def test_the_graph_is_as_of_the_step(open_page, mlp):
    made = part(mlp.report, Pool({}, 1), mlp.inspection)
    ssa = made["nodes"]["columns"]["ssa"]
    ssa = [ssa["distinct"][at] for at in ssa["codes"]] if "codes" in ssa else ssa["values"]
    replay = Replay(mlp.inspection.explainer("shardy").decisions)
    graph = mlp.inspection.graph("shardy")
    page = open_page(mlp.html, "#propagation?show=graph&step=-1")
    page.wait_for_selector(".propagation .graph-item")
    for step in (-1, 12, replay.last):
        page.evaluate(f"location.hash = '#propagation?show=graph&step={step}'")
        until(page, "document.querySelector('[data-slot=slider]').value", str(step).__eq__)
        known = {ssa_name(graph, value): found for value, found in replay.at(step).items()}
        seen = 0
        for box in boxes(page):
            if box["form"] != "op" or known.get(ssa[box["item"]]) is None:
                continue
            seen += 1
            dims = known[ssa[box["item"]]].dim_shardings
            axes = [axis.name for dim in dims for axis in dim.axes]
            assert all(f"'{axis}'" in box["spec"] for axis in axes), (step, box)
            assert (box["spec"] == "replicated") == (not axes), (step, box)
        assert seen > 5


def test_what_a_step_moves_is_marked_on_the_graph(open_page, mlp):
    page = open_page(mlp.html, "#propagation?show=graph&step=-1")
    page.wait_for_selector(".propagation .graph-item")
    assert page.locator(".propagation [data-step]").count() == 0
    for _ in range(4):
        page.keyboard.press("e")
    steps = propagate_document(mlp.inspection, steps=True).steps
    numbers = {step.step for step in steps}
    marked = 0
    for step in range(max(numbers) + 1):
        page.keyboard.press("ArrowRight")
        ops = page.locator(".propagation [data-step=op]").count()
        edges = page.locator(".propagation .graph-edge[data-step][data-way]").count()
        marked += bool(ops and edges)
        assert ops <= 2 * sum(one.step == step for one in steps)
    # What is returned is not an op of the graph.
    assert marked == len({step.step for step in steps if "return" not in step.through.kind})
    page.keyboard.press("End")
    assert page.locator(".propagation [data-decided=nothing]").count() == 0
    page.keyboard.press("Home")
    assert page.locator(".propagation [data-decided=nothing]").count() > 5


def test_groups_on_the_graph_fill(open_page, unconstrained):
    page = open_page(unconstrained.html, "#propagation?show=graph&step=-1&open=none")
    page.wait_for_selector(".propagation .graph-item")
    words = "document.querySelector('.graph-item[data-kind=scope] .graph-note').textContent"
    until(page, words, lambda found: "sharded" in found)
    done = """() => [...document.querySelectorAll('.graph-item .graph-note')]
        .map((one) => one.textContent.match(/(\\d+) of (\\d+) sharded/))
        .filter(Boolean).map(([, done, of]) => [Number(done), Number(of)])"""
    before = page.evaluate(done)
    page.keyboard.press("End")
    after = page.evaluate(done)
    assert all(done == of for done, of in after)
    assert sum(done for done, _ in before) < sum(done for done, _ in after)


def test_the_player_skips_to_what_is_chosen_and_opens_the_scope_of_a_step(open_page, mlp):
    decisions = mlp.inspection.explainer("shardy").decisions
    replay, graph = Replay(decisions), mlp.inspection.graph("shardy")
    known = {ssa_name(graph, value): value for value in replay.at(replay.last)}
    at_last = replay.at(replay.last)[known["%4"]]
    reached = min(
        step for step in range(-1, replay.last + 1) if replay.at(step)[known["%4"]] == at_last
    )
    page = open_page(mlp.html, "#propagation?show=graph&open=none&value=%254")
    until(page, "document.querySelector('[data-slot=slider]').value", str(reached).__eq__)
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    until(page, "location.hash", lambda found: "step=" in found)
    # The op of the step is in sight, not only the scope that it is in.
    page.wait_for_selector(".propagation .graph-item[data-form=op][data-step=op]")


def test_a_chain_is_a_path_on_the_graph(open_page, mlp):
    page = open_page(mlp.html, "#propagation?show=graph&value=%254")
    page.wait_for_selector(".graph-station")
    moves = page.locator(".propagation-chain .path").first.locator(".path-sign").count()
    stations = page.locator(".graph-station").all_text_contents()
    assert stations[0].startswith("1")
    assert len(stations) >= 2
    assert moves
    assert page.locator(".graph-edge[data-chain]").count() >= 1
    page.keyboard.press("Escape")
    page.wait_for_selector(".graph-station", state="detached")
    assert page.locator(".graph-edge[data-chain]").count() == 0


def test_what_is_clicked_on_the_graph_is_chosen(open_page, mlp):
    page = open_page(mlp.html, "#propagation?show=graph")
    page.click(".propagation .graph-item[data-form=op] >> nth=0")
    page.wait_for_selector(".propagation-chain:not([hidden])")
    assert "value=%25" in page.evaluate("location.hash")
    page.keyboard.press("2")
    page.wait_for_selector(".propagation-graph", state="hidden")
    page.wait_for_selector(".propagation-values .grid-row[aria-selected=true]")
    assert page.locator(".propagation-values .grid-row[aria-selected=true]").count() == 1


def test_what_is_not_there_is_said(open_page, mlp):
    page = open_page(mlp.html, "#propagation?value=nobody&step=99999")
    assert "No value of this program is called nobody." in page.inner_text(".propagation-chain")
    done, of = count(page).split(" steps")[0].split(" of ")
    assert done == of


def test_nothing_keeps_people_from_using_it(open_page, mlp, violations):
    for show in ("graph", "both"):
        page = open_page(mlp.html, f"#propagation?step=4&value=%254&show={show}")
        page.wait_for_selector(".path-line")
        page.wait_for_selector(".graph-item")
        assert violations(page) == []
