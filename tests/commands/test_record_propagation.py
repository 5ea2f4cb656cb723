"""Of which programs of a run `sdyscope record` keeps what propagation decides."""

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from sdyscope.commands import record_propagation, record_run
from sdyscope.errors import TargetError
from sdyscope.facts.recorded import SCHEMA, read_record
from sdyscope.facts.remarks import Remark
from sdyscope.stages.propagated.recording_child import KeptAnswer
from sdyscope.words.remarks import remark_texts

OWN = {"jax": metadata.version("jax"), "jaxlib": metadata.version("jaxlib")}
OTHER = {"jax": "0.1.0", "jaxlib": "0.1.0"}


def write(folder, programs):
    """A recorded run: a module of so many bytes for each program, with what its lines say."""
    (folder / "processes").mkdir(parents=True)
    (folder / "modules").mkdir()
    for number, (name, (size, versions, changes)) in enumerate(programs.items()):
        (folder / "modules" / f"{name}.mlir").write_bytes(b" " * size)
        process = {
            "line": "process", "schema": SCHEMA, "pid": number, "parent": 1, "host": "here",
            "arguments": ["python"], "python": "3.11.7", **versions,
        }  # fmt: skip
        lowered = {
            "line": "lowered", "module": name, "name": f"jit_{name}", "defined": ["a.py", 3],
            "by_jax": False, "called": None, "partitioner": "shardy", "arguments": [],
            "paths": [], "results": [], "seconds": 0.5, "others": {}, "failures": {}, **changes,
        }  # fmt: skip
        lines = [json.dumps({**line, "at": float(number)}) for line in (process, lowered)]
        (folder / "processes" / f"p{number}.jsonl").write_text("\n".join([*lines, ""]))


PROGRAMS = {
    "small": (1_000, OWN, {}),
    "large": (2_500_000, OWN, {}),
    "middle": (900_000, OWN, {}),
    "own": (1_000, OWN, {"by_jax": True}),
    "hlo": (900, OWN, {"partitioner": "gspmd"}),
    "other": (1_000, OTHER, {}),
}


@pytest.fixture
def asked(monkeypatch):
    """The programs that were propagated, in order; `middle` can't be."""
    names = []

    def answer(worker, asked, patience):
        file = Path(asked.file)
        names.append(file.stem)
        assert asked.partitioner == PROGRAMS[file.stem][2].get("partitioner", "shardy")
        assert patience > file.stat().st_size / 1e6
        failed = file.stem == "middle"
        return KeptAnswer(failed="It is odd.") if failed else KeptAnswer(file.stem.encode())

    monkeypatch.setattr(record_propagation, "_asked", answer)
    return names


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ["large", "middle", "small", "hlo"]),
        (60.0, ["large", "middle", "small", "hlo"]),
        (3.0, ["middle", "small", "hlo"]),
        (1.1, ["small", "hlo"]),
        (1.0, []),
    ],
)
def test_the_largest_modules_that_there_is_time_for(seconds, expected, asked, tmp_path):
    write(tmp_path, PROGRAMS)
    remarks = record_propagation.keep(tmp_path, read_record(tmp_path), seconds)
    assert asked == expected
    (said,) = remark_texts(remarks)
    assert said.endswith("sdyscope's own, and not of those of JAX 0.1.0.")


def test_what_is_kept_is_found_again_by_the_jax_that_made_it(asked, tmp_path):
    write(tmp_path, PROGRAMS)
    record_propagation.keep(tmp_path, read_record(tmp_path), None)
    record = read_record(tmp_path)
    kept = {program.name: program.propagated for program in record.programs if program.propagated}
    assert {name: (tmp_path / file).read_bytes() for name, file in kept.items()} == {
        "large": b"large",
        "small": b"small",
        "hlo": b"hlo",
    }
    assert remark_texts(record.problems) == (
        "What propagation decides for middle is not kept: It is odd.",
    )
    # Once more, as with --add: only what is not there.
    asked.clear()
    record_propagation.keep(tmp_path, record, None)
    assert asked == ["middle"]
    (tmp_path / kept["large"]).unlink()
    record = read_record(tmp_path)
    assert any(
        "What its own JAX propagates of large is gone" in text
        for text in remark_texts(record.problems)
    )
    # The same module of another JAX is not what this one propagates.
    lines = tmp_path / "processes" / "p0.jsonl"
    lines.write_text(lines.read_text().replace(OWN["jaxlib"], "0.1.0"))
    kept = [program.name for program in read_record(tmp_path).programs if program.propagated]
    assert kept == ["hlo"]


@pytest.mark.parametrize(
    ("options", "cpu_seconds", "expected"),
    [
        ((), 100.0, [5.0]),
        ((), 20.0, []),
        (("--propagate",), 0.1, [None]),
        (("--no-propagate",), 100.0, []),
    ],
)
def test_a_twentieth_of_the_script_s_time_or_what_is_asked_for(
    sdyscope, tmp_path, monkeypatch, options, cpu_seconds, expected
):
    clock, given = iter([7.0, 7.0 + cpu_seconds]), []

    def keep(folder, record, seconds):
        given.append(seconds)
        return (Remark("propagation of another JAX", "JAX 0.1.0", other="JAX 0.9.9"),)

    monkeypatch.setattr(record_run, "cpu_seconds", lambda: next(clock))
    monkeypatch.setattr(record_propagation, "keep", keep)
    done = sdyscope("record", "-o", tmp_path / "run", *options, "--", sys.executable, "-c", "")
    assert done.status == 0
    assert given == expected
    # Only who has asked for it is told that it can't be.
    assert ("not of those of JAX 0.1.0" in " ".join(done.err.split())) == (
        options == ("--propagate",)
    )


def test_a_run_is_whole_without(sdyscope, tmp_path, monkeypatch):
    def keep(folder, record, seconds):
        raise TargetError("It can't be written: No space left on device.", file=folder)

    monkeypatch.setattr(record_propagation, "keep", keep)
    words = ("--propagate", "--", sys.executable, "-c", "")
    done = sdyscope("record", "-o", tmp_path / "run", *words)
    assert done.status == 0
    assert "What propagation decides is not kept: " in done.err
    assert "No space left on device" in done.err
