"""Places as they are shown."""

from sdyscope.words.places import file_text, paths_from, shortened


def test_files_are_named_from_their_package_or_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / ".venv/lib/python3.12/site-packages/haliax/core.py"
    assert file_text(str(installed)) == "haliax/core.py"
    assert file_text(str(tmp_path / "train.py")) == "train.py"
    assert file_text("/elsewhere/train.py") == "/elsewhere/train.py"


def test_files_of_several_folders_are_named_relative_to_the_first_that_holds_them():
    with paths_from("/checkout/src", "/checkout"):
        assert file_text("/checkout/src/train.py") == "train.py"
        assert file_text("/checkout/data/read.py") == "data/read.py"
        assert shortened("/checkout/src/a.py and /checkout/b.py") == "a.py and b.py"
    assert file_text("/checkout/src/train.py") == "/checkout/src/train.py"
