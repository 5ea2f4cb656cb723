"""What the pages of the reference models show is what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from sdyscope.stages import compat
from sdyscope.targets import reference_models

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "models").glob("*.md"))
CONSOLE = re.compile(r"```console\n\$ sdyscope (.*)\n((?:.*\n)*?)```")
BLOCKS = [
    pytest.param(arguments, shown, id=f"{page.stem}: {arguments}")
    for page in PAGES
    for arguments, shown in CONSOLE.findall(page.read_text())
]
VERSION = re.compile(r"JAX \d+[\d.]*")


@pytest.mark.skipif(
    compat.version_tuple()[:2] != (0, 10),
    reason="the pages show what JAX 0.10 lowers and XLA compiles; others differ in details",
)
@pytest.mark.parametrize(("arguments", "shown"), BLOCKS)
def test_console_blocks_are_what_the_command_prints(sdyscope, monkeypatch, arguments, shown):
    monkeypatch.chdir(ROOT)
    if "levanter-gpt2" in arguments:
        pytest.importorskip("haliax", reason="needs Haliax: pip install 'sdyscope[levanter]'")
    done = sdyscope(*shlex.split(arguments), columns=98)
    assert done.status in (0, 1), done.err
    assert VERSION.sub("JAX", done.out) == VERSION.sub("JAX", shown)


def test_every_model_is_in_the_list():
    listed = (ROOT / "docs" / "models" / "README.md").read_text()
    rows = {line.split("`")[1]: line for line in listed.splitlines() if line.startswith("| [`")}
    for model in reference_models():
        for axis, size in model.mesh.items():
            assert size == 1 or f"`{axis}={size}`" in rows[model.name], model.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
