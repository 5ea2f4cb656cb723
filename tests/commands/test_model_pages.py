"""The pages of the reference models: all are listed, links lead somewhere."""

import re
from pathlib import Path

import pytest

from sdyscope.targets import reference_models

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "models").glob("*.md"))


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
