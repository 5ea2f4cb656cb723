"""The page's modules: their own tests, and that the page can put them together."""

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sdyscope.words.counts import counted, size
from sdyscope.words.partitioners import partitioner_name

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


_FORMATS = """
import { readFileSync } from "node:fs";
const { count, partitionerName, size } = await import(process.argv[1]);
const numbers = JSON.parse(readFileSync(0));
console.log(JSON.stringify([
  numbers.map(size),
  numbers.map((number) => count(number, "tensor")),
  ["shardy", "gspmd", ""].map(partitionerName),
]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_figures_are_written_as_everywhere_else():
    """What is added up in the page is written there; both writers say the same."""
    draw = random.Random(0)
    near = [n for k in range(1, 6) for n in (1024**k - 1, 1024**k, 1024**k * 5 // 4)]
    ties = [1024 * k // 20 for k in range(20, 400)]
    numbers = [0, 1, 2, 999, 1000, *near, *ties, *(draw.randrange(1 << 50) for _ in range(2000))]
    script = [
        "node",
        "--input-type=module",
        "-e",
        _FORMATS,
        str(ROOT / "reports/js/base/format.js"),
    ]
    done = subprocess.run(script, input=json.dumps(numbers), capture_output=True, text=True)
    sizes, counts, names = json.loads(done.stdout)
    assert sizes == list(map(size, numbers))
    assert counts == [counted(number, "tensor") for number in numbers]
    assert names == list(map(partitioner_name, ("shardy", "gspmd", "")))


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
