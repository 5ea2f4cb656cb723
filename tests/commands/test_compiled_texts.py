"""The text of a compiled program: an inspection that has the compiled stage and no other."""

import json

import msgspec
import pytest

from sdyscope.ci import Outcome
from sdyscope.errors import MissingStageError
from sdyscope.inspection import read
from sdyscope.lint import RULES
from sdyscope.snapshots import read_snapshots

HLO = """HloModule jit_f, is_scheduled=true, buffer_donor={ (1, {}) }, num_partitions=8, \
entry_computation_layout={(f32[1024]{0}, f32[16]{0})->(f32[1024]{0}, f32[8]{0})}

add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY e {
  %p = f32[1024]{0} parameter(0), metadata={op_name="params[\\'w\\']"}
  %q = f32[16]{0} parameter(1), metadata={op_name="batch"}
  %s = f32[8]{0} slice(%q), slice={[0:8]}
  %r = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[4,2]<=[8], \
use_global_device_ids=true, to_apply=add, \
metadata={op_name="jit(f)/layer/psum" source_file="FILE" source_line=2}
  ROOT %t = (f32[1024]{0}, f32[8]{0}) tuple(%r, %s)
}
"""

LOOP = """HloModule jit_f, is_scheduled=true, num_partitions=8, \
entry_computation_layout={(f32[65536]{0})->f32[]}

add {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

body {
  %state = (s32[], f32[65536]{0}, f32[]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %w = f32[65536]{0} get-tuple-element(%state), index=1
  %total = f32[] get-tuple-element(%state), index=2
  %whole = f32[524288]{0} all-gather(%w), channel_id=1, replica_groups=[1,8]<=[8], \
dimensions={0}, use_global_device_ids=true, metadata={op_name="jit(f)/while/body/gather"}
  %zero = f32[] constant(0)
  %sum = f32[] reduce(%whole, %zero), dimensions={0}, to_apply=add
  %more = f32[] add(%total, %sum)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %out = (s32[], f32[65536]{0}, f32[]) tuple(%next, %w, %more)
}

condition {
  %state = (s32[], f32[65536]{0}, f32[]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(4)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY e {
  %p = f32[65536]{0} parameter(0)
  %start = s32[] constant(0)
  %nothing = f32[] constant(0)
  %state = (s32[], f32[65536]{0}, f32[]) tuple(%start, %p, %nothing)
  %loop = (s32[], f32[65536]{0}, f32[]) while(%state), condition=condition, body=body, \
backend_config={"known_trip_count":{"n":"4"}}
  ROOT %r = f32[] get-tuple-element(%loop), index=2
}
"""


@pytest.fixture
def text(tmp_path):
    source = tmp_path / "layer.py"
    source.write_text("def f(x):\n    return psum(x)\n")
    path = tmp_path / "compiled.txt"
    path.write_text(HLO.replace("FILE", str(source)))
    return path


@pytest.fixture
def unread(text):
    """The same with a line that nobody can read."""
    text.write_text(text.read_text().replace("  ROOT %t", "  what is this\n  ROOT %t"))
    return text


def test_rules_run_that_need_no_other_stage(sdyscope, text):
    document = sdyscope("lint", text, "--json").document("lint")
    assert (document["partitioners"], document["compiled_by"]) == ([], None)
    skipped = {entry["rule"]: entry for entry in document["not_run"]}
    run = RULES.keys() - skipped.keys()
    assert run == {"donation-unused", "gathered-in-loop", "layout-copied"}
    reason = "It needs a stage before the compiled one, which a compiled program's text lacks."
    assert {entry["partitioner"] for entry in skipped.values()} == {None}
    assert skipped["under-sharded"]["reason"] == reason  # looks at the lowered module
    assert skipped["parameter-gathered"]["reason"] == reason  # at both
    assert skipped["full-rematerialization"]["reason"] == reason  # at the compiler's log
    for rule in ("mesh-order", "axis-over-slow-link", "slices-crossed-in-loop"):
        assert "does not say what hardware" in skipped[rule]["reason"]
        assert skipped[rule]["applies"]
    assert "does not say how many bytes" in skipped["bytes-differ"]["reason"]
    (finding,) = document["findings"]
    assert (finding["rule"], finding["tensor"]) == ("donation-unused", "batch")


