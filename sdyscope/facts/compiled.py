"""What a compile says about the program that one device runs. Values only; free of jax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.facts.memory import SUMMANDS, MemoryPart
from sdyscope.facts.program import Partitioner, Versions
from sdyscope.facts.remarks import Remark
from sdyscope.formatters import Summarized
from sdyscope.hardware.names import Hardware, HardwarePlatform
from sdyscope.hardware.topology import Topology
from sdyscope.hlo import HloModule, read_hlo
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.placement import Placement
from sdyscope.values.tiling import TupleSharding

#: What `jax.devices` calls platforms, and what programs are lowered for.
_PLATFORMS: Mapping[str, HardwarePlatform] = {
    "cpu": "cpu",
    "gpu": "cuda",
    "cuda": "cuda",
    "tpu": "tpu",
}


@dataclass(frozen=True, slots=True)
class MemoryAnalysis:
    """The compiler's `memory_analysis()`, in bytes a device.

    Attributes:
        arguments: what the arguments take.
        outputs: what the results take, those that lie in an argument's buffer included.
        aliases: how much of the results lies in the buffers of donated arguments.
        temporaries: what the program needs besides, at its largest.
        generated_code: the machine code.
        peak: the most that is held at a time, where the compiler says (JAX 0.8 and later; 0 and
            None mean that it does not).
        host_arguments: what arguments take in the host's memory (`memory_kind="pinned_host"`),
            which is not in `arguments`. A CPU has only one memory.
        host_outputs: likewise of results.
        host_temporaries: likewise of temporaries, such as activations that are offloaded.
    """

    arguments: int
    outputs: int
    aliases: int
    temporaries: int
    generated_code: int
    peak: int | None = None
    host_arguments: int = 0
    host_outputs: int = 0
    host_temporaries: int = 0

    @classmethod
    def of(cls, stats: Mapping[str, int]) -> MemoryAnalysis:
        """From XLA's ``CompiledMemoryStats``, by their names without ``_in_bytes``."""
        return cls(
            arguments=stats["argument_size"],
            outputs=stats["output_size"],
            aliases=stats["alias_size"],
            temporaries=stats["temp_size"],
            generated_code=stats["generated_code_size"],
            peak=stats.get("peak_memory"),
            host_arguments=stats.get("host_argument_size", 0),
            host_outputs=stats.get("host_output_size", 0),
            host_temporaries=stats.get("host_temp_size", 0),
        )

    def part(self, part: MemoryPart) -> int:
        """Bytes of one part."""
        count: int = getattr(self, part.value)
        return count

    def largest_growth(self, less: MemoryAnalysis) -> MemoryPart:
        """The part of what a device needs that takes most more than in another program."""
        return max(SUMMANDS, key=lambda part: self.part(part) - less.part(part))

    @property
    def results(self) -> int:
        """What the results take that do not lie in an argument's buffer."""
        return self.outputs - self.aliases

    @property
    def host(self) -> int:
        """What a device needs of the host's memory."""
        return self.host_arguments + self.host_outputs + self.host_temporaries

    @property
    def total(self) -> int:
        """What a device needs: arguments, results that are not aliased, temporaries and code."""
        return self.arguments + self.results + self.temporaries + self.generated_code


