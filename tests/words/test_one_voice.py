"""Whatever the form of output, what is said is said in the same words.

Commands run as on the command line, on one inspection a program, so that nothing is made twice.
"""

import io
import json
import re
import zlib
from base64 import b64decode
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from sdyscope import __main__
from sdyscope.ci import Config
from sdyscope.ci.forms import FORMS, Reader
from sdyscope.ci.judge import judge
from sdyscope.ci.run import summed
from sdyscope.commands import opening
from sdyscope.page.markdown import sentence
from sdyscope.process import child, output
from sdyscope.snapshots import Snapshot, read_snapshots
from sdyscope.targets import model_names
from sdyscope.values.source import SourceLocation
from sdyscope.words.differences import (
    across_text,
    compiled_notes,
    follows_text,
    lowered_notes,
    not_compared_text,
)
from sdyscope.words.findings import Finding, folded
from tests.ci_cases import target
from tests.commands.test_comms import SUB_AXES

pytestmark = pytest.mark.compiles

SMALL = (
    *("layers=1", "d_model=64", "heads=4", "head_dim=16", "d_ff=64", "vocab=64", "sequence=16"),
    "optimizer=sgd",
)

#: What is asked of each: the TARGET, what of it is set, and the values to explain.
PROGRAMS = {
    "mlp": ("mlp", (), ("step/block0/bh,hf->bf/dot_general", "params['w1']")),
    "fsdp-transformer": (
        "fsdp-transformer",
        (*SMALL, "constrained=false"),
        ("params['embedding']", "result[2]"),
    ),
    "shardy-guide": ("shardy-guide", (), ("result",)),
    "rng-gotcha": ("rng-gotcha", (), ("result",)),
    "parallel-3d": ("parallel-3d", ("layers=2", "optimizer=sgd"), ("result[2]",)),
    "levanter-gpt2": ("levanter-gpt2", ("layers=1",), ("result[2]",)),
    "axlearn-transformer": (
        "axlearn-transformer",
        ("layers=2",),
        ("result[0].model['emb']['weight']",),
    ),
    "indivisible": ("docs/indivisible.py:program", (), ("result",)),
    "sub-axes": ("{folder}/sub_axes.py:program", (), ("result[0]",)),
}


@dataclass(frozen=True)
class Said:
    """What a program's forms of output say.

    Attributes:
        documents: by command line, what `--json` prints.
        terminal: by command line, what is printed without it, with single spaces.
        page: the data of the page, by view.
        markdown: the report as Markdown.
        snapshot: what each stage says of each tensor, and of collectives, under Shardy.
        ci: what `ci` writes of its check and lint, by form.
    """

    documents: dict[str, dict]
    terminal: dict[str, str]
    page: dict[str, object]
    markdown: str
    snapshot: Snapshot
    ci: dict[str, str]

    def printed(self, words, command):
        """Whether the terminal says the words, whose file's name it may say once for all."""
        shown = self.terminal[command]
        return plain(words) in shown or lineless(plain(words)) in lineless(shown)

    def in_page(self, words, view):
        """Whether some text of a view is these words, or begins with them."""
        return any(text.startswith(words) for text in texts(self.page[view]))


def plain(words):
    """Words as a terminal of any width prints them: with single spaces, and short file names."""
    return " ".join(words.replace(f"{Path.cwd()}/", "").split())


def lineless(words):
    """Words without the names of files before lines."""
    return re.sub(r"\S+\.py:(?=\d)|\bline (?=\d)", "", words)


def texts(data):
    """Every text in a page's data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for each in data.values():
            yield from texts(each)
    elif isinstance(data, list):
        for each in data:
            yield from texts(each)


@pytest.fixture(scope="module")
def say(tmp_path_factory):
    """Gives what the forms of a program's output say."""
    folder = tmp_path_factory.mktemp("voice")
    (folder / "sub_axes.py").write_text(SUB_AXES)
    found = {}

    def said(name):
        if name not in found:
            word, settings, values = PROGRAMS[name]
            found[name] = forms(word.format(folder=folder), settings, values, folder / name)
        return found[name]

    return said


