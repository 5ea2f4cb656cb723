"""What is known of the bytes that a device holds, in sentences without a full stop."""

from __future__ import annotations

from sdyscope.words.counts import counted, size

__all__ = [
    "NOT_COMPILED",
    "agreement_text",
    "chosen_text",
    "peak_text",
    "propagated_text",
    "remade_text",
    "results_table_text",
    "savings_text",
    "unknown_text",
]


#: What is not known of a program that was not compiled.
NOT_COMPILED = (
    "temporaries, code and tile padding are not known: without --predicted the program is compiled"
)


def agreement_text(equal: bool | None) -> str:
    """Whether the compiler counts what the shardings come to; None where it does not say."""
    if equal is None:
        return "the compiler reports no byte counts"
    if equal:
        return "arguments and results match the compiler's count, to the byte"
    return "arguments and results do not match the compiler's count"


def unknown_text(tensors: int) -> str:
    """How many tensors are where nobody says."""
    return f"{counted(tensors, 'tensor is', 'tensors are')} somewhere that nobody says"


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
