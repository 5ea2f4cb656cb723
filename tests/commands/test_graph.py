"""`sdyscope graph`."""

import json

import networkx


def test_json_is_what_networkx_reads(sdyscope, mlp_files):
    done = sdyscope("graph", mlp_files / "shardy.mlir")
    document = done.document("graph")
    graph = networkx.node_link_graph(document, edges="edges")
    assert len(graph) == len(document["nodes"])
    assert done.err.startswith("jit_step for Shardy: ")
    assert " ops of " in done.err
    assert sdyscope("graph", mlp_files / "shardy.mlir", "--json").out == done.out


def test_graphml(sdyscope, tmp_path):
    path = tmp_path / "mlp.graphml"
    done = sdyscope("graph", "mlp", "--format", "graphml", "-o", path, "--partitioner", "gspmd")
    assert (done.status, done.out) == (0, "")
    assert done.err.splitlines()[1].startswith("mlp for GSPMD: ")
    kinds = {kind for _, kind in networkx.read_graphml(path, force_multigraph=True).nodes("kind")}
    assert "stablehlo.dot_general" in kinds


def test_model_explorer(sdyscope):
    done = sdyscope("graph", "mlp", "--format", "model-explorer")
    assert "main" in [graph["id"] for graph in json.loads(done.out)["graphs"]]


def test_node_data_for_model_explorer(sdyscope, mlp_files, tmp_path):
    done = sdyscope(
        *("graph", mlp_files / "shardy.mlir", "--format", "model-explorer"),
        *("-o", tmp_path / "graph.json", "--node-data", tmp_path / "data"),
    )
    assert done.status == 0
    for name in ("shardings", "bytes"):
        assert "main" in json.loads((tmp_path / "data" / f"{name}.json").read_text())
        assert f"{name}.json: " in done.err
    asked = sdyscope("graph", "mlp", "--node-data", tmp_path)
    asked.said("--node-data is for Model Explorer.", "--format model-explorer")


def test_a_file_needs_no_partitioner(sdyscope, mlp_files):
    done = sdyscope("graph", mlp_files / "gspmd.mlir")
    assert done.err.startswith("jit_step for GSPMD: ")
    asked = sdyscope("graph", mlp_files / "gspmd.mlir", "--partitioner", "shardy")
    asked.said("The module is written for GSPMD, not for Shardy.")


def test_what_does_not_work(sdyscope, tmp_path):
    sdyscope("graph", "mlp", "--json", "--format", "graphml").said("exclude each other")
    sdyscope("graph", "mlp", "-o", tmp_path / "no" / "x.json").said("cannot write")
    assert list(tmp_path.iterdir()) == []