def forms(word, settings, values, folder):
    """Runs every command that says anything of a program."""
    commands = {
        "check": (),
        "lint --partitioner both": (),
        "comms": ("--all",),
        "cost --partitioner both": (),
        "memory --partitioner both": ("--top", "0"),
        **{f"diff --at {stage}": ("--all",) for stage in ("lowered", "propagated", "compiled")},
        **{f"explain {value}": ("--all",) for value in values},
    }
    folder.mkdir()
    opened = {}
    open_target = opening.Opening.opened

    def once(target, partitioners=("shardy", "gspmd"), **options):
        # A partitioner that JAX does not lower the program for is no reason to look at it twice.
        if partitioners not in opened:
            opened[partitioners] = open_target(target, partitioners, **options)
        return opened[partitioners]

    documents, terminal = {}, {}
    given = [each for setting in settings for each in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening.Opening, "opened", once)
        patch.setattr(child, "_serving", [None])
        run = Runner(patch)
        for command, more in commands.items():
            first, *rest = command.split(" ", 1)
            words = [first, word, *(rest if first == "explain" else " ".join(rest).split()), *given]
            document = run(*words, "--json")
            documents[command] = json.loads(document) if document else {}
            terminal[command] = " ".join(run(*words, *more).split()) if document else ""
        run("report", word, *given, "-o", folder / "page.html")
        run("report", word, *given, "-o", folder / "report.md")
        stages = "requested,lowered,propagated,compiled"
        golden = run("snapshot", word, *given, "--stages", stages)
    inspection = opened["shardy", "gspmd"].programs[0]
    return Said(
        documents,
        terminal,
        dict(embedded((folder / "page.html").read_text())),
        (folder / "report.md").read_text(),
        read_snapshots(golden)[0],
        of_ci(inspection, folder),
    )


class Runner:
    """Runs command lines in this process."""

    def __init__(self, patch):
        self.patch = patch

    def __call__(self, *words):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="utf-8")
        self.patch.setattr(output, "_kept_apart", [output.Output(stream, False, None)])
        status = __main__.run_here([str(word) for word in words])
        stream.flush()
        # What a program can't be asked (a partitioner that refuses it) says nothing.
        return raw.getvalue().decode() if status in (0, 1) else ""


def embedded(page):
    """The data of each view of a page."""
    parts = re.findall(
        r'<script type="application/json"[^>]*data-part="([^"]+)"[^>]*data-encoding="([^"]+)"[^>]*>'
        r"(.*?)</script>",
        page,
        re.S,
    )
    for name, encoding, text in parts:
        raw = zlib.decompress(b64decode(text)).decode() if encoding == "deflate" else text
        yield name, json.loads(raw)


def of_ci(inspection, folder):
    """What `ci` writes of a program whose check and lint are asked for."""
    (folder / "pyproject.toml").write_text("")
    asked = target(folder, "step", 1, snapshot=None, budgets=None)
    asked = replace(asked, partitioners=("shardy", "gspmd"))
    config = Config(folder / "pyproject.toml", (asked,), (), {})
    outcome = judge(config, asked, inspection)
    found = summed(config, [outcome.target], (), jax=jax.__version__, seconds=0.0)
    return {
        name: FORMS[name](found, Reader(notes=True)).decode()
        for name in ("text", "summary", "sarif")
    }


def findings(document):
    """The findings of a document, as values."""
    return [
        Finding(**{**finding, "source": finding["source"] and SourceLocation(**finding["source"])})
        for finding in document["findings"]
    ]


#: Those that take longest, only with `-m thorough`.
LARGE = ("parallel-3d", "levanter-gpt2", "axlearn-transformer")


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.thorough if name in LARGE else ()) for name in PROGRAMS
    ]
)
def said(request, say):
    return say(request.param)


