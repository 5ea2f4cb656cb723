"""What `propagate` and `explain` share: whose propagation, and what if annotations were others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sdyscope.commands import options
from sdyscope.errors import TargetError

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection

_Function = TypeVar("_Function", bound=Callable[..., Any])


#: `--partitioner`, by default Shardy, or what a file is written for: then it is None.
partitioner = options.one_partitioner("The partitioner to show; GSPMD needs a compile by XLA.")


def what_if(function: _Function) -> _Function:
    """`--set-sharding`, `--priority` and `--conservative`."""
    for option in (
        click.option(
            "--conservative",
            is_flag=True,
            help="What if Shardy propagated conservatively, leaving conflicts unsharded?",
        ),
        click.option(
            "--priority",
            "priorities",
            multiple=True,
            metavar="NAME[DIM]=N",
            help="What if a dimension had this priority (0 first, the default)? Such as "
            "\"params['w1'][1]=1\". Can be repeated.",
        ),
        click.option(
            "--set-sharding",
            "shardings",
            multiple=True,
            metavar="NAME=SPEC",
            help="What if an argument, result or constraint were sharded differently? Such as "
            "\"params['w1']=P('fsdp', 'model')\", or =None to leave it to the compiler. "
            "Can be repeated.",
        ),
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class WhatIf:
    """A program with other annotations.

    Attributes:
        inspection: the program, changed where something was wished for.
        before: the program as it is; None where nothing was wished for.
        changes: the wishes, in words.
    """

    inspection: Inspection
    before: Inspection | None
    changes: tuple[str, ...]


def wished(
    inspection: Inspection,
    shardings: Sequence[str],
    priorities: Sequence[str],
    conservative: bool,
) -> WhatIf:
    """The program with what the options ask for.

    Raises:
        SdyscopeError: an option can't be read, or names no tensor, or asks for what can't be.
    """
    from sdyscope.stages.propagated.what_if import parse_priority, parse_sharding

    if conservative and "shardy" not in inspection.partitioners:
        raise TargetError(
            "Only Shardy propagates conservatively, not GSPMD.",
            hint="Ask for it with --partitioner shardy.",
        )
    wishes = [*map(parse_sharding, shardings), *map(parse_priority, priorities)]
    changes = [
        f"{wish.name} {'left to the compiler' if wish.unspecified else f'as {wish.spec}'}"
        for wish in wishes
        if wish.unspecified or wish.spec is not None
    ]
    changes += [
        f"priority {priority} for dim {dimension} of {wish.name}"
        for wish in wishes
        for dimension, priority in wish.priorities
    ]
    if conservative:
        changes.append("conservative propagation")
    if not changes:
        return WhatIf(inspection, None, ())
    changed = inspection.with_wishes(wishes) if wishes else inspection
    return WhatIf(changed, inspection, tuple(changes))
