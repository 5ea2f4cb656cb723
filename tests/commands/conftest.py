"""Commands run here: no child is started, everything else is as on the command line."""

import importlib.util
import io
import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from jax._src import source_info_util

from sdyscope import __main__
from sdyscope.commands import document_type
from sdyscope.inspection import Inspection
from sdyscope.process import child, output
from sdyscope.targets import resolve
from sdyscope.terminal.document import schema

# A command line has no caller: these files and pytest's are no part of the programs it looks at.
source_info_util.register_exclusion(str(Path(__file__).parent))
for package in ("_pytest", "pytest", "pluggy", "xdist", "execnet"):
    for folder in importlib.util.find_spec(package).submodule_search_locations:
        source_info_util.register_exclusion(folder)
source_info_util.register_exclusion("<frozen runpy>")


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    def document(self, command):
        """The answer as a document, which follows its schema."""
        found = json.loads(self.out)
        jsonschema.validate(found, schema(document_type(command)))
        return found

    def said(self, *words):
        """Checks that the whole answer is one error with these words in it."""
        assert (self.status, self.out) == (2, ""), self
        assert self.err.startswith("error: "), self.err
        assert "Traceback" not in self.err
        assert "internal error" not in self.err
        for word in words:
            assert word in self.err


@pytest.fixture
def sdyscope(monkeypatch, capsys):
    """Runs a command line; the width of its tables is `columns`, None for any.

    As in the child, where commands do their work: what is printed is no part of an answer. As in
    its parent where it is `supervising`: children of its own are real.
    """

    def run(*words, columns=None, supervising=False):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="utf-8")
        if not supervising:
            monkeypatch.setattr(child, "_serving", [None])
        monkeypatch.setattr(output, "_kept_apart", [output.Output(stream, False, columns)])
        capsys.readouterr()
        status = __main__.run_here([str(word) for word in words])
        stream.flush()
        # The child's answer is only shown when it has one.
        answer = raw.getvalue().decode() if supervising or status in (0, 1) else ""
        return Done(status, answer, capsys.readouterr().err)

    return run


@pytest.fixture(scope="session")
def mlp_texts():
    """The mlp's module under each partitioner."""
    lowered = Inspection(resolve("mlp")).lowered
    return {partitioner: module.text() for partitioner, module in lowered.items()}


@pytest.fixture
def mlp_files(mlp_texts, tmp_path):
    """The same as files, `shardy.mlir` and `gspmd.mlir` in one directory."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for partitioner, text in mlp_texts.items():
        (folder / f"{partitioner}.mlir").write_text(text)
    return folder
