"""Other processes of Python find modules where this one does."""

import subprocess
import sys

from sdyscope.process import python as python_module
from sdyscope.process.python import add_folder, python


def output(code):
    done = subprocess.run(python(code), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_folder_of_the_users_is_searched_last(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(python_module, "_added", [])
    # Modules of the standard library that are imported by everything, and one of the user's own.
    for name in ("re", "types", "own_module"):
        (tmp_path / f"{name}.py").write_text("print('of the user')\n")
    add_folder(str(tmp_path))
    assert sys.path[0] == str(tmp_path)
    assert output("import re, types, dataclasses; print(re.sub('a', 'b', 'a'))") == "b"
    assert output("import own_module") == "of the user"
    add_folder(str(tmp_path))
    assert sys.path.count(str(tmp_path)) == 1


def test_the_working_directory_is_not_searched(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('of the working directory')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert output("import json, sdyscope; print(json.dumps(1))") == "1"