def test_causes(said):
    """Why a collective is there: in the terminal of the first of those that are told in one row."""
    words = {
        part["origin"]["words"]
        for program in said.documents["comms"]["programs"]
        for collective in program["collectives"]
        for part in collective["parts"]
        if part["origin"] is not None
    }
    matches = re.findall(r"because (.*?)(?:; and [\d,]+ more|$)", said.terminal["comms"])
    assert bool(words) == bool(matches) or all("not found" in each for each in words)
    for each in words:
        assert said.in_page(each, "communication"), each
    assert sum(said.printed(each, "comms") for each in words) >= len(matches) > 0 or not matches


def test_collectives_of_one_row(said):
    """The page's rows are those that the terminal prints, of the partitioner that it prints."""
    rows = [row for row in said.page["communication"]["rows"] if row["program"] == 0]
    for row in rows:
        for words in (row["why"], row["tensor"], row["scope"], row["over"]):
            assert said.printed(words, "comms"), words
    collectives = said.documents["comms"]["programs"][0]["collectives"]
    assert sum(row["of"] for row in rows) == len(collectives)


def snapshot_texts(said, stage):
    """What the snapshot says at a stage, by kind and name, of what is there once."""
    snapshot = said.snapshot.at((stage,))
    return {
        (key.kind, key.name): items[0].cells[0].text
        for key, items in snapshot.items.items()
        if len(items) == 1 and len(items[0].cells) == 1
    }


def test_shardings_in_a_snapshot(said):
    """An argument or result has the words that `explain` has of it."""
    written = snapshot_texts(said, "propagated")
    compared = 0
    for command, document in said.documents.items():
        for value in document.get("values", ()) if command.startswith("explain") else ():
            text = written.get((value["value"]["kind"], value["value"]["name"]))
            decided = value["decided"].get("shardy")
            if text is not None and decided is not None:
                assert text == decided["sharding"]["short"], value["value"]["name"]
                compared += 1
    assert compared or not any(kind == "result" for kind, _ in written)


def test_collectives_in_a_snapshot(said):
    """The kind and axes of each are those of the terminal and of the page."""
    rows = [row for row in said.page["communication"]["rows"] if row["program"] == 0]
    ours = {f"{row['kind']} over {row['over']}" for row in rows if row["over"]}
    written = {key.over for key in said.snapshot.items if key.kind == "collective"}
    assert ours == {words for words in written if " over " in words}


def test_estimates(said):
    for program in said.page["communication"]["estimates"]["programs"]:
        for words in (*program["words"], *program["notes"]):
            assert said.printed(words, "cost --partitioner both"), words


#: How a PartitionSpec can say that a value is whole, which all stages call replicated.
WHOLE = {"P()", "P(None)", "P(None, None)", "P(None, None, None)"}


def test_memory(said):
    page, command = said.page["memory"], "memory --partitioner both"
    for program in page["holds"]:
        for row in program["savings"]:
            assert said.printed(f"{row['sharding']} {row['replicas']} {row['best']}", command), row
            assert row["sharding"] not in WHOLE, row
        told = [*([program["saved"]] if program["savings"] else []), *program["beyond"]]
        for words in told:
            assert said.printed(words[0].lower() + words[1:].rstrip("."), command), words
    for name, column in said.page["tensors"]["columns"].items():
        if name in ("compiled.shardy", "compiled.gspmd"):
            assert WHOLE.isdisjoint(texts(column)), name
    headlines = [headline["words"] for headline in said.page["report"]["headlines"]]
    titles = (page["title"], said.page["communication"]["title"])
    assert {words for words in headlines if " times the " in words} <= set(titles)


