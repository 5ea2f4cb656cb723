"""What XLA and MLIR write to standard error: which lines matter, and which are always there."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from sdyscope.values.source import SourceLocation

#: glog's and absl's prefix: level, date, time, thread, file and line.
_PREFIX = re.compile(r"^(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ (?P<place>[^\s\]]+)\] (?P<text>.*)$")

#: Without a prefix: LLVM, MLIR, the C library, the C++ runtime and Python, when they give up.
_GIVING_UP = re.compile(
    r"Check failed|LLVM ERROR|\berror: |Assertion .*failed|terminate called|what\(\):"
    r"|Fatal Python error|stack overflow|bad_alloc|std::length_error"
)

#: Lines that say nothing about the program, whatever their level.
_NOISE = re.compile(
    "|".join(
        (
            "All log messages before absl::InitializeLog",
            "Unable to register cu(FFT|DNN|BLAS) factory",
            "computation placer already registered",
            "TfrtCpuClient",
            "successful NUMA node read from SysFS",
            "could not open file to read NUMA node",
            "Could not find cuda drivers",
            "An NVIDIA GPU may be present on this machine",
            "This TensorFlow binary is optimized",
            "Failed to get (TPU|global TPU) (metadata|topology)",
            "Assume version compatibility. PjRt-IFRT does not track",
            r"PjRt-IFRT device does not track",
        )
    )
)

#: What a process ends by that has met an error in C++, and not by somebody's order.
CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})

#: How much of one line is worth repeating in a sentence.
_LONGEST = 400

#: Before what it says: status, context, place in XLA's source, place in the module's text.
_STATUS = re.compile(
    r"^(?:[A-Z_]+: |during context \[[^]]*\]: |RET_CHECK failure \([^)]*\) |-:\d+:\d+: error: "
    r"|<unknown>:\d+: error: |loc\(\"[^\"]*\"\): )+"
)


#: What XLA ends with where a pass made something that is not well-formed.
_FAILED_AFTER = re.compile(r"^Failed after (?P<name>[\w-]+)", re.MULTILINE)

#: The line of the program that JAX tells for such an op, the innermost one.
_SUSPECTED = re.compile(
    r"^Suspected Python Code Location:\n\s+(?P<file>.+?):(?P<line>\d+)(?::\d+)? \[", re.MULTILINE
)

_REMATERIALIZES = re.compile(r"(?i)involuntary full rematerialization")

#: An operand in a module in which XLA tries a way to partition an op, for its cost
#: (``FakePartitionedHlo`` in ``spmd_partitioner_util.h``). Of the way it takes it logs the real op.
_TRIED = re.compile(r"HLO operation:? %?fake_parameter\.\d+ = ")


def rematerializing_lines(log: str) -> tuple[str, ...]:
    """The lines about reshardings that make a tensor whole on every device, without their prefixes.

    Each once: two compilations of a program log the same so, and all who count them agree.
    ``xla/service/spmd/spmd_partitioner.cc`` writes them, also of what it tries and may not take,
    which is left out.
    """
    lines = (
        (prefix["text"] if (prefix := _PREFIX.match(line)) else line) for line in log.splitlines()
    )
    logged = (
        line.strip() for line in lines if _REMATERIALIZES.search(line) and not _TRIED.search(line)
    )
    return tuple(dict.fromkeys(logged))


def last_words(log: str) -> str:
    """Why the process gave up: its last fatal line, without the prefix; empty when none is there.

    Args:
        log: everything that was written to file descriptor 2.
    """
    fatal = ""
    for line in log.splitlines():
        prefix = _PREFIX.match(line)
        if prefix is not None and prefix["level"] == "F":
            fatal = f"{prefix['text'].strip()} ({prefix['place']})"
        elif _GIVING_UP.search(line):
            fatal = line.strip()
    return fatal if len(fatal) <= _LONGEST else fatal[:_LONGEST] + "..."


def last_line(log: str) -> str:
    """The last line of a log that is not blank; empty when there is none."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")


def refusal(said: str) -> str:
    """Why a compiler refuses a program: its first sentence, without status or place.

    A place in a module's text is one in the text that it was handed, not in the user's file.

    Args:
        said: the whole message of its error.
    """
    return _STATUS.sub("", said.strip().partition("\n")[0]).strip().rstrip(":.")


def failed_pass(said: str) -> tuple[str, SourceLocation | None]:
    """The pass whose outcome XLA itself finds wrong, and the line that JAX suspects.

    What it finds wrong before any pass (`pipeline-start`) is the program's.

    Args:
        said: the whole message of its error.

    Returns:
        The name is empty where that is not what it says.
    """
    failed = _FAILED_AFTER.search(said) if "[hlo verifier]" in said else None
    if failed is None or failed["name"] == "pipeline-start":
        return "", None
    at = _SUSPECTED.search(said)
    return failed["name"], SourceLocation(at["file"], int(at["line"])) if at else None


def noteworthy(log: str) -> Iterator[str]:
    """The lines of a log that may matter to a person: warnings, errors and whatever has no level.

    Args:
        log: everything that was written to file descriptor 2.
    """
    for line in log.splitlines():
        prefix = _PREFIX.match(line)
        informs = prefix is not None and prefix["level"] == "I"
        if line.strip() and not informs and not _NOISE.search(line):
            yield line.rstrip()


def signal_name(number: int) -> str:
    """``SIGSEGV``; its number where it has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
