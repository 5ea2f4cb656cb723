"""The report as one page: templates, styles, scripts and data put together.

What a view needs is found by its name: `reports/NAME.html.j2`, `reports/css/NAME.css` and
`reports/js/NAME.js`, and `part` of `sdyscope.page.NAME` for its data; `later` there for
data that is unpacked only when it is asked for, by its names.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from typing import Any

from sdyscope.analysis.diff.stages import ComparedStages
from sdyscope.errors import SdyscopeError
from sdyscope.facts.account import STAGES, Stage
from sdyscope.facts.program import Partitioner
from sdyscope.graph.collection import no_collection
from sdyscope.hardware.names import Hardware
from sdyscope.inspection import Inspection
from sdyscope.page import differences as report_differences
from sdyscope.page.columns import Pool, embedded
from sdyscope.page.document import Report
from sdyscope.page.templates import environment
from sdyscope.snapshots.differences import DiffDocument
from sdyscope.version import own_version
from sdyscope.words.account import account_text
from sdyscope.words.hardware import hardware_text
from sdyscope.words.mesh import MeshDocument, mesh_documents, mesh_words
from sdyscope.words.paths import shortened

#: What starts the page.
_BOOT = "base/boot.js"
#: Scripts from this size on are compressed; they are unpacked when they are first needed.
_LARGE = 32768

#: What would end, or change the reading of, the script element around a text.
_ENDS_SCRIPT = re.compile(r"</script|<!--|<script", re.IGNORECASE)
_ENDS_STYLE = re.compile(r"</style|<!--", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class View:
    """One view of the page.

    Attributes:
        name: what the address calls it.
        title: its title.
        key: the key that opens it, after `g`.
        needs_program: whether its data is made from the inspection, beside the report.
        stages: what of the account concerns it: what is not known at these stages.
    """

    name: str
    title: str
    key: str
    needs_program: bool = False
    stages: tuple[Stage, ...] = ()


#: The views in the order in which the page lists them.
VIEWS = (
    View("overview", "Overview", "o"),
    View("tensors", "Tensors", "t", stages=STAGES),
    View("graph", "Graph", "r", needs_program=True, stages=STAGES[:3]),
    View("propagation", "Propagation", "p", needs_program=True, stages=STAGES[:3]),
    View("communication", "Communication", "c", needs_program=True, stages=STAGES[:4]),
    View("memory", "Memory", "m", stages=STAGES[:4]),
    View("differences", "Differences", "d", needs_program=True, stages=STAGES[:4]),
    View("findings", "Findings", "f", stages=STAGES),
    View("source", "Source", "s", stages=STAGES[:4]),
    View("ir", "IR", "i", needs_program=True, stages=STAGES[:3]),
)


@dataclass(frozen=True, slots=True)
class _Embedded:
    """Text of a script element that is no script to the browser.

    Attributes:
        name: the module or the part.
        encoding: `text`, `json`, or `deflate`: zlib's form in base64.
        text: its text, which can't end the element.
    """

    name: str
    encoding: str
    text: str


#: What opens a line of the source: Visual Studio Code.
EDITOR = "vscode://file{file}:{line}"


@no_collection()
def page(
    report: Report, inspection: Inspection, *, editor: str = EDITOR, folder: str | None = "."
) -> str:
    """The whole page as HTML. The same report gives the same page.

    Args:
        report: the inspection as a document.
        inspection: the program, for views that look at more than the document has.
        editor: the address that opens a line, with ``{file}`` for its absolute path and ``{line}``.
        folder: the path from the page's folder to the one that its files are named from, with
            slashes: the page knows where it was opened. None for a folder that it should not name.
    """
    parts = _parts(report, inspection, {"editor": editor, "folder": folder})
    return _rendered(report.name, report.sdyscope_version, VIEWS, parts)


def differences_page(
    inspection: Inspection,
    two: Inspection | None,
    on: Hardware | str | None = None,
    other_on: Hardware | None = None,
    *,
    sides: tuple[Report, Report] | None = None,
    editor: str = EDITOR,
    folder: str | None = ".",
) -> str:
    """A page of what two programs, or one on two kinds of hardware, differ in, at each stage.

    Args:
        inspection: the first.
        two: the second; None for the first on two kinds of hardware.
        on: what to compile for; a text is why they are not compiled.
        other_on: what to compile the second side for; by default the same.
        sides: both sides as documents, whose views the page has, too; None for the differences
            alone.
        editor: the address that opens a line, as of ``page``.
        folder: the path to the folder that files are named from, as of ``page``.
    """
    meshes = (two or inspection).meshes | inspection.meshes
    pool = Pool(meshes, max((mesh.size for mesh in meshes.values()), default=1))
    differences = report_differences.differences(pool, inspection, two, on, other_on)
    documents = mesh_documents(meshes)
    views: list[_Embedded] = []
    if sides is not None:
        editing = {"editor": editor, "folder": folder}
        for side, report, program in zip("ab", sides, (inspection, two or inspection), strict=True):
            parts = _parts(report, program, editing)
            views += (replace(part, name=f"{side}/{part.name}") for part in parts)
    under = [name for name in inspection.partitioners if name not in inspection.failures]
    return _two_sides(differences, pool, documents, under, views)


def views_of(
    report: Report, inspection: Inspection, *, folder: str | None
) -> tuple[tuple[str, str, str], ...]:
    """What a page has of a program's views, to be handed to the process that writes a comparison.

    Args:
        report: as of ``page``.
        inspection: likewise.
        folder: likewise.

    Returns:
        Name, encoding and text of each of its script elements.
    """
    parts = _parts(report, inspection, {"editor": EDITOR, "folder": folder})
    return tuple((part.name, part.encoding, part.text) for part in parts)


def compared_page(
    compared: ComparedStages,
    labels: tuple[str, str],
    summary: Mapping[str, Any],
    sides: tuple[Sequence[tuple[str, str, str]], Sequence[tuple[str, str, str]]] | None = None,
) -> str:
    """A page of what one program is as two JAX, or two commits, make it.

    Args:
        compared: the comparison.
        labels: what the two are called.
        summary: what is shown above it: `lines` with their `words` and `tone`, and the `header` and
            `rows` of a table.
        sides: the views of both, as `views_of` makes them; None for the differences alone.
    """
    known = compared.compiled.b.mesh or compared.compiled.a.mesh
    meshes = {} if known is None else {"mesh": known}
    pool = Pool(meshes, 1 if known is None else known.size)
    document = {**report_differences.compared(compared, pool, labels), "summary": summary}
    documents = mesh_documents(meshes)
    views = [
        _Embedded(f"{side}/{name}", encoding, _safe(text, _ENDS_SCRIPT, name))
        for side, parts in zip("ab", sides or ((), ()), strict=True)
        for name, encoding, text in parts
    ]
    return _two_sides(document, pool, documents, [], views)


def snapshots_page(document: DiffDocument, labels: tuple[str, str]) -> str:
    """A page of what two snapshot files differ in.

    Args:
        document: the comparison, as `sdyscope diff` makes it.
        labels: what the two are called.
    """
    return _two_sides(report_differences.snapshots(document, labels), Pool({}, 1), [], [])


def _two_sides(
    differences: dict[str, Any],
    pool: Pool,
    meshes: Sequence[MeshDocument],
    partitioners: Sequence[Partitioner],
    sides: Sequence[_Embedded] = (),
) -> str:
    """A page that has the differences, and the parts of all views of both sides, where they are."""
    view = View("differences", "Differences", "d")
    title = " → ".join(differences["labels"])
    if differences["across"] == "hardware":
        title = f"{differences['name']}: {title}"
    parts = {
        "report": {
            "name": title,
            "meshes": list(map(_mesh, meshes)),
            "partitioners": partitioners,
            "headlines": [],
            "unavailable": [],
            "views": [{"name": view.name, "title": view.title, "key": view.key, "account": ""}],
        },
        view.name: differences,
        "shared": pool.document(),
    }
    views = VIEWS if sides else [view]
    labels = list(differences["labels"]) if sides else []
    embedded = chain(_packed(parts), sides)
    return _rendered(title, own_version(), views, embedded, labels)


def _rendered(
    title: str,
    sdyscope_version: str,
    views: Sequence[View],
    parts: Iterable[_Embedded],
    sides: Sequence[str] = (),
) -> str:
    """A page with these views, of one program or of both ``sides`` of a comparison."""
    own = files("sdyscope.reports")
    boot = _safe(_text(own, f"js/{_BOOT}"), _ENDS_SCRIPT, _BOOT)
    digest = base64.b64encode(hashlib.sha256(boot.encode()).digest()).decode()
    template = environment(keep_trailing_newline=True).get_template("report.html.j2")
    return template.render(
        report={"name": title, "sdyscope_version": sdyscope_version},
        views=views,
        sides=sides,
        partials=[f"{view.name}.html.j2" for view in views],
        style="\n".join(_styles(own)),
        boot=boot,
        boot_hash=f"sha256-{digest}",
        modules=list(_modules(own)),
        parts=list(parts),
    )


def _styles(own: Traversable) -> Iterator[str]:
    """`base.css`, then the others by name: a view's own come after what several use."""
    names = sorted(file.name for file in (own / "css").iterdir() if file.name.endswith(".css"))
    for name in sorted(names, key=lambda name: name != "base.css"):
        yield _safe(_text(own, f"css/{name}"), _ENDS_STYLE, name)


