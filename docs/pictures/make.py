"""Takes the pictures of the report that the documentation shows: `python docs/pictures/make.py`.

Every view of one program, light and dark at 1,280 pixels, and the first also at 400 and 2,560.
Needs `pip install -e '.[test]'` and Chromium. `--check FOLDER` writes every view at every width and
in both colours somewhere else, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from playwright.sync_api import Page, sync_playwright

from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.views import report, report_page

HERE = Path(__file__).parent

#: A program that the two partitioners shard differently.
PROGRAM = ("fsdp-transformer", {"layers": 2, "constrained": False})

#: What a view shows; of the others, what they show by themselves.
WHERE = {"tensors": "?verdict=partitioners&tensor=%2523"}

WIDTHS = {400: 860, 1280: 800, 2560: 1300}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    name, settings = PROGRAM
    inspection = Inspection(resolve(name, settings=settings))
    made = report.document(inspection, name)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report_page.page(made, inspection), encoding="utf-8")
        pictures = all_pictures() if asked.check else documentation()
        take(page, pictures, asked.check or HERE)


def documentation() -> Iterator[tuple[str, int, bool]]:
    """View, width, and whether dark, of each picture in the documentation."""
    first, *_ = report_page.VIEWS
    yield first.name, 400, False
    yield first.name, 2560, True
    for view in report_page.VIEWS:
        yield view.name, 1280, False
        yield view.name, 1280, True


def all_pictures() -> Iterator[tuple[str, int, bool]]:
    """Every view at every width, light and dark."""
    for view in report_page.VIEWS:
        for width in WIDTHS:
            for dark in (False, True):
                yield view.name, width, dark


def take(page: Path, pictures: Iterator[tuple[str, int, bool]], folder: Path) -> None:
    """Writes the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for view, width, dark in pictures:
            context = browser.new_context(
                viewport={"width": width, "height": WIDTHS[width]},
                color_scheme="dark" if dark else "light",
                offline=True,
            )
            opened = context.new_page()
            opened.goto(f"{page.as_uri()}#{view}{WHERE.get(view, '')}")
            settle(opened)
            name = f"{view}-{width}-{'dark' if dark else 'light'}.png"
            opened.screenshot(path=folder / name)
            print(folder / name)
            context.close()
        browser.close()


def settle(page: Page) -> None:
    """Waits until the page is drawn and nothing moves."""
    page.wait_for_selector("html[data-ready]")
    page.wait_for_timeout(800)


if __name__ == "__main__":
    main()
