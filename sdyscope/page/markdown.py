"""The report as GitHub's Markdown: for a step's summary or a pull request's comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jinja2

from sdyscope.analysis.show import ShownTensor
from sdyscope.page import templates
from sdyscope.page.document import Report
from sdyscope.page.edits import edits
from sdyscope.terminal.paragraphs import by_partitioner
from sdyscope.words.account import account_lines, account_title, unavailable_text
from sdyscope.words.counts import counted, size
from sdyscope.words.counts import sentence as as_sentence
from sdyscope.words.hardware import compiled_text
from sdyscope.words.memory import PARTS, TEXT_LACKS
from sdyscope.words.mesh import NO_MESH, mesh_words, over_text
from sdyscope.words.partitioners import partitioner_name, partitioner_names, stored_sentence
from sdyscope.words.places import shown_name, source_text

#: GitHub takes 65,536 characters in a comment; a link to the page needs some of them.
LIMIT = 65_000

#: How many rows of a table are written before the rest is counted.
ROWS = 40

#: Longer names and texts lose their middle.
_LONGEST = 160

MARKS = {"good": "✅", "warning": "⚠️", "bad": "❌", "unknown": "➖", "plain": "🔹"}

# What means something to Markdown or HTML outside of code.
_MARKED = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~@&$])")


def markdown(report: Report) -> str:
    """The report, never longer than a comment may be.

    Tables get shorter until it fits; what is left out is counted.
    """
    rows = ROWS
    while True:
        text = _render(report, rows)
        if len(text) <= LIMIT or rows == 0:
            return text[:LIMIT]
        rows //= 2


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKED.sub(r"\\\1", _on_one_line(text))


def sentence(text: str) -> str:
    """The same for a sentence, whose punctuation can't begin anything."""
    return re.sub(r"([\\`*_\[\]<>|~@&$])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Text as code, in a cell of a table too, whatever is in it."""
    one_line = _on_one_line(text)
    if not one_line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", one_line)), default=0))
    padding = " " if one_line.startswith("`") or one_line.endswith("`") else ""
    return f"{fence}{padding}{one_line}{padding}{fence}".replace("|", "\\|")


def fenced(patch: str) -> str:
    """A patch as a block of code, whatever is in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", patch)), default=0))
    return f"{fence}diff\n{patch.rstrip()}\n{fence}"


def _on_one_line(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"


def environment() -> jinja2.Environment:
    """What Markdown templates are rendered in: the filters that make any text harmless."""
    jinja = templates.environment(autoescape=False)
    jinja.filters |= {
        "plain": plain,
        "sentence": sentence,
        "code": code,
        "fenced": fenced,
        "partitioner": partitioner_name,
        "partitioners": partitioner_names,
        "size": size,
        "source": source_text,
    }
    return jinja


def _render(report: Report, rows: int) -> str:
    differing = _differing(report)
    compiled = () if report.comms is None else report.comms.programs
    programs = by_partitioner(compiled, lambda each: (each.total, each.by_kind_and_axes))
    return (
        environment()
        .get_template("report.md.j2")
        .render(
            report=report,
            rows=rows,
            marks=MARKS,
            compiled_for=compiled_text(report.hardware, report.device_kind, by=report.compiled_by),
            meshes=[mesh_words(mesh) for mesh in report.meshes] or [NO_MESH],
            differing=differing,
            edits=None if report.fix is None else edits(report.fix),
            findings=report.findings,
            account_lines=account_lines,
            unavailable_text=unavailable_text,
            account_title=account_title,
            count=counted,
            memory_parts=PARTS,
            over_text=over_text,
            programs=[*programs],
            shown_name=shown_name,
            stored_sentence=stored_sentence,
            text_lacks=as_sentence(TEXT_LACKS),
        )
    )


def _differing(report: Report) -> Sequence[ShownTensor]:
    """Tensors that are lowered otherwise than requested."""
    tensors = () if report.show is None else report.show.tensors
    return [tensor for tensor in tensors if tensor.disagrees]