def _modules(own: Traversable) -> Iterator[_Embedded]:
    """The modules of the page: its own by their place in `js/`, others' as `vendor/NAME.js`."""
    folders = {f"{folder.name}/": folder for folder in (own / "js").iterdir() if folder.is_dir()}
    files_ = {
        prefix + file.name: file
        for prefix, folder in (folders | {"vendor/": own / "vendor"}).items()
        for file in folder.iterdir()
        if file.name.endswith(".js")
    }
    del files_[_BOOT]
    for name, file in sorted(files_.items()):
        text = file.read_text(encoding="utf-8")
        if len(text) >= _LARGE:
            packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
            yield _Embedded(name, "deflate", packed)
        else:
            yield _Embedded(name, "text", _safe(text, _ENDS_SCRIPT, name))


def _parts(
    report: Report, inspection: Inspection, editing: Mapping[str, str | None]
) -> Iterator[_Embedded]:
    """The data of each view, then what they share."""
    meshes = inspection.meshes
    pool = Pool(meshes, max((mesh.size for mesh in meshes.values()), default=1))
    parts = {"report": {**_report_part(report), **editing}}
    for view in VIEWS:
        name = f"sdyscope.page.{view.name}"
        if importlib.util.find_spec(name) is None:
            continue
        module = importlib.import_module(name)
        try:
            parts[view.name] = (
                module.part(report, pool, inspection)
                if view.needs_program
                else module.part(report, pool)
            )
        except SdyscopeError as error:
            parts[view.name] = {"unavailable": shortened(str(error))}
        if hasattr(module, "later"):
            parts |= module.later(report, pool, inspection)
    parts["shared"] = pool.document()
    yield from _packed(parts)