def test_what_lint_prints_says_how_much_it_looked_at(sdyscope, text):
    done = sdyscope("lint", text)
    assert done.status == 1
    assert done.out.startswith(f"jit_f: 3 of {len(RULES)} rules, 1 warning")
    assert "Shardy" not in done.out
    assert f"{len(RULES) - 7} rules (--json lists them): It needs a stage before" in done.out
    # Nothing need be compiled that is compiled.
    assert sdyscope("lint", text, "--no-compile").out == done.out
    sdyscope("lint", text, "--on", "cpu:8").said("is a compiled program", "Leave --on out")


def test_a_loop_of_a_text_is_looked_at(sdyscope, tmp_path):
    path = tmp_path / "loop.txt"
    path.write_text(LOOP)
    done = sdyscope("lint", path, "--mesh", "data=8", "--select", "gathered-in-loop", "--json")
    (finding,) = done.document("lint")["findings"]
    assert "over data=8 in each iteration of a loop, 4 times per step" in finding["message"]
    assert finding["partitioner"] is None


def test_a_directory_has_texts_beside_modules(sdyscope, text, mlp_files):
    text.rename(mlp_files / "compiled.txt")
    done = sdyscope("lint", mlp_files, "--select", "donation-unused", "--no-compile", "--json")
    document = done.document("lint")
    under = sorted(program["partitioners"] for program in document["programs"])
    assert under == [[], ["gspmd"], ["shardy"]]
    assert not document["account"]["unknowns"]
    ran = [program["name"] for program in document["programs"] if not program["not_run"]]
    assert ran == ["jit_f"]


def test_a_snapshot_has_the_compiled_stage(sdyscope, text, tmp_path):
    golden = tmp_path / "golden.snap"
    done = sdyscope("snapshot", text, "-o", golden, "--mesh", "data=4,model=2")
    assert done.status == 0
    content = golden.read_text()
    (taken,) = read_snapshots(content)
    assert (taken.partitioners, taken.stages, taken.hardware) == ((), ("compiled",), "")
    assert "partitioners" not in content
    assert "collective  all-reduce over model=2  layer/psum  f32[1024]" in content
    assert "memory  argument params\n  compiled a device holds 4,096 B" in content
    again = ("snapshot", text, "-o", golden, "--mesh", "data=4,model=2", "--check")
    assert sdyscope(*again).status == 0
    text.write_text(text.read_text().replace("[4,2]<=[8]", "[2,4]<=[4,2]T(1,0)"))
    changed = sdyscope(*again)
    assert changed.status == 1
    assert "only in the snapshot: collective all-reduce over model=2" in changed.out
    assert "not in the snapshot: collective all-reduce over data=4" in changed.out


def test_a_text_is_compared_with_what_says_more(sdyscope, text, tmp_path):
    golden = tmp_path / "golden.snap"
    sdyscope("snapshot", text, "-o", golden)
    head = "  partitioners shardy\n  stages compiled\n  hardware cpu:8\n"
    golden.write_text(golden.read_text().replace("  stages compiled\n", head))
    done = sdyscope("snapshot", text, "-o", golden, "--check")
    assert done.status == 1
    words = " ".join(done.out.split())
    assert "partitioners - shardy + not known hardware - cpu:8 + not known" in words


@pytest.mark.parametrize("stages", ["lowered", "requested,compiled"])
def test_a_snapshot_of_another_stage_is_refused(sdyscope, text, stages):
    sdyscope("snapshot", text, "--stages", stages).said("the stages before are not in it")
    with pytest.raises(MissingStageError):
        read(text).snapshot(stages.split(","))


