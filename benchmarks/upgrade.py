"""Does `upgrade` tell all that two compilers' own texts differ in, and nothing else?

For each pair of versions: the script, or a plain program that builds TARGET and compiles it, runs
once more in both environments, without sdyscope's recorder, tags or readers; XLA dumps what it
compiled. Collectives are counted in these texts by regular expressions and the call graph, and
their differences compared with those in `sdyscope upgrade --json`: by kind, size of the groups and
shape, and in how many collectives and tensors there are. Of a TARGET, JAX's own memory analysis is
compared, too.

    python benchmarks/upgrade.py fsdp-transformer --versions 0.7.2 0.9.2 0.10.2 0.11 0.12
    python benchmarks/upgrade.py --versions 0.10.2 0.12 --requirements requirements.txt -- train.py
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

from sdyscope.environments.environment import Maker
from sdyscope.environments.linked import linked
from sdyscope.environments.releases import Release
from sdyscope.environments.requirements import Requirements, of_sdyscope, read_requirements
from sdyscope.environments.tools import find_tools

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
#: An instruction: its name, what it results in, its opcode, and the rest of the line.
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (.+?) ([a-z][\w-]*)\((.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) .*\{$")
ARRAY = re.compile(r"\b([a-z]+\d+\w*|pred)\[([\d,]*)\]")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.-]+)"
)
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")

#: Builds a TARGET on real devices and compiles it as any program does.
PLAIN = """
import json, sys
sys.path.insert(0, {links!r})
import jax
from sdyscope.targets import resolve
program = resolve({word!r}, devices=jax.devices()[:{devices}], settings={settings!r})
compiled = program.fun.lower(*program.args, **program.kwargs).compile()
found = compiled.memory_analysis()
json.dump([found.argument_size_in_bytes, found.output_size_in_bytes - found.alias_size_in_bytes,
           found.temp_size_in_bytes], open({out!r}, "w"))
