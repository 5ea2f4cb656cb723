"""How far are predicted collectives from those of a compiled program?

The prediction is made from Shardy's reshards, the truth is read from the partitioned program that
XLA makes, on CPUs and, where libtpu is installed, for TPUs that are not there. The first table has
the time that a prediction takes on meshes of several sizes, the second the bytes that devices send
by mesh axes, the third by kind as well; ``error`` is what is predicted too much (-: too little).
Another is about pairs of matmuls whose operands are sharded at random, so that most do not fit
together: how to resolve that is where Shardy and XLA differ most.
"""

import argparse
import importlib.util
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdyscope.facts.program import Program
from sdyscope.terminal.table import Column, Heading, Row, Table, number, print_table

#: (program, mesh, settings, hardware); no hardware: as many CPU devices as the mesh has.
CASES: tuple[tuple[str, dict[str, int], dict[str, Any], str | None], ...] = (
    ("mlp", {"data": 4, "model": 2}, {}, None),
    ("fsdp-transformer", {"fsdp": 4, "model": 2}, {"layers": 2}, None),
    ("fsdp-transformer", {"fsdp": 2, "model": 4}, {"layers": 2}, None),
    ("fsdp-transformer", {"fsdp": 8, "model": 1}, {"layers": 2}, None),
    ("fsdp-transformer", {"fsdp": 4, "model": 2}, {"layers": 2, "scan": True}, None),
    ("fsdp-transformer", {"fsdp": 4, "model": 2}, {"layers": 2, "constrained": False}, None),
    ("mlp", {"data": 4, "model": 2}, {}, "tpu:v5e:2x4"),
    ("fsdp-transformer", {"fsdp": 8, "model": 2}, {"layers": 2}, "tpu:v5e:4x4"),
    ("fsdp-transformer", {"fsdp": 4, "model": 4}, {"layers": 2}, "tpu:v5e:4x4"),
    (
        "fsdp-transformer",
        {"fsdp": 8, "model": 2},
        {"layers": 2, "constrained": False},
        "tpu:v5e:4x4",
    ),
)


@dataclass
class Case:
    title: str
    hardware: str
    predicted: Any
    compiled: Any


def compared(title: str, program: Program, hardware: str | None) -> Case:
    from sdyscope.analysis.collectives.predicted import Predictor
    from sdyscope.analysis.collectives.read import collectives
    from sdyscope.hlo import read_hlo
    from sdyscope.inspection import Inspection

    inspection = Inspection(program, ("shardy",))
    lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
    predicted = Predictor(lowered, graph).predict(on_cpu=hardware is None).collectives
    compiled = inspection.compiled("shardy", hardware)
    in_text = collectives(read_hlo(compiled.hlo), inspection.meshes.values())
    return Case(title, str(compiled.hardware), predicted, in_text)


def models() -> Iterable[Case]:
    from sdyscope.targets import resolve_program

    for name, mesh, settings, hardware in CASES:
        if hardware is not None and importlib.util.find_spec("libtpu") is None:
            continue
        texts = {key: str(value).lower() for key, value in settings.items()}
        shown = [f"{key}={text}" for key, text in texts.items() if key != "layers"]
        title = " ".join((name, *shown, " x ".join(f"{k}={v}" for k, v in mesh.items())))
        yield compared(title, resolve_program(name, mesh=mesh, settings=texts), hardware)


