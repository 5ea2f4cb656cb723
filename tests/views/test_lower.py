"""Where modules are written to."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import lower


@pytest.fixture(scope="module")
def both():
    return Inspection(resolve("mlp"))


@pytest.fixture(scope="module")
def one():
    return Inspection(resolve("mlp"), ["shardy"])


def paths(inspection, target, **options):
    document = lower.document(inspection, **options)
    return [module.path for module in lower.write(document, inspection, target).modules]


def test_a_directory_that_is_there_takes_one_module_too(one, tmp_path):
    assert paths(one, tmp_path) == [str(tmp_path / "mlp.shardy.mlir")]
    assert paths(one, tmp_path, bytecode=True) == [str(tmp_path / "mlp.shardy.mlirbc")]


def test_one_module_goes_where_it_is_told(one, tmp_path):
    assert paths(one, tmp_path / "anything") == [str(tmp_path / "anything")]


def test_two_modules_make_a_directory(both, tmp_path):
    folder = tmp_path / "anything"
    assert paths(both, folder) == [str(folder / f"mlp.{p}.mlir") for p in ("shardy", "gspmd")]


def test_two_modules_and_one_file(both, tmp_path):
    (tmp_path / "there").write_text("mine")
    for name in ("there", "new.mlir", "new.mlirbc"):
        with pytest.raises(TargetError, match="can't be written to one file"):
            paths(both, tmp_path / name)
    assert (tmp_path / "there").read_text() == "mine"


def test_the_header_is_a_comment(one):
    document = lower.document(one)
    assert lower.header(document, document.modules[0]).startswith("// mlp for Shardy: ")
