"""The options that commands share, each one a decorator with the same words everywhere."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

import click

from sdyscope.commands import completing, mesh_choice
from sdyscope.commands.command_help import THE_ANSWER, Command, Shared
from sdyscope.errors import TargetError
from sdyscope.facts.program import PARTITIONERS as PARTITIONERS
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import FORMS, Devices, Hardware, parse_hardware
from sdyscope.process import child

_Function = TypeVar("_Function", bound=Callable[..., Any])


def lowering(
    mesh: Mapping[str, int] | None = None,
    mesh_config: str | tuple[str, ...] | None = None,
    devices: int | Devices | None = None,
    target: str | None = None,
    rerun: bool = False,
    **_: Any,
) -> dict[str, str]:
    """Variables of a command that starts no accelerator; see `child.lowering`.

    A mesh that is given is abstract: only a program that makes its own finds the devices. A script
    that is run again gets as many as it had: it may take all that it finds.
    """
    if rerun and target is not None and (recorded := _recorded_devices(target)):
        return child.lowering(recorded)
    if not isinstance(devices, Devices) or mesh is not None or mesh_config:
        return child.lowering()
    return child.lowering(devices.count)


def _recorded_devices(word: str) -> int:
    """For how many devices the programs of a recorded run are; 0 where none is there."""
    from sdyscope.facts.recorded import read_record
    from sdyscope.targets import recorded_folder

    folder = recorded_folder(word)
    programs = () if folder is None else read_record(folder).programs
    return max((program.devices or 0 for program in programs), default=0)


def rerun(function: _Function) -> _Function:
    """`--rerun`: the program of a recorded script, made again; the parameter is `rerun`."""
    return click.option(
        "--rerun",
        cls=Shared,
        is_flag=True,
        help="Of a recorded run: run its script again, up to where JAX lowers the program, and "
        "look at that. What the script does before, it does again.",
    )(function)


def command(
    environment: Callable[..., Mapping[str, str]] = lowering,
    launcher: Callable[..., Callable[..., int]] | None = None,
    cls: type[Command] = Command,
    examples: Sequence[str] = (),
) -> Callable[[Callable[..., int]], click.Command]:
    """Makes a subcommand of a function that returns the exit status; it runs in a child process.

    The first line of the function's docstring is its line in `sdyscope --help`.

    Args:
        environment: makes of the command's parameters the variables that the child gets unless the
            user has set them. By default no accelerator is started.
        launcher: what starts the child, of the command's parameters; by default `child.run`.
        cls: reads its command line.
        examples: command lines that help shows, without the name `sdyscope`.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        wrapped = verbose(child.in_child(environment, launcher)(function))
        return click.command(cls=cls, examples=examples)(wrapped)

    return decorate


def verbose(function: _Function) -> _Function:
    """`--verbose`, whether what the compiler logs is passed on."""
    return click.option(
        "--verbose",
        cls=Shared,
        group=THE_ANSWER,
        is_flag=True,
        help="Also print the compiler's log, and the traceback of an error in your program.",
    )(function)


def target(function: _Function) -> _Function:
    """The TARGET argument; the parameter `target` is the word as it was typed."""
    return click.argument("target", metavar="TARGET", shell_complete=completing.targets)(function)


