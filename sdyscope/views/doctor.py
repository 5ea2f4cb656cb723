"""What `doctor` found, as a table and as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sdyscope.stages.doctor import Capability, State
from sdyscope.terminal.table import Cell, Column, Heading, Note, Row, Table, Tone

_TONES: dict[State, Tone] = {"ok": "good", "warning": "warning", "missing": "bad"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenGpuConfig:
    """What was written with `--write-gpu-config`.

    Attributes:
        file: the file, as it was named: so the next command has to name it.
        kind: the GPU that it describes.
        count: how many of them are present.
    """

    file: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """The document of `sdyscope doctor --json`.

    Attributes:
        schema: name and version of this form.
        well: whether everything that is needed is there.
        capabilities: what was looked at.
        gpu_config: the description of a GPU that was written; null where none was asked for.
    """

    schema: Literal["sdyscope.doctor/1"] = "sdyscope.doctor/1"
    well: bool
    capabilities: tuple[Capability, ...]
    gpu_config: WrittenGpuConfig | None = None


def document(
    capabilities: tuple[Capability, ...], gpu_config: WrittenGpuConfig | None = None
) -> Doctor:
    """The document of what `sdyscope.stages.doctor.examine` found, and what was written."""
    well = not any(
        capability.needed and capability.state == "missing" for capability in capabilities
    )
    return Doctor(well=well, capabilities=capabilities, gpu_config=gpu_config)


def wrote(config: WrittenGpuConfig) -> tuple[str, str]:
    """What there is to say about a description that was written, in two lines."""
    return (
        f"{config.file} describes {config.kind}, to compile for 8 of them on any machine:",
        f"--on cuda:{config.file}:1x1x8",
    )


def table(doctor: Doctor) -> Table:
    """One row a capability below the name of its area, what to do about it in a line of its own."""
    rows: list[Row] = []
    area = ""
    for capability in doctor.capabilities:
        if capability.area != area:
            rows.append(Heading(capability.area))
        rows.append(
            (
                capability.name,
                # What is optional and absent is no alarm.
                Cell(
                    capability.state,
                    "muted"
                    if capability.state == "missing" and not capability.needed
                    else _TONES[capability.state],
                ),
                capability.found,
            )
        )
        if capability.advice:
            rows.append(Note(capability.advice))
        area = capability.area
    return Table(
        columns=(
            Column("what", fold=False),
            Column("state", fold=False),
            Column("found"),
        ),
        rows=tuple(rows),
    )
