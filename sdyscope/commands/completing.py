"""What a shell offers for the words of a command line; `sdyscope completion` sets it up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

from sdyscope.errors import SdyscopeError

_Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

#: What begins the words of `--on`, and hardware of whose kind there are several.
_PLATFORMS = ("cpu:", "devices")


def _offered(
    function: Callable[[click.Context, str], Iterable[CompletionItem | str]],
) -> _Complete:
    """Offers what begins as the word does; nothing where the question can't be answered."""

    @wraps(function)
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            items = [
                CompletionItem(item) if isinstance(item, str) else item
                for item in function(ctx, incomplete)
            ]
        except SdyscopeError:
            return []
        return [item for item in items if item.type != "plain" or item.value.startswith(incomplete)]

    return complete


@_offered
def targets(_: click.Context, word: str) -> Iterable[CompletionItem | str]:
    """Reference models and files; where no model is meant, the shell lists the files itself."""
    from sdyscope.targets import model_names

    models = [name for name in model_names() if name.startswith(word)]
    if not models:
        return [CompletionItem(word, type="file")]
    return [*models, *(entry.name for entry in sorted(os.scandir(), key=lambda entry: entry.name))]


def _target(ctx: click.Context) -> str | None:
    """The TARGET of the line; click leaves words in `args` that an option without a value ends."""
    target = ctx.params.get("target") or ctx.params.get("first")
    return target or next((word for word in ctx.args if not word.startswith("-")), None)


@_offered
def mesh(ctx: click.Context, word: str) -> Iterable[str]:
    """The mesh of a reference model, and its axes one by one."""
    from sdyscope.targets import model_names, reference_model

    target = _target(ctx)
    if target not in model_names():
        return []
    axes = reference_model(target).mesh
    before = word.rpartition(",")[0]
    named = {pair.partition("=")[0] for pair in before.split(",")}
    whole = ",".join(f"{name}={size}" for name, size in axes.items())
    each = [f"{before},{name}=" if before else f"{name}=" for name in axes if name not in named]
    return each if before else [whole, *each]


@_offered
def settings(ctx: click.Context, _: str) -> Iterable[CompletionItem]:
    """The keys of `--set` of a reference model."""
    from sdyscope.targets import model_names, reference_model

    target = _target(ctx)
    if target not in model_names():
        return []
    return [
        CompletionItem(f"{setting.name}=", help=setting.help)
        for setting in reference_model(target).settings
    ]


@_offered
def hardware(_: click.Context, __: str) -> Iterable[str]:
    """Platforms, and chips that the table of hardware has."""
    from sdyscope.hardware.specs import chips

    kinds = [f"{'tpu' if chip.torus else 'cuda'}:{name}:" for name, chip in chips().items()]
    return [*_PLATFORMS, *kinds]


@_offered
def rules(_: click.Context, word: str) -> Iterable[CompletionItem]:
    """The rules of lint; the last of several."""
    from sdyscope.lint import RULES

    before = word[: word.rfind(",") + 1]
    return [CompletionItem(before + rule.name, help=rule.summary) for rule in RULES.values()]


@_offered
def ci_targets(ctx: click.Context, _: str) -> Iterable[str]:
    """The targets of the configuration of `ci`."""
    from pathlib import Path

    from sdyscope.ci import find_config, read_config

    config = ctx.params.get("config")
    read = read_config(Path(config) if config else find_config(Path.cwd()))
    return [target.name for target in read.targets]


@_offered
def pages(_: click.Context, __: str) -> Iterable[CompletionItem]:
    """The pages of the documentation."""
    from sdyscope.commands.docs import pages as all_pages

    return [CompletionItem(name) for name in all_pages()]
