"""What the compiler wrote of a program's shardings, read without a line of sdyscope.

XLA's dump of the module before SPMD partitioning is read with regular expressions, its shardings
are laid out with numpy, and values are known by the `jax.named_scope` that their op was written in.
"""

import re
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import permutations
from math import prod
from pathlib import Path

import numpy as np

from sdyscope.stages import compat

#: Moves a value as it is; one partitioner has some where the other has none.
PASSED_ON = {"copy", "tuple", "get-tuple-element", "parameter", "custom-call", "constant"}

#: What makes of the blocks that a `shard_map` returns one tensor again.
BOUNDARY = 'custom_call_target="SPMDShardToFullShape"'

_INSTRUCTION = re.compile(
    r"^  (?P<root>ROOT )?%?(?P<name>\S+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[\w-]+)\((?P<rest>.*)$"
)
_SCOPE = re.compile(r'op_name="[^"]*?/(v\d+)/')
_TYPE = re.compile(r"\w+\[[\d,]*\]")
_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)$")


def laid_out(text, rank, num_devices):
    """Which block of each dimension every device holds: (device, dimension) -> number."""
    whole = np.zeros((num_devices, rank), int).tolist()
    if text is not None and re.match(r"mesh\[.*?\], (replicated|manual)", text):
        return whole
    if text is None or text in ("replicated", "manual") or not rank:
        return whole
    if text.startswith("mesh["):
        return of_named(text, rank)
    found = _TILES.match(text)
    assert found, text
    tiles = [int(size) for size in found[1].split(",")]
    if found[4]:
        devices = np.array([int(device) for device in found[4].split(",")])
    else:
        shape = [int(size) for size in found[2].split(",")]
        devices = np.arange(prod(shape)).reshape(shape)
        if found[3]:
            devices = devices.transpose([int(axis) for axis in found[3].split(",")])
    devices = devices.reshape(tiles)
    blocks = np.zeros((num_devices, rank), int)
    for index in np.ndindex(*tiles):
        blocks[devices[index]] = index[:rank]
    return blocks.tolist()


@dataclass(frozen=True)
class Dumped:
    """What a partitioner decided.

    Attributes:
      values: (scope, opcode, result, type) -> how each such value is laid out. Where all that uses
        it is a copy, by which Shardy reshards, it is either as the op has it or as the copy has it.
      arguments: how each argument is laid out, in order.
      results: how each result is.
    """

    values: dict
    arguments: list
    results: list


