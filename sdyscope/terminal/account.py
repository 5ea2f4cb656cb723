"""The account of what is not known, below what a command prints, or beside it."""

from __future__ import annotations

from collections.abc import Iterator

from sdyscope.facts.account import Account
from sdyscope.terminal.messages import tell
from sdyscope.terminal.paragraphs import Paragraph
from sdyscope.words.account import account_lines, account_title

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
