"""How the command lines of `upgrade` and `bisect` are read: a TARGET, or a command after `--`."""

from __future__ import annotations

import re
from typing import Any

import click

from sdyscope.commands.command_help import Command
from sdyscope.errors import TargetError

__all__ = ["SubjectCommand", "subject_words"]

#: What is a version among the words after `--versions`: a number, or an environment's folder.
_VERSION = re.compile(r"\d+(\.\w+)*|latest|\S*/\S*")
_COMMAND = "sdyscope.command"


class SubjectCommand(Command):
    """A command that looks at a TARGET, or at a script whose command line follows `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the script's command line off, and joins the words after `--versions`."""
        before = args
        if "--" in args:
            at = args.index("--")
            before, ctx.meta[_COMMAND] = args[:at], tuple(args[at + 1 :])
        return super().parse_args(ctx, _joined(before))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """What stands behind the command's name in its usage."""
        return ["[OPTIONS]", "(TARGET | -- COMMAND...)"]


def _joined(args: list[str]) -> list[str]:
    joined: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        joined.append(word)
        if word == "--versions":
            versions = []
            # The last word may be the TARGET: a file in a folder.
            while rest and _VERSION.fullmatch(rest[0]) and ":" not in rest[0]:
                versions.append(rest.pop(0))
            joined.append(",".join(versions))
    return joined


def subject_words(ctx: click.Context, target: str | None) -> tuple[str, tuple[str, ...]]:
    """The TARGET, or the words of the script's command line; the other one is empty.

    Raises:
      TargetError: there are both, or neither.
    """
    command: tuple[str, ...] | None = ctx.meta.get(_COMMAND)
    if command is not None and target is not None:
        raise TargetError(
            f"There is a TARGET, {target}, and a command after --.", hint="Give one of them."
        )
    if command is None and target is None:
        raise TargetError(
            "Nothing is named to look at.",
            hint="Name a TARGET, or write a command after --: -- python train.py.",
        )
    if command is not None and not command:
        raise TargetError("There is no command after --.", hint="Write -- python train.py.")
    return target or "", command or ()


def arguments_of(ctx: click.Context) -> tuple[str, ...]:
    """The command line as it was typed, without the script's."""
    words: tuple[Any, ...] = tuple(ctx.obj)
    return words[: words.index("--")] if "--" in words else words
