"""`sdyscope report`: the forms that it writes, and where."""

import json

import jsonschema
import pytest

from sdyscope.commands import document_type
from sdyscope.terminal.document import schema


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A function small enough to be looked at in no time."""
    path = tmp_path_factory.mktemp("target") / "small.py"
    path.write_text(
        """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"x": 4, "y": 2}

def program(mesh):
    w = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, P("x", "y")))
    return Program("small", jax.jit(lambda w: (w * 2).T), (w,))
"""
    )
    return f"{path}:program"


def test_html_is_written_to_the_file(sdyscope, target, tmp_path):
    file = tmp_path / "page.html"
    done = sdyscope("report", target, "--no-compile", "-o", file)
    html = file.read_text()
    assert done.status == 0
    assert done.out == f"{file}: {len(html.encode()):,} bytes\n"
    assert html.startswith("<!doctype html>")
    assert html.rstrip().endswith("</html>")
    assert list(tmp_path.iterdir()) == [file]


def test_html_goes_to_report_html(sdyscope, target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sdyscope("report", target, "--no-compile").status == 0
    assert (tmp_path / "report.html").exists()


def test_json_follows_its_schema(sdyscope, target):
    done = sdyscope("report", target, "--no-compile", "--json")
    found = json.loads(done.out)
    jsonschema.validate(found, schema(document_type("report")))
    assert found["name"] == "small"
    assert found["memory"] is None
    assert [stage["name"] for stage in found["stages"]] == [
        "requested",
        "lowered",
        "propagated",
        "compiled",
        "executed",
    ]
    assert [one["stage"] for one in found["unavailable"]] == ["compiled"]
    assert not found["unavailable"][0]["asked"]


def test_the_file_s_name_says_the_form(sdyscope, target, tmp_path):
    file = tmp_path / "summary.md"
    assert sdyscope("report", target, "--no-compile", "-o", file).status == 0
    assert file.read_text().startswith("### sdyscope: small\n")


@pytest.mark.compiles
def test_markdown_says_what_it_costs(sdyscope, target):
    text = sdyscope("report", target, "--format", "markdown").out
    assert "| **lowered** | ✅ all agree |" in text
    assert "<summary>Memory per device</summary>" in text
    assert "<summary>Collectives per step</summary>" in text


def test_a_module_from_a_file(sdyscope, mlp_files):
    done = sdyscope("report", mlp_files / "gspmd.mlir", "--no-compile", "--format", "markdown")
    assert done.status == 0
    assert "| **requested** | ➖ not known |" in done.out


def test_on_without_a_compile_is_refused(sdyscope, target):
    sdyscope("report", target, "--on", "cpu:8", "--no-compile").said("--no-compile")


def test_a_folder_that_is_not_there_is_said(sdyscope, target, tmp_path):
    file = tmp_path / "no" / "page.html"
    sdyscope("report", target, "--no-compile", "-o", file).said("cannot write this file")


def test_bad_input_is_one_sentence(sdyscope, tmp_path):
    file = tmp_path / "bad.mlir"
    file.write_text("module {")
    sdyscope("report", file, "-o", tmp_path / "page.html").said("bad.mlir")
    assert not (tmp_path / "page.html").exists()


def test_pictures_are_written_to_a_folder(sdyscope, target, tmp_path):
    done = sdyscope("report", target, "--no-compile", "--format", "svg", "-o", tmp_path / "plots")
    assert done.status == 0
    assert done.out.split() == [str(tmp_path / "plots" / "w.svg")]
    assert (tmp_path / "plots" / "w.svg").read_text().startswith("<svg")


def test_pictures_need_a_folder(sdyscope, target):
    sdyscope("report", target, "--no-compile", "--format", "svg").said("several files", "-o")


def test_two_targets_are_a_page_of_differences(sdyscope, target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sdyscope("report", target, "mlp", "--no-compile").status == 0
    page = (tmp_path / "differences.html").read_text()
    assert "<title>small" in page
    assert 'data-part="a/tensors"' in page
    assert 'data-part="b/graph"' in page
    sdyscope("report", target, target, "--json").said("page of their differences")


def test_two_snapshots_are_a_page_of_differences(sdyscope, target, tmp_path):
    golden = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file, mesh in zip(golden, ("x=4,y=2", "x=2,y=4"), strict=True):
        assert sdyscope("snapshot", target, "--mesh", mesh, "-o", file).status == 0
    page = tmp_path / "page.html"
    assert sdyscope("report", *golden, "-o", page).status == 0
    assert "a.txt" in page.read_text()
    sdyscope("report", golden[0], target, "-o", page).said("is a snapshot", "--check")
    sdyscope("report", golden[0], "-o", page).said("nothing to compare it with")


@pytest.mark.compiles
def test_two_kinds_of_hardware_are_a_page_of_differences(sdyscope, target, tmp_path):
    page = tmp_path / "page.html"
    done = sdyscope("report", target, "--on", "cpu", "--on", "cpu:8", "-o", page)
    assert done.status == 0
    assert "small: cpu → cpu:8" in page.read_text()
    sdyscope("report", target, *["--on", "cpu:8"] * 3).said("one value per side")


def test_one_tensor_is_one_picture(sdyscope, target, tmp_path):
    for name, said in (("w", "w f32[8,16]"), ("%1", "%1 f32[8,16]")):
        file = tmp_path / "one.svg"
        done = sdyscope("report", target, "--tensor", name, "-o", file)
        assert done.out == f"{file}: {len(file.read_bytes()):,} bytes\n"
        assert f"{said}</title>" in file.read_text()
        assert "dim 0 split 4 ways over x, dim 1 split 2 ways over y" in file.read_text()
    sdyscope("report", target, "--tensor", "nobody", "-o", file).said("called nobody")
    sdyscope("report", target, "--tensor", "w", "-o", tmp_path / "x.html").said("one picture")


@pytest.mark.compiles
def test_communication_is_one_picture(sdyscope, target, tmp_path):
    file = tmp_path / "sent.svg"
    assert sdyscope("report", target, "-o", file).status == 0
    assert "what a device sends in a step" in file.read_text()
    sdyscope("report", target, "--no-compile", "-o", file).said("not compiled")


@pytest.mark.compiles
def test_what_was_run_closes_the_last_stage(sdyscope, target):
    found = json.loads(sdyscope("report", target, "--run", "--json").out)
    stage = found["stages"][-1]
    assert (stage["state"], stage["verdict"]) == ("good", "as placed")
    assert "32 shards compared, all in their places." in stage["words"]
    assert found["run"]["partitioners"][0]["ran"]


@pytest.mark.compiles
def test_a_run_that_was_is_shown(sdyscope, target, tmp_path):
    done = sdyscope("run", target, "--steps", 1, "--json")
    told = json.loads(done.out)
    device = told["machine"]["devices"][0]
    checked = {"shards": 2, "differing": 0, "compile_seconds": 1, "step": None, "peak": None}
    told["processes"] = [
        {
            "number": number,
            "host": f"node{number}",
            "pid": 1,
            "devices": [device],
            "checked": {"shardy": checked},
        }
        for number in range(2)
    ]
    # As it is written where all of a result should be zero and is not.
    told["partitioners"][0]["errors"][0]["error"] = None
    finding = {
        "rule": "executed-differs",
        "severity": "error",
        "message": "It is elsewhere.",
        "tensor": told["tensors"][0]["path"],
        "kind": "argument",
        "source": {"file": "a.py", "line": 3, "column": 0, "function": ""},
        "partitioner": "shardy",
        "expected": "P('data')",
        "found": "P()",
        "hint": "",
    }
    told["findings"] = [finding]
    file = tmp_path / "run.json"
    file.write_text(json.dumps(told))
    words = ("report", target, "--no-compile", "--json", "--ran", file)
    found = json.loads(sdyscope(*words).out)
    assert "of 2 processes on 2 hosts. 32 shards compared" in found["stages"][-1]["words"]
    assert found["run"] == told
    sdyscope("report", target, "--no-compile", "--ran", file, "-o", tmp_path / "report.md")
    assert finding["message"] in (tmp_path / "report.md").read_text()
    sdyscope(*words, "--run").said("Leave one out.")
    told["tensors"][0]["shape"] = [1, 2]
    file.write_text(json.dumps(told))
    sdyscope(*words).said(f"{told['tensors'][0]['path']} differs there")
    file.write_text("{}")
    sdyscope(*words).said("This is not a run document")


def test_what_can_t_be_run_is_said(sdyscope, mlp_files):
    done = sdyscope("report", mlp_files / "gspmd.mlir", "--no-compile", "--run", "--json")
    stage = json.loads(done.out)["stages"][-1]
    assert (stage["state"], stage["verdict"]) == ("bad", "failed")
    assert "without input values" in stage["words"]


@pytest.mark.parametrize(
    "editor", ["vscode", "javascript:alert('{file}')", "idea://open?line={line}"]
)
def test_an_editor_is_an_address_with_a_file(sdyscope, editor):
    done = sdyscope("report", "mlp", "--editor", editor)
    assert done.status == 2
    assert "is no address of an application with {file} in it." in " ".join(done.err.split())


def test_what_is_not_installed_is_said_on_the_console_too(sdyscope, target, tmp_path, monkeypatch):
    from sdyscope.errors import TargetError
    from sdyscope.page import document

    def missing(*_):
        raise TargetError("tpu:v5e:2x4 needs libtpu.", hint="pip install 'jax[tpu]==0.10.2'")

    for name in ("memory_document", "comms_document"):
        monkeypatch.setattr(document, name, missing)
    done = sdyscope("report", target, "-o", tmp_path / "page.md")
    assert done.status == 0
    assert "not compiled: tpu:v5e:2x4 needs libtpu.\npip install 'jax[tpu]==0.10.2'" in done.err
    assert "needs libtpu" in (tmp_path / "page.md").read_text()


def test_several_files_of_one_inspection(sdyscope, target, tmp_path):
    page, text = tmp_path / "page.html", tmp_path / "page.md"
    done = sdyscope("report", target, "--no-compile", "-o", page, "-o", text)
    assert done.out.count("bytes") == 2
    assert page.read_text().startswith("<!doctype html>")
    assert text.read_text().startswith("### sdyscope: small")
    sdyscope("report", target, "--json", "-o", page, "-o", text).said("formats of their names")
    sdyscope("report", target, target, "--fix", "-o", page).said("--fix")