def mesh(function: _Function) -> _Function:
    """`--mesh data=4,model=-1`, `--mesh-config`, `--mesh-selector` and `--devices`.

    The parameter `mesh` is a dict of axis sizes in order, or None; see `mesh_choice`. Where a
    command has a `--devices` of its own, a size of -1 is inferred from that.
    """

    def read(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, int] | None:
        return None if value is None else mesh_sizes(value)

    has_devices = any(
        parameter.name == "devices" for parameter in getattr(function, "__click_params__", ())
    )
    several = mesh_choice.takes_other(function)
    decorated: Any = mesh_choice.choosing(function, has_devices)
    if not has_devices:
        decorated = click.option(
            "--devices",
            cls=Shared,
            metavar="N",
            callback=mesh_choice.read_devices,
            help="The number of devices, such as 16, or 4096x8slices: a size of -1 is inferred "
            "from it, and a program that makes its own mesh finds this many. By default that "
            "of --on, else of the target's own mesh; a program that makes its own finds 8.",
        )(decorated)
    for option in (
        click.option(
            "--mesh-selector",
            cls=Shared,
            metavar="NAME",
            help="Choose among the mesh rules of --mesh-config, such as tpu-v5p-4096-8.",
        ),
        click.option(
            "--mesh-config",
            cls=Shared,
            metavar="FILE[:SECTION]",
            multiple=several,
            help="A mesh configuration, TOML or YAML, instead of --mesh; see `sdyscope docs mesh`."
            + " Given twice, one per side." * several,
        ),
        click.option(
            "--mesh",
            cls=Shared,
            shell_complete=completing.mesh,
            metavar="AXIS=SIZE,...",
            callback=read,
            help="The mesh to use, such as data=4,model=2; one size can be -1, inferred. "
            "By default the target's own.",
        ),
    ):
        decorated = option(decorated)
    chosen: _Function = decorated
    return chosen


def mesh_sizes(text: str) -> dict[str, int]:
    """The axis sizes of `data=4,model=2`, in order; -1 for one that is to be inferred.

    Raises:
        click.BadParameter: it is no mesh.
    """
    from sdyscope.mesh_config import parse_mesh_shape

    try:
        shape = parse_mesh_shape(text)
    except TargetError as error:
        raise click.BadParameter(error.message[:1].lower() + error.message[1:]) from error
    return dict(zip(shape.axis_names, shape.ici, strict=True))


def choice(literal: Any) -> click.Choice[str]:
    """The words of a `Literal` type, which the parameter is then annotated with."""
    return click.Choice(get_args(literal))


def partitioner(default: str = "both") -> Callable[[_Function], _Function]:
    """`--partitioner shardy|gspmd|both`; the parameter `partitioners` is a tuple of one or two."""

    def read(_: click.Context, __: click.Parameter, value: str) -> tuple[Partitioner, ...]:
        return PARTITIONERS[value]

    return click.option(
        "--partitioner",
        "partitioners",
        cls=Shared,
        type=click.Choice(list(PARTITIONERS)),
        default=default,
        show_default=True,
        callback=read,
        help="The partitioner to show.",
    )


def one_partitioner(
    about: str, otherwise: str = "shardy, or that of the file"
) -> Callable[[_Function], _Function]:
    """`--partitioner` where most often one is looked at; `partitioner` is None where none is named.

    Args:
        about: what it is for, a sentence of the option's help.
        otherwise: what is looked at without the option.
    """
    return click.option(
        "--partitioner",
        cls=Shared,
        type=click.Choice(list(PARTITIONERS)),
        help=f"{about} By default {otherwise}.",
    )


def on(function: _Function) -> _Function:
    """`--on tpu:v5e:4x4`, what to compile for; the parameter `on` is a `Hardware`, or None."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> Hardware | None:
        return None if value is None else _hardware(value)

    return click.option(
        "--on",
        cls=Shared,
        shell_complete=completing.hardware,
        metavar="HARDWARE",
        callback=read,
        help=f"Hardware to compile for, present or not: {FORMS}. By default as many virtual CPU "
        "devices "
        "as the mesh has.",
    )(function)


def on_each(function: _Function) -> _Function:
    """`--on`, once for both of two sides or once for each; the parameter `on` is a tuple."""

    def read(_: click.Context, __: click.Parameter, words: Sequence[str]) -> tuple[Hardware, ...]:
        return tuple(map(_hardware, words))

    return click.option(
        "--on",
        cls=Shared,
        shell_complete=completing.hardware,
        multiple=True,
        metavar="HARDWARE",
        callback=read,
        help=f"Hardware to compile for, present or not: {FORMS}. Given twice, one per side. "
        "By default as many virtual CPU devices as the mesh has.",
    )(function)


def _hardware(word: str) -> Hardware:
    with usage():
        return parse_hardware(word)


def like(other: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """The options of another function, whose parameters the command's function hands on to it."""

    def decorate(function: _Function) -> _Function:
        own = getattr(function, "__click_params__", [])
        function.__click_params__ = [*getattr(other, "__click_params__", []), *own]  # type: ignore[attr-defined]
        return function

    return decorate