@dataclass(frozen=True, repr=False)
class Compiled(Summarized):
    """The SPMD program that every device runs, as the compiler of some hardware made it.

    It was compiled here, or elsewhere and its text was read from a file (``path``). A text says
    less: not for what it was compiled nor how results are sharded, and nothing of temporaries.

    Attributes:
        name: the program's name.
        partitioner: whose shardings were compiled; None for a text.
        hardware: what it was compiled for; None for a text.
        devices: how many devices run it.
        device_kind: what the compiler calls such a device: `TPU v5 lite`; empty for a text.
        hlo: text of the partitioned and optimized HLO module.
        memory: bytes a device; None where the compiler does not say.
        cost: XLA's cost analysis of what one device runs, by property (`flops`, `bytes accessed`);
            None where the compiler has none. `optimal_seconds` is for no real hardware.
        parameter_shardings: HLO sharding of each parameter of the module, as text; empty where the
            text of the program has none.
        result_shardings: of each result; none for a text.
        rematerializations: what the partitioner logged on reshardings that it could only do by
            making a whole tensor on every device ("involuntary full rematerialization").
        compile_seconds: how long the compile took, without machine code where that is not made,
            which nobody runs.
        log: everything that the compiler wrote to standard error.
        notes: what else is worth knowing.
        topology: where the devices stand; None for CPUs, and where they do not tell.
        tags: by HLO instruction, the ops that it was made from: of each the calls that it was
            inlined from, then the op itself, as nodes in the op graph of the lowered module.
        path: the file with its text; None for what was compiled here.
        mesh: of a text, the mesh whose axes to name, where the reader was told one.
        recorded_by: the JAX of a recorded run, of what was compiled there; None otherwise.
        recorded_platform: what that JAX calls the platform of its devices: `cpu`, `gpu`, `tpu`;
            empty otherwise.
    """

    name: str
    partitioner: Partitioner | None
    hardware: Hardware | None
    devices: int
    device_kind: str
    hlo: str
    memory: MemoryAnalysis | None = None
    cost: Mapping[str, float] | None = None
    parameter_shardings: tuple[str, ...] = ()
    result_shardings: tuple[str, ...] = ()
    rematerializations: tuple[str, ...] = ()
    compile_seconds: float = 0.0
    log: str = ""
    notes: tuple[Remark, ...] = ()
    topology: Topology | None = None
    tags: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict, hash=False)
    path: Path | None = None
    mesh: Mesh | None = None
    recorded_by: Versions | None = None
    recorded_platform: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it is a text and nothing else, which names no hardware and not every figure."""
        return self.hardware is None and self.recorded_by is None

    @property
    def platform(self) -> HardwarePlatform | None:
        """Of the devices that it was compiled for; None where a text does not say."""
        if self.hardware is not None and self.hardware.platform != "any":
            return self.hardware.platform
        return _PLATFORMS.get(self.recorded_platform)

    @cached_property
    def module(self) -> HloModule:
        """Its text, read once.

        Raises:
            SdyscopeError: it can't be read.
        """
        return read_hlo(self.hlo)

    def placement(
        self, kind: Literal["argument", "result"], number: int, rank: int, mesh: Mesh | None = None
    ) -> Placement | None:
        """Where the compiler says that an argument or result is; None where it does not say.

        Args:
            kind: which of the two.
            number: its number among the module's.
            rank: how many dimensions it has.
            mesh: the mesh that a sharding names axes of, where it names any.
        """
        texts = self.parameter_shardings if kind == "argument" else self.result_shardings
        if self.devices == 1:
            return Placement(1, ((),) * rank)
        if number >= len(texts):
            return None
        try:
            parsed = parse_hlo_sharding(texts[number])
            if isinstance(parsed, TupleSharding):
                return None
            return to_placement(parsed, rank, mesh, self.devices)
        except (SyntaxTextError, ConversionError):  # such as {unknown}
            return None


class OfCompiled:
    """What is known of a compiled program, ``compiled``."""

    compiled: Compiled

    @property
    def partitioner(self) -> Partitioner | None:
        """Under which it was compiled."""
        return self.compiled.partitioner

    @property
    def hardware(self) -> Hardware | None:
        """What it was compiled for."""
        return self.compiled.hardware

    @property
    def is_text(self) -> bool:
        """Whether it is a text and nothing else."""
        return self.compiled.is_text

    @property
    def device_kind(self) -> str:
        """What the compiler calls such a device."""
        return self.compiled.device_kind

    @property
    def devices(self) -> int:
        """How many devices run it."""
        return self.compiled.devices
