"""What `upgrade` and `bisect` look at, and how their command lines name it.

That is a TARGET with the options that open it, or a script whose command line follows `--`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import completing, options, upgrade_carry
from sdyscope.commands.command_help import Command
from sdyscope.errors import TargetError

if TYPE_CHECKING:
    from sdyscope.commands.upgrade_run import UpgradeSubject

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


_Function = Callable[..., int]

#: The parameters that say how a TARGET is opened.
_OPENING = tuple(option.name for option in upgrade_carry.carry.__click_params__)  # type: ignore[attr-defined]


def looks(document: str) -> Callable[[_Function], _Function]:
    """The TARGET and the options that both commands have.

    The command's function is called with a function that gives the `UpgradeSubject`, and raises
    `TargetError` where the command line names two or none. In the process that a command starts in
    an environment or a checkout, the stages of the TARGET are handed over instead.

    Args:
        document: the class of the document that `--json` prints, as `options.json` takes it.
    """

    def decorate(function: _Function) -> _Function:
        @click.argument(
            "target", metavar="[TARGET]", required=False, shell_complete=completing.targets
        )
        @click.option("--program", metavar="NAME", help="The program of a script to look at.")
        @click.option("--all", "everything", is_flag=True, help="List every difference.")
        @options.strict
        @options.json(document)
        @options.verbose
        @options.like(upgrade_carry.carry)
        @click.option("--carry", hidden=True, help="Hand the stages of TARGET over, for itself.")
        @functools.wraps(function)
        def command(*, target: str | None, carry: str | None, **parameters: Any) -> int:
            opening = {name: parameters.pop(name) for name in _OPENING}
            if carry is not None:
                page = parameters.get("page")
                return upgrade_carry.carry(
                    file=Path(carry),
                    target=target or "",
                    page=None if page is None else Path(page),
                    name=parameters["program"] or "",
                    **opening,
                )
            named = functools.partial(_subject, click.get_current_context(), target, opening)
            return function(subject=named, **parameters)

        return command

    return decorate


def _subject(ctx: click.Context, target: str | None, opening: Mapping[str, Any]) -> UpgradeSubject:
    """What a command line names.

    Raises:
        TargetError: it names a TARGET and a script, or neither.
    """
    from sdyscope.commands.upgrade_run import UpgradeSubject

    script: tuple[str, ...] | None = ctx.meta.get(_COMMAND)
    if script is not None and target is not None:
        raise TargetError(
            f"There is a TARGET, {target}, and a command after --.", hint="Give one of them."
        )
    if script is None and target is None:
        raise TargetError(
            "Nothing is named to look at.",
            hint="Name a TARGET, or write a command after --: -- python train.py.",
        )
    if script is not None and not script:
        raise TargetError("There is no command after --.", hint="Write -- python train.py.")
    words: tuple[str, ...] = tuple(ctx.obj)
    return UpgradeSubject(
        target or "",
        script or (),
        words[: words.index("--")] if "--" in words else words,
        options.lowering(**opening),
        opening["partitioner"] or "",
        "" if opening["on"] is None else opening["on"].platform,
        opening["mesh_config"] or "",
    )
