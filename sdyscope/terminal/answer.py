"""The answer of a command: its document, or blocks with the account of what is not known below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias

from sdyscope.facts.account import Account
from sdyscope.process.output import answers
from sdyscope.terminal.chart import Area, Timeline, print_area, print_timeline
from sdyscope.terminal.document import encode
from sdyscope.terminal.listing import Listing, print_listing
from sdyscope.terminal.messages import tell
from sdyscope.terminal.paragraphs import Paragraph, print_paragraphs
from sdyscope.terminal.table import Table, print_table
from sdyscope.words.account import account_lines, account_title

Block: TypeAlias = Table | Area | Timeline | Listing | Iterable[Paragraph] | str
"""A string is written as it is, not folded."""


def heading(text: str) -> list[Paragraph]:
    """The block above those that it is the heading of."""
    return [Paragraph(text, "heading")]


def print_blocks(blocks: Iterable[Block | None]) -> None:
    """Prints blocks with an empty line between, but none for None and for no paragraphs."""
    output = answers()
    is_first = True
    for block in blocks:
        if isinstance(block, Iterable) and not isinstance(block, str):
            block = tuple(block)
        if block is None or block == ():
            continue
        if not is_first:
            output.write("")
        is_first = False
        match block:
            case str():
                output.write(block)
            case Table():
                print_table(block, output)
            case Area():
                print_area(block, output)
            case Listing():
                print_listing(block, output)
            case Timeline():
                print_timeline(block, output)
            case _:
                print_paragraphs(block, output)


class _Answer(Protocol):
    @property
    def account(self) -> Account: ...


def print_answer(
    answer: _Answer, blocks: Callable[[], Iterable[Block | None]], *, as_json: bool
) -> None:
    """Prints a document.

    Args:
        answer: the document.
        blocks: makes what is printed without `--json`.
        as_json: whether `--json` was given.
    """
    if as_json:
        answers().write_bytes(encode(answer))
        return
    print_blocks(tuple(blocks()))
    print_paragraphs(account_paragraphs(answer.account))


#: How many things are listed; `--json` has them all.
_LISTED = 12


def account_paragraphs(account: Account, *, of: str = "") -> Iterator[Paragraph]:
    """An empty line, a title and a line for each thing that is not known; nothing without any.

    Args:
        account: the account.
        of: what to call what it is an account of; empty where that is clear.
    """
    if account:
        yield Paragraph("")
        yield Paragraph(account_title(account, of), "warning")
        for line in account_lines(account, _LISTED):
            yield Paragraph(line, indent=2)


def say_account(account: Account) -> None:
    """The same on standard error, where the answer itself is a file's content."""
    if account:
        for line in (account_title(account), *account_lines(account)):
            tell(line)
