"""`sdyscope report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sdyscope.commands import completing, opening, options, rates, snapshot_diff
from sdyscope.commands import fix as fixing
from sdyscope.commands import run as running
from sdyscope.errors import TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import Hardware
from sdyscope.process import child, output, progress
from sdyscope.terminal.messages import tell

if TYPE_CHECKING:
    from sdyscope.analysis.fix.values import Fix
    from sdyscope.analysis.profile.profile import ProfileDocument
    from sdyscope.analysis.run.values import Run
    from sdyscope.inspection import Inspection
    from sdyscope.page.document import Report

#: How many steps --run times.
_STEPS = 3

#: How many edits --fix predicts, as `sdyscope fix` does.
_PREDICTIONS = 200

#: What --format makes, and the file that it is written to by default.
FORMATS = {"html": "report.html", "markdown": "", "svg": ""}


def _environment(run: bool, fix: bool, rerun: bool, **parameters: Any) -> Mapping[str, str]:
    """Only what is run may need accelerators; edits are compared on virtual devices.

    So is a script run again: what it is looked at for is the program, not the devices.
    """
    if rerun or (fix and not run):
        return fixing.environment(rerun=rerun, **parameters)
    return running.environment(**parameters) if run else options.lowering(**parameters)


def _read_editor(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`--editor`: an address of an application with the file in it."""
    import re

    if value is not None and not re.match(
        r"(?!javascript:|data:)[a-z][a-z0-9+.-]*:.*\{file\}", value
    ):
        raise click.BadParameter(f"{value!r} is no address of an application with {{file}} in it.")
    return value


