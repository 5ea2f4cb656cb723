"""How a run is printed: devices, times, what did not run, what is not known."""

import dataclasses

from sdyscope.analysis.run.judge import judge
from sdyscope.analysis.run.numerics import Numeric
from sdyscope.analysis.run.values import MeshComparison, MeshRun, StepTime
from sdyscope.facts.execution import (
    DeviceMemory,
    ExecutedArray,
    Execution,
    InputSource,
    Machine,
    Process,
    ProcessTimes,
    Reference,
    Shard,
)
from sdyscope.facts.tensors import TensorTable
from sdyscope.values.mesh import Mesh
from sdyscope.views import run

CPU = Machine("cpu", "cpu", ("cpu:0", "cpu:1"), 8, True)
GPU = Machine("gpu", "NVIDIA H200", ("cuda:0",), 1, False)
RAN = Execution("shardy", compile_seconds=1.5, step_seconds=(0.002, 0.001, 0.004))


EQUAL = Numeric("result", 0, "f32", "f32", 0.0, 6e-5, 0.0, None, norm=1.0)


def made(*executions, machine=CPU, reference=Reference(), error=EQUAL):  # noqa: B008 - frozen
    judged = judge("step", machine, InputSource("made"), TensorTable(()), executions, reference)
    numerics = {execution.partitioner: (error,) for execution in executions}
    return dataclasses.replace(judged, numerics=numerics)


def facts(document):
    table = run.summary(document)
    return {cells[0].text: cells[1].text for cells in table.cells}


def test_heading_names_the_devices():
    assert run.heading(made(RAN)) == "step on 2 virtual CPU devices"
    assert run.heading(made(RAN, machine=GPU)) == "step on 1 GPU device (NVIDIA H200)"


def test_summary_of_what_ran():
    found = facts(made(RAN))
    assert found["verdict"] == "agrees"
    assert found["step, median of 3"] == "2.00 ms (1.00 ms to 4.00 ms)"
    assert found["compile"] == "1.50 s"
    assert found["peak in use"] == "not reported by backend"
    memory = DeviceMemory(1024, 2048, 1024, 0, 4096, True)
    found = facts(made(dataclasses.replace(RAN, memory=memory)))
    assert found["peak in use"] == "at most 4.0 KiB"
    assert found["results a device"] == "2.0 KiB, 1.0 KiB of it in place"


def test_only_an_independent_reference_agrees_without_a_qualifier():
    maps = Reference(has_shard_maps=True)
    for reference, verdict, what in (
        (Reference(), "agrees", "its jaxpr without shardings"),
        (dataclasses.replace(maps, function="dense.py:step"), "agrees", "dense.py:step"),
        (maps, "agrees with itself", "itself on a mesh of one device"),
        (
            dataclasses.replace(maps, alone_failure="no"),
            "agrees with itself",
            "itself, mapped on one device",
        ),
    ):
        found = facts(made(RAN, reference=reference))
        assert (found["verdict"], found["  compared with"]) == (verdict, what)


def test_results_that_say_nothing_agree_with_nothing():
    nothing = dataclasses.replace(EQUAL, norm=0.0)
    found = facts(made(RAN, error=nothing))
    assert (found["verdict"], found["largest error"]) == ("not compared", "not compared")
    assert facts(made(RAN))["largest error"] == "none"


def on_mesh(error, tolerance=6e-5, **more):
    worst = Numeric("result", 0, "f32", "f32", error, tolerance, error, None)
    compared = MeshComparison("", 1, int(error > tolerance), worst, StepTime(1, 1e-3, 1e-3, 1e-3))
    return dataclasses.replace(compared, **more)


def test_a_row_a_mesh():
    rows = (
        (1, True, "", {"shardy": on_mesh(0.0)}),
        (2, False, "", {"shardy": on_mesh(1e-7)}),
        (4, False, "", {"shardy": on_mesh(3.0)}),
        (8, False, "", {"shardy": on_mesh(0.0, failure="no", worst=None, step=None)}),
        (16, False, "too few devices", {}),
        (32, False, "", {"shardy": on_mesh(0.0, worst=None, results=0)}),
    )
    there = tuple(MeshRun(Mesh.of({"d": count}), count, *more) for count, *more in rows)
    document = dataclasses.replace(made(RAN), meshes=there)
    cells = [[cell.text for cell in row] for row in run.meshes(document).cells]
    assert cells == [
        ["d=1", "1", "base", "1.00 ms"],
        ["d=2", "2", "the same, 1.0e-07", "1.00 ms"],
        ["d=4", "4", "differs: 3.0e+00 in result", "1.00 ms"],
        ["d=8", "8", "does not run", "-"],
        ["d=16", "16", "does not run", "-"],
        ["d=32", "32", "not compared", "1.00 ms"],
    ]
    given = dataclasses.replace(document, reference=Reference(function="dense"))
    cells = [[cell.text for cell in row] for row in run.meshes(given).cells]
    assert cells[1][2] == "agrees, 1.0e-07"


def test_a_row_a_process():
    members = (Process(0, "vm", 7, (0,)), Process(1, "vm", 8, (1,)))
    parts = (ProcessTimes(1.0, (0.001,), None), ProcessTimes(2.0, (0.003, 0.002), 4096))
    shards = tuple(Shard(device, ((0, 4),), (4,), device) for device in (0, 1))
    array = ExecutedArray("argument", 0, (4,), "{replicated}", 1, shards)
    document = made(
        dataclasses.replace(RAN, arrays=(array,), parts=parts),
        Execution("gspmd", failure="no"),
        machine=dataclasses.replace(CPU, processes=members),
    )
    rows = [[cell.text for cell in cells] for cells in run.processes(document).cells]
    assert rows == [
        ["0", "vm, 7", "1 from cpu:0", "1 shard, 1.00 ms", "-"],
        ["1", "vm, 8", "1 from cpu:1", "1 shard, 2.50 ms, 4.0 KiB", "-"],
    ]


def test_what_did_not_run_has_no_figures():
    document = made(Execution("shardy", failure="XLA: no"))
    assert facts(document) == {"verdict": "does not run"}
    assert any("XLA: no" in paragraph.text for paragraph in run.footer(document))


def test_no_reference_is_no_silent_agreement():
    found = facts(made(RAN, reference=Reference(failure="out of memory")))
    assert found["verdict"] == "not compared"
    assert found["largest error"] == "not compared"
