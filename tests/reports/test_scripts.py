"""The page's modules: their own tests, and that the page can put them together."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = sorted((ROOT / "reports" / "js").rglob("*.js"))
IMPORT = re.compile(r'^(?:import\b[^;"]*|export\b[^;"=(]*\bfrom\s+)"([^"\n]*)"', re.MULTILINE)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_modules_pass_their_own_tests():
    tests = sorted((Path(__file__).parent / "js").glob("*.test.js"))
    done = subprocess.run(
        ["node", "--test", *map(str, tests)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_modules_import_only_their_like(module):
    text = module.read_text(encoding="utf-8")
    if module.name == "boot.js":
        return
    for imported in IMPORT.findall(text):
        assert re.fullmatch(r"(\.|\.\./\w+)/[\w.-]+\.js", imported), imported
        assert (module.parent / imported).exists()
    assert "innerHTML" not in text
    assert "insertAdjacentHTML" not in text


def test_modules_do_not_import_each_other_in_a_circle():
    imports = {
        module: [
            (module.parent / name).resolve()
            for name in IMPORT.findall(module.read_text(encoding="utf-8"))
        ]
        for module in MODULES
        if module.name != "boot.js"
    }

    def follow(name, above):
        assert name not in above, f"{' -> '.join(map(str, (*above, name)))}"
        for other in imports.get(name, ()):
            follow(other, (*above, name))

    for name in imports:
        follow(name, ())
