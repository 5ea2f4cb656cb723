"""What is said around the tables of a program's collectives."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.terminal.account import account_paragraphs
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.terminal.table import size
from sdyscope.views.comms import Comms, CommsProgram
from sdyscope.views.comms_table import LISTED, distinct, groups
from sdyscope.words.counts import counted
from sdyscope.words.mesh import mesh_words
from sdyscope.words.origins import OP_FOLLOWED
from sdyscope.words.places import source_text


def heading(found: Comms) -> Iterator[Paragraph]:
    """The program, the hardware and the mesh; then what each partitioner's collectives come to."""
    file = f" ({found.file})" if found.file else ""
    parts = [f"{found.name}{file}"]
    meshes = {mesh_words(one.mesh) for one in found.programs if one.mesh is not None}
    if meshes:
        parts += sorted(meshes)
    else:
        devices = found.programs[0].devices
        parts.append(f"{counted(devices, 'device')}, no mesh is named")
    if found.hardware is not None:
        kind = found.device_kind
        known = kind is None or kind.lower() == found.hardware.partition(":")[0]
        parts.append(f"compiled for {found.hardware}" + ("" if known else f" ({kind})"))
    if any(one.predicted for one in found.programs):
        parts.append("predicted from Shardy's reshards, not compiled")
    yield Paragraph("; ".join(parts), hang=2)
    totals = [_total_words(one) for one in found.programs]
    if len(totals) > 1 and len(set(totals)) == 1:
        both = " and ".join(one.partitioner or "" for one in found.programs)
        yield Paragraph(f"{both} alike: {totals[0]}", "heading", hang=2)
    else:
        for one, words in zip(found.programs, totals, strict=True):
            name = f"{one.partitioner}{', predicted' * one.predicted}: " if one.partitioner else ""
            yield Paragraph(f"{name}{words}", "heading", hang=2)


def _total_words(one: CommsProgram) -> str:
    total = one.total
    if not total.count:
        return "no collectives, nothing is sent"
    words = f"{counted(total.count, 'collective')} a step"
    if total.tensors != total.count:
        words += f" for {counted(total.tensors, 'tensor')}"
    words += f"; a device sends {size(total.sent)}"
    if total.received != total.sent:
        words += f" and receives {size(total.received)}"
    if one.differentiated:
        passes = {entry.phase: entry.tally for entry in one.by_phase}
        parts = [
            f"{phase} {size(passes[phase].sent)}"
            for phase in ("forward", "backward", "other")
            if phase in passes
        ]
        words += f" ({', '.join(parts)})"
    return words


def footer(found: Comms, *, everything: bool = False) -> Iterator[Paragraph]:
    """What the columns mean, and what is not certain or not known."""
    yield from _remade(found)
    yield Paragraph(
        "sent: bytes that leave a device in a step, as many arrive; counted from the program by "
        "the ring algorithms, not measured. x: times a step",
        "muted",
    )
    if any(one.predicted for one in found.programs):
        yield Paragraph(
            "predicted: what Shardy's own passes put in; XLA's partitioner may know another way, "
            "and joins several into one. Without --predicted the program is compiled",
            "warning",
            hang=2,
        )
    if len(distinct(found)) < len(found.programs) and found.programs[0].by_annotation:
        yield Paragraph(
            "because: as Shardy recorded it; --partitioner gspmd shows what can be followed under "
            "GSPMD, which records nothing",
            "muted",
        )
    origins = (
        part.origin for one in found.programs for each in one.collectives for part in each.parts
    )
    if any(origin is not None and origin.followed for origin in origins):
        yield Paragraph(
            f"{OP_FOLLOWED}: XLA names the collective after what makes the value, or not at all; "
            "the op that needs it was found along the value in the compiled program",
            "muted",
        )
    said: dict[str, list[str]] = {}
    for one in found.programs:
        for words in _uncertain(one):
            said.setdefault(words, []).append(one.partitioner or "")
    for words, names in said.items():
        name = "" if len(names) == len(found.programs) > 1 else names[0]
        yield Paragraph(f"{name}: {words}" if name else words, "warning", hang=2)
    hidden = any(len(groups(one)) > LISTED for one in found.programs)
    if hidden and not everything:
        yield Paragraph("--all lists every collective", "muted")
    yield from account_paragraphs(found.account)


def _remade(found: Comms) -> Iterator[Paragraph]:
    said: dict[tuple[str, str], list[str]] = {}
    for one in found.programs:
        for remade in one.rematerializations:
            where = source_text(remade.source)
            op = "/".join(filter(None, (remade.scope, remade.primitive))) or remade.operation
            words = f"involuntary full rematerialization of {remade.shape or 'a tensor'} in {op}"
            change = f"from {remade.before} to {remade.after}" if remade.before else ""
            key = (words + (f" at {where}" if where else ""), change)
            said.setdefault(key, []).append(one.partitioner or "")
    for (words, change), names in said.items():
        label = " and ".join(filter(None, names))
        yield Paragraph(f"{label}: {words}" if label else words, "bad", hang=2)
        if change:
            yield Paragraph(change, indent=4, hang=2)


def _uncertain(one: CommsProgram) -> Iterator[str]:
    if one.mesh is None and one.collectives:
        yield "no mesh is known that fits, so no axes are named; --mesh names one of a file"
    tensors = sum(len(collective.parts) for collective in one.collectives)
    if one.with_source < tensors:
        yield f"{tensors - one.with_source:,} of {tensors:,} tensors have no source line"
    cut = sum(remade.cut for remade in one.rematerializations)
    if cut:
        whole = counted(len(one.rematerializations), "rematerialization")
        yield f"{cut:,} of {whole} cut short in XLA's log: scope or line may be missing"
    if one.origins_missing:
        yield f"no origins: {one.origins_missing}"
    elif one.with_origin < tensors and not one.predicted:
        yield f"{tensors - one.with_origin:,} of {tensors:,} tensors have no origin"
    yield from one.notes
