"""Recorded runs, read from the lines that processes wrote."""

import json

import pytest

from sdyscope.errors import TargetError
from sdyscope.facts.recorded import INDEX, SCHEMA, is_recorded, read_record
from sdyscope.facts.remarks import Remark
from sdyscope.words.remarks import remark_texts

HEADER = {
    "line": "process",
    "at": 1.0,
    "schema": SCHEMA,
    "pid": 7,
    "parent": 1,
    "host": "here",
    "arguments": ["python", "train.py"],
    "jax": "0.10.2",
    "python": "3.11.7",
}


def lowered(module, at, name="jit_step", **changes):
    return {
        "line": "lowered",
        "at": at,
        "module": module,
        "name": name,
        "function": name.removeprefix("jit_"),
        "defined": ["train.py", 3],
        "by_jax": False,
        "called": ["train.py", 9],
        "partitioner": "shardy",
        "arguments": ["f32[8]"],
        "paths": ["x"],
        "results": ["f32[]"],
        "seconds": 0.5,
        "others": {},
        "failures": {},
        **changes,
    }


def compiled(module, at, name="jit_step", **changes):
    return {
        "line": "compiled",
        "at": at,
        "module": module,
        "name": name,
        "partitioner": "shardy",
        "devices": 8,
        "index": 0,
        "seconds": 2.0,
        "called": ["train.py", 9],
        "failed": "",
        **changes,
    }


def write(folder, process, *lines, cut=""):
    (folder / "processes").mkdir(exist_ok=True)
    (folder / "modules").mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines) + cut
    (folder / "processes" / f"{process}.jsonl").write_text(text)
    for line in lines:
        for module in (line.get("module"), *line.get("others", {}).values()):
            if module:
                (folder / "modules" / f"{module}.mlir").write_text("module {}")


def test_processes_are_merged(tmp_path):
    write(tmp_path, "a", HEADER, lowered("m1", 2.0), compiled("m1", 3.0))
    again = lowered("m2", 5.0, arguments=["f32[16]"], called=["train.py", 12])
    other = {**HEADER, "pid": 8, "at": 1.5}
    write(
        tmp_path, "b", other, lowered("m1", 2.5), compiled("m1", 3.5, index=1), again,
        compiled("m2", 6.0, index=1, failed="XlaRuntimeError: no"),
    )  # fmt: skip
    record = read_record(tmp_path)
    assert [process.index for process in record.processes] == [0, 1]
    one, two = record.programs
    assert (one.label, two.label) == ("step.1", "step.2")
    assert (one.lowerings, one.compiles, one.compile_seconds) == (2, 2, 4.0)
    assert one.processes == ("a", "b")
    assert (two.refused, two.processes) == (("XlaRuntimeError: no",), ("b",))
    assert one.words == "step.1 (f32[8])"
    assert [str(line) for line in two.called] == ["train.py:12", "train.py:9"]
    assert record.problems == ()


def test_a_function_of_a_library_is_told_by_its_call(tmp_path):
    optimizer = ["/env/lib/python3.11/site-packages/optax/transforms/_combining.py", 78]
    write(tmp_path, "a", HEADER, lowered("m1", 2.0, defined=optimizer), lowered("m2", 3.0))
    init, step = read_record(tmp_path).programs
    assert [str(init.line), str(step.line)] == ["train.py:9", "train.py:3"]


def test_a_line_that_was_cut_off_is_no_problem_and_a_bad_one_is(tmp_path):
    write(tmp_path, "a", HEADER, lowered("m1", 2.0), cut='{"line": "compiled", "at"')
    assert read_record(tmp_path).problems == ()
    write(tmp_path, "a", HEADER, {"line": "surprise", "at": 2}, lowered("m1", 2.0))
    record = read_record(tmp_path)
    assert record.problems == (Remark("unreadable lines", "a.jsonl", 1, 2),)
    assert [program.label for program in record.programs] == ["step"]


def test_no_text_of_a_recording_makes_a_line_of_its_own(tmp_path):
    evil = "st\nevil"
    write(
        tmp_path, "a", {**HEADER, "arguments": ["python", evil]},
        lowered("m1", 2.0, f"jit_{evil}", paths=[evil], called=[evil, 9], failures={"gspmd": evil}),
    )  # fmt: skip
    record = read_record(tmp_path)
    assert "\n" not in "".join(map(str, (*record.programs, *record.processes)))
    (program,) = record.programs
    assert (program.name, program.paths) == (r"st\x0aevil", (r"st\x0aevil",))


