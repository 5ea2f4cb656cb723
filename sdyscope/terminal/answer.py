"""The answer of a command: its document, or blocks with the account of what is not known below."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from sdyscope.facts.account import Account
from sdyscope.process.output import answers
from sdyscope.terminal.account import account_paragraphs
from sdyscope.terminal.blocks import Block, print_blocks
from sdyscope.terminal.document import encode
from sdyscope.terminal.paragraphs import print_paragraphs


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
