"""Places as they are shown."""

from pathlib import Path

import pytest

from sdyscope.words.paths import file_text, full_paths, paths_from, relative_path, shortened


def test_files_are_named_from_their_package_or_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / ".venv/lib/python3.12/site-packages/haliax/core.py"
    assert file_text(str(installed)) == "haliax/core.py"
    assert file_text(str(tmp_path / "train.py")) == "train.py"


def test_files_of_several_folders_are_named_relative_to_the_first_that_holds_them():
    with paths_from("/checkout/src", "/checkout"):
        assert file_text("/checkout/src/train.py") == "train.py"
        assert file_text("/checkout/data/read.py") == "data/read.py"
        assert shortened("/checkout/src/a.py and /checkout/b.py") == "a.py and b.py"
    assert file_text("/checkout/src/train.py") == "…/src/train.py"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("/home/ada/secret/lab/train.py", "…/lab/train.py"),
        ("/home/ada/train.py", "…/train.py"),
        ("/Users/ada/train.py", "…/train.py"),
        (str(Path("/", "root", "train.py")), "…/train.py"),  # The folder of who may do anything.
        ("/usr/lib/python3.11/functools.py", "…/python3.11/functools.py"),
        ("/w/x/models/own.py", "own.py"),
        ("/w/x/lib/own.py", "../lib/own.py"),
        ("/w/x/lib.py", "../lib.py"),
        ("/w/other/lib.py", "…/other/lib.py"),  # From what is beside it the next is the root.
        ("<string>", "<string>"),
        ("-", "the module's text"),
        ("lib/own.py", "lib/own.py"),
    ],
)
def test_files_elsewhere_do_not_say_whose_machine_it_is(file, text):
    with paths_from("/w/x/models"):
        assert file_text(file) == text
        if file.startswith("/"):
            assert shortened(f"constraint at {file}:3, and 1/2 of a/b") == (
                f"constraint at {text}:3, and 1/2 of a/b"
            )


def test_from_the_root_files_are_elsewhere():
    with paths_from("/"):
        assert file_text("/home/ada/lab/train.py") == "…/lab/train.py"
        assert shortened("at /home/ada/lab/train.py:3") == "at …/lab/train.py:3"


def test_files_elsewhere_are_named_in_full_for_oneself():
    with full_paths():
        assert file_text("/home/ada/train.py") == "/home/ada/train.py"
        with full_paths(False):
            assert file_text("/home/ada/train.py") == "/home/ada/train.py"
    assert file_text("/home/ada/train.py") == "…/train.py"


@pytest.mark.parametrize(
    ("path", "folder", "relative"),
    [
        ("/w/x", "/w/x/out/pages", "../.."),
        ("/w/x", "/w", "x"),
        ("/home/ada/project", "/home/ada/pages", "../project"),
        ("/home/ada/project", "/tmp/pages", None),
        ("/home/ada/project", "/home/bob/pages", None),
    ],
)
def test_a_relative_path_names_no_folder_near_the_root(path, folder, relative):
    assert relative_path(path, folder) == relative