@options.command(
    environment=_environment,
    examples=(
        "report mlp -o mlp.html",
        "report mlp --format markdown",
        "report old.py:step new.py:step -o change.html",
    ),
)
@opening.target
@click.argument("second", metavar="[B]", required=False, shell_complete=completing.targets)
@options.partitioner()
@options.on_each
@click.option(
    "--no-compile",
    is_flag=True,
    help="Do not compile: no memory and no communication.",
)
@click.option(
    "--no-source",
    is_flag=True,
    help="Leave the text of your source files out of the page.",
)
@click.option(
    "--full-paths",
    is_flag=True,
    help="Name files outside the working directory by their full paths, for a page of your own: it "
    "links to them in your editor too.",
)
@click.option(
    "--editor",
    metavar="URL",
    callback=_read_editor,
    help="What opens a line of your source from the page, such as 'idea://open?file={file}"
    "&line={line}'. By default Visual Studio Code.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Also look for edits of the source that send or hold less, as `sdyscope fix` does, which "
    "takes minutes.",
)
@click.option(
    "--run",
    is_flag=True,
    help="Also run it, as `sdyscope run` does, and show what the devices held.",
)
@click.option(
    "--ran",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show what `sdyscope run --json` wrote to this file: with --processes, or in a cluster.",
)
@click.option(
    "--profile",
    "trace",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Show what a trace measured, as `sdyscope profile` takes it: of each line, of each op and "
    "collective beside what is predicted, and of a step over time.",
)
@rates.traces("Another trace, whose rates are used for estimates, as in `sdyscope cost`.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="By default by the name of the file, else html; --json writes JSON.",
)
@click.option(
    "-o",
    "--output",
    "paths",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write to this file. By default html goes to report.html, Markdown and JSON to standard "
    "output. For svg a folder, or FILE.svg for one picture: what a step communicates, or what "
    "--tensor names. Can be repeated: -o step.html -o step.md.",
)
@click.option(
    "--tensor",
    metavar="NAME",
    help="Draw this tensor's placement as SVG: a pytree path, or what `sdyscope explain` takes.",
)
@options.strict
@options.json("page.document:Report")
def command(
    target: opening.Opening,
    second: str | None,
    partitioners: tuple[Partitioner, ...],
    on: tuple[Hardware, ...],
    no_compile: bool,
    no_source: bool,
    full_paths: bool,
    editor: str | None,
    fix: bool,
    run: bool,
    ran: Path | None,
    trace: Path | None,
    calibrate: tuple[str, ...],
    form: str | None,
    paths: tuple[Path, ...],
    tensor: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Write the whole inspection as one page that opens offline.

    The page needs no network and no server: open it from the disk, attach it to a pull request.
    Markdown fits a pull request's comment or a step's summary; JSON is what both are made of. SVG
    is a folder of pictures: each placement that arguments have, and what a step communicates. One
    of them alone is a file.

    With B, a second target, the page shows their differences, by where they begin, and every view
    of both; likewise for one target with --on given twice. Of two snapshot files it shows the
    differences.
    """
    from sdyscope.page import document as report
    from sdyscope.words import paths as path_words

    click.get_current_context().with_resource(path_words.full_paths(full_paths))
    if on and no_compile:
        raise TargetError(
            "--on names hardware to compile for, and --no-compile does not compile.",
            hint="Leave one of them out.",
        )
    path, *others = paths or (None,)
    if others and (form is not None or as_json or second is not None or len(on) > 1):
        raise TargetError(
            "Several files are one program in the formats of their names.",
            hint="Give -o once, or leave --format, --json, B and the second --on out.",
        )
    if as_json and form is not None:
        raise TargetError(f"--json and --format {form} exclude each other.", hint="Leave one out.")
    chosen = form or ("json" if as_json else "svg" if tensor else _form_of(path))
    if chosen == "svg" and path is None:
        raise TargetError("SVG output is several files.", hint="Name a folder or a file with -o.")
    if tensor is not None and (chosen != "svg" or second is not None or not _is_picture(path)):
        raise TargetError("--tensor draws one picture.", hint="Leave it out, or name -o FILE.svg.")
    if calibrate and trace is None:
        raise TargetError(
            "--calibrate is for what --profile has measured.",
            hint="Name a trace with --profile, or use `sdyscope cost`.",
        )
    if run and ran is not None:
        raise TargetError("--ran shows a finished run, --run makes another.", hint="Leave one out.")
    if len(on) > 2:
        raise TargetError("--on takes one value per side.", hint="Give it once or twice.")
    snapshots = _of_snapshots(target.word, second)
    if second is not None or len(on) > 1:
        if chosen != "html" or run or ran or fix or trace:
            raise TargetError(
                "Two targets make a page of their differences.",
                hint="Leave --format, --json, --fix, --profile and --run out, or use "
                "`sdyscope diff`.",
            )
        differences = path or Path("differences.html")
        if snapshots is not None:
            return _written(differences, snapshots)
        content, sides = _of_two(
            target,
            second,
            partitioners=partitioners,
            on=on,
            compiled=not no_compile,
            source_text=not no_source,
            editor=editor,
            folder=path_words.page_folder(differences, named=full_paths),
        )
        _written(differences, content)
        return _not_known(sides, strict=strict)
    inspection = target.inspection(partitioners)
    if tensor is not None and path is not None:
        from sdyscope.page import svg as report_svg

        return _written(path, report_svg.tensor_svg(inspection, tensor).encode())
    bench = target.bench(inspection) if fix else None
    read_back = None if ran is None else _read(ran, inspection)
    profile = None if trace is None else _profile(trace, calibrate, inspection, on)
    whole = report.document(
        inspection,
        target.word,
        on=on[0] if on else None,
        compiled=not no_compile,
        fix=(lambda: _fix(bench, on)) if bench else None,
        run=(lambda: read_back or _run(inspection)) if run or read_back else None,
        profile=profile,
        source_text=not no_source,
        notify=progress.step,
    )
    for file, chosen_form in ((path, chosen), *((other, _form_of(other)) for other in others)):
        if chosen_form == "svg" and _is_picture(file):
            _written(file, _communication(whole))
        elif chosen_form == "svg" and file is not None:
            _pictures(file, whole, inspection)
        else:
            default = FORMATS.get(chosen_form)
            where = file or (Path(default) if default else None)
            folder = "." if where is None else path_words.page_folder(where, named=full_paths)
            _written(where, _content(chosen_form, whole, inspection, editor, folder))
    return _not_known([whole], strict=strict)


def _not_known(reports: Sequence[Report], *, strict: bool) -> int:
    """Says what could not be computed and what is not known, of two sides whose it is."""
    from sdyscope.terminal.answer import say_account
    from sdyscope.words.account import unavailable_text

    said: set[str] = set()
    for report in reports:
        for missing in report.not_in_account:
            words = unavailable_text(missing.stage, missing.partitioner, missing.reason)
            if missing.asked and words not in said:
                said.add(words)
                tell(words)
        say_account(report.account)
    return 1 if strict and any(report.account for report in reports) else 0


def _written(where: Path | None, content: bytes) -> int:
    here = output.answers()
    if where is None or str(where) == "-":
        here.write_bytes(content)
        return 0
    output.write_atomically(where, content)
    here.write(f"{where}: {len(content):,} bytes")
    return 0


def _form_of(path: Path | None) -> str:
    endings = {".md": "markdown", ".markdown": "markdown", ".json": "json", ".svg": "svg"}
    return endings.get(path.suffix.lower(), "html") if path is not None else "html"


def _is_picture(path: Path | None) -> bool:
    return path is not None and (path.suffix.lower() == ".svg" or str(path) == "-")


def _read(file: Path, inspection: Inspection) -> Run:
    """A run that was, of this program."""
    from sdyscope.page.run_document import check_run_of, read_run

    run = read_run(file)
    check_run_of(run, inspection.name, inspection.tensors, file)
    return run


def _profile(
    trace: Path, calibrate: Sequence[str], inspection: Inspection, on: Sequence[Hardware]
) -> ProfileDocument:
    """What a trace measured of the program."""
    from sdyscope.analysis.profile.profile import profile_document
    from sdyscope.stages.executed.traces import read_trace

    return profile_document(
        read_trace(trace),
        inspection,
        on=on[0] if on else None,
        calibration=rates.calibration(calibrate, inspection.meshes.values()),
    )


def _fix(bench: opening.Bench, on: Sequence[Hardware]) -> Fix:
    """Edits of its source that pay."""
    from sdyscope.analysis.fix.effort import Effort

    return bench.fix(on=on[0] if on else None, effort=Effort(predictions=_PREDICTIONS))


def _run(inspection: Inspection) -> Run:
    """The program on the devices there are, a few steps of it."""
    from sdyscope.stages.executed.devices import devices_needed, more_cpu_devices

    if inspection.program is not None:
        needed = devices_needed(inspection.program)
        more_cpu_devices(max(child.VIRTUAL, needed))
    return inspection.run(steps=_STEPS, devices=running.devices_for(inspection))


def _pictures(folder: Path, report: Report, inspection: Inspection) -> None:
    """Writes each picture into a folder, and says which."""
    import re

    from sdyscope.page import svg as report_svg

    pictures: dict[str, str] = {}
    placements = () if inspection.is_compiled else report_svg.placements(inspection)
    for name, picture in placements:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("_.")[:80] or "argument"
        known = sum(other == plain or other.startswith(f"{plain}~") for other in pictures)
        pictures[f"{plain}~{known + 1}" if known else plain] = picture
    if report.comms is not None:
        pictures["communication"] = report_svg.communication_svg(report.comms)
    output.make_folder(folder)
    for name, picture in pictures.items():
        output.write_atomically(folder / f"{name}.svg", picture)
        output.answers().write(str(folder / f"{name}.svg"))


def _communication(report: Report) -> bytes:
    """What a step communicates, as one picture."""
    from sdyscope.page import svg as report_svg

    if report.comms is None:
        raise TargetError(
            "What a step communicates is not known: it was not compiled.",
            hint="Leave --no-compile out, or name a tensor with --tensor.",
        )
    return report_svg.communication_svg(report.comms).encode()


def _content(
    form: str, report: Report, inspection: Inspection, editor: str | None, folder: str | None
) -> bytes:
    from sdyscope.page import markdown as report_markdown
    from sdyscope.page import page as report_page
    from sdyscope.terminal import document

    match form:
        case "json":
            return document.encode(report)
        case "markdown":
            return report_markdown.markdown(report).encode()
    return report_page.page(
        report, inspection, editor=editor or report_page.EDITOR, folder=folder
    ).encode()


# --- differences: report A B ----------------------------------------------------------------------


def _of_snapshots(first: str, second: str | None) -> bytes | None:
    """The page of two snapshot files; None where neither is one.

    Raises:
        SdyscopeError: only one of them is a snapshot, or one is damaged.
    """
    from sdyscope.page import page as report_page

    difference = snapshot_diff.between(first, second, at="lowered")
    if difference is None or second is None:
        return None
    return report_page.snapshots_page(difference, (first, second)).encode()


def _of_two(
    target: opening.Opening,
    second: str | None,
    *,
    partitioners: Sequence[Partitioner],
    on: Sequence[Hardware],
    compiled: bool,
    source_text: bool,
    editor: str | None,
    folder: str | None,
) -> tuple[bytes, tuple[Report, Report]]:
    """The page of two targets, or of one on two kinds of hardware.

    Args:
        target: the first.
        second: the word of the other; None for the same.
        partitioners: which to lower under.
        on: what to compile for; two for each its own.
        compiled: whether to compile.
        source_text: whether the text of the author's files may be in it.
        editor: the address that opens a line; None for the usual one.
        folder: the path from the page's folder to the one that its files are named from.

    Returns:
        The page, and the documents of both sides.

    Raises:
        SdyscopeError: one of them can't be opened or lowered.
    """
    from sdyscope.page import document as report
    from sdyscope.page import page as report_page
    from sdyscope.words.account import NO_COMPILE

    def opened(word: str) -> Inspection:
        read = opening.Opening(word, module=target.module)
        built = opening.Opening(word, target.mesh, target.settings)
        opened = (read if opening.is_read(word) else built).opened(partitioners)
        return opening.single(opened.with_mesh(target.mesh))

    inspection = opened(target.word)
    two = None if second is None else opened(second)
    other = on[1] if len(on) > 1 else None
    what = (on[0] if on else None) if compiled else NO_COMPILE

    def side(program: Inspection, word: str, hardware: Hardware | None) -> Report:
        return report.document(
            program,
            word,
            on=hardware,
            compiled=compiled,
            source_text=source_text,
            notify=progress.step,
        )

    first_on = on[0] if on else None
    sides = (
        side(inspection, target.word, first_on),
        side(two or inspection, second or target.word, other or first_on),
    )
    page = report_page.differences_page(
        inspection,
        two,
        what,
        other,
        sides=sides,
        editor=editor or report_page.EDITOR,
        folder=folder,
    )
    return page.encode(), sides
