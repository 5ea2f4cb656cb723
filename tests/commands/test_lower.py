"""`sdyscope lower`."""

import pytest

from sdyscope.graph import build
from sdyscope.stages.lowered.read import read


def test_prints_both_modules(sdyscope):
    done = sdyscope("lower", "mlp")
    assert (done.status, done.err) == (0, "")
    headers = [line for line in done.out.splitlines() if line.startswith("// ")]
    assert [header.partition(":")[0] for header in headers] == [
        "// mlp for Shardy",
        "// mlp for GSPMD",
    ]
    assert "sdy.mesh @mesh" in done.out
    assert "mhlo.sharding" in done.out
    assert "models/mlp.py" in done.out


def test_without_locations(sdyscope):
    done = sdyscope("lower", "mlp", "--no-locations", "--partitioner", "shardy")
    assert "loc(" not in done.out
    assert "mhlo.sharding" not in done.out


def test_writes_files_that_read_back(sdyscope, tmp_path):
    folder = tmp_path / "new" / "folder"
    done = sdyscope("lower", "mlp", "-o", folder, "--json")
    document = done.document("lower")
    names = ["mlp.shardy.mlir", "mlp.gspmd.mlir"]
    assert [module["path"] for module in document["modules"]] == [
        str(folder / name) for name in names
    ]
    for module, name in zip(document["modules"], names, strict=True):
        again = read(folder / name)
        assert again.written_for == module["partitioner"]
        assert sum(1 for _ in build(again.module).operations()) == module["ops"]
        assert module["text"] is None
        assert module["bytes"] == (folder / name).stat().st_size
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("name", ["one.mlirbc", "one"])
def test_writes_bytecode(sdyscope, tmp_path, name):
    path = tmp_path / name
    done = sdyscope("lower", "mlp", "--partitioner", "gspmd", "--bytecode", "-o", path)
    assert done.status == 0
    assert str(path) in done.out
    assert path.read_bytes().startswith(b"ML\xefR")
    assert read(path).written_for == "gspmd"
    # And a file in bytecode is printed as text.
    assert "mhlo.sharding" in sdyscope("lower", path).out


def test_json_has_the_text_that_no_file_has(sdyscope):
    (module,) = sdyscope("lower", "mlp", "--partitioner", "shardy", "--json").document("lower")[
        "modules"
    ]
    assert module["path"] is None
    assert module["bytes"] == len(module["text"].encode())


def test_what_does_not_work(sdyscope, tmp_path):
    sdyscope("lower", "mlp", "--bytecode").said("Bytecode is not for the terminal.")
    sdyscope("lower", "mlp", "-o", tmp_path / "x.mlir").said(
        "2 modules can't be written to one file"
    )
    missing = tmp_path / "no" / "x.mlir"
    sdyscope("lower", "mlp", "--partitioner", "shardy", "-o", missing).said("cannot write")
    assert list(tmp_path.iterdir()) == []
