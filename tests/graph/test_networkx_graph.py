"""The module as NetworkX's graph: what its nodes and edges carry, and that NetworkX can use it."""

import copy
import io
import json
import pickle
import subprocess
import sys

import networkx
import pytest
from graph_modules import CASES, lowered

from sdyscope.graph import build, read_text
from sdyscope.graph.networkx_graph import ModuleGraph, NodeData
from sdyscope.graph.scalars import EDGE_KEYS, GRAPH_KEYS, NODE_KEYS


@pytest.fixture(params=CASES, ids="-".join, scope="module")
def graph(request):
    return build(lowered(*request.param))


@pytest.fixture(scope="module")
def small():
    return build(lowered("layers", "shardy"))


def test_is_the_graph_that_networkx_makes_of_its_nodes_and_edges(graph):
    made = networkx.MultiDiGraph(**graph.nx.graph)
    made.add_nodes_from(graph.nx.nodes(data=True))
    made.add_edges_from(graph.nx.edges(keys=True, data=True))
    assert isinstance(graph.nx, networkx.MultiDiGraph)
    assert networkx.utils.graphs_equal(graph.nx, made)
    assert {node: dict(graph.nx.pred[node]) for node in made} == {
        node: dict(made.pred[node]) for node in made
    }


def test_nodes_carry_the_op_and_edges_their_operand_and_result(graph):
    assert list(graph.nx) == [op.id for op in graph.ops]
    for op in graph.ops:
        data = graph.nx.nodes[op.id]
        assert data.op is op
        assert (data["kind"], data["name"], data["scope"]) == (op.kind, op.name, op.scope)
        assert data["types"].split("; ") == [type_.text for type_ in op.types] or not op.types
        assert (op.source is None) == ("source" not in data)
        assert op.source is None or f"{op.source.file}:{op.source.line}:" in data["source"]
        assert ("attributes" in data) == bool(op.attributes)
        written = [str(sharding) for sharding in op.shardings if sharding is not None]
        assert [text for text in data.get("lowered", "").split("; ") if text] == written
    edges = {(u, v, key): edge for u, v, key, edge in graph.keyed_edges()}
    assert set(graph.nx.edges(keys=True)) == set(edges)
    for place, edge in edges.items():
        data = graph.nx.edges[place]
        assert (data["kind"], data["result"], data["operand"]) == (
            edge.kind,
            edge.result,
            edge.operand,
        )
        assert data["type"] == edge.type.text
        assert data.get("sharding") == (None if edge.sharding is None else str(edge.sharding))
        assert data.get("via") == edge.via
        if edge.kind in ("data", "capture"):
            assert place[2] == edge.operand


def test_data_are_texts_and_numbers_that_are_declared(graph):
    for found, keys in (
        ([data for _, data in graph.nx.nodes(data=True)], NODE_KEYS),
        ([data for _, _, data in graph.nx.edges(data=True)], EDGE_KEYS),
        ([graph.nx.graph], GRAPH_KEYS),
    ):
        for data in found:
            assert {name: type(value) for name, value in data.items()}.items() <= keys.items()


def test_networkx_writes_graphml_and_reads_it_back(graph):
    file = io.BytesIO()
    networkx.write_graphml(graph.nx, file)
    file.seek(0)
    read = networkx.read_graphml(file, node_type=int, force_multigraph=True)
    assert dict(read.nodes(data=True)) == dict(graph.nx.nodes(data=True))
    ends = [(u, v, data) for u, v, data in graph.nx.edges(data=True)]
    assert sorted(read.edges(data=True), key=str) == sorted(ends, key=str)
    assert read.graph.items() >= graph.nx.graph.items()


def test_networkxs_other_writers(small):
    assert (
        networkx.node_link_graph(
            json.loads(json.dumps(networkx.node_link_data(small.nx, edges="edges"))), edges="edges"
        ).nodes
        == small.nx.nodes
    )
    keys = {type(key) for _, _, key in small.nx.edges(keys=True)}
    if len(keys) == 1:  # GEXF has one type of key.
        assert "".join(networkx.generate_gexf(small.nx))
    assert networkx.cytoscape_data(small.nx)["elements"]["nodes"]


def test_text_that_xml_has_no_form_for():
    graph = read_text('module {\n  "x.a"() {x.note = "a\\00b<&>\\C3\\A9"} : () -> ()\n}')
    assert graph.nx.nodes[1]["attributes"] == "{x.note = a\ufffdb<&>é}"
    assert graph.nx.nodes[1].op.attributes["x.note"] == "a\0b<&>é"