def users_programs() -> Iterable[Case]:
    """Every small program of the tests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from user_programs import USER_PROGRAMS

    from sdyscope.errors import CompilerError
    from sdyscope.stages import compat
    from sdyscope.values.mesh import Mesh

    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    for name, make in USER_PROGRAMS.items():
        try:
            case = compared(f"{name} data=4 x model=2", make(mesh), None)
        except CompilerError:
            continue  # XLA refuses it
        if case.predicted.collectives or case.compiled.collectives:
            yield case


def axes_words(axes: Any) -> str:
    return "no single axis" if axes is None else " x ".join(map(str, axes)).replace('"', "")


def error(predicted: int, compiled: int) -> str:
    if predicted == compiled:
        return "0"
    return f"{100 * (predicted - compiled) / compiled:+.1f} %" if compiled else "all"


def printed(cases: Iterable[Case], tallies: Any, words: Any, title: str) -> Table:
    headers = ("predicted", "compiled", "predicted B", "compiled B", "error")
    lines: list[Row] = []
    for case in cases:
        lines.append(Heading(f"{case.title} on {case.hardware}"))
        ours: Mapping[Any, Any] = tallies(case.predicted)
        compiled: Mapping[Any, Any] = tallies(case.compiled)
        rows = [
            (words(key), ours.get(key), compiled.get(key))
            for key in dict.fromkeys((*ours, *compiled))
        ]
        rows.append(("all", case.predicted.total, case.compiled.total))
        for what, left, right in rows:
            counts = [0 if side is None else side.tensors for side in (left, right)]
            sent = [0 if side is None else side.sent for side in (left, right)]
            lines.append((what, *(f"{value:,}" for value in (*counts, *sent)), error(*sent)))
    return Table((Column("what"), *map(number, headers)), tuple(lines), title=title)


def times(runs: int) -> Table:
    """What a prediction takes, the program being imported once."""
    from sdyscope.analysis.collectives.predicted import Predictor
    from sdyscope.inspection import Inspection
    from sdyscope.targets import resolve_program

    headers = ("devices", "import, once", "a prediction", "predictions a minute")
    rows = []
    for fsdp, model in ((4, 2), (32, 16), (256, 128)):
        settings = {"layers": "2", "batch": "256", "heads": "128"}
        program = resolve_program(
            "fsdp-transformer", mesh={"fsdp": fsdp, "model": model}, settings=settings
        )
        inspection = Inspection(program, ("shardy",))
        lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
        start = time.process_time()
        predictor = Predictor(lowered, graph)
        imported = time.process_time() - start
        taken = []
        for _ in range(runs):
            start = time.process_time()
            predictor.predict()
            taken.append(time.process_time() - start)
        median = statistics.median(taken)
        figures = (f"{1000 * imported:.0f}", f"{1000 * median:.0f}", f"{60 / median:,.0f}")
        rows.append((f"{fsdp * model:,}", *figures))
    title = "fsdp-transformer with 2 layers: CPU time of one prediction, ms"
    return Table(tuple(map(number, headers)), tuple(rows), title=title)


def matmuls(count: int) -> Table:
    """Two matmuls with shardings at random, compiled in this process."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    from sdyscope.analysis.collectives.read import collectives
    from sdyscope.hlo import read_hlo
    from sdyscope.inspection import Inspection
    from sdyscope.stages.stderr import captured_stderr
    from sdyscope.values.mesh import Mesh

    drawn = random.Random(0)
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def argument(shape: tuple[int, int]) -> Any:
        dims: list[tuple[str, ...]] = [(), (), ()]
        for axis in drawn.sample("ab", 2):
            place = drawn.randrange(3)
            dims[place] = (*dims[place], axis)
        sharding = NamedSharding(mesh, PartitionSpec(*dims[:2]))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    alike, ratios = 0, []
    for _ in range(count):
        given = tuple(map(argument, ((16, 32), (32, 64), (64, 16))))
        jitted = jax.jit(lambda x, up, down: jnp.tanh(x @ up) @ down)
        inspection = Inspection(Program("matmuls", jitted, given), ("shardy",))
        on_cpu = inspection.predicted_collectives(on_cpu=True).collectives
        with captured_stderr():
            text = jitted.lower(*given).compile().as_text() or ""
        in_text = collectives(read_hlo(text), [Mesh.of({"a": 4, "b": 2})])
        kinds = [
            {(k.kind, k.axes): k.tally.sent for k in side.by_kind_and_axes}
            for side in (on_cpu, in_text)
        ]
        alike += kinds[0] == kinds[1]
        if in_text.total.sent:
            ratios.append(on_cpu.total.sent / in_text.total.sent)
    headers = (
        "alike by kind, axes and bytes",
        "bytes predicted / compiled: median",
        "10 to 90 %",
    )
    tenths = statistics.quantiles(ratios, n=10)
    median = statistics.median(ratios)
    row = (f"{alike}", f"{median:.2f}", f"{tenths[0]:.2f} to {tenths[-1]:.2f}")
    title = f"{count} pairs of matmuls, arguments sharded at random"
    return Table(tuple(map(number, headers)), (row,), title=title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--matmuls", type=int, default=100)
    asked = parser.parse_args()
    if asked.matmuls < 2:
        parser.error("--matmuls needs two pairs or more, which are compared")
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    print_table(times(asked.runs))
    print()
    print_table(matmuls(asked.matmuls))
    print()
    cases = [*models(), *users_programs()]
    print_table(
        printed(
            cases,
            lambda collectives: collectives.tallied(lambda each, _: each.axes),
            axes_words,
            "by mesh axes",
        )
    )

    def kinds(key: tuple[str, Any]) -> str:
        return f"{key[0]} over {axes_words(key[1])}"

    def by_kind_and_axes(collectives: Any) -> Any:
        return collectives.tallied(lambda each, _: (each.kind, each.axes))

    print()
    print_table(printed(cases, by_kind_and_axes, kinds, "by kind and mesh axes"))


if __name__ == "__main__":
    main()
