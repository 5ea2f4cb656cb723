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