def test_the_other_partitioner(tmp_path):
    write(
        tmp_path, "a", HEADER, lowered("m1", 2.0, others={"gspmd": "m2"}),
        lowered("m3", 3.0, "jit_other", failures={"gspmd": "ValueError: no"}),
    )  # fmt: skip
    one, two = read_record(tmp_path).programs
    assert one.modules == {"shardy": "modules/m1.mlir", "gspmd": "modules/m2.mlir"}
    assert two.failures == {"gspmd": "ValueError: no"}
    assert two.devices is None
    (tmp_path / "modules" / "m2.mlir").unlink()
    record = read_record(tmp_path)
    assert list(record.programs[0].modules) == ["shardy"]
    assert remark_texts(record.problems) == (
        "step has no module for gspmd any more: modules/m2.mlir is gone.",
    )


def test_what_was_only_seen_to_be_compiled(tmp_path):
    write(tmp_path, "a", HEADER, compiled("m1", 2.0, "pmap_f"))
    (program,) = read_record(tmp_path).programs
    assert (program.label, program.words, program.arguments) == ("pmap_f", "pmap_f", None)


def test_more_devices_than_can_be_are_not_counted_out(tmp_path):
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "h1.hlo").write_text("HloModule m")
    for count in (10**15, -8):
        runs = [[0, 8, 1], [8, count, 1]]
        write(tmp_path, "a", HEADER, compiled("m1", 2.0, hlo="h1", device_runs=runs))
        (program,) = read_record(tmp_path).programs
        assert program.compiled.device_runs[1] == (8, count, 1)
        assert program.compiled.device_order == ()


@pytest.mark.parametrize(
    ("first", "second", "orders", "order"),
    [
        ([[0, 4, 1]], [[3, 4, -1]], 2, ()),
        ([[0, 4, 1]], [[4, 4, 1]], 1, (4, 5, 6, 7)),
        ([[0, 1, 0]], [[1, 1, 0]], 1, (1,)),
        ([[0, 4, 1]], [[0, 4, 1]], 1, (0, 1, 2, 3)),
        ([], [], 0, ()),
    ],
)
def test_orders_are_those_of_the_same_devices(tmp_path, first, second, orders, order):
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "h1.hlo").write_text("HloModule m")
    lines = [
        compiled("m1", at, hlo="h1", device_runs=runs) for at, runs in ((2, first), (3, second))
    ]
    write(tmp_path, "a", HEADER, *lines)
    (program,) = read_record(tmp_path).programs
    assert (program.orders, program.compiled.device_order) == (orders, order)
    # What each process has of its own is no other order.
    write(tmp_path, "a", HEADER, lines[0])
    write(tmp_path, "b", {**HEADER, "pid": 8}, lines[1])
    assert read_record(tmp_path).programs[0].orders == min(orders, 1)


def test_a_newer_form_and_a_broken_index(tmp_path):
    assert not is_recorded(tmp_path)
    write(tmp_path, "a", {**HEADER, "schema": "sdyscope.record/2"})
    assert is_recorded(tmp_path)
    with pytest.raises(TargetError, match="Read it with a newer sdyscope"):
        read_record(tmp_path)
    write(tmp_path, "a", HEADER)
    for text, words in (("{", "not the index of a recorded run"), ("{}", "Record the run again")):
        (tmp_path / INDEX).write_text(text)
        with pytest.raises(TargetError, match=words):
            read_record(tmp_path)
    assert read_record(tmp_path, trust_index=False).programs == ()


@pytest.mark.parametrize("name", ["../../secret", "/etc/secret", "x" * 5000, "a\0b"])
def test_files_outside_of_the_directory_are_not_read(tmp_path, name):
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, "p1", lowered("aa", 1.0))
    evil = json.dumps(lowered(name, 2.0, name="jit_evil")) + "\n"
    with (folder / "processes" / "p1.jsonl").open("a") as file:
        file.write(evil)
    (tmp_path / "secret.mlir").write_text("module {}")
    record = read_record(folder)
    assert [program.name for program in record.programs] == ["step"]
    assert any(
        problem.kind == "file outside" and problem.said == "evil" for problem in record.problems
    )


def test_a_link_out_of_the_directory_is_not_followed(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write(folder, "p1", lowered("aa", 1.0), lowered("bb", 2.0, name="jit_evil"))
    (tmp_path / "secret.mlir").write_text("module {}")
    (folder / "modules" / "bb.mlir").unlink()
    (folder / "modules" / "bb.mlir").symlink_to(tmp_path / "secret.mlir")
    assert [program.name for program in read_record(folder).programs] == ["step"]


@pytest.mark.parametrize("line", [b'{"line": "problem", "at": 1, "what": "\xff"}', b"[" * 100_000])
def test_bytes_that_are_no_text_and_depth_are_bad_lines(tmp_path, line):
    write(tmp_path, "a", HEADER, lowered("m1", 2.0))
    with (tmp_path / "processes" / "a.jsonl").open("ab") as file:
        file.write(line + b"\n")
    record = read_record(tmp_path)
    assert record.problems == (Remark("unreadable lines", "a.jsonl", 1, 3),)
    (tmp_path / INDEX).write_bytes(line)
    with pytest.raises(TargetError, match=INDEX):
        read_record(tmp_path)
