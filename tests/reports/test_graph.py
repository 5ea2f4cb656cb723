"""The graph: its nodes and groups against the module, its marks, and the view in the browser."""

import hashlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from sdyscope.inspection import Inspection, inspect
from sdyscope.page.columns import Pool
from sdyscope.page.document import document
from sdyscope.page.graph import part
from sdyscope.page.graph_groups import groups_of
from sdyscope.page.graph_marks import marks
from sdyscope.page.graph_nodes import nodes_of
from sdyscope.page.tensors import rows as rows_of
from sdyscope.targets import resolve
from tests.reports.waiting import until

pytestmark = pytest.mark.compiles

VENDOR = Path(__file__).parent.parent.parent / "reports" / "vendor"


def inspected(name, **settings):
    return Inspection(resolve(name, settings=settings))


def layers(count):
    sizes = {"d_model": 16, "heads": 4, "head_dim": 4, "d_ff": 16, "vocab": 16, "sequence": 4}
    return inspected("fsdp-transformer", layers=count, **sizes)


@pytest.fixture(scope="module")
def three_layers():
    return layers(3)


# What is drawn.


def test_every_op_is_a_node_and_every_use_an_edge(three_layers):
    graph = three_layers.graph("shardy")
    made = nodes_of(graph)
    inside = {"func.return", "stablehlo.return", "func.call"}
    main = [op for op in graph.children(graph.main.op) if op.kind not in inside]
    assert all(len(made.of_op[op.id]) == 1 for op in main)
    for op in main:
        node = made.nodes[made.of_op[op.id][0]]
        uses = graph.operands(op)
        assert len(node.operands) == len(uses)
        for (producer, edge), (drawn, result) in zip(uses, node.operands, strict=True):
            if producer.kind != "func.call":
                assert (made.nodes[drawn].op, result) == (producer.id, edge.result)


def test_a_call_is_written_out_where_it_is_called(three_layers):
    graph = three_layers.graph("shardy")
    made = nodes_of(graph)
    silu = graph.functions["silu"]
    ops = [op for op in graph.children(silu.op) if not op.is_argument and op.types]
    calls = len(graph.callers("silu"))
    assert calls == 3
    assert all(len(made.of_op[op.id]) == calls for op in ops)
    # What it is called with comes from the caller, and what it returns goes there.
    called = [n for n, owner in enumerate(made.owners) if owner.name == "silu"]
    first = [n for n, node in enumerate(made.nodes) if node.owner == called[0]]
    entering = {p for n in first for p, _ in made.nodes[n].operands if p not in first}
    leaving = [
        n
        for n, node in enumerate(made.nodes)
        if n not in first and any(p in first for p, _ in node.operands)
    ]
    assert entering
    assert leaving


def test_the_values_of_a_loop_are_those_that_its_body_makes():
    graph = inspected("fsdp-transformer", layers=2, scan=True).graph("shardy")
    made = nodes_of(graph)
    loops = {n for n, owner in enumerate(made.owners) if owner.kind == "while"}
    assert len(loops) == 2
    assert not any(node.kind == "while" for node in made.nodes)
    entering = [n for n in made.nodes if n.kind == "argument" and n.owner in loops]
    assert "params['layers']['wq']" in {node.name for node in entering}
    outside = [node for node in made.nodes if node.owner is None]
    assert any(made.nodes[p].owner is not None for node in outside for p, _ in node.operands)


def test_nothing_is_drawn_before_what_it_takes(three_layers):
    made = nodes_of(three_layers.graph("shardy"))
    for number, node in enumerate(made.nodes):
        assert all(producer < number for producer, _ in node.operands)


def tree(inspection):
    graph = inspection.graph("shardy")
    made = nodes_of(graph)
    groups, inputs = groups_of(made, graph)
    return made, groups, inputs


def names(groups, parent):
    return [group.name for group in groups.groups if group.parent == parent]


def path(groups, number):
    found = []
    while number is not None:
        found.append(groups.groups[number].name)
        number = groups.groups[number].parent
    return found[::-1]