def _packed(parts: Mapping[str, Any]) -> Iterator[_Embedded]:
    for name, data in parts.items():
        text, encoding = embedded(data)
        yield _Embedded(name, encoding, text)


def _report_part(report: Report) -> dict[str, Any]:
    """What every view may need: the program, its meshes and stages."""
    return {
        "target": report.target,
        "name": report.name,
        "file": report.file,
        "loweredBy": report.lowered_by,
        "sdyscope": report.sdyscope_version,
        "meshes": list(map(_mesh, report.meshes)),
        "partitioners": report.partitioners,
        "compiledFor": hardware_text(report.hardware, report.device_kind),
        "compiledBy": report.compiled_by,
        "stages": report.stages,
        "headlines": report.headlines,
        "unavailable": report.unavailable,
        "views": [
            {
                "name": view.name,
                "title": view.title,
                "key": view.key,
                "account": account_text(report.account.at(view.stages)),
            }
            for view in VIEWS
        ],
    }


def _mesh(mesh: MeshDocument) -> dict[str, Any]:
    return {
        "name": mesh.name,
        "axes": mesh.axes,
        "devices": mesh.devices,
        "order": mesh.order,
        "words": mesh_words(mesh),
    }


def _text(own: Traversable, path: str) -> str:
    folder, _, name = path.rpartition("/")
    return (own / folder / name).read_text(encoding="utf-8")


def _safe(text: str, ends: re.Pattern[str], name: str) -> str:
    """The text, which must not end the element that it stands in."""
    match = ends.search(text)
    if match is not None:
        raise ValueError(f"reports/{name} has {match[0]!r} in it, which ends its element")
    return text