def top(default: int, what: str) -> Callable[[_Function], _Function]:
    """`--top N`, how many rows of a table to show; 0 for all."""
    return click.option(
        "--top",
        type=click.IntRange(min=0),
        default=default,
        show_default=True,
        metavar="N",
        help=f"How many {what}; 0 for all.",
    )


def settings(function: _Function) -> _Function:
    """`--set key=value`, repeatable; the parameter `settings` is a dict of text values."""
    return click.option(
        "--set",
        "settings",
        cls=Shared,
        shell_complete=completing.settings,
        multiple=True,
        metavar="KEY=VALUE",
        callback=read_settings,
        help="A setting of the target, such as layers=80. Can be repeated.",
    )(function)


def read_settings(_: click.Context, __: click.Parameter, words: Sequence[str]) -> dict[str, str]:
    """Reads `layers=80`, several times."""
    return dict(pair(word, "key=value") for word in words)


def strict(function: _Function) -> _Function:
    """`--strict`: whether anything that is not known makes the exit status 1."""
    return click.option(
        "--strict",
        cls=Shared,
        group=THE_ANSWER,
        is_flag=True,
        help="Exit with status 1, not 0, if anything is not known: not understood, impossible, "
        "refused, left out, approximate or not compared.",
    )(function)


class Json(Shared):
    """The option `--json`.

    Args:
        words: its names.
        document: the class of the document that is then printed, as `module:class` within sdyscope.
        settings: as any option has them.
    """

    def __init__(self, *words: Any, document: str, **settings: Any) -> None:
        super().__init__(*words, group=THE_ANSWER, **settings)
        self.document = document

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What help says of it, with the page of the form."""
        record = super().get_help_record(ctx)
        return record and (record[0], record[1].replace("NAME", ctx.info_name or ""))


def json(document: str) -> Callable[[_Function], _Function]:
    """`--json`; the parameter `as_json` is whether it was given.

    Args:
        document: the class of the document that is then printed, as `module:class` within sdyscope;
            it is loaded only for its schema.
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def answering(*, as_json: bool, as_brief: bool, **parameters: Any) -> Any:
            if not as_brief:
                return function(as_json=as_json, **parameters)
            from sdyscope.terminal.document import brief

            # The object of the root context is the command line itself: see __main__.run_here.
            with brief(click.get_current_context().obj):
                return function(as_json=True, **parameters)

        decorated: Any = answering
        for option in (
            click.option(
                "--brief",
                "as_brief",
                cls=Shared,
                group=THE_ANSWER,
                is_flag=True,
                help="Print the JSON document in fewer than 4,000 tokens: long lists and texts are "
                "cut, and what was cut is counted.",
            ),
            click.option(
                "--json",
                "as_json",
                cls=Json,
                document=document,
                is_flag=True,
                help="Print one JSON document instead of tables; `sdyscope docs schema/NAME` "
                "describes it.",
            ),
        ):
            decorated = option(decorated)
        chosen: _Function = decorated
        return chosen

    return decorate


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """Reads the value of an option: what a parser refuses is wrong usage.

    Raises:
        click.BadParameter: in place of a `TargetError`.
    """
    try:
        yield
    except TargetError as error:
        raise click.BadParameter(str(error).replace("\n", " ")) from error


def byte_count(_: click.Context, __: click.Parameter, word: str | None) -> int | None:
    """Reads the bytes of an option, such as `16GiB`."""
    from sdyscope.hardware.rates import parse_size

    with usage():
        return None if word is None else parse_size(word)


def pair(word: str, form: str) -> tuple[str, str]:
    """A word of the form `KEY=VALUE`.

    Raises:
        click.BadParameter: it has another form.
    """
    key, equals, value = (part.strip() for part in word.partition("="))
    if not (key and equals and value):
        raise click.BadParameter(f"{word!r} does not have the form {form}.")
    return key, value
