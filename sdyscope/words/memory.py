"""What is known of the bytes that a device holds, in sentences without a full stop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sdyscope.facts.memory import GroupName, Held, MemoryPart, Redundant, Sureness, TensorTotal
from sdyscope.facts.remarks import Remark, RemarkKind
from sdyscope.words.counts import counted, size
from sdyscope.words.remarks import remark_texts
from sdyscope.words.sharding import named_text
from sdyscope.words.tone import Tone

#: What is not known of a program that was not compiled.
NOT_COMPILED = (
    "temporaries, code and tile padding are not known: without --predicted the program is compiled"
)


#: The parts of what a device needs, in the order in which they are told.
PARTS: Final[Mapping[MemoryPart, str]] = {
    MemoryPart.ARGUMENTS: "arguments",
    MemoryPart.RESULTS: "results",
    MemoryPart.ALIASES: "results in donated buffers",
    MemoryPart.TEMPORARIES: "temporaries",
    MemoryPart.CODE: "code",
    MemoryPart.TOTAL: "total",
    MemoryPart.HOST: "in host memory",
}


def part_text(part: GroupName | MemoryPart, aliases: int = 0) -> str:
    """A part of what a device needs: ``temporaries``; or a group's name.

    Args:
        part: the part.
        aliases: bytes of results in the buffers of donated arguments, which the results do not
            count.
    """
    if isinstance(part, GroupName):
        return group_text(part)
    return "other results" if part is MemoryPart.RESULTS and aliases else PARTS[part]


def group_text(group: GroupName) -> str:
    """The name, and where it is when that is not the device: ``opt_state, on the host``."""
    return group.name if group.memory == "device" else f"{group.name}, on the host"


def memory_legend(*, padded: bool, shared: bool) -> tuple[str, ...]:
    """What the columns of bytes mean.

    Args:
        padded: whether what is stored is more than what is held.
        shared: whether results lie in the buffers of arguments.
    """
    return (
        "per device: what a device holds; redundant: what it would not hold if every block were "
        "stored once",
        *(["stored: with the padding of the hardware's tiles"] if padded else []),
        *(["reused: buffers of donated arguments, in which results are stored"] if shared else []),
    )


def held_text(held: Held) -> str:
    """How an argument or result is sharded; empty where no PartitionSpec says that."""
    return "" if held.sharding is None else named_text(held.sharding, len(held.type[0]))


def redundant_text(redundant: Redundant) -> str:
    """What is held more than once, and no free axis would save."""
    why = (
        "that no free axis divides"
        if redundant.is_named
        else "whose sharding has no name here for the axes of a mesh"
    )
    tensors = counted(redundant.tensors, "tensor")
    return f"{size(redundant.replicated)} per device are redundant in {tensors} {why}"


#: Where nothing could be sharded further.
NOTHING_SAVED: Final = "Every tensor is held once, or no free mesh axis divides it."

#: What is not known of a compiled program's text.
TEXT_LACKS: Final = (
    "the text of a compiled program has neither temporaries nor global tensor sizes: name the "
    "program itself to compile it"
)


def sureness_texts(sureness: Sureness) -> Iterator[tuple[str, Tone]]:
    """How sure the figures are, and who placed the tensors, each with its tone.

    That the compiler counts otherwise is a finding, and not told here.
    """
    if sureness.is_text:
        yield TEXT_LACKS, "muted"
    else:
        if sureness.equal is not False:
            yield agreement_text(sureness.equal), "good" if sureness.equal else "warning"
        if sureness.unknown:
            yield unknown_text(sureness.unknown), "warning"
        if sureness.chosen:
            yield chosen_text(sureness.chosen), "muted"
    if sureness.remade:
        yield remade_text(sureness.remade), "warning"


#: What of a compile is for those who ask for costs.
_COSTS: Final[frozenset[RemarkKind]] = frozenset(("general cost analysis", "no cost analysis"))


def memory_remarks(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """What else a compile says, but for what is about costs."""
    return remark_texts(remark for remark in remarks if remark.kind not in _COSTS)


def agreement_text(equal: bool | None) -> str:
    """Whether the compiler counts what the shardings come to; None where it does not say."""
    if equal is None:
        return "the compiler reports no byte counts"
    if equal:
        return "arguments and results match the compiler's count, to the byte"
    return "arguments and results do not match the compiler's count"


def unknown_text(tensors: int) -> str:
    """How many tensors have no known placement."""
    return f"{counted(tensors, 'tensor has', 'tensors have')} no known placement"


def chosen_text(tensors: int) -> str:
    """How many the compiler placed."""
    return f"{counted(tensors, 'tensor was', 'tensors were')} placed by the compiler"


def propagated_text(tensors: int) -> str:
    """How many propagation placed."""
    return f"{counted(tensors, 'tensor was', 'tensors were')} placed by propagation"


def peak_text(peak: int) -> str:
    """The most that is held at a time, where the compiler says."""
    return f"peak memory is {size(peak)}, says the compiler"


def savings_text(saves: int) -> str:
    """What all tensors come to that free axes divide further."""
    return f"sharding all of these further saves {size(saves)} per device"


def remade_text(values: int) -> str:
    """How many values were resharded by full rematerialization."""
    return (
        f"the partitioner resharded {counted(values, 'value')} by making it whole on every device "
        "(involuntary full rematerialization)"
    )


def results_table_text(table: int) -> str:
    """How many bytes the table of the results' addresses takes."""
    return f"results: includes {size(table)} for the table of their addresses"


def apart_text(total: TensorTotal) -> str:
    """What of a total is counted otherwise, or not at all; empty for nothing."""
    words = []
    if total.unplaced:
        without = counted(total.unplaced, "tensor")
        words.append(f"{without} without a sharding, counted as replicated")
    if total.impossible:
        wrong = counted(total.impossible, "tensor")
        words.append(f"{wrong} with an impossible sharding, not counted")
    if total.unknown:
        words.append(f"{counted(total.unknown, 'tensor')} of unknown size, not counted")
    return "; ".join(words)