def test_a_train_step_is_three_passes_and_layers_are_folded(three_layers):
    _, groups, _ = tree(three_layers)
    assert names(groups, None) == ["Forward", "Backward", "Update"]
    assert "layer0 – layer2" in names(groups, 0)
    assert "layer0 – layer2" in names(groups, 1)
    kinds = [(group.kind, group.name) for group in groups.groups]
    folded = kinds.index(("repeated", "layer0 – layer2"))
    assert sorted(names(groups, folded)) == ["layer0", "layer1", "layer2"]


def test_two_layers_are_not_folded():
    _, groups, _ = tree(layers(2))
    assert {"layer0", "layer1"} <= set(names(groups, 0))


def test_an_op_is_in_its_scope(three_layers):
    made, groups, _ = tree(three_layers)
    graph = three_layers.graph("shardy")
    checked = 0
    for number, node in enumerate(made.nodes):
        scope = graph.ops[node.op].scope
        if (
            "jvp(layer1)" in scope
            and "/mlp/" in scope
            and node.kind != "result"
            and node.owner is None
        ):
            backward = "transpose(" in scope
            where = path(groups, groups.of[number])
            assert where[0] == ("Backward" if backward else "Forward")
            assert where[2:4] == ["layer1", "mlp"]
            checked += 1
    assert checked > 30


def test_parameters_stand_where_they_are_used(three_layers):
    made, groups, inputs = tree(three_layers)
    places = {
        (made.nodes[argument].name, path(groups, at)[0]): path(groups, at)
        for argument, at in inputs
    }
    wq = "params['layers'][1]['wq']"
    assert places[wq, "Forward"] == ["Forward", "layer0 – layer2", "layer1", "attention"]
    assert places[wq, "Update"][-2:] == ["1", "wq"]
    # Its cast has no scope of its own, and stands beside it.
    cast = next(
        n
        for n, node in enumerate(made.nodes)
        if node.kind == "convert" and any(made.nodes[p].name == wq for p, _ in node.operands)
    )
    assert path(groups, groups.of[cast]) == places[wq, "Forward"]


def test_no_group_is_empty_or_its_own_parent(three_layers):
    made, groups, _ = tree(three_layers)
    used = set(groups.of)
    for number, group in enumerate(groups.groups):
        children = names(groups, number)
        assert children or number in used or group.parent is None
        assert len(path(groups, number)) < 10
    assert len(groups.of) == len(made.nodes)


# What is marked.


def test_megatron_moves_nothing_and_sums_where_rows_are_split():
    inspection = inspected("mlp")
    found = marks(inspection, "shardy")
    for partitioner in ("shardy", "gspmd"):
        assert not [mark for mark in found[partitioner] if mark.kind == "moves"]
        ops = {inspection.graph("shardy").ops[m.op].kind for m in found[partitioner]}
        assert {"stablehlo.dot_general", "stablehlo.reduce"} >= ops
        assert ops


def test_gathered_weights_are_marked_where_the_compiler_gathers_them():
    inspection = inspected("fsdp-transformer", layers=1)
    graph = inspection.graph("shardy")
    gathered = {
        path[-1]
        for one in inspection.collectives("shardy").collectives
        if one.kind == "all-gather"
        for part in one.parts
        for path in part.tags
    }
    matmuls = {op.id for op in graph.operations() if op.kind == "stablehlo.dot_general"}
    moving = {mark.op for mark in marks(inspection, "shardy")["shardy"] if mark.kind == "moves"}
    assert gathered & matmuls
    assert gathered & matmuls <= moving


def test_a_box_in_a_loop_has_the_sharding_of_its_own_value():
    """The condition of a loop and its body have values of the same SSA names."""

    def step(x):
        return jax.lax.while_loop(lambda x: (jnp.sin(x).sum() < 1) & (x[0, 0] < 2), jnp.tanh, x)

    mesh = AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    inspection = inspect(
        jax.jit(step),
        jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=rows),
        partitioners=["shardy"],
    )
    report = document(inspection, "step", compiled=False)
    graph = inspection.graph("shardy")
    drawn = part(report, Pool({}, 4), inspection)["nodes"]["columns"]["ssa"]
    names = drawn.get("values") or [drawn["distinct"][code] for code in drawn["codes"]]
    listed = {}
    for row in rows_of(report):
        if row.value is not None:
            listed.setdefault(row.value.ssa, row.value.ids["shardy"])
    seen = 0
    for name, node in zip(names, nodes_of(graph).nodes, strict=True):
        if name in listed:
            assert listed[name] == (node.op, 0)
            seen += graph.ops[node.op].id in graph.repeated_names
    assert seen


