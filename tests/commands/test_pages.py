"""What every page of the documentation shows is what the commands print, as wide as it says."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from page_files import FILES, environment

from sdyscope.stages import compat
from sdyscope.words import paths

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (*DOCS.glob("*.md"), *DOCS.glob("models/*.md"))),
]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: README and the pages of the models are as wide as a page of GitHub is, all others as a terminal.
WIDE = 98

#: What takes libtpu.
TPU = re.compile(r"--on\s+tpu")
#: Figures that are another each time: how long the names of source files are, how fast the machine
#: is, and the version.
CHANGING = (
    (re.compile(r"\([\d,]+ per minute\)"), "(N per minute)"),
    (re.compile(r"JAX\s\d+[\d.]*\w*"), "JAX"),
    (re.compile(r"^(\S+: (?:.* )?)\d[\d,]* bytes$", re.MULTILINE), r"\1N bytes"),
)
#: Where something runs, further: seconds, errors of rounding, hosts, and with these where lines and
#: columns begin; and where the repository is, for a process that is in another folder.
MEASURED = (
    # How many are tried near the best goes by a regression, whose last digits are the processor's.
    (re.compile(r"\b\d+ predicted (\(N per minute\): \d+ first, then) \d+"), r"N predicted \1 N"),
    # The last digits of a loss, and so how far it is off, are the processor's.
    (re.compile(r"\b0\.\d{6,}(?:\s+(?:0|\d\.?\d*e-\d+)(?=\s))?"), "LOSS"),
    (re.compile(r"\b\d[\d.,]* (?:s|ms|us)\b"), "TIME"),
    (re.compile(r"(?<= )\d+\.\d\d(?= )"), "TIME"),
    (re.compile(r"\b\d\.?\d*e-\d+"), "ERROR"),
    (re.compile(r"\S+, \d+(?= +4 from)"), "HOST"),
    (re.compile(r"(?<=/)\s+"), ""),
    (re.compile(re.escape(f"{ROOT}/")), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r"─+"), "─"),
)
#: The pages whose commands run something.
RUNNING = ("ci", "fix", "record", "run", "search")
#: Blocks that compile a large model, or one several times: five seconds of CPU time and more each.
THOROUGH = {
    "axlearn-transformer": (5, 6),
    "bisect": (1,),
    "comms": (1,),
    "diff": (4, 6),
    "explain": (4, 5, 6, 7),
    "fix": (1,),
    "levanter-gpt2": (3, 4, 7, 8),
    "memory": (3, 4, 5, 6),
    "parallel-3d": (4, 6),
    "record": (2,),
    "report": (1,),
    "run": (3,),
    "search": (2,),
}


@dataclass(frozen=True)
class Played:
    """A command line of a page, and what the page shows after it."""

    line: str
    shown: str


def played(block):
    """The command lines of a block, each with its output."""
    found = []
    line, shown = None, []
    goes_on = False
    for text in block.splitlines():
        if goes_on:
            line += " " + text.strip()
        elif text.startswith("$ "):
            if line is not None:
                found.append(Played(line, "\n".join(shown)))
            line, shown = text[2:], []
        else:
            shown.append(text)
            continue
        goes_on = line.endswith("\\")
        line = line.removesuffix("\\").rstrip()
    found.append(Played(line, "\n".join(shown)))
    return found


def marks(page, number, block):
    """What the block takes."""
    if number in THOROUGH.get(page.stem, ()):
        return pytest.mark.thorough
    return pytest.mark.libtpu if TPU.search(block) else ()


BLOCKS = [
    pytest.param(
        page,
        number,
        played(block),
        id=f"{page.stem}-{number}",
        marks=marks(page, number, block),
    )
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1)
]


def unchanging(text, measured):
    """The text without what is another each time."""
    for pattern, name in (*CHANGING, *(MEASURED if measured else ())):
        text = pattern.sub(name, text)
    return text.strip()


def agrees(printed, shown, measured):
    """Whether the output is what is shown; a line `...` stands for any others."""
    parts = [
        unchanging(part, measured) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)
    ]
    return re.fullmatch("(?s:.*)".join(map(re.escape, parts)), unchanging(printed, measured))


def of_child(words, columns):
    """What a command says that runs something."""
    done = subprocess.run(
        [sys.executable, "-m", "sdyscope", *words],
        env=environment() | {"COLUMNS": str(columns)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


@pytest.mark.compiles
@pytest.mark.skipif(
    compat.version_tuple()[:2] != (0, 10),
    reason="the pages show what JAX 0.10 lowers and XLA compiles; others differ in details",
)
@pytest.mark.parametrize(("page", "number", "commands"), BLOCKS)
def test_console_blocks_are_what_the_commands_print(
    sdyscope, monkeypatch, tmp_path, page, number, commands
):
    monkeypatch.chdir(ROOT)
    wide = page.stem == "README" or page.parent.name == "models"
    if make := FILES.get((page.stem, number)):
        monkeypatch.chdir(tmp_path)
        make(tmp_path, sdyscope)
        # A reader is in the repository's root and makes the files there; lines are told from there.
        if page.stem not in ("fix", "record", "search", "source"):
            monkeypatch.setattr(paths, "getcwd", lambda: str(ROOT))
    status = 0
    for command in commands:
        line, _, head = command.line.partition(" | head -")
        words = shlex.split(line, comments=True)
        columns = WIDE if wide else 80
        if words[0].startswith("COLUMNS="):
            columns = int(words.pop(0).removeprefix("COLUMNS="))
        if words == ["echo", "$?"]:
            assert command.shown == str(status)
            continue
        if words[0] == "pip":
            continue  # It would change the environment.
        assert words.pop(0) == "sdyscope"
        if page.stem == "ci":
            words += ["--config", str(tmp_path / "pyproject.toml")]  # Lines are told from the root.
            monkeypatch.chdir(ROOT)
        if any(word.startswith("levanter-gpt2") for word in words):
            pytest.importorskip("haliax", reason="needs Haliax: pip install 'haliax>=1.4.dev0'")
        if words[0] in ("record", "run"):
            printed, status = of_child(words, columns)
        else:
            done = sdyscope(*words, columns=columns)
            printed, status = done.out + done.err, done.status
        if not command.shown:
            continue
        if page.stem == "ci":
            # A reader's configuration is in the root, with the models; here it is elsewhere.
            printed = printed.replace("…/models/", "models/")
        if head:
            printed = "".join(printed.splitlines(keepends=True)[: int(head)])
        measured = page.stem in RUNNING
        if not agrees(printed, command.shown, measured):
            # Says where they differ.
            assert unchanging(printed, measured) == unchanging(command.shown, measured), line