def braced(text):
    """The parts of a text that stand in braces, outermost ones, without these."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character == "{":
            depth, start = depth + 1, start if depth else at + 1
        elif character == "}":
            depth -= 1
            if not depth:
                found.append(text[start:at])
    return found


def shardings(text):
    """The shardings of `sharding={...}`, those of a tuple one by one."""
    _, written, rest = text.partition("sharding={")
    if not written:
        return None
    inner = re.sub(r"/\*.*?\*/", "", braced("{" + rest)[0]).strip()
    if inner.startswith("{"):
        return braced(inner)
    return [re.sub(r" *metadata=\{.*?\}", "", inner)]


def read(text, num_devices):
    """A dump before SPMD partitioning, as HLO text."""
    values, computation = defaultdict(list), ""
    arguments, results, resharded = {}, [], {}
    users = Counter(re.findall(r"%([\w.-]+)(?=[,)])", text))
    for line in text.splitlines():
        if line.startswith("ENTRY"):
            computation = "ENTRY"
        elif line and not line.startswith(" "):
            computation = line.split()[0]
        found = _INSTRUCTION.match(line)
        if not found:
            continue
        types = _TYPE.findall(found["type"])
        ranks = [type_.count(",") + (not type_.endswith("[]")) for type_ in types]
        written = shardings(found["rest"])
        if written is not None and len(written) == 1 and len(types) > 1:
            written = written * len(types)
        texts = [None] * len(types) if written is None else written
        places = [
            str(laid_out(text, rank, num_devices)) for text, rank in zip(texts, ranks, strict=True)
        ]
        scope = _SCOPE.search(found["rest"])
        name = re.search(r'op_name="([^"]*)"', found["rest"])
        name = name and name[1]
        boundary = BOUNDARY in found["rest"]
        if scope and (boundary or found["opcode"] not in PASSED_ON):
            for number, (type_, place) in enumerate(zip(types, places, strict=True)):
                layouts = [place]
                values[scope[1], found["opcode"], number, type_].append(layouts)
                if len(types) == 1 and users[found["name"]] == 1:
                    resharded[found["name"]] = name, layouts
        if found["opcode"] == "copy":
            operand = re.search(r"%([\w.-]+)\)", found["rest"])
            of, layouts = resharded.get(operand and operand[1], (None, None))
            if of == name and layouts is not None:
                layouts.append(places[0])
        if computation == "ENTRY" and found["opcode"] == "parameter":
            arguments[int(found["rest"].split(")")[0])] = places[0]
        if computation == "ENTRY" and found["root"]:
            results = places
    laid = {key: sorted(map(frozenset, found), key=sorted) for key, found in values.items()}
    return Dumped(laid, [arguments[number] for number in sorted(arguments)], results)


def different(first, two, *, surely):
    """What two dumps place differently, of the values that both have as many of.

    Args:
      one: the first.
      two: the second.
      surely: leave out what differs only if a reshard is of an op's result, not of its user's.
    """
    found = []
    for key in sorted(first.values.keys() & two.values.keys()):
        mine, theirs = first.values[key], two.values[key]
        if len(mine) != len(theirs) or mine == theirs:
            continue
        if surely and any(
            all(a & b for a, b in zip(mine, order, strict=True)) for order in permutations(theirs)
        ):
            continue
        found.append(key)
    for what in ("arguments", "results"):
        both = zip(getattr(first, what), getattr(two, what), strict=True)
        found += [(what, number) for number, (a, b) in enumerate(both) if a != b]
    return found


def before_partitioning(program, partitioner):
    """XLA's own account of what a partitioner decides.

    Args:
      program: on a mesh of its own.
      partitioner: which.
    """
    with tempfile.TemporaryDirectory() as folder, compat.partitioner(partitioner):
        lowered = program.fun.lower(*program.args)
        lowered.compile(
            compiler_options={
                "xla_dump_to": folder,
                "xla_dump_hlo_pass_re": "shardy-xla|sharding-propagation|spmd-partitioning",
            }
        )
        last = "shardy-xla" if partitioner == "shardy" else "sharding-propagation"
        (dump,) = Path(folder).glob(f"*after_{last}.before_spmd-partitioning.txt")
        return read(dump.read_text(), program.mesh.size)


def of_named(text, rank):
    """The same of a sharding with named axes, as XLA writes it from JAX 0.12 on."""
    mesh, dims = re.match(r"mesh\[(.*?)\], \[(.*?)\]", text).groups()
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh)}
    axes = [re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", dim) for dim in braced(dims)]
    return blocks([[axis if axis[2] else axis[0] for axis in dim] for dim in axes], rank, sizes)


def blocks(axes, rank, sizes):
    """Which block every device of a mesh holds, for the axes that cut each dimension.

    A part of an axis is its name, the size of what is before it, and its own.
    """
    mesh = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
    coordinates = dict(zip(sizes, mesh, strict=True))
    found = np.zeros((mesh.shape[1], rank), int)
    for dim, parts in enumerate(axes):
        for part in parts:
            name, before, size = part if isinstance(part, tuple) else (part, 1, sizes[part])
            rest = sizes[name] // (int(before) * int(size))
            found[:, dim] = found[:, dim] * int(size) + coordinates[name] // rest % int(size)
    return found.tolist()


def of_attribute(text, rank, sizes):
    """What a sharding attribute of a lowered module says: blocks by device, and open dimensions."""
    tiles = re.search(r'"\{(.*)\}"', text)
    if tiles:
        inner, open_dims = tiles[1], ()
        return laid_out(inner.partition(" last_tile")[0], rank, prod(sizes.values())), open_dims
    dims = re.findall(r"\{([^{}]*)\}", re.search(r"\[(.*)\]", text)[1])
    assert len(dims) == rank, text
    axes = [re.findall(r'"(\w+)"', dim) for dim in dims]
    return blocks(axes, rank, sizes), tuple(dim for dim, words in enumerate(dims) if "?" in words)


def lowered_shardings(program, partitioner):
    """What JAX wrote into a lowered module, read with MLIR's own bindings.

    Returns:
      Of every argument and result of main, of every constraint and of what goes in and out of every
      `shard_map`, in order: its blocks by device and its open dimensions; None where nothing is
      written.
    """
    sizes = dict(program.mesh.shape)
    with compat.partitioner(partitioner):
        module = program.fun.lower(*program.args).compiler_ir("stablehlo")
    (main,) = (op for op in module.body if str(op.attributes["sym_name"]) == '"main"')
    found = []

    def add(attributes, names, type_):
        rank = str(type_).count("x")
        texts = [str(attributes[name]) for name in names if name in attributes]
        found.append(of_attribute(texts[0], rank, sizes) if texts else None)

    names = ("sdy.sharding", "mhlo.sharding")
    for attribute, types in (("arg_attrs", main.type.inputs), ("res_attrs", main.type.results)):
        for attributes, type_ in zip(main.attributes[attribute], types, strict=True):
            add(attributes, names, type_)

    def boundary(op, attribute, values):
        texts = re.findall(r"<@\w+, (\[[^\]]*\])", str(op.attributes[attribute]))
        for text, value in zip(texts, values, strict=True):
            found.append(of_attribute(text, str(value.type).count("x"), sizes))

    def visit(op):
        target = (
            str(op.attributes["call_target_name"]) if "call_target_name" in op.attributes else ""
        )
        if op.name == "sdy.sharding_constraint":
            add(op.attributes, ("sharding",), op.results[0].type)
        elif op.name == "sdy.manual_computation":
            boundary(op, "in_shardings", op.operands)
        elif target in ('"Sharding"', '"SPMDShardToFullShape"') and "manual" not in str(
            op.attributes["mhlo.sharding"]
        ):
            add(op.attributes, ("mhlo.sharding",), op.results[0].type)
        for region in op.regions:
            for block in region:
                for inner in block:
                    visit(inner.operation)
        if op.name == "sdy.manual_computation":
            boundary(op, "out_shardings", op.results)

    visit(main.operation)
    return found


# --- what was compiled ----------------------------------------------------------------------------

_COLLECTIVE = re.compile(
    r"^  (?:ROOT )?%?\S+ = (?P<type>\(.*?\)|\S+) (?P<kind>all-reduce|all-gather|reduce-scatter|"
    r"all-to-all|collective-permute|collective-broadcast)(?:-start)?\((?P<rest>.*)$"
)
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.-]+) \(")
_CALLED = re.compile(r"(?:body|calls|to_apply|branch_computations)=(?:\{([^}]*)\}|%?([\w.-]+))")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OVER_MESH = re.compile(
    r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{(.*?)\}"
)
_PART = re.compile(r"'(\w+)'(?::\((\d+)\)(\d+))?")
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1}


@dataclass(frozen=True)
class CompiledDump:
    """What one device runs and holds, by the compiler's own text and JAX's own answers.

    Attributes:
      collectives: how often in a step each (kind, groups, bytes of each tensor, scope) runs; of a
        permute, which moves between pairs, how many pairs are of two devices.
      entries: of each argument and result, which slice every device holds.
      memory: what XLA says that a device needs.
    """

    collectives: Counter
    entries: list
    memory: list


def compiled(program, partitioner):
    """What JAX compiles of a program, and says of it."""
    with compat.partitioner(partitioner):
        made = program.fun.lower(*program.args).compile()
    arguments = zip(made.input_shardings[0], program.args, strict=True)
    results = zip(made.output_shardings, made.out_info, strict=True)
    held = [
        None
        if sharding is None
        else {
            device.id: tuple(
                part.indices(size)[:2] for part, size in zip(index, value.shape, strict=True)
            )
            for device, index in sharding.devices_indices_map(value.shape).items()
        }
        for sharding, value in (*arguments, *results)
    ]
    needs = made.memory_analysis()
    sizes = ("argument", "output", "alias", "temp", "generated_code")
    memory = [getattr(needs, f"{name}_size_in_bytes") for name in sizes]
    return CompiledDump(_collectives(made.as_text(), program.mesh.size), held, memory)


def _collectives(text, num_devices):
    """The collectives of a compiled module, each as often as a step runs it."""
    inside, calls = defaultdict(list), defaultdict(list)
    name = entry = ""
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            name = found["name"]
            entry = name if found["entry"] else entry
        if found := _COLLECTIVE.match(line):
            scope = _SCOPE.search(line)
            sizes = sorted(map(_bytes, _TYPE.findall(found["type"])))
            key = (
                found["kind"],
                groups_of(found["rest"], num_devices),
                tuple(sizes),
                scope[1] if scope else "",
            )
            inside[name].append(key)
        elif line.startswith("  "):
            trips = _TRIPS.search(line)
            for several, one in _CALLED.findall(line):
                for called in re.findall(r"[\w.-]+", several or one):
                    calls[name].append((called, int(trips[1]) if trips else 1))
    total = Counter()

    def add(computation, times):
        for key in inside[computation]:
            total[key] += times
        for called, trips in calls[computation]:
            add(called, times * trips)

    add(entry, 1)
    return total


def _bytes(type_):
    dtype, _, shape = type_.rstrip("]").partition("[")
    return _BYTES[dtype] * prod(int(size) for size in shape.split(",") if size)


def groups_of(text, num_devices):
    """Which devices an instruction's `replica_groups` put together, in whatever form these are."""
    if pairs := re.search(r"source_target_pairs=\{(.*?)\}\}", text):
        each = re.findall(r"(\d+),(\d+)", pairs[1])
        return sum(source != target for source, target in each)
    if listed := re.search(r"replica_groups=\{(.*?)\}(?:,|$)", text):
        each = [group.split(",") for group in re.findall(r"\{([\d,]+)\}", listed[0])]
        groups = np.array(each or [range(num_devices)]).astype(int)
    elif iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        groups = _iota(iota[3], iota[4]).reshape(int(iota[1]), int(iota[2]))
    else:
        over = _OVER_MESH.search(text)
        assert over, text
        devices = _iota(over[2], over[3]) if over[2] else np.arange(num_devices)
        groups = devices[_groups_over(over[1], over[4])]
    return frozenset(map(frozenset, groups.tolist()))