def test_a_module_without_functions_has_a_sentence(mlp, monkeypatch):
    from sdyscope.errors import TargetError
    from sdyscope.page import graph as report_graph

    monkeypatch.setattr(report_graph, "nodes_of", lambda graph: type(nodes_of(graph))())
    with pytest.raises(TargetError, match="no graph"):
        part(mlp.report, Pool({}, 1), mlp.inspection)


def test_collectives_stand_at_their_ops(mlp):
    made = part(mlp.report, Pool({}, 1), mlp.inspection)
    for program in mlp.report.comms.programs:
        tensors = sum(len(one.parts) for one in program.collectives)
        lost = [note for note in made["notes"] if program.partitioner in note]
        assert made["sent"][program.partitioner]["rows"] == tensors or lost


# What others made.


def test_what_is_bundled_is_what_is_pinned():
    pinned = json.loads((VENDOR / "vendor.json").read_text())
    assert {f"{name}.js" for name in pinned} == {file.name for file in VENDOR.glob("*.js")}
    for name, one in pinned.items():
        text = (VENDOR / f"{name}.js").read_text()
        assert hashlib.sha256(text.encode()).hexdigest() == one["sha256"]
        head = text[: text.index("*/")]
        assert f"{one['package']} {one['version']} ({one['licence']})" in head
        assert "Permission is hereby granted" in head


# In the browser.


@pytest.fixture
def graph(open_page, mlp):
    page = open_page(mlp.html, "#graph?open=none")
    page.wait_for_selector(".graph-item")
    return page


def titles(page, pane=0):
    return page.evaluate(
        """(at) => [...document.querySelectorAll('.graph-pane')[at]
        .querySelectorAll('.graph-item .graph-name')].map((one) => one.textContent)""",
        pane,
    )


def fold(page, title, which=0):
    """Clicks the arrow of a group."""
    page.evaluate(
        """([title, which]) => [...document.querySelectorAll('.graph-item, .graph-open')]
        .filter((one) => one.querySelector('.graph-name, .graph-title').textContent === title)
        [which].querySelector('.graph-fold')
        .dispatchEvent(new MouseEvent('click', {bubbles: true}))""",
        [title, which],
    )


def test_a_small_program_is_open_at_first_and_a_large_one_closed(open_page, mlp, unconstrained):
    page = open_page(mlp.html, "#graph")
    page.wait_for_selector(".graph-item")
    assert {"tanh", "optimizer"} <= set(titles(page))
    page = open_page(unconstrained.html, "#graph")
    page.wait_for_selector(".graph-item")
    assert {"layer0", "optimizer"} <= set(titles(page))
    assert "dot_general" not in titles(page)


def test_groups_open_and_the_address_remembers(graph, open_page, mlp):
    assert "optimizer" in titles(graph)
    assert "tanh" not in titles(graph)
    fold(graph, "block0")
    graph.wait_for_selector(".graph-open >> text=block0")
    assert {"tanh", "dot_general", "params['w1']"} <= set(titles(graph))
    shared = graph.evaluate("location.hash")
    assert "open=" in shared
    other = open_page(mlp.html, shared)
    other.wait_for_selector(".graph-open >> text=block0")
    assert titles(other) == titles(graph)
    fold(graph, "block0")
    graph.wait_for_selector(".graph-open >> text=block0", state="detached")
    assert "tanh" not in titles(graph)


def test_a_search_opens_what_is_around_what_it_finds(graph):
    graph.keyboard.press("/")
    graph.keyboard.type("tanh")
    assert "tanh" in graph.inner_text(".graph-found")
    graph.keyboard.press("Enter")
    graph.wait_for_selector(".graph-details >> text=tanh")
    assert "tanh" in titles(graph)
    assert "node=%25" in graph.evaluate("location.hash")
    details = graph.inner_text(".graph-details")
    assert "f32[16,128]" in details
    assert "P('data', None)" in details
    graph.fill("[data-slot=search]", "no such thing")
    assert "Nothing in the graph" in graph.inner_text(".graph-found")


