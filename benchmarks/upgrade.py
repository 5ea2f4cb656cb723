"""Does `upgrade` tell all that two compilers' own texts differ in, and nothing else?

For each pair of versions: the script, or a plain program that builds TARGET and compiles it, runs
once more in both environments, without sdyscope's recorder, tags or readers; XLA dumps what it
compiled. Collectives are counted in these texts by regular expressions and the call graph, and
their differences compared with those in `sdyscope upgrade --json`: by kind, size of the groups and
shape, and in how many collectives and tensors there are; and memory with the dumped buffer
assignment. Each version is compared with the next one, or with --to-last each with the last.

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
from typing import Any, TypeAlias, TypeVar

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
#: What is allocated: its size, and what it is for.
ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*)$", re.MULTILINE)

#: How many collectives there are of each kind.
Kinds: TypeAlias = Counter[str]
#: How many tensors they send, by kind, size of the groups and array.
Tensors: TypeAlias = Counter[tuple[str, int | None, str]]

_Key = TypeVar("_Key")

#: Builds a TARGET on real devices and compiles it as any program does.
PLAIN = """
import sys
sys.path.insert(0, {links!r})
import jax
from sdyscope.targets import resolve_program
program = resolve_program({word!r}, devices=jax.devices()[:{devices}], settings={settings!r})
program.fun.lower(*program.args, **program.kwargs).compile()
"""


def collectives(text: str) -> tuple[Kinds, Tensors]:
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
            bodies.setdefault(name, []).append((match[1], match[2], match[3], match[4]))
    times: Counter[str] = Counter()

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
                for callee in called:
                    visit(callee, each)

    visit(entry, 1)
    counts: Kinds = Counter()
    tensors: Tensors = Counter()
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


def memory(assignment: str) -> list[int]:
    """Bytes of arguments, of results that have memory of their own, and of temporaries."""
    sizes = [0, 0, 0]
    for size, purpose in ALLOCATION.findall(assignment):
        if "parameter " in purpose:
            sizes[0] += int(size)
        elif "maybe-live-out" in purpose:
            sizes[1] += int(size)
        elif "preallocated-temp" in purpose:
            sizes[2] += int(size)
    return sizes


def scaled(rest: str, shape: str, size: int | None) -> str:
    """The shape before a reduce-scatter."""
    (dimension,) = re.findall(r"dimensions=\{(\d+)\}", rest)
    sizes = [int(size) for size in shape.split(",")]
    sizes[int(dimension)] *= size or 1
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


def reported(program: dict[str, Any]) -> tuple[Kinds, Tensors]:
    """The same differences, as `upgrade` reports them."""
    compiled = program["compiled"]
    sizes: dict[str, int] = {}
    for side in (compiled["a"], compiled["b"]):
        sizes |= (side["mesh"] or {}).get("axes", {})
    tensors: Tensors = Counter()
    for difference in compiled["collectives"]:
        kind, axes = difference["key"]["kind"], difference["key"]["axes"]
        size = difference["key"]["group_size"] if axes is None else 1
        for axis in axes or ():
            part = re.fullmatch(r"(.*):\(\d+\)(\d+)", axis)
            size *= int(part[2]) if part else sizes[axis]
        if kind == "collective-permute":
            size = None
        for side, sign in ((difference["a"], -1), (difference["b"], 1)):
            for shape, count in side["shapes"].items():
                tensors[kind, size, shape] += sign * count
    counts: Kinds = Counter()
    for change in compiled["by_kind_and_axes"]:
        counts[change["kind"]] += change["b"]["count"] - change["a"]["count"]
    return nonzero(counts), nonzero(tensors)


def nonzero(counts: Counter[_Key]) -> Counter[_Key]:
    return Counter({key: count for key, count in counts.items() if count})


def difference(before: Counter[_Key], after: Counter[_Key]) -> Counter[_Key]:
    return nonzero(Counter({k: after[k] - before[k] for k in {*before, *after}}))


def tensors_text(tensors: Tensors) -> str:
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
        if asked.command is None:
            code = PLAIN.format(
                links=str(linked(folder / "links")),
                word=asked.target,
                devices=asked.devices,
                settings=dict(setting.split("=") for setting in asked.settings),
            )
            words = [str(environment.python), "-P", "-c", code]
        else:
            words = [str(environment.python), *asked.command]
        variables["XLA_FLAGS"] = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), flags)))
        subprocess.run(words, env=variables, check=asked.command is None, stdout=sys.stderr)

    def module(self, program: str) -> tuple[str, str]:
        """The text of a program and its buffer assignment."""
        label, _, number = program.partition(".")
        modules: dict[str, list[Path]] = {}
        # In the order in which they were compiled.
        for file in sorted(self.folder.glob("*cpu_after_optimizations.txt")):
            (name,) = re.findall(r"^module_\d+\.(.*?)\.cpu_after", file.name)
            modules.setdefault(name.removeprefix("jit_"), []).append(file)
        # Of a TARGET the one program that it builds; all others are single ops of JAX.
        every = [file for files in modules.values() for file in files]
        files = modules.get(label) or [max(every, key=lambda file: file.stat().st_size)]
        file = files[int(number or 1) - 1]
        assignment = file.with_name(f"{file.stem}-buffer-assignment.txt")
        return file.read_text(), assignment.read_text()


def upgraded(versions: list[str], asked: argparse.Namespace) -> dict[str, Any]:
    """The document of `sdyscope upgrade` for some versions, kept in a file where one is named."""
    kept = None
    if asked.documents:
        kept = Path(asked.documents) / f"{'-'.join(versions)}.json"
        if kept.exists():
            known: dict[str, Any] = json.loads(kept.read_text())
            return known
    run = [sys.executable, "-m", "sdyscope", "upgrade", "--json", "--python", "3.12"]
    run += ["--versions", *versions]
    run += ["--requirements", asked.requirements] if asked.requirements else []
    run += [word for setting in asked.settings for word in ("--set", setting)]
    run += ["--", "python", *asked.command] if asked.command is not None else [asked.target]
    done = subprocess.run(run, stdout=subprocess.PIPE, check=False)
    if not done.stdout:  # It has said why.
        raise SystemExit(done.returncode)
    document: dict[str, Any] = json.loads(done.stdout)
    failures = [side["failure"] for side in document["sides"] if side["failure"]]
    if failures:
        raise SystemExit("\n".join(failures))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(done.stdout)
    return document


def main() -> None:
    words = sys.argv[1:]
    command = None
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", nargs="+", required=True)
    parser.add_argument("--to-last", action="store_true", help="compare each with the last one")
    parser.add_argument("--requirements")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("target", nargs="?")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--documents", help="a folder that keeps what `upgrade` reported")
    asked = parser.parse_args(words)
    asked.command = command
    if (asked.target is None) == (command is None):
        parser.error("give either a TARGET or a script after --")
    *others, last = asked.versions
    series = [[version, last] for version in others] if asked.to_last else [asked.versions]
    print("| from | to | program | collectives | tensors that differ | reported | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        texts: dict[str, Texts] = {}
        for versions in series:
            document = upgraded(versions, asked)
            sides = []
            for side in document["sides"]:
                version = side["versions"]["jax"]
                if version not in texts:
                    texts[version] = Texts(version, asked, Path(name))
                sides.append(texts[version])
            for (before, after), step in zip(pairwise(sides), document["steps"], strict=True):
                for program in step["programs"]:
                    row(step, program, before, after)


def row(step: dict[str, Any], program: dict[str, Any], before: Texts, after: Texts) -> None:
    (text_a, memory_a), (text_b, memory_b) = (
        side.module(program["name"]) for side in (before, after)
    )
    own_a, own_b = collectives(text_a), collectives(text_b)
    own = difference(own_a[0], own_b[0]), difference(own_a[1], own_b[1])
    verdict = "all" if own == reported(program) else f"NOT: {own}, but {reported(program)}"
    rows = {r["name"]: r for r in program["compiled"]["memory"] if r["kind"] == "needed"}
    parts = ("arguments", "results", "temporaries")
    seen = [[rows[part][side] for part in parts] for side in "ab"]
    assigned = [memory(memory_a), memory(memory_b)]
    same = "same" if seen == assigned else f"NOT: {seen}, but {assigned}"
    print(
        f"| {step['a']} | {step['b']} | {program['name']} | "
        f"{own_a[0].total()} → {own_b[0].total()} | {tensors_text(own[1])} | {verdict} | {same} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
