"""What a command says with `--help`: its own options before those that commands share, examples."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import click

from sdyscope.errors import did_you_mean

#: The groups of options that commands share, in the order in which help lists them.
THE_PROGRAM = "The program"
THE_ANSWER = "Output"


#: A hyphen at which no line is broken; it is printed as any other.
_KEPT = "\N{NON-BREAKING HYPHEN}"


class _Formatter(click.HelpFormatter):
    """Breaks no word at its hyphens: `--mesh-config` and `all-gather` are copied."""

    def write(self, string: str) -> None:
        super().write(string.replace(_KEPT, "-"))

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _KEPT))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        kept = [(first, second.replace("-", _KEPT)) for first, second in rows]
        super().write_dl(kept, col_max, col_spacing)


class _Context(click.Context):
    formatter_class: type[click.HelpFormatter] = _Formatter


class Shared(click.Option):
    """An option that several commands have.

    Args:
        words: its names.
        group: under which heading help lists it.
        settings: as any option has them.
    """

    def __init__(self, *words: Any, group: str = THE_PROGRAM, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.group = group


class Command(click.Command):
    """A subcommand.

    Args:
        words: as any command has them.
        examples: command lines that help shows, without the name `sdyscope`.
        has_page: whether a page of the documentation has its name.
        settings: as any command has them.
    """

    context_class: type[click.Context] = _Context

    def __init__(
        self, *words: Any, examples: Sequence[str] = (), has_page: bool = True, **settings: Any
    ) -> None:
        super().__init__(*words, **settings)
        self.examples = tuple(examples)
        self.has_page = has_page

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, then the command's own options, then those that commands share."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}sdyscope {example}\n")
        groups: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            THE_PROGRAM: [],
            THE_ANSWER: [],
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                own = THE_ANSWER if "--help" in parameter.opts else "Options"
                groups[getattr(parameter, "group", own)].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes where more is said."""
        if self.has_page:
            formatter.write(f"\n`sdyscope docs {self.name}` says more.\n")


class CommandGroup(click.Group):
    """A command whose subcommands are listed by what is asked, and loaded when they are used.

    Args:
        words: as any group has them.
        sections: what is asked, and the names of the subcommands that answer.
        load: gives the subcommand of a name.
        settings: as any group has them.
    """

    context_class: type[click.Context] = _Context

    def __init__(
        self,
        *words: Any,
        sections: Mapping[str, Sequence[str]],
        load: Callable[[str], click.Command | None],
        **settings: Any,
    ) -> None:
        super().__init__(*words, **settings)
        self.sections = sections
        self.load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All subcommands, in the order of the sections."""
        return [name for names in self.sections.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand; None where there is none of that name."""
        return self.load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is meant, and its words.

        Raises:
            click.UsageError: there is none of that name; with the one that may be meant.
        """
        word = args[0]
        if not word.startswith("-") and self.get_command(ctx, word) is None:
            ctx.fail(f"No such command {word!r}.{_meant(word, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands, a line each, in columns that all sections share."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in self.sections.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(formatter.width))
                        for name, command in commands.items()
                        if command is not None
                    ]
                )


def _meant(word: str, names: Sequence[str]) -> str:
    """What may be meant by a word that is no command."""
    # `targets` knows the models, and is not loaded for a wrong word.
    model = files("sdyscope.models") / f"{word.replace('-', '_')}.py"
    if ":" in word or os.path.exists(word) or model.is_file():
        return f" A TARGET comes after a command: sdyscope show {word}."
    return f" {did_you_mean(word, names)}".rstrip()