def test_details_lead_to_the_tensor(graph):
    graph.evaluate("location.hash = \"#graph?node=params['w1']\"")
    graph.wait_for_selector(".graph-details >> text=params['w1']")
    graph.click("text=Open in Tensors")
    graph.wait_for_selector(".details-name >> text=params['w1']")
    graph.click("text=Open in the graph")
    graph.wait_for_selector(".graph-details >> text=params['w1']")
    assert "node=params['w1']" in graph.evaluate("location.hash")
    graph.go_back()
    graph.wait_for_selector(".details-name >> text=params['w1']")
    graph.go_back()
    graph.wait_for_selector(".graph-details >> text=params['w1']")


def test_what_is_not_there_is_said(open_page, mlp):
    page = open_page(mlp.html, "#graph?node=nobody")
    assert "Nothing in this graph is called nobody." in page.inner_text(".graph-side")


def test_collectives_are_on_their_ops(graph, mlp):
    graph.evaluate("location.hash = '#graph?open=none&all=1'")
    for _ in range(4):
        graph.keyboard.press("e")
    pills = graph.evaluate(
        "[...document.querySelectorAll('.graph-item .graph-pill[data-kind=sent]')]"
        ".map((one) => one.textContent)"
    )
    assert any(pill.startswith("all-reduce model") for pill in pills)
    assert any("all-reduce data" in pill for pill in pills)


def test_both_partitioners_move_as_one_and_differences_are_marked(open_page, unconstrained):
    page = open_page(unconstrained.html, "#graph?show=both")
    page.wait_for_selector(".graph-pane >> nth=1")
    assert titles(page, 0) == titles(page, 1)
    assert page.locator(".graph-pill[data-kind=differs]").count() > 0
    page.focus(".graph-pane >> nth=0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    moved = page.evaluate(
        "[...document.querySelectorAll('.graph-picture > g')]"
        ".map((g) => g.getAttribute('transform'))"
    )
    assert moved[0] == moved[1]
    page.keyboard.press("n")
    page.wait_for_selector(".graph-details .graph-differs")
    shown = page.locator(".graph-shardings dt").all_inner_texts()
    assert shown == ["Shardy", "GSPMD"]


def test_the_outline_is_a_tree_for_the_keyboard(graph):
    graph.keyboard.press("o")
    graph.wait_for_selector("[role=tree]")
    graph.focus("[role=treeitem] >> nth=0")
    graph.keyboard.press("ArrowDown")
    assert "block0" in graph.evaluate("document.activeElement.textContent")
    graph.keyboard.press("ArrowRight")
    graph.wait_for_selector("[role=treeitem] >> text=tanh")
    assert "block0" in graph.evaluate("document.activeElement.textContent")
    graph.keyboard.press("Enter")
    graph.wait_for_selector(".graph-details >> text=block0")


def test_wheel_and_buttons_scale_and_drags_move(graph):
    def transform():
        return graph.get_attribute(".graph-picture > g", "transform")

    seen = [transform()]
    graph.click("[data-slot=in]")
    seen.append(transform())
    graph.mouse.move(600, 500)
    graph.mouse.wheel(30, 20)
    where = "document.querySelector('.graph-picture > g').getAttribute('transform')"
    seen.append(until(graph, where, lambda found: found != seen[-1]))
    graph.mouse.down()
    graph.mouse.move(650, 540)
    graph.mouse.up()
    seen.append(transform())
    assert len(set(seen)) == 4
    assert "node=" not in graph.evaluate("location.hash")


#: What an edge runs through: boxes without those at its ends, and what is written on open groups.
CROSSED = """() => {
  const rect = (element, { x, y, width, height }, item) => ({
    item, text: element.textContent, left: x + 1, top: y + 1, right: x + width - 1,
    bottom: y + height - 1 });
  const boxes = [...document.querySelectorAll('.graph-item')].map((element) => {
    const { e, f } = element.transform.baseVal.consolidate().matrix;
    const { width, height } = element.querySelector('.graph-box').getBBox();
    return rect(element, { x: e, y: f, width, height }, element.dataset.item);
  });
  const titles = [...document.querySelectorAll('.graph-open > text')].map(
    (element) => rect(element, element.getBBox()));
  return [...document.querySelectorAll('.graph-edge')].flatMap((edge) => {
    const line = edge.querySelector('.graph-reach');
    const length = line.getTotalLength();
    const pieces = Math.ceil(length / 6);
    const points = Array.from({ length: pieces + 1 }, (_, at) =>
      line.getPointAtLength((length * at) / pieces));
    const { from, to } = edge.dataset;
    return [...boxes, ...titles]
      .filter(({ item, left, top, right, bottom }) => item !== from && item !== to
        && points.some(({ x, y }) => x > left && x < right && y > top && y < bottom))
      .map(({ text }) => [from, to, text]);
  });
}"""