def test_lines_have_what_they_send(sdyscope, text):
    done = sdyscope("source", text, "--mesh", "data=4,model=2")
    assert done.status == 0
    words = " ".join(done.out.split())
    assert "not how the line's values are sharded" in words
    assert "4.0 KiB 2 return psum(x) ^ all-reduce over model=2 of 1 tensor sends" in words
    assert "block" not in done.out
    document = sdyscope("source", text, "--json").document("source")
    assert (document["collective_meshes"], document["propagations"]) == ({"": None}, [])
    (file,) = document["files"]
    sends = {line["line"]: line["sent"] for line in file["lines"] if line["collectives"]}
    assert sends == {2: {"": 4096}}
    text.write_text(text.read_text().replace(" source_line=2", ""))
    assert "\n4.0 KiB sent by collectives without a line" in sdyscope("source", text).out


@pytest.mark.parametrize("command", ["lint", "snapshot", "source", "report"])
def test_what_could_not_be_read_is_told(sdyscope, unread, tmp_path, command):
    options = ("--format", "markdown") if command == "report" else ()
    done = sdyscope(command, unread, *options)
    assert "what is this could not be read: line 14 of the HLO" in done.out + done.err
    assert sdyscope(command, unread, *options, "--strict").status == 1


def test_a_report_has_the_views_of_a_compiled_program(sdyscope, text, tmp_path):
    document = json.loads(sdyscope("report", text, "--json", "-o", "-").out)
    missing = (document["show"], document["check"], document["propagate"])
    assert missing == (None, None, None)
    stages = {stage["name"]: (stage["verdict"], stage["words"]) for stage in document["stages"]}
    for stage in ("requested", "lowered", "propagated"):
        assert stages[stage] == ("not known", "It is not in the text of a compiled program.")
    assert stages["compiled"][1].startswith("The text does not say for what. A step has 1 coll")
    assert stages["executed"][0] == "not run"
    (headline,) = document["headlines"]
    assert headline["words"].startswith("The largest collective is an all-reduce in groups of 2,")
    markdown = sdyscope("report", text, "--format", "markdown").out
    assert "A device holds 8.1 KiB of arguments and results. The text of a compiled" in markdown
    assert "JAX" not in markdown
    sdyscope("report", text, "--on", "cpu:8").said("Leave --on out")


def test_two_texts_are_the_same_where_they_can_be_compared(sdyscope, text, tmp_path):
    page = tmp_path / "page.html"
    assert sdyscope("report", text, text, "-o", page).status == 0
    assert "as far as they were compared" in page.read_text()


CI = """
[tool.sdyscope.targets.text]
target = "compiled.txt"
mesh = { data = 4, model = 2 }
check = false
[tool.sdyscope.targets.text.budgets]
communication = [{ kind = "all-reduce", axis = "model", bytes = "1KiB" }]
"""


def test_ci_holds_a_text_to_its_budgets(sdyscope, unread, monkeypatch):
    (unread.parent / ".git").mkdir()
    (unread.parent / "pyproject.toml").write_text(CI)
    monkeypatch.chdir(unread.parent)
    done = sdyscope("ci", "--target", "text", "--outcome", supervising=True)
    judged = msgspec.json.decode(done.out, type=Outcome).target
    assert (judged.status, judged.partitioners) == ("failed", ())
    (budget,) = judged.budgets
    assert (budget.partitioner, budget.used, budget.allowed) == (None, 4096, 1024)
    rules = {entry.finding.rule for entry in judged.findings if entry.fails}
    assert rules == {"donation-unused", "over-communication", "budget-uncertain", "not-known"}


def test_a_text_read_as_a_module_is_for_no_partitioner(sdyscope, text):
    done = sdyscope("lower", text)
    assert done.out.startswith("// jit_f, the compiled program of one device: ")
    document = sdyscope("lower", text, "--json").document("lower")
    assert [module["partitioner"] for module in document["modules"]] == [None]
    told = sdyscope("graph", text).err
    assert told.startswith("jit_f, the compiled program of one device: ")
    for command in ("lower", "graph"):
        sdyscope(command, text, "--partitioner", "gspmd").said("Leave --partitioner out")


def test_what_no_stage_before_says_is_not_there(text):
    program = read(text)
    assert (program.requested, program.failures, program.traced) == ((), {}, None)
    assert (program.partitioners, program.device_order, program.defined_at) == ((), (), None)
    with pytest.raises(MissingStageError):
        _ = program.lowered
