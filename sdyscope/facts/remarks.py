"""What else is worth knowing of an answer: why it may be otherwise, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
    "another platform compiled",
    # of a module that was read
    "read from an export",
    "read from HLO",
    "read as text",
    "constants elided",
    "unread line",
    # of a request
    "layout",
    "in_shardings layout",
    "out_shardings layout",
    "no mesh axes",
    "memory kind",
    "reduction",
    "no request",
    "request unknown",
    "key array",
    "two shardings",
    "Explicit result",
    "reshard",
    "jit input",
    "jit output",
    "local shape",
    "Explicit axes alone",
    "no boundary",
    # of a propagation
    "simplified before",
    "several calls",
    "several uses",
    "never called",
    "decided otherwise",
    "propagation can be kept",
    "unread origins",
    "no origins",
    "no steps",
    # of a recorded run
    "JAX's own not written",
    "compiled otherwise",
    # of two programs
    "device order",
    "device order unknown",
    "axis names",
    "compiler options",
    "sides not propagated",
    "lowered by two JAX",
    "other flags",
    # of a compile
    "CPU devices instead",
    "other plugin",
    "unknown options",
    "general cost analysis",
    "no cost analysis",
    "compiled in a recorded run",
    # of collectives
    "no fitting mesh",
    "no source lines",
    "log cut",
    "some without origin",
    "no rule",
    "unknown calls",
    "between blocks",
    "products moved",
    "products summed",
    "looked up",
    "no bytes",
    "not told",
    "not asked for",
    "no mesh",
    "not propagated",
    # of a cost
    "estimate",
    "estimate by rates",
    "no times",
    "no time at all",
    "loops of unknown trips",
    "conditionals",
    "conditionals predicted",
    "uncounted calls",
    "no peak",
    "counted by sdyscope",
    "further trips added",
    "counted by XLA",
    "library calls added",
    "predicted",
    "order of chips",
    "no latency",
    "times of NCCL",
    "figures",
    "error measured",
    "error of other traces",
    "error of a fit",
    "error unknown",
    "not in the traces",
    # of what a train step keeps
    "gradients",
    "state beside",
    "no data axes",
    "stages partitioned",
    "stages predicted",
    "gradients are temporaries",
    "stage unknown",
    # of a comparison of compiled programs
    "counted once",
    # of a comparison of directories
    "JAX's own",
    # of a recorded run
    "unreadable lines",
    "file outside",
    "module gone",
    "compiled program gone",
    "propagation gone",
    "propagation not kept",
    "propagation of another JAX",
    # of a run
    "not fetched",
    # of a script that is run again
    "script run again",
    "places not found",
    # of a search
    "crashed",
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


#: Remarks on ops of which no collectives are predicted, and XLA may make some.
NOT_PREDICTED: Final = frozenset({"no rule", "unknown calls", "between blocks"})


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
        other: what ``said`` is set against, or why it is so; empty likewise.
    """

    kind: RemarkKind
    said: str = ""
    count: int = 0
    of: int = 0
    names: tuple[tuple[str, int], ...] = ()
    process: ShardyProcess | None = None
    other: str = ""


@dataclass(frozen=True, slots=True)
class PropagationSource:
    """What a propagation was taken from.

    Attributes:
        kind: Shardy's passes in this process, in that of another JAX, or what a recorded run's own
            JAX made of it; the dump of XLA's compiler; or the lowered module, as XLA does not
            propagate for one partition.
        jax: whose passes, or whose compiler.
        devices: for how many CPU devices XLA compiled.
        dump: name of the dump.
    """

    kind: Literal["passes", "passes elsewhere", "recorded", "dump", "lowered module"]
    jax: str = ""
    devices: int = 0
    dump: str = ""
