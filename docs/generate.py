"""Writes what of the documentation is made of the code: `python docs/generate.py`.

That is the schema of every document, the rules of lint and the table of hardware. Run it after a
change of one of these; the tests compare.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from sdyscope.commands import COMMANDS, document_type
from sdyscope.hardware.specs import Chip, chips
from sdyscope.lint import RULES
from sdyscope.process.output import write_atomically
from sdyscope.terminal.document import schema_text

DOCS = Path(__file__).parent
SCHEMAS = DOCS / "schema"

_WIDTH = 100

#: Heads and figures of the columns of the table of hardware; bytes and operations as 9e11.
_TPU_COLUMNS: Mapping[str, str] = {
    "bf16, FLOP/s": "flops_bf16",
    "HBM, bytes": "hbm_bytes",
    "HBM, bytes/s": "hbm_bandwidth",
    "a link of ICI, one way": "ici_link",
    "DCN a chip": "dcn",
}
_GPU_COLUMNS: Mapping[str, str] = {
    "bf16, FLOP/s": "flops_bf16",
    "HBM, bytes": "hbm_bytes",
    "HBM, bytes/s": "hbm_bandwidth",
    "NVLink, one way": "nvlink",
    "network a GPU": "network",
}


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that is made, whole or in part, with the text that it should have."""
    for name in COMMANDS:
        if (document := document_type(name)) is not None:
            yield SCHEMAS / f"{name}.json", schema_text(document)
    yield _with_part(DOCS / "lint.md", "rules", rules())
    yield _with_part(DOCS / "cost.md", "hardware", hardware())


def _with_part(page: Path, name: str, lines: Iterator[str]) -> tuple[Path, str]:
    """A page with other lines between two comments; the rest of it is written by hand."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, opening, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closing, after = rest.partition(end)
    assert opening, (page, begin)
    assert closing, (page, end)
    return page, "\n".join((before + begin, *lines, "", end + after))


def rules() -> Iterator[str]:
    """A table of all rules, then each of them under a heading that is its anchor."""
    yield "| rule | severity | looks at | finds |"
    yield "| --- | --- | --- | --- |"
    for rule in RULES.values():
        yield f"| [`{rule.name}`](#{rule.name}) | {rule.severity} | {rule.needs} | {rule.summary} |"
    for rule in RULES.values():
        yield ""
        yield f"### `{rule.name}`"
        for part in (rule.summary, *rule.explanation.split("\n\n")):
            yield ""
            yield from textwrap.wrap(part, _WIDTH, break_long_words=False, break_on_hyphens=False)


def hardware() -> Iterator[str]:
    """A table of TPUs and one of GPUs, with the documents that the figures are from."""
    tpus = [chip for chip in chips().values() if chip.torus]
    gpus = [chip for chip in chips().values() if not chip.torus]
    yield from _chips("chip", tpus, _TPU_COLUMNS)
    yield ""
    yield from _chips("GPU", gpus, _GPU_COLUMNS)


def _chips(head: str, listed: list[Chip], columns: Mapping[str, str]) -> Iterator[str]:
    heads = [head, *columns, "sources"]
    if head == "GPU":
        heads.insert(-1, "in a domain")
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for chip in listed:
        known = {name: chip.figures.get(name) for name in columns.values()}
        cells = ["-" if figure is None else _number(figure.value) for figure in known.values()]
        if head == "GPU":
            cells.append(str(chip.nvlink_domain))
        urls = dict.fromkeys(figure.source.url for figure in known.values() if figure is not None)
        links = "; ".join(f"[{k}]({url})" for k, url in enumerate(urls, 1))
        yield f"| {' | '.join((chip.name, *cells, links))} |"


def _number(value: float) -> str:
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def main() -> None:
    """Writes what is not as it should be."""
    SCHEMAS.mkdir(exist_ok=True)
    for path, text in generated():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)
            print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
