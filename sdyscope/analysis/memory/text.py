"""What the text of a compiled program says of memory: arguments, results, shared buffers.

The text has the blocks that a device holds, not the whole tensors, and nothing about temporaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdyscope.analysis.memory.held import HeldKind, group_of
from sdyscope.hlo import HloModule
from sdyscope.values.entry_layout import StoredArray, read_entry_layout

__all__ = ["Block", "BlockGroup", "TextMemory", "text_memory"]


@dataclass(frozen=True, slots=True)
class Block:
    """What a device holds of an argument or a result.

    Attributes:
        name: its pytree path, where the text has it.
        kind: what it is.
        group: the top-level argument that it belongs to; `results` for a result, which has no name.
        number: which parameter or result of the module it is.
        shape: shape of the block.
        dtype: HLO element type.
        layout: order of its dimensions and its tiles, as XLA writes them.
        stored: bytes that it takes, with the padding of its tiles.
        memory_space: 0 is the device's main memory, 5 the host's.
        donated: whether the argument's buffer was donated.
        shares: the result or argument that lies in the same buffer; empty for none.
    """

    name: str
    kind: HeldKind
    group: str
    number: int
    shape: tuple[int, ...]
    dtype: str
    layout: str
    stored: int
    memory_space: int
    donated: bool
    shares: str


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """The blocks of one top-level argument, or of all results.

    Attributes:
        kind: what they are.
        name: the group's name.
        tensors: how many.
        stored: bytes a device.
        shared: of them, how many lie in the buffers of arguments, or are given to results.
    """

    kind: HeldKind
    name: str
    tensors: int
    stored: int
    shared: int


@dataclass(frozen=True, slots=True)
class TextMemory:
    """What the text says.

    Attributes:
        devices: how many run the module.
        groups: arguments, then results.
        blocks: the same, one by one.
    """

    devices: int
    groups: tuple[BlockGroup, ...]
    blocks: tuple[Block, ...]

    @property
    def total(self) -> int:
        """Bytes a device of arguments, and of results that lie in no argument's buffer."""
        return sum(
            block.stored for block in self.blocks if block.kind == "argument" or not block.shares
        )


def text_memory(module: HloModule) -> TextMemory:
    """Reads the first line of a module, and the names of its parameters.

    Raises:
        CompilerError: the module does not say how it stores its parameters.
    """
    head = ", ".join(f"{name}={value}" for name, value in module.attributes.items())
    layout = read_entry_layout(head)
    names = {} if layout.parameters_are_tuple else _names(module)
    arguments = [
        names.get(number, f"argument {number}") for number in range(len(layout.parameters))
    ]
    alone = len(layout.results) == 1 and not layout.results_are_tuple
    results = ["result" if alone else f"result {number}" for number in range(len(layout.results))]
    result_of = {argument: result for result, argument in layout.aliases.items()}
    blocks = [
        _block(
            "argument",
            number,
            arguments,
            stored,
            number in result_of or number in layout.donors,
            results[result_of[number]] if number in result_of else "",
        )
        for number, stored in enumerate(layout.parameters)
    ]
    blocks += [
        _block(
            "result",
            number,
            results,
            stored,
            False,
            arguments[layout.aliases[number]] if number in layout.aliases else "",
        )
        for number, stored in enumerate(layout.results)
    ]
    devices = module.num_partitions * module.replica_count
    return TextMemory(devices, _groups(blocks), tuple(blocks))


def _names(module: HloModule) -> dict[int, str]:
    """Names of the entry's parameters that have some, by number."""
    return {
        int(instruction.operand_text): instruction.op_name
        for instruction in module.computations[module.entry].instructions.values()
        if instruction.opcode == "parameter"
        and instruction.operand_text.isdecimal()
        and instruction.op_name
    }


def _block(
    kind: HeldKind,
    number: int,
    names: Sequence[str],
    stored: StoredArray,
    donated: bool,
    shares: str,
) -> Block:
    return Block(
        name=names[number],
        kind=kind,
        group="results" if kind == "result" else group_of(names[number], kind),
        number=number,
        shape=stored.shape,
        dtype=stored.dtype,
        layout=stored.layout,
        stored=stored.bytes,
        memory_space=stored.memory_space,
        donated=donated,
        shares=shares,
    )


def _groups(blocks: Sequence[Block]) -> tuple[BlockGroup, ...]:
    found: dict[tuple[HeldKind, str], list[Block]] = {}
    for block in blocks:
        found.setdefault((block.kind, block.group), []).append(block)
    return tuple(
        BlockGroup(
            kind,
            name,
            len(members),
            sum(block.stored for block in members),
            sum(block.stored for block in members if block.shares),
        )
        for (kind, name), members in found.items()
    )
