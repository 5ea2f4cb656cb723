"""What another process hands over is values of sdyscope; nothing else is read."""

import os
import pickle
import subprocess
from pathlib import Path

import pytest

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Versions
from sdyscope.facts.recorded import Line
from sdyscope.upgrade.carried import Carried, CarriedProgram, encoded, read


def test_values_come_back_as_they_are(tmp_path):
    told = Carried(Versions("0.12.0"), (CarriedProgram("step", None, "ab", error="why"),))
    file = tmp_path / "file"
    file.write_bytes(encoded(told))
    assert read(file) == told


class Runs:
    def __reduce__(self):
        return os.mkdir, (str(Path("/tmp/never-made")),)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Runs()),
        pickle.dumps(subprocess.Popen),
        # A function, and a class, of sdyscope that are no values.
        b"csdyscope.process.output\nwrite_atomically\n.",
        b"csdyscope.stages.doctor\nCapability\n.",
        pickle.dumps(Line("file", 1)),
        b"nothing of the kind",
        b"",
    ],
    ids=("runs", "class", "function", "stage", "other value", "text", "empty"),
)
def test_anything_else_is_refused(tmp_path, data):
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(CompilerError, match="handed over"):
        read(file)
    assert not Path("/tmp/never-made").exists()


def test_paths_of_any_python_are_read(tmp_path):
    """Python 3.13 pickles them under another name."""
    file = tmp_path / "file"
    for module in (b"pathlib", b"pathlib._local"):
        file.write_bytes(b"c" + module + b"\nPosixPath\n(V/a\ntR.")
        with pytest.raises(CompilerError, match="is no program"):  # a path, which was read
            read(file)