@pytest.mark.parametrize("command", ["check", "lint --partitioner both"])
def test_findings(said, command):
    told = findings(said.documents[command])
    printed = told if command == "check" else list(folded(told))
    for one in printed:
        for words in (one.message, one.expected, one.found, one.hint):
            assert said.printed(words, command), words
        assert said.in_page(one.message, "findings"), one
        if one.severity != "note":
            assert sentence(one.message) in said.markdown, one
    for one in told:
        if one.severity != "note":
            assert sentence(one.message) in said.ci["summary"], one
            assert plain(one.message) in " ".join(said.ci["text"].split()), one
        assert json.dumps(one.message)[1:-1] in said.ci["sarif"], one


def test_lowered_differences(said):
    command = "diff --at lowered"
    for program in said.documents[command].get("programs", ()):
        for lone in program["meshes"]:
            assert said.printed(lone["words"], command), lone
            assert said.in_page(lone["words"], "differences"), lone
        for words in lowered_notes(SimpleNamespace(**program)):
            assert said.printed(words, command), words
            assert said.in_page(words, "differences"), words
        for tensor in program["tensors"]:
            for side in filter(None, (tensor["a"], tensor["b"])):
                sharding = side["sharding"]
                assert said.printed(sharding["short"], command)
                assert said.in_page(sharding["short"], "differences")


def test_propagated_differences(said):
    command = "diff --at propagated"
    for program in said.documents[command].get("propagated", ()):
        for left in program["not_compared"]:
            words = not_compared_text(SimpleNamespace(**left), program["across"])
            assert said.printed(words, command), words
            assert said.in_page(words, "differences"), words
        for beginning in program["beginnings"]:
            first = beginning["begins"]
            for side in (first["a"], first["b"]):
                for words in (side["short"], side["placement"]["words"]):
                    assert said.printed(words, command), words
                    assert said.in_page(words, "differences"), words
            inputs = "; ".join(
                f"{one['name']} {one['sharding']['short']}" for one in beginning["inputs"]
            )
            assert said.printed(inputs, command), inputs
            whole = f"computed from values sharded the same way: {inputs}" if inputs else ""
            assert said.in_page(whole, "differences"), whole


def test_compiled_differences(said):
    command = "diff --at compiled"
    for program in said.documents[command].get("compiled", ()):
        where = across_text(program["across"], program["b"]["label"])
        for cause in program["causes"]:
            words = follows_text(cause["values"], cause["differences"], cause["sent"], where)
            assert said.printed(words, command), words
            assert said.in_page(words, "differences"), words
        for side in (program["a"], program["b"]):
            for words in compiled_notes(SimpleNamespace(**side)):
                assert said.printed(words, command), words
                assert said.in_page(words, "differences"), words


def test_explanations(said):
    for command, document in said.documents.items():
        if not command.startswith("explain") or not document:
            continue
        for value in document["values"]:
            for decided in value["decided"].values():
                assert said.printed(decided["sharding"]["short"], command), decided
                assert said.in_page(decided["sharding"]["short"], "propagation"), decided
            for chain in value["chains"]:
                if chain["beginning"] is not None:
                    words = chain["beginning"]["words"]
                    assert said.printed(words, command), words
                    assert said.in_page(words, "propagation"), words
                for move in chain["moves"]:
                    assert said.printed(move["rule"], command), move
                    assert said.in_page(move["rule"], "propagation"), move
            for absence in value["absences"]:
                assert said.printed(absence["words"], command), absence
                assert said.in_page(absence["words"], "propagation"), absence


def test_every_kind_of_thing_is_said(say):
    """The programs above do say something of each kind, or the tests above would be empty."""
    assert set(model_names()) <= set(PROGRAMS)
    every = [say(name) for name in PROGRAMS if name not in LARGE]
    assert any(key.kind == "collective" for one in every for key in one.snapshot.items)
    assert sum(len(one.documents["lint --partitioner both"]["findings"]) for one in every) > 5
    assert any(one.documents["check"]["findings"] for one in every)
    assert any("because" in one.terminal["comms"] for one in every)
    for stage in ("lowered", "propagated", "compiled"):
        assert any(one.documents[f"diff --at {stage}"] for one in every), stage