"""


def collectives(text: str) -> tuple[Counter, Counter]:
    """The collectives of a module's text: how many of each kind, and of what.

    Returns:
      By kind; and by kind, group size and array, each tensor of a joined one by itself.
    """
    bodies: dict[str, list[tuple[str, str, str, str]]] = {}
    entry = name = ""
    for line in text.splitlines():
        if (head := COMPUTATION.match(line)) and " = " not in line.split("{")[0]:
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif match := INSTRUCTION.match(line):
            bodies.setdefault(name, []).append(match.groups())
    times: Counter = Counter()

    def visit(computation: str, by: int) -> None:
        times[computation] += by
        for _, _, opcode, rest in bodies.get(computation, ()):
            each = by
            if opcode == "while":
                trips = TRIPS.search(rest)
                each = by * (int(trips[1]) if trips else 1)
            if opcode in ("while", "conditional", "call", "fusion", "async-start"):
                called = CALLED.findall(rest)
                for branches in BRANCHES.findall(rest):
                    called += re.findall(r"[\w.-]+", branches)
                for one in called:
                    visit(one, each)

    visit(entry, 1)
    counts: Counter = Counter()
    tensors: Counter = Counter()
    for computation, by in times.items():
        for _, result, opcode, rest in bodies.get(computation, ()):
            kind = opcode.removesuffix("-start")
            if kind not in KINDS or opcode.endswith("-done"):
                continue
            counts[kind] += by
            size = group_size(rest)
            arrays = ARRAY.findall(result)
            if kind == "reduce-scatter":  # What a device has before it.
                arrays = [(t, scaled(rest, shape, size)) for t, shape in arrays]
            if opcode.endswith("-start"):
                arrays = arrays[len(arrays) // 2 :]
            texts = [f"{dtype}[{shape}]" for dtype, shape in arrays]
            # An all-to-all of XLA:CPU has a tuple of blocks, which are one tensor.
            for text in [", ".join(texts)] if kind == "all-to-all" else texts:
                tensors[kind, size, text] += by
    return counts, tensors


def scaled(rest: str, shape: str, size: int | None) -> str:
    """The shape before a reduce-scatter."""
    dimension = int(re.search(r"dimensions=\{(\d+)\}", rest)[1])
    sizes = [int(one) for one in shape.split(",")]
    sizes[dimension] *= size or 1
    return ",".join(map(str, sizes))


def group_size(rest: str) -> int | None:
    """How many devices work together; None of a permutation."""
    if explicit := re.search(r"replica_groups=\{\{([\d,]*)\}", rest):
        return explicit[1].count(",") + 1
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", rest):
        return int(iota[2])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", rest):
        sizes = dict(re.findall(r"'([^']*)'=(\d+)", named[1]))
        parts = re.findall(r"'([^']*)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in parts)
    return None


def told(program: dict) -> tuple[Counter, Counter]:
    """The same differences, as `upgrade` tells them."""
    compiled = program["compiled"]
    sizes = {}
    for side in (compiled["a"], compiled["b"]):
        sizes |= (side["mesh"] or {}).get("axes", {})
    tensors: Counter = Counter()
    for one in compiled["collectives"]:
        kind, axes = one["key"]["kind"], one["key"]["axes"]
        size = one["key"]["group_size"] if axes is None else 1
        for axis in axes or ():
            part = re.fullmatch(r"(.*):\(\d+\)(\d+)", axis)
            size *= int(part[2]) if part else sizes[axis]
        if kind == "collective-permute":
            size = None
        for side, sign in ((one["a"], -1), (one["b"], 1)):
            for shape, count in side["shapes"].items():
                tensors[kind, size, shape] += sign * count
    counts: Counter = Counter()
    for one in compiled["by_kind_and_axes"]:
        counts[one["kind"]] += one["b"]["count"] - one["a"]["count"]
    return nonzero(counts), nonzero(tensors)


def nonzero(counts: Counter) -> Counter:
    return Counter({key: count for key, count in counts.items() if count})


def difference(before: Counter, after: Counter) -> Counter:
    return nonzero(Counter({k: after[k] - before[k] for k in {*before, *after}}))


def bytes_sent(tensors: Counter) -> str:
    return ", ".join(f"{n:+} {k[0]} {k[2]}" for k, n in sorted(tensors.items(), key=str)) or "none"


class Texts:
    """What a version's own compiler dumps, by module."""

    def __init__(self, version: str, asked: argparse.Namespace, folder: Path) -> None:
        self.folder = folder / version
        self.folder.mkdir()
        tools = find_tools("3.12")
        requirements = read_requirements(asked.requirements)
        if asked.command is None or not requirements:
            extra = "levanter" if asked.target and asked.target.startswith("levanter") else ""
            requirements = requirements.and_(of_sdyscope(extra))
        environment = Maker(tools).make(
            Release(version, (3, 12)), Requirements(requirements.lines, requirements.extras)
        )
        flags = f"--xla_dump_to={self.folder} --xla_dump_hlo_as_text"
        flags += f" --xla_force_host_platform_device_count={asked.devices}"
        variables = {**environment.variables(), "JAX_PLATFORMS": "cpu"}
        self.memory = None
        out = self.folder / "memory.json"
        if asked.command is None:
            links = str(linked(folder / "links"))
            code = PLAIN.format(
                links=links,
                word=asked.target,
                devices=asked.devices,
                settings=dict(one.split("=") for one in asked.settings),
                out=str(out),
            )
            words = [str(environment.python), "-P", "-c", code]
        else:
            words = [str(environment.python), *asked.command]
        variables["XLA_FLAGS"] = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), flags)))
        subprocess.run(words, env=variables, check=asked.command is None, stdout=sys.stderr)
        if out.exists():
            self.memory = json.loads(out.read_text())

    def modules(self) -> dict[str, list[str]]:
        """The texts by the module's name, in the order in which they were compiled."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.folder.glob("*cpu_after_optimizations.txt")):
            name = re.match(r"module_\d+\.(.*?)\.cpu_after", file.name)[1]
            found.setdefault(name.removeprefix("jit_"), []).append(file.read_text())
        return found


def main() -> None:
    words = sys.argv[1:]
    command = None
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", nargs="+", required=True)
    parser.add_argument("--requirements")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("target", nargs="?")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--document", help="a file that keeps what `upgrade` told")
    asked = parser.parse_args(words)
    asked.command = command
    if (asked.target is None) == (command is None):
        parser.error("give either a TARGET or a script after --")
    run = [sys.executable, "-m", "sdyscope", "upgrade", "--json", "--python", "3.12"]
    run += ["--versions", *asked.versions]
    run += ["--requirements", asked.requirements] if asked.requirements else []
    run += [word for one in asked.settings for word in ("--set", one)]
    run += ["--", "python", *command] if command is not None else [asked.target]
    if asked.document and Path(asked.document).exists():
        document = json.loads(Path(asked.document).read_text())
    else:
        done = subprocess.run(run, stdout=subprocess.PIPE, check=False)
        document = json.loads(done.stdout)
        if asked.document:
            Path(asked.document).write_bytes(done.stdout)
    failures = [side["failure"] for side in document["sides"] if side["failure"]]
    if failures:
        raise SystemExit("\n".join(failures))
    print("| from | to | program | collectives | tensors that differ | told | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        texts = {
            side["versions"]["jax"]: Texts(side["versions"]["jax"], asked, Path(name))
            for side in document["sides"]
        }
        for (one, two), step in zip(pairwise(texts.values()), document["steps"], strict=True):
            for program in step["programs"]:
                row(step, program, one, two)


def row(step: dict, program: dict, one: Texts, two: Texts) -> None:
    label, _, number = program["name"].partition(".")
    sides = []
    for texts in (one, two):
        modules = texts.modules()
        # Of a TARGET the one program that it builds; all others are single ops of JAX.
        every = [text for known in modules.values() for text in known]
        known = modules.get(label) or [max(every, key=len)]
        sides.append(collectives(known[int(number or 1) - 1]))
    counts, tensors = told(program)
    own_counts = difference(sides[0][0], sides[1][0])
    own_tensors = difference(sides[0][1], sides[1][1])
    verdict = (
        "all"
        if (own_counts, own_tensors) == (counts, tensors)
        else (f"NOT: texts {own_counts} {own_tensors}; told {counts} {tensors}")
    )
    memory = "-"
    if one.memory and two.memory:
        rows = {r["name"]: r for r in program["compiled"]["memory"] if r["kind"] == "needed"}
        shared = rows.get("shared by donation", {"a": 0, "b": 0})
        seen = [
            [
                rows["arguments"][side],
                rows["results"][side] - shared[side],
                rows["temporaries"][side],
            ]
            for side in "ab"
        ]
        memory = (
            "as told"
            if seen == [one.memory, two.memory]
            else (f"NOT: {seen}, JAX says {one.memory} {two.memory}")
        )
    before = sum(sides[0][0].values())
    after = sum(sides[1][0].values())
    print(
        f"| {step['a']} | {step['b']} | {program['name']} | {before} → {after} | "
        f"{bytes_sent(own_tensors)} | {verdict} | {memory} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