def _iota(sizes, order):
    """The numbers of `[4,2]T(1,0)`, in order."""
    shape = [int(size) for size in sizes.split(",")]
    axes = [int(axis) for axis in order.split(",")] if order else range(len(shape))
    return np.arange(prod(shape)).reshape(shape).transpose(axes).reshape(-1)


def _groups_over(mesh, axes):
    """The groups over some axes, or parts of them, of a mesh whose devices are in order."""
    sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", mesh)}
    parts = {name: (int(b or 1), int(n or 0)) for name, b, n in re.findall(_PART, axes)}
    split = []  # each axis as what is before the part, the part, and what is behind it
    for name, size in sizes.items():
        before, own = parts.get(name, (size, 1))
        own = own or size
        split += [before, own, size // (before * own)]
    together = list(range(1, len(split), 3))
    others = [dim for dim in range(len(split)) if dim not in together]
    devices = np.arange(prod(split)).reshape(split).transpose(others + together)
    return devices.reshape(-1, prod(split[dim] for dim in together))


def different_compiled(first, two, *, surely):
    """What two programs do differently on a device.

    Args:
      one: the first.
      two: the second.
      surely: leave out that the same collectives are for other ops.
    """
    mine, theirs = first.collectives, two.collectives
    if surely:
        mine, theirs = map(_without_scopes, (mine, theirs))
    found = [
        (mine[key], theirs[key], key) for key in {**mine, **theirs} if mine[key] != theirs[key]
    ]
    found += [(a, b) for a, b in zip(first.entries, two.entries, strict=True) if a != b]
    return found + [(a, b) for a, b in zip(first.memory, two.memory, strict=True) if a != b]


def _without_scopes(collectives):
    counts = Counter()
    for (*key, _), times in collectives.items():
        counts[tuple(key)] += times
    return counts