def test_copies_and_parts_keep_the_ops(small):
    dots = [op.id for op in small.operations() if op.kind == "stablehlo.dot_general"]
    for made in (
        small.nx.copy(),
        small.nx.subgraph(dots),
        small.nx.subgraph(dots).copy(),
        small.nx.reverse(),
        networkx.compose(small.nx, ModuleGraph()),
        networkx.relabel_nodes(small.nx, {node: node for node in small.nx}),
        copy.deepcopy(small.nx),
        pickle.loads(pickle.dumps(small.nx)),
    ):
        for node in dots:
            assert made.nodes[node].op == small.ops[node]
            assert made.nodes[node] == small.nx.nodes[node]


def test_pickles_and_needs_no_jax_to_be_read(small, tmp_path):
    for name, made in (("graph", small), ("nx", small.nx)):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(made))
        script = (
            "import pickle, sys; made = pickle.load(open(sys.argv[1], 'rb'));"
            "print(len(made), 'jax' in sys.modules, 'jaxlib' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(len(small)), "False", "False"]
    again = pickle.loads(pickle.dumps(small))
    assert again.ops == small.ops
    assert again.functions == small.functions
    assert list(again.keyed_edges()) == list(small.keyed_edges())
    assert networkx.utils.graphs_equal(again.nx, small.nx)


# What a node's data say is made when they are looked into, however that is done.
LOOKS = {
    "getitem": lambda data: data["kind"],
    "get": lambda data: data.get("kind"),
    "in": lambda data: "kind" in data and data["kind"],
    "iter": lambda data: dict(zip(data, map(data.get, data), strict=True))["kind"],
    "items": lambda data: dict(data.items())["kind"],
    "keys and values": lambda data: dict(zip(data.keys(), data.values(), strict=True))["kind"],
    "dict": lambda data: dict(data)["kind"],
    "unpacked": lambda data: {**data}["kind"],
    "updated": lambda data: merged(data)["kind"],
    "or": lambda data: (data | {})["kind"],
    "reversed or": lambda data: ({} | data)["kind"],
    "copy": lambda data: data.copy()["kind"],
    "shallow copy": lambda data: copy.copy(data)["kind"],
    "pickled": lambda data: pickle.loads(pickle.dumps(data))["kind"],
    "json": lambda data: json.loads(json.dumps(data))["kind"],
    "pop": lambda data: data.pop("kind"),
    "setdefault": lambda data: data.setdefault("kind", "none"),
    "len": lambda data: len(data) > 5 and data["kind"],
    "bool": lambda data: bool(data) and data["kind"],
    "equal": lambda data: data == dict(data) and data["kind"],
    "set before": lambda data: data.__setitem__("own", 1) or (data["own"] == 1 and data["kind"]),
    "format": lambda data: str(data).partition("'kind': '")[2].partition("'")[0],
}


def merged(data):
    made = {}
    made.update(data)
    return made


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_every_way_of_looking_into_a_node_finds_its_data(small, look):
    graph = copy.copy(small)
    graph.__dict__.pop("nx", None)
    assert look(graph.nx.nodes[1]) == "sdy.mesh" == small.ops[1].kind


def test_what_others_write_on_a_node_stays(small):
    graph = copy.copy(small)
    graph.__dict__.pop("nx", None)
    first, second = graph.nx.nodes[1], graph.nx.nodes[2]
    first["kind"] = "mine"
    assert (first["kind"], "function" in first) == ("mine", True)
    del second["kind"]
    assert "kind" not in second
    with pytest.raises(KeyError):
        _ = second["kind"]
    graph.nx.add_node("new", colour="red")
    added = graph.nx.nodes["new"]
    assert (type(added), added.op, dict(added)) == (NodeData, None, {"colour": "red"})
    with pytest.raises(KeyError):
        _ = added["kind"]


def test_questions_are_networkxs(small):
    """What lies between an argument and a result, in which order, and what is not reached."""
    graph = small.nx
    argument, result = small.main.arguments[0].node, small.main.results[0].node
    between = networkx.descendants(graph, argument) & networkx.ancestors(graph, result)
    kinds = {graph.nodes[node]["kind"] for node in between}
    assert "stablehlo.dot_general" in kinds
    assert result not in between
    order = {node: number for number, node in enumerate(networkx.topological_sort(graph))}
    assert order[argument] < min(order[node] for node in between) <= order[result]
    unused = small.main.arguments[-1]
    assert len(networkx.descendants(graph, argument)) > len(between)
    assert unused is not None
