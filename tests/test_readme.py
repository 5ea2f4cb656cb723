"""README: its program is the one that is checked, and its links lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_program_in_the_readme_is_the_one_that_is_checked():
    program = (ROOT / "docs" / "indivisible.py").read_text().split("\n\n", 1)[1].rstrip()
    assert f"```python\n{program}\n```" in README


def test_symptoms_are_the_first_page_that_it_leads_to():
    pages = re.findall(r"\]\((docs/(?!report\.md)[^)#]+\.md)", README)
    assert pages[0] == "docs/symptoms.md"


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link
