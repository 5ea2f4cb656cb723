"""Other text in place of files, for as long as a program is built from it."""

import importlib
import sys
from importlib import import_module
from importlib.abc import Loader as Loading
from importlib.abc import MetaPathFinder
from importlib.util import spec_from_file_location

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
