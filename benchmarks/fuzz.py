"""Mutated input of every kind, for a number of CPU minutes: is each answer a sentence?

    python benchmarks/fuzz.py --minutes 5 [--seed 0] [--only toml,yaml]
    python benchmarks/fuzz.py --inputs 100    # of each kind, the same ones each time

What real files say is mutated as its grammar goes (tokens swapped, repeated, dropped, nested,
numbers and names made extreme) and byte by byte, and read by the code that commands read it with.
A reader may give a value or raise a SdyscopeError. Anything else is an internal error, more than
`SLOW` seconds of CPU time a hang; both are printed with the seed that makes them again. Exit status
1 where there is one. Modules, bytecode, HLO and command lines go through whole commands in a
process of their own, as they do in use: it may end in MLIR's or XLA's C++, which is counted apart.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import json
import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sdyscope.ci.read import read_config
from sdyscope.errors import SdyscopeError
from sdyscope.facts.recorded import read_record
from sdyscope.hlo.shape import parse_shape
from sdyscope.mesh_config import parse_mesh_shape
from sdyscope.mesh_config.read import read_mesh_config
from sdyscope.snapshots import read_snapshots
from sdyscope.stages.recorder.secrets import redacted
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.syntax.replica_groups import parse_replica_groups
from sdyscope.syntax.shardy import parse_mesh, parse_tensor_sharding
from sdyscope.terminal.table import Cell, fold
from sdyscope.values.entry_layout import read_entry_layout
from sdyscope.words.visible import visible

ROOT = Path(__file__).parent.parent

#: Seconds of CPU time after which a reader is taken to hang.
SLOW = 20

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")

_EXTREME = (
    *("0", "-1", "1e999", "nan", "9" * 5_000, "9223372036854775808", "0x" + "f" * 5_000, ""),
    *('"', "'", "\\", "\x00", "\x1b[31m", "\u202e", "\udcff", "é", "x" * 5_000, "[" * 3_000),
    *("{" * 3_000, "a." * 3_000, "&a *a", "<<: *a", "../../x", "\r\n", "/*", "=", ",", "?"),
)


def mutated(text: str, draw: random.Random) -> str:
    """A text with a few changes, most often one."""
    tokens = _TOKEN.findall(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(tokens) + 1)
        other = draw.choice(tokens) if tokens else ""
        deed = draw.randrange(7)
        if deed == 0:
            tokens.insert(at, draw.choice(_EXTREME))
        elif deed == 1 and at < len(tokens):
            tokens[at] = draw.choice(_EXTREME)
        elif deed == 2:
            tokens.insert(at, other)
        elif deed == 3:
            del tokens[at : at + draw.randint(1, 5)]
        elif deed == 4:
            end = at + draw.randint(1, 40)
            tokens[at:at] = tokens[at:end] * draw.choice((1, 2, 50))
        elif deed == 5 and at < len(tokens):
            tokens[at] = other
        elif at < len(tokens) and tokens[at]:
            word = list(tokens[at])
            word[draw.randrange(len(word))] = chr(draw.choice((0, 34, 44, 92, 127, 955, 0x202E)))
            tokens[at] = "".join(word)
    return "".join(tokens)


@dataclass
class Kind:
    """One kind of input: texts to begin with, and what reads one."""

    name: str
    seeds: list[str]
    read: Callable[[str], object]
    inputs: int = 0
    refused: int = 0
    ended: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    commands: Commands | None = None


def _in_file(name: str, read: Callable[[Path], object]) -> Callable[[str], object]:
    folder = Path(tempfile.mkdtemp(prefix="sdyscope-fuzz-"))

    def run(text: str) -> object:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return read(path)

    return run


class _Ended(Exception):  # noqa: N818 - the command tells it in a sentence
    """The process ended inside MLIR or XLA."""


class _Internal(Exception):  # noqa: N818 - it is what is looked for
    """A command said that it met an error of its own."""


class Commands:
    """A process that answers one command line after another, started again where it ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sdyscope-fuzz-"))
        self.seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    def end(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, *words: str) -> str:
        """What a command says on standard error; its answer is thrown away.

        Raises:
            SdyscopeError: exit status 2, and a sentence.
            _Ended: it ended inside C++.
            _Internal: it was an internal error, or another exit status than 0, 1 or 2.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env=os.environ
                | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(words).encode() + b"\n")
            stdin.flush()
            if not select.select([stdout], [], [], 5 * SLOW)[0]:
                raise _Hang
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        except _Hang:
            self.end()
            raise
        if not line:
            self.end()
            raise _Ended
        status, said, seconds = json.loads(line)
        self.seconds += seconds
        if "internal error" in said or status not in (0, 1, 2):
            raise _Internal(f"exit status {status}: {said[:200]}")
        if status:
            raise SdyscopeError(said)
        return str(said)

    def of_file(self, command: str, name: str, encoding: str = "utf-8") -> Callable[[str], object]:
        """Runs a command on a file that has the text in it."""

        def run(text: str) -> object:
            errors = "surrogateescape" if encoding == "utf-8" else "ignore"
            (self.folder / name).write_bytes(text.encode(encoding, errors))
            return self.ask(*shlex.split(command), name)

        return run

    def of_line(self, text: str) -> object:
        """Runs a command line, if it is of a command that only reads."""
        try:
            words = shlex.split(text.replace("\0", ""))
        except ValueError:
            return None
        if not words or words[0] not in _READING or any(word[:2] == "-o" for word in words):
            return None
        return self.ask(*words)


#: Commands that write nothing and start nothing.
_READING = frozenset(("show", "check", "graph", "propagate", "explain", "lint", "models"))


def serve() -> None:
    """Answers command lines, a JSON list of words on each line of standard input, until its end."""
    # Here alone: it is the process that may end in C++.
    from sdyscope import __main__
    from sdyscope.process import child, output

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    child._serving.append(child.Errand((), "", "", False, 80, "utf-8"))
    for line in sys.stdin:
        words = [word.encode("utf-8", "replace").decode() for word in json.loads(line)]
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        output.keep_apart(output.Output(stream, False, 80))
        start = time.process_time()
        with contextlib.redirect_stderr(io.StringIO()) as said:
            if words == ["seeds"]:
                status = 0
                said.write(json.dumps(_modules()))
            else:
                try:
                    status = __main__.run_here(words)
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else 2
        seconds = time.process_time() - start
        answers.write(json.dumps([status, said.getvalue(), seconds]) + "\n")
        answers.flush()


def _modules() -> dict[str, str]:
    """Small modules of each form; bytecode one character a byte."""
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    from sdyscope.staged import PARTITIONERS
    from sdyscope.stages import compat

    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def step(x: Any, w: Any) -> Any:
        h = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))
        h = jax.lax.scan(lambda c, _: (jax.numpy.tanh(c), None), h, None, length=3)[0]
        return h.sum(), jax.lax.top_k(h, 2)

    files: dict[str, str] = {}
    for partitioner in PARTITIONERS:
        with compat.partitioner(partitioner):
            lowered = jax.jit(
                step,
                in_shardings=(
                    NamedSharding(mesh, P("data", None)),
                    NamedSharding(mesh, P(None, "model")),
                ),
            ).lower(jax.numpy.zeros((8, 16)), jax.numpy.zeros((16, 32)))
            files[partitioner] = lowered.as_text()
            files[f"{partitioner} with locations"] = lowered.as_text(debug_info=True)
            data = io.BytesIO()
            module: Any = lowered.compiler_ir()
            module.operation.write_bytecode(data)
            files[f"{partitioner} bytecode"] = data.getvalue().decode("latin-1")
            files[f"{partitioner} hlo"] = lowered.compile().as_text() or ""
    return files


def _record(path: Path) -> object:
    return read_record(path.parent.parent)


def _shown(text: str) -> object:
    return list(fold(Cell(text).text, 80)), visible(text)


_YAML = """\
mesh_axis_names: [data, model]
mesh_shape: &m {data: -1, model: 2}
mesh_rules: [[tpu-.*, {data: 4, model: 2}], [gpu, *m]]
"""

_TOML = """\
[trainer.mesh]
axes = { data = -1, model = 2 }
dcn_axes = { slice = 1 }
shared_mapping = { batch = ["slice", "data"], mlp = "model" }
"""

_TOML_OF_SIZES = """\
mesh_axis_names = ["data", "model"]
mesh_shape = { ici = [1, 4], dcn = [2, 1] }
mesh_rules = [["tpu-v5p-.*", { data = -1 }]]
"""


_CI = """\
[tool.sdyscope.defaults]
mesh = "data=4,model=2"
partitioner = "shardy"
[tool.sdyscope.targets.mlp]
target = "mlp"
snapshot = { file = "mlp.snap" }
settings = { layers = 2 }
[tool.sdyscope.targets.mlp.budgets]
memory = { total = "10MiB" }
[[tool.sdyscope.targets.mlp.ignore]]
rule = "large-replicated"
tensors = "params*"
reason = "small"
"""

_LINES_TOML = """\
[b]
mesh_axis_names = ["data", "model"]
mesh_shape = { data = -1, model = 2 }
mesh_rules = [["tpu-v5p-.*", { data = -1, model = 2 }]]
"""

_LINES = (
    "show mlp --mesh data=4,model=-1 --set layers=2 --match 'params*' --json",
    "check shardy-guide --set example=shard-map --partitioner gspmd --strict",
    "propagate mlp --mesh-config a.toml:b --mesh-selector tpu-v5p-8 --devices 4x2slices",
    "graph module.mlir --json --at lowered",
    "lint module.mlir --select donation-* --ignore rng-replicated --no-compile",
    "explain module.mlir result[0] --all --strict",
)


def kinds() -> list[Kind]:
    """Every kind, with texts that are right to begin with."""
    process = {
        "line": "process",
        "at": 1.0,
        "schema": "sdyscope.record/1",
        "pid": 7,
        "parent": 1,
        "host": "h",
        "arguments": ["python"],
        "jax": "0.10.2",
        "python": "3.11",
    }
    lowered = {
        "line": "lowered",
        "at": 2.0,
        "module": "abc",
        "name": "jit_f",
        "defined": ["a.py", 3],
        "by_jax": False,
        "called": None,
        "partitioner": "shardy",
        "arguments": ["f32[8]"],
        "paths": ["x"],
        "results": ["f32[]"],
        "seconds": 0.5,
        "others": {},
        "failures": {},
    }
    compiled = {
        "line": "compiled",
        "at": 3.0,
        "module": "abc",
        "name": "jit_f",
        "devices": 8,
        "partitioner": "shardy",
        "index": 0,
        "seconds": 2.0,
        "called": ["a.py", 9],
        "failed": "",
        "hlo": "abc",
        "memory": {"a": 1},
    }
    record = "".join(json.dumps(line) + "\n" for line in (process, lowered, compiled))
    snapshots = [file.read_text() for file in (ROOT / "tests" / "snapshots").glob("*.snap")]
    layout = (
        "HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }, "
        "entry_computation_layout={(f32[128,10]{1,0}, bf16[3,5]{1,0:T(8,128)S(1)})->"
        "(f32[128,10]{1,0}, s32[])}, num_partitions=8\n"
    )
    commands = Commands()
    modules = json.loads(commands.ask("seeds"))
    texts = [modules[name] for name in modules if "hlo" not in name and "bytecode" not in name]
    bytecode = [modules[name] for name in modules if "bytecode" in name]
    hlo = [modules[name] for name in modules if "hlo" in name]
    (commands.folder / "module.mlir").write_text(texts[0])
    (commands.folder / "a.toml").write_text(_LINES_TOML)
    whole = [
        ("StableHLO", "show", texts, "a.mlir", "utf-8"),
        ("StableHLO", "graph", texts, "a.mlir", "utf-8"),
        ("StableHLO", "propagate", texts, "a.mlir", "utf-8"),
        ("bytecode", "show", bytecode, "a.mlirbc", "latin-1"),
        ("HLO", "comms", hlo, "a.txt", "utf-8"),
        ("HLO", "memory", hlo, "a.txt", "utf-8"),
    ]
    return [
        *(
            Kind(
                f"{name}, `{command}`",
                seeds,
                commands.of_file(command, file, encoding),
                commands=commands,
            )
            for name, command, seeds, file, encoding in whole
        ),
        Kind("command line", list(_LINES), commands.of_line, commands=commands),
        Kind("`ci`'s configuration", [_CI], _in_file("pyproject.toml", read_config)),
        Kind("mesh on the command line", ["data=4,model=-1"], parse_mesh_shape),
        Kind(
            "mesh configuration, TOML",
            [_TOML, _TOML_OF_SIZES],
            _in_file("a.toml", read_mesh_config),
        ),
        Kind("mesh configuration, YAML", [_YAML], _in_file("a.yaml", read_mesh_config)),
        Kind("recording", [record], _in_file("processes/a.jsonl", _record)),
        Kind("snapshot", snapshots, read_snapshots),
        Kind(
            "Shardy's sharding",
            ['#sdy.sharding<@mesh, [{"a":(1)2, ?}p1, {"b"}], replicated={"c"}>', "<@m, [{}]>"],
            parse_tensor_sharding,
        ),
        Kind("Shardy's mesh", ['<["a"=2, "b"=1], device_ids=[1, 0]>'], parse_mesh),
        Kind(
            "HLO sharding",
            [
                "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dims={manual} metadata={op_name='x'}}",
                "{devices=[2,1]0,1}",
                "{mesh['a'=4,'b'=4], [{'a':(1)2, ?}, {}], replicated={'b'}}",
                "{{replicated}, {maximal device=3}}",
            ],
            parse_hlo_sharding,
        ),
        Kind("replica groups", ["{{0,1},{2,3}}", "[2,4]<=[4,2]T(1,0)"], parse_replica_groups),
        Kind("PartitionSpec", ["P('a', ('b', 'c'), None)"], parse_partition_spec),
        Kind("HLO shape", ["(f32[4,<=8]{1,0:T(8,128)}, (s32[], pred[2]{0}))"], parse_shape),
        Kind("HLO entry layout", [layout], read_entry_layout),
        Kind(
            "recorded command line",
            ["--token x --a=b -c f(1)"],
            lambda text: redacted(text.split()),
        ),
        Kind("text on a terminal", [_TOML, layout], _shown),
    ]


class _Hang(Exception):  # noqa: N818 - it is what is looked for
    pass


def _alarm(signum: int, frame: FrameType | None) -> None:
    raise _Hang


def run_kind(kind: Kind, seed: int) -> None:
    """Reads one mutated text and notes down what came of it."""
    draw = random.Random(f"{kind.name} {seed}")
    text = mutated(draw.choice(kind.seeds), draw)
    start = _used(kind)
    # Of CPU time: what else the machine does is no hang.
    signal.setitimer(signal.ITIMER_PROF, 0 if kind.commands else SLOW)
    try:
        kind.read(text)
    except SdyscopeError as error:
        kind.refused += 1
        str(error)
    except _Ended:
        kind.ended += 1
    except _Hang:
        kind.wrong.append(f"seed {seed}: hangs")
    except Exception as error:
        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            kind.refused += 1  # Python's own limit, which every command says in a sentence.
            return
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        kind.wrong.append(f"seed {seed}: {type(error).__name__}: {str(error)[:100]} ({place})")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        kind.inputs += 1
        kind.seconds += _used(kind) - start


def _used(kind: Kind) -> float:
    """CPU seconds so far, with those of the process that answers its commands."""
    return time.process_time() + (kind.commands.seconds if kind.commands else 0)


def run(minutes: float, seed: int, only: str = "", inputs: int = 0) -> list[Kind]:
    """Reads mutated texts of all kinds in turn: so many of each, or for so much CPU time."""
    words = [word.lower() for word in only.split(",") if word]
    chosen = [
        each for each in kinds() if not words or any(word in each.name.lower() for word in words)
    ]
    signal.signal(signal.SIGPROF, _alarm)
    if inputs:
        for number in range(inputs):
            for each in chosen:
                run_kind(each, seed + number)
        return chosen
    while sum(each.seconds for each in chosen) < minutes * 60:
        # Each kind gets as much time: of those that are quick there are more inputs.
        run_kind(min(chosen, key=lambda each: each.seconds), seed)
        seed += 1
    return chosen


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU minutes in all")
    parser.add_argument("--inputs", type=int, default=0, help="of each kind, instead of a time")
    parser.add_argument("--seed", type=int, default=0, help="of the first input")
    parser.add_argument("--only", default="", help="words in the names of kinds")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return 0
    failures = run(given.minutes, given.seed, given.only, given.inputs)
    print("| input | read | refused | ended in C++ | CPU s | internal errors and hangs |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in failures:
        print(
            f"| {kind.name} | {kind.inputs:,} | {kind.refused:,} | {kind.ended:,} | "
            f"{kind.seconds:.0f} | "
            f"{len(kind.wrong)} |"
        )
    print(f"{sum(kind.inputs for kind in failures):,} inputs")
    for kind in failures:
        for line in dict.fromkeys(re.sub(r"^seed \d+: ", "", each) for each in kind.wrong):
            first = next(each for each in kind.wrong if each.endswith(line))
            print(f"{kind.name}: {first}", file=sys.stderr)
    return int(any(kind.wrong for kind in failures))


if __name__ == "__main__":
    sys.exit(main())