def test_edges_go_around_boxes_and_titles(open_page, unconstrained):
    page = open_page(unconstrained.html, "#graph")
    page.wait_for_selector(".graph-item")
    assert page.evaluate(CROSSED) == []
    page.keyboard.press("e")
    page.keyboard.press("e")
    page.wait_for_selector(".graph-item >> text=dot_general")
    assert page.evaluate(CROSSED) == []


def test_nothing_lies_over_the_picture_and_the_first_view_is_whole(open_page, unconstrained):
    page = open_page(unconstrained.html, "#graph?show=both", width=1600)
    page.wait_for_selector(".graph-item")
    box = "(name) => document.querySelector(name).getBoundingClientRect().toJSON()"
    pane, foot = (page.evaluate(box, name) for name in (".graph-pane", ".graph-foot"))
    assert page.get_attribute(".graph-legend", "open") is not None
    assert pane["bottom"] <= foot["top"]
    assert page.evaluate(box, ".graph-pane-title")["bottom"] <= pane["top"]
    drawn = page.evaluate(box, ".graph-picture > g")
    assert drawn["left"] >= pane["left"]
    assert drawn["right"] <= pane["right"]
    assert drawn["bottom"] <= pane["bottom"]
    # With the legend closed there is more room, and the picture takes it.
    page.click(".graph-legend summary")
    until(page, f"({box})('.graph-picture > g')", lambda found: found["top"] != drawn["top"])
    # A telephone shows the passes one below the other.
    page.set_viewport_size({"width": 400, "height": 860})
    lanes = "[...document.querySelectorAll('.graph-open')].map((lane) => lane.getBBox().x)"
    until(page, lanes, lambda found: max(found) < 400)


def test_the_whole_of_it_is_readable_to_all(open_page, mlp, violations):
    page = open_page(mlp.html, "#graph?outline=1&open=none&node=scope+0")
    page.wait_for_selector(".graph-details")
    assert violations(page) == []


def test_many_arguments_of_one_region_are_one_box():
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("x")

    def step(params, y):
        mapped = jax.shard_map(
            lambda params, y: sum(params.values()) + y, mesh=mesh, in_specs=spec, out_specs=spec
        )
        return mapped(params, y)

    array = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, spec))
    params = {f"w{number}": array for number in range(9)}
    graph = inspect(jax.jit(step), params, array, partitioners=("shardy",)).graph("shardy")
    made = nodes_of(graph)
    groups, inputs = groups_of(made, graph)
    bundles = [n for n, group in enumerate(groups.groups) if group.kind == "arguments"]
    assert [groups.groups[n].name for n in bundles] == ["params"]
    bundled = {made.nodes[argument].name for argument, group in inputs if group in bundles}
    assert bundled == {f"params['{name}']" for name in params}
    # One alone is drawn as itself.
    assert len(inputs) == len(params) + 1


def test_arguments_inside_a_region_that_feed_one_scope_are_one_box():
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("x")

    def inside(params, y):
        with jax.named_scope("layers"):
            total = sum(params.values())
        return total + y

    array = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, spec))
    params = {f"w{number}": array for number in range(9)}
    mapped = jax.shard_map(inside, mesh=mesh, in_specs=spec, out_specs=spec)
    graph = inspect(jax.jit(mapped), params, array, partitioners=("shardy",)).graph("shardy")
    made = nodes_of(graph)
    groups, _ = groups_of(made, graph)
    bundle = {
        made.nodes[n].name for n, at in enumerate(groups.of) if path(groups, at)[-1] == "params"
    }
    assert bundle == {f"params['{name}']" for name in params}
