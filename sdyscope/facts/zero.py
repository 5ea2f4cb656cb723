"""What a train step keeps, and would hold and send by each stage of ZeRO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.traffic import Traffic
from sdyscope.formatters import in_place

KeptKind: TypeAlias = Literal["parameters", "gradients", "optimizer state", "state"]

ZeroStageName: TypeAlias = Literal["as it is", "data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3"]


@dataclass(frozen=True, slots=True)
class KeptState:
    """What a step keeps of one kind.

    Attributes:
        kind: what it is. Gradients have the types of their parameters, and are sharded as the
            optimizer's state of theirs, or else as the parameter. `state` is what no parameter is
            updated by, such as averages of parameters.
        tensors: how many arrays.
        bytes: bytes of them whole.
        bytes_per_device: bytes of what a device holds of them.
    """

    kind: KeptKind
    tensors: int
    bytes: int
    bytes_per_device: int


@dataclass(frozen=True, slots=True)
class ZeroStage:
    """The program with its parameters and optimizer state sharded as a stage has them.

    Attributes:
        name: the stage; `as it is` is the program itself.
        kept: bytes that a device holds of each kind.
        held: bytes of all of them.
        traffic: what a device sends in a step, by kind and axes, most first; None where it is not
            known.
        sent: bytes of all that; None likewise.
        why: why not; empty where it is.
    """

    name: ZeroStageName
    kept: dict[KeptKind, int]
    traffic: tuple[Traffic, ...] | None = None
    why: str = ""

    __document__ = ("name", "kept", "held", "traffic", "sent", "why")

    @property
    def held(self) -> int:
        """Bytes of all that a device keeps."""
        return sum(self.kept.values())

    @property
    def sent(self) -> int | None:
        """Bytes that a device sends in a step."""
        return None if self.traffic is None else sum(traffic.sent for traffic in self.traffic)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a train step keeps, and would keep and send by each ZeRO stage.

    Attributes:
        parameters: how many numbers are trained.
        kept: parameters, gradients, optimizer state, and other state if there is any, of the
            program as it is.
        axes: the mesh axes that the stages shard over.
        devices: how many devices along them.
        partitioned: whether what is sent is by XLA's partitioner; else by Shardy's reshards.
        constraints: how many constraints inside the program stay as they are in every stage.
        stages: the program as it is, and the stages; only the former where the batch is on no axis.
    """

    parameters: int
    kept: tuple[KeptState, ...]
    axes: tuple[str, ...]
    devices: int
    partitioned: bool
    constraints: int
    stages: tuple[ZeroStage, ...] = ()

    @property
    def bytes_a_parameter(self) -> float:
        """Bytes that are kept of a parameter, over all devices, each copy counted once."""
        return sum(kept_part.bytes for kept_part in self.kept) / self.parameters

    __document__ = in_place(parameters=("parameters", "bytes_a_parameter"))
