"""How long the op graph of a large module takes, beside what only parsing and walking it takes.

    python benchmarks/graph.py [--layers 80] [--repeat 5] [--ops 250000 500000 1000000]

The first table is of one module, the unrolled train step of the reference transformer: MLIR's C++
parser on its text, a bare Python walk over its ops, operands and results through the bindings,
sdyscope's op graph with every attribute parsed, that graph as NetworkX's own, and, where xdsl is
installed, xDSL's parser on the generic form (without the locations, which it cannot read). All are
timed in one process, the first four in turns, and the best of the repetitions counts.
The second is of made-up modules of growing size, each read in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import networkx

from sdyscope.graph import OpGraph, build, read_text
from sdyscope.stages.compat import ir, new_context
from sdyscope.targets import resolve_program
from sdyscope.terminal.table import Column, Table, number, print_table

GIB = 1 << 30


def train_step(layers: int) -> ir.Module:
    """The unrolled train step on a 16x16 mesh, lowered under Shardy."""
    settings = {"layers": layers, "batch": 64, "d_model": 1024, "heads": 16, "d_ff": 4096}
    program = resolve_program("fsdp-transformer", mesh={"fsdp": 16, "model": 16}, settings=settings)
    traced = program.fun.trace(*program.args, **program.kwargs)
    module: ir.Module = traced.lower(lowering_platforms=("cpu",)).compiler_ir()
    return module


def parse(text: str) -> ir.Module:
    """MLIR's C++ parser."""
    return ir.Module.parse(text, context=new_context())


def walk(operation: Any) -> int:
    """Visits every op, operand and result, and does nothing; returns the number of ops."""
    count = 1
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                for _ in inner.operation.operands:
                    pass
                for _ in inner.operation.results:
                    pass
                count += walk(inner.operation)
    return count


def seconds(function: Callable[[], Any]) -> float:
    """CPU time of a call, without that of freeing what it returns."""
    start = time.process_time()
    result = function()
    elapsed = time.process_time() - start
    del result
    return elapsed


def xdsl_reader(text: str) -> Callable[[], Any] | None:
    """Reads a generic text with xDSL; None where it is not installed."""
    try:
        from xdsl.context import Context
        from xdsl.dialects.builtin import Builtin
        from xdsl.parser import Parser
    except ImportError:
        return None

    def read() -> Any:
        context = Context(allow_unregistered=True)
        context.load_dialect(Builtin)
        return Parser(context, text).parse_module()

    return read


def compare(layers: int, repeat: int) -> None:
    """Prints the first table."""
    module = train_step(layers)
    text = str(module.operation.get_asm(enable_debug_info=True))
    # Without locations: xDSL reads no alias that is defined further down, as those all are.
    generic = str(module.operation.get_asm(print_generic_op_form=True))
    del module
    parsed = parse(text)
    graph: OpGraph = build(parsed)
    operations = sum(1 for _ in graph.operations())
    shardings = sum(any(op.shardings) for op in graph.ops)
    lines = {
        "MLIR's C++ parser": lambda: parse(text),
        "bare walk through the bindings": lambda: walk(parsed.operation),
        "op graph from the bindings": lambda: build(parsed),
        "op graph from the bindings, as NetworkX": lambda: build(parsed).nx,
    }

    best = dict.fromkeys(lines, float("inf"))
    for _ in range(repeat):
        for name, function in lines.items():
            best[name] = min(best[name], seconds(function))
    best["op graph from the text, without MLIR"] = seconds(lambda: read_text(text))
    parser, bare, built, as_networkx, _ = best.values()

    xdsl = xdsl_reader(generic)
    if xdsl is not None:
        best["xDSL's parser, generic form"] = seconds(xdsl)

    print(
        f"Train step of {layers} layers: {operations:,} ops, {graph.nx.number_of_edges():,} edges, "
        f"{shardings:,} values with shardings, {len(text) / 1e6:.1f} MB of text"
    )
    columns = (Column("what"), number("CPU seconds"), number("/ parser and walk"))
    rows = (
        (name, f"{value:.3f}", f"{value / (parser + bare):.2f}") for name, value in best.items()
    )
    print_table(Table(columns, tuple(rows)))
    attributes = {id(op.attributes) for op in graph.ops}
    print(
        f"Op graph as NetworkX {networkx.__version__} / (C++ parser + bare walk): "
        f"{as_networkx / (parser + bare):.2f}, at most 2.5. Of {operations:,} ops' attributes, "
        f"{len(attributes):,} are distinct."
    )
    if xdsl is None:
        print("xDSL is not installed here (pip install xdsl).")
    else:
        ours = parser + built
        ratio = best["xDSL's parser, generic form"] / ours
        print(f"xDSL / (C++ parser + op graph): {ratio:.1f}, at least 10.")


