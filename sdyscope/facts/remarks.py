"""What else is worth knowing of an answer: why it may be otherwise, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["PropagationSource", "Remark", "RemarkKind", "ShardyProcess"]

ShardyProcess: TypeAlias = Literal["ended", "killed", "crashed", "not started", "failed"]
"""What became of the process in which Shardy writes down origins or steps."""

RemarkKind: TypeAlias = Literal[
    # why XLA may decide otherwise than a propagation does
    "conservative",
    "both partitioners",
    "simplified for TPU",
    "not compared",
    "priorities lost",
    "inlined",
    "not imported",
    "another JAX propagated",
    "another JAX compiled",
    # of a module's text
    "unread line",
    # of a propagation
    "simplified before",
    "several calls",
    "several uses",
    "never called",
    "decided otherwise",
    "unread origins",
    "no origins",
    "no steps",
    # of collectives
    "no rule",
    "unknown calls",
    "no bytes",
    "not told",
    "not asked for",
    "no mesh",
    "not propagated",
    # of a cost
    "estimate",
    # of a comparison of directories
    "JAX's own",
    # of a search
    "no choice",
    "constraints stay",
    "too many devices",
    "not partitioned",
    "not compiled",
    "refused",
    "over the limit",
    "costs no less",
]
"""Which remark; ``words.remarks`` has the sentence of each."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing worth knowing of an answer.

    Attributes:
        kind: which.
        said: what it is about: a version, a platform, a compiler's own words; empty where the kind
            says all.
        count: how many, or the number of a line from 1; 0 where nothing is counted.
        of: of how many.
        names: what these are, with how many each where that is known.
        process: what became of Shardy's process; None where it is not about one.
    """

    kind: RemarkKind
    said: str = ""
    count: int = 0
    of: int = 0
    names: tuple[tuple[str, int], ...] = ()
    process: ShardyProcess | None = None


@dataclass(frozen=True, slots=True)
class PropagationSource:
    """What a propagation was taken from.

    Attributes:
        kind: Shardy's passes in this process, the dump of XLA's compiler, or the lowered module, as
            XLA does not propagate for one partition.
        jax: whose passes.
        devices: for how many CPU devices XLA compiled.
        dump: name of the dump.
    """

    kind: Literal["passes", "dump", "lowered module"]
    jax: str = ""
    devices: int = 0
    dump: str = ""
