"""Places as they are shown."""

from sdyscope.words.places import file_text


def test_files_are_named_from_their_package_or_from_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / ".venv/lib/python3.12/site-packages/haliax/core.py"
    assert file_text(str(installed)) == "haliax/core.py"
    assert file_text(str(tmp_path / "train.py")) == "train.py"
    assert file_text("/elsewhere/train.py") == "/elsewhere/train.py"