def made_up(ops: int) -> str:
    """A module of about so many ops: layers of products and sums, with shardings and locations."""
    kind = "tensor<64x64xf32>"
    sharded = '{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>]>}'
    lines = [
        '#file = loc("train.py":10:4 to :30)',
        '#layer = loc("layer"(#file))',
        '#main = loc("main"("train.py":90:1))',
        "#stack = loc(callsite(#layer at #main))",
        "module @made_up attributes {mhlo.num_partitions = 8 : i32} {",
        '  sdy.mesh @mesh = <["data"=4, "model"=2]>',
        f"  func.func public @main(%arg0: {kind}, %arg1: {kind}) -> {kind} {{",
        f"    %0 = stablehlo.add %arg0, %arg1 : {kind}",
    ]
    for i in range(1, ops - 5, 4):
        place = f'loc("jit(main)/layer{i // 400}/op"(#stack))'
        lines += [
            f"    %{i} = stablehlo.dot_general %{i - 1}, %arg1, contracting_dims = [1] x [0] "
            f"{sharded} : ({kind}, {kind}) -> {kind} {place}",
            f"    %{i + 1} = stablehlo.tanh %{i} : {kind} {place}",
            f"    %{i + 2} = stablehlo.add %{i + 1}, %{i - 1} : {kind} {place}",
            f"    %{i + 3} = sdy.sharding_constraint %{i + 2} "
            f'<@mesh, [{{"data"}}, {{}}]> : {kind} {place}',
        ]
    last = i + 3
    return "\n".join([*lines, f"    return %{last} : {kind}", "  }", "}"])


def child(path: str) -> None:
    """Reads one file, and prints the figures as JSON."""
    text = Path(path).read_text()
    start = time.process_time()
    module = parse(text)
    parser = time.process_time() - start
    del text
    start = time.process_time()
    graph = build(module)
    built = time.process_time() - start
    start = time.process_time()
    uses = graph.nx.number_of_edges()
    as_networkx = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"ops": len(graph), "edges": uses, "parser": parser, "built": built}
    print(json.dumps({**figures, "networkx": as_networkx, "peak": peak}))


def scale(sizes: list[int]) -> None:
    """Prints the second table."""
    headers = (
        *("ops", "edges", "C++ parser, s", "op graph, s", "as NetworkX, s"),
        *("µs an op", "peak GiB"),
    )
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for size in sizes:
            path = Path(directory) / f"{size}.mlir"
            path.write_text(made_up(size))
            command = [sys.executable, __file__, "--child", str(path)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            figures = json.loads(done.stdout)
            row = (
                f"{figures['ops']:,}",
                f"{figures['edges']:,}",
                f"{figures['parser']:.2f}",
                f"{figures['built']:.2f}",
                f"{figures['networkx']:.2f}",
                f"{(figures['built'] + figures['networkx']) / figures['ops'] * 1e6:.1f}",
                f"{figures['peak'] / GIB:.2f}",
            )
            rows.append(row)
    print_table(Table(tuple(map(number, headers)), tuple(rows)))
    print("CPU seconds. Wanted: linear, and under 6 GB for 1,000,000 ops.")


def main() -> None:
    """Prints both tables."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--layers", type=int, default=80)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--ops", type=int, nargs="*", default=[250_000, 500_000, 1_000_000])
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.child:
        child(options.child)
        return
    compare(options.layers, options.repeat)
    if options.ops:
        print()
        scale(options.ops)


if __name__ == "__main__":
    main()
