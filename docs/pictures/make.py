"""Takes the pictures of the report that the documentation shows: `python docs/pictures/make.py`.

Needs `pip install -e '.[test]' pillow` and Chromium; it is run from the root of the repository, so
that source lines are short. `--check FOLDER` writes every view at every width and in both colours
somewhere else, to be looked at; `--page FILE` takes them of a report that there is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from sdyscope.inspection import Inspection
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.targets import resolve

HERE = Path(__file__).parent

#: A program that the two partitioners shard differently.
PROGRAM = ("fsdp-transformer", {"layers": 2, "constrained": False})

#: What a view shows when all are looked at; of the others, what they show by themselves.
WHERE = {
    "tensors": "?verdict=partitioners&tensor=%2523",
    "graph": "?show=both",
    "propagation": "?step=370&value=%25120",
}

#: The pictures of the documentation: what stands after the page's name, width, whether dark.
DOCUMENTED = {
    "overview-light": ("#overview", 1280, False),
    "overview-dark": ("#overview", 1280, True),
    "overview-narrow": ("#overview", 400, True),
    "tensors": ("#tensors?verdict=partitioners&tensor=%2523", 1280, False),
    "graph": ("#graph", 1280, False),
    "propagation-light": ("#propagation?step=370", 1280, False),
    "propagation-dark": ("#propagation?step=370", 1280, True),
    "chain": ("#propagation?value=%25120", 1280, False),
    "communication": ("#communication", 1280, False),
    "differences": ("#differences", 1280, False),
}

NO_DITHER = Image.Dither.NONE

WIDTHS = {400: 860, 1280: 800, 2560: 1300}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    parser.add_argument("--page", type=Path, metavar="FILE")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = asked.page or Path(folder) / "report.html"
        if asked.page is None:
            name, settings = PROGRAM
            inspection = Inspection(resolve(name, settings=settings))
            shown = report.document(inspection, name)
            page.write_text(report_page.page(shown, inspection), encoding="utf-8")
        if asked.check:
            take(page, all_pictures(), asked.check)
        else:
            take(page, DOCUMENTED, HERE)
            for name in DOCUMENTED:
                shrink(HERE / f"{name}.png")


def all_pictures() -> dict[str, tuple[str, int, bool]]:
    """Every view at every width, light and dark."""
    return {
        f"{view.name}-{width}-{'dark' if dark else 'light'}": (
            f"#{view.name}{WHERE.get(view.name, '')}",
            width,
            dark,
        )
        for view in report_page.VIEWS
        for width in WIDTHS
        for dark in (False, True)
    }


def take(page: Path, pictures: Mapping[str, tuple[str, int, bool]], folder: Path) -> None:
    """Writes the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for name, (where, width, dark) in pictures.items():
            context = browser.new_context(
                viewport={"width": width, "height": WIDTHS[width]},
                color_scheme="dark" if dark else "light",
                offline=True,
            )
            opened = context.new_page()
            opened.goto(f"{page.resolve().as_uri()}{where}")
            settle(opened)
            opened.screenshot(path=folder / f"{name}.png")
            print(folder / f"{name}.png")
            context.close()
        browser.close()


def shrink(file: Path) -> None:
    """Writes a picture with a palette, which is a fraction of its size."""
    with Image.open(file) as picture:
        few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=NO_DITHER)
    few.save(file, optimize=True)


def settle(page: Page) -> None:
    """Waits until the page is drawn and nothing moves."""
    page.wait_for_selector("html[data-ready]")
    page.wait_for_timeout(800)


if __name__ == "__main__":
    main()
