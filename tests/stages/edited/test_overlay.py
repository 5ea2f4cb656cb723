"""Other text in place of files, for as long as a program is built from it."""

import importlib
import io
import sys
from importlib import import_module
from importlib.abc import Loader as Loading
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

import jax
import pytest

import sdyscope
import sdyscope.models
from sdyscope.stages.edited.names import named_at
from sdyscope.stages.edited.overlay import is_editable, overlaid


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, one of which has something of the other."""
    folder = tmp_path / "overlaid_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("SIZE = 1\n\n\ndef double():\n    return 2 * SIZE\n")
    (folder / "user.py").write_text("from overlaid_package.sizes import double\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [*sys.modules]:
        if name.partition(".")[0] == "overlaid_package":
            del sys.modules[name]


def test_modules_are_imported_from_the_text_and_are_what_they_were_afterwards(package):
    before = importlib.import_module("overlaid_package.user")
    sizes = sys.modules["overlaid_package.sizes"]
    file = str(package / "sizes.py")
    with overlaid({file: (package / "sizes.py").read_text().replace("SIZE = 1", "SIZE = 5")}):
        assert importlib.import_module("overlaid_package.user").double() == 10
    assert importlib.import_module("overlaid_package.user") is before
    assert sys.modules["overlaid_package.sizes"] is sizes
    assert importlib.import_module("overlaid_package").sizes is sizes
    assert before.double() == 2


def test_nothing_is_left_behind_by_a_text_that_can_not_be_imported(package):
    before = importlib.import_module("overlaid_package.user")
    with pytest.raises(ZeroDivisionError), overlaid({str(package / "sizes.py"): "1 / 0\n"}):
        importlib.import_module("overlaid_package.user")
    assert importlib.import_module("overlaid_package.user") is before


def test_settings_are_what_they_were(package):
    text = 'import jax\njax.config.update("jax_threefry_partitionable", False)\n'
    before = jax.config.jax_threefry_partitionable
    assert before
    with overlaid({str(package / "sizes.py"): text}) as changed:
        importlib.import_module("overlaid_package.sizes")
        assert not jax.config.jax_threefry_partitionable
    assert jax.config.jax_threefry_partitionable == before
    assert changed == {"jax_threefry_partitionable": False}


def test_which_files_are_the_authors(tmp_path):
    own = tmp_path / "train.py"
    own.write_text("")
    assert is_editable(str(own))
    assert is_editable(sdyscope.models.__path__[0] + "/mlp.py")
    assert not is_editable(jax.__file__)
    assert not is_editable(sdyscope.__file__)
    assert not is_editable(str(tmp_path / "none.py"))


def test_the_names_at_a_line(tmp_path):
    file = tmp_path / "named.py"
    file.write_text(
        "import jax\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "class Layout: pass\n"
        "def f(layout, unused):\n"
        "    return (\n"
        "        layout.rows\n"
        "    )\n"
        "def g(mesh):\n"
        "    layout = Layout()\n"
        "    layout.rows = NamedSharding(mesh, P('a'))\n"
        "    return f(layout, 1)\n"
    )
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    mesh = jax.sharding.AbstractMesh((2,), ("a",))
    lines = {str(file): frozenset({5, 6, 11})}
    made, names = named_at(lines, lambda: space["g"](mesh))
    assert made.mesh is mesh
    inner = names[str(file), 6]
    assert list(inner.shardings) == ["layout.rows"]
    assert not inner.meshes
    assert inner.known == {"jax": "jax", "NamedSharding": "NamedSharding", "PartitionSpec": "P"}
    assert list(names[str(file), 11].meshes) == ["mesh"]


def test_what_another_loader_would_read_is_edited_too(tmp_path, monkeypatch):
    """As pytest's, which rewrites the asserts of plugins and reads their files itself."""
    file = tmp_path / "loaded_elsewhere.py"
    file.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    class Loader(Loading):
        def create_module(self, spec):
            return None

        def exec_module(self, module):
            exec(file.read_text(), module.__dict__)

    class Hook(MetaPathFinder):
        def find_spec(self, fullname, path, target=None):
            if fullname == file.stem:
                return spec_from_file_location(fullname, file, loader=Loader())
            return None

    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    assert import_module(file.stem).VALUE == 1
    with overlaid({str(file): "VALUE = 2\n"}):
        assert import_module(file.stem).VALUE == 2
    assert import_module(file.stem).VALUE == 1
    monkeypatch.delitem(sys.modules, file.stem)


@pytest.fixture
def configured(package):
    """A module that reads a configuration when it is imported."""
    config = package / "config.yaml"
    config.write_text("size: 1\n")
    (package / "reader.py").write_text(
        f"with open({str(config)!r}) as file:\n    READ = file.read()\n"
    )
    return config


def test_a_file_that_is_opened_has_the_other_text(configured, monkeypatch):
    monkeypatch.chdir(configured.parent)
    with overlaid({str(configured): "size: é\n"}):
        assert configured.read_text(encoding="utf-8") == "size: é\n"
        assert configured.read_bytes() == "size: é\n".encode()
        with open("config.yaml", encoding="latin-1") as opened:
            assert opened.name == str(configured.resolve())
            assert opened.read() == "size: Ã©\n"
        with open(configured, "rb") as held, Path("config.yaml").open() as text:
            assert (held.readline(), [*text]) == ("size: é\n".encode(), ["size: é\n"])
    assert configured.read_text() == "size: 1\n"


def test_what_is_written_is_written(configured):
    other = configured.with_name("other.txt")
    with overlaid({str(configured): "size: 2\n"}):
        other.write_text("there")
        assert other.read_text() == "there"
        with pytest.raises(FileNotFoundError):
            configured.with_name("none.txt").read_text()
    assert other.read_text() == "there"


def test_a_module_that_read_a_configuration_reads_it_anew(configured):
    before = importlib.import_module("overlaid_package.reader")
    assert before.READ == "size: 1\n"
    with overlaid({str(configured): "size: 2\n"}):
        assert importlib.import_module("overlaid_package.reader").READ == "size: 2\n"
    assert importlib.import_module("overlaid_package.reader") is before


def test_open_is_what_it_was_whatever_is_raised(configured):
    before = open, io.open
    with pytest.raises(LookupError, match="codec"), overlaid({str(configured): ""}):
        open(configured, encoding="no-such-codec")  # noqa: SIM115 - it is not opened
    assert (open, io.open) == before


def test_a_folder_without_a_file_is_imported_anew_with_the_package_around_it(package):
    # Python asks the package around it where it is, each time.
    (package / "__init__.py").write_text("NUMBER = 1\n")
    (package / "inner").mkdir()
    (package / "inner" / "leaf.py").write_text(
        "import overlaid_package\nN = overlaid_package.NUMBER\n"
    )
    before = importlib.import_module("overlaid_package.inner.leaf")
    with overlaid({str(package / "__init__.py"): "NUMBER = 2\n"}):
        assert importlib.import_module("overlaid_package.inner.leaf").N == 2
        assert sys.modules["overlaid_package"].inner.leaf.N == 2
    assert importlib.import_module("overlaid_package.inner.leaf") is before
