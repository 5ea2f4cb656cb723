"""What is not known is told by every command that looks at a module, and fails with --strict."""

import pytest

MODULE = """module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<24x8xf32> {mhlo.sharding = "{devices=[3]<=[8}"})
      -> (tensor<24x8xf32>) {
    return %x : tensor<24x8xf32>
  }
}
"""


@pytest.fixture
def malformed(tmp_path):
    path = tmp_path / "malformed.mlir"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize("command", ["show", "graph", "lower", "check", "snapshot"])
def test_it_is_told_and_strict_fails(sdyscope, malformed, command):
    done = sdyscope(
        command, malformed, "--strict", *(["--partitioner", "gspmd"] * (command == "snapshot"))
    )
    assert done.status == 1
    said = " ".join((done.out + done.err).split())
    assert "not known" in said
    assert "{devices=[3]<=[8} could not be read" in said


def test_a_page_is_written_and_strict_fails(sdyscope, malformed, tmp_path):
    page = tmp_path / "page.html"
    done = sdyscope("report", malformed, "--no-compile", "-o", page, "--strict")
    assert (done.status, page.exists()) == (1, True)
    assert "{devices=[3]<=[8} could not be read" in " ".join(done.err.split())


def test_a_diff_calls_no_unreadable_shardings_the_same(sdyscope, malformed):
    done = sdyscope("diff", malformed, malformed, "--json")
    (program,) = done.document("diff")["programs"]
    assert (len(program["not_compared"]), program["same_tensors"]) == (1, 1)
    assert sdyscope("diff", malformed, malformed, "--strict").status == 1


def test_it_has_its_mark_in_a_diff_and_its_mark_and_reason_in_a_snapshot(
    sdyscope, malformed, tmp_path
):
    impossible = tmp_path / "impossible.mlir"
    impossible.write_text(MODULE.replace("[3]<=[8}", "[3]<=[3]}"))
    done = sdyscope("diff", malformed, impossible)
    assert done.status == 1
    assert "! {devices=[3]<=[8}" in done.out
    assert "! {devices=[3]<=[3]}" in done.out
    for module, reason in (
        (malformed, "could not be read: line 1, column 17: unexpected '}' in a sharding"),
        (impossible, "gives no placement: it is for a tensor of rank 1, not 2"),
    ):
        golden = tmp_path / f"{module.stem}.snap"
        arguments = ("snapshot", module, "--stages", "lowered", "-o", golden)
        assert sdyscope(*arguments).status == 0
        (line,) = [line for line in golden.read_text().splitlines() if "[3]<=" in line]
        assert line.strip().startswith("lowered ! ")
        assert line.replace("\\", "").endswith(reason)
        assert sdyscope(*arguments, "--check").status == 0


@pytest.fixture
def refused(tmp_path):
    """A module that XLA refuses: a sharding of another rank than its tensor."""
    path = tmp_path / "refused.mlir"
    path.write_text(MODULE.replace("[3]<=[8}", "[3]<=[3]}"))
    return path


@pytest.mark.compiles
def test_a_refused_propagation_does_not_take_the_source_down(sdyscope, refused):
    done = sdyscope("source", refused, "--no-compile")
    assert (done.status, done.err) == (0, "")
    said = " ".join(done.out.split())
    assert "nothing under GSPMD: XLA refuses the module" in said
    assert "The shardings are those that the lowered module says" in said
    assert "the module's text (not shown" in said
    assert "f32[24,8] argument ! {devices=[3]<=[3]}" in said
    assert "error no-placement of main(0)" in said
    assert "GSPMD: not propagated" in said
    assert sdyscope("source", refused, "--no-compile", "--strict").status == 1
    document = sdyscope("source", refused, "--no-compile", "--json").document("source")
    assert (document["propagations"], len(document["failures"])) == ([], 1)


@pytest.mark.compiles
def test_a_refused_propagation_does_not_take_the_snapshot_down(sdyscope, refused, tmp_path):
    done = sdyscope("snapshot", refused)
    assert done.status == 0
    assert "stages lowered\n" in done.out
    assert "lowered ! " in done.out
    assert "not propagated: XLA refuses the module" in " ".join(done.err.split())
    assert sdyscope("snapshot", refused, "--strict").status == 1
    golden = tmp_path / "golden.snap"
    # What was asked for by name is not written without it.
    asked = sdyscope("snapshot", refused, "--stages", "lowered,propagated", "-o", golden)
    asked.said("XLA refuses the module")
    assert not golden.exists()
    assert sdyscope("snapshot", refused, "-o", golden).status == 0
    assert sdyscope("snapshot", refused, "-o", golden, "--check").status == 0


@pytest.mark.compiles
def test_a_stage_that_is_refused_now_is_no_agreement(sdyscope, refused, tmp_path):
    golden = tmp_path / "golden.snap"
    right = tmp_path / "right.mlir"
    right.write_text(MODULE.replace("[3]<=[8}", "[8,1]<=[8]}"))
    assert sdyscope("snapshot", right, "-o", golden).status == 0
    before = golden.read_text()
    done = sdyscope("snapshot", refused, "-o", golden, "--check")
    assert done.status == 1
    said = " ".join(done.out.split())
    assert "stages - lowered, propagated + lowered" in said
    assert "gives no placement" in said.replace("\\", "")
    assert sdyscope("snapshot", refused, "-o", golden, "--update").status == 2
    assert golden.read_text() == before


@pytest.mark.compiles
@pytest.mark.parametrize("command", ["propagate", "memory", "comms"])
def test_where_nothing_can_be_shown_strict_changes_nothing(sdyscope, refused, command):
    """Status 1 is an answer with something unknown in it; without an answer it is 2."""
    for options in ((), ("--strict",)):
        sdyscope(command, refused, *options).said("refuses", "gives no placement")
