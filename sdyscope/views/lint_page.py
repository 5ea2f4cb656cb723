"""The rules' part of docs/lint.md: `python -m sdyscope.views.lint_page docs/lint.md` writes it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from sdyscope.analysis.lint import RULES, Rule
from sdyscope.views.lint import explanation
from sdyscope.views.output import write_atomically

#: What the rules stand between; the rest of the page is written by hand.
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"

_WIDTH = 100


def rules_markdown() -> str:
    """A table of all rules, then each of them under a heading that is its anchor."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| rule | severity | looks at | finds |"
    yield "| --- | --- | --- | --- |"
    for one in RULES.values():
        yield f"| [`{one.name}`](#{one.name}) | {one.severity} | {one.needs} | {one.summary} |"
    for one in RULES.values():
        yield from _rule(one)
    yield ""


def _rule(one: Rule) -> Iterator[str]:
    yield ""
    yield f"### `{one.name}`"
    for part in (one.summary, *explanation(one).split("\n\n")):
        yield ""
        yield from textwrap.wrap(part, _WIDTH, break_long_words=False, break_on_hyphens=False)


def page(text: str) -> str:
    """The page with its rules as they are now.

    Args:
      text: the page.
    """
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rules_markdown()}{END}{after}"


def main() -> None:
    """Writes the page that is named on the command line again."""
    path = Path(sys.argv[1])
    write_atomically(path, page(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
