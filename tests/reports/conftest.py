"""A real Chromium, and the pages that are opened in it.

`open_page(html, "#tensors")` opens a page as from the disk, without a network. When the test ends,
everything that the page logged as an error or asked the network for makes the test fail.

A new process of Chromium needs more CPU time than a page, so all pages are opened in one.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sdyscope.inspection import Inspection
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.targets import resolve

ASSETS = Path(__file__).parent.parent / "assets"

#: What keeps Chromium from doing anything by itself.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",
)

#: Without a browser its tests are left out; with 1 in the environment they fail then, and with 0
#: they are left out wherever.
NEEDED = "SDYSCOPE_TEST_BROWSER"


def chromium():
    # The first has no windows to draw, and takes a third of the time.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    if os.environ.get(NEEDED) == "0":
        pytest.skip(f"{NEEDED} is 0")
    if path is None:
        words = "there is no Chromium here (Debian: apt-get install chromium)"
        if os.environ.get(NEEDED):
            pytest.fail(f"{NEEDED} is set, and {words}")
        pytest.skip(words)
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield started
        started.close()


@dataclass
class Watched:
    """What must stay empty while a page is open."""

    errors: list = field(default_factory=list)
    requests: list = field(default_factory=list)


@pytest.fixture(scope="session")
def context(browser):
    """What all pages are opened in, but for those with options of their own."""
    made = browser.new_context(offline=True)
    # While one page is open, the next ones find its process.
    made.new_page().goto((ASSETS / "README.md").as_uri())
    return made


@pytest.fixture
def open_page(browser, context, tmp_path):
    """Opens a page: its HTML, or the file that it is in; what stands after it in the address."""
    pages, own, watched = [], [], Watched()

    def open_one(html, where="", *, width=1280, height=800, dark=False, **options):
        file = html
        if not isinstance(html, Path):
            file = tmp_path / f"page{len(pages)}.html"
            file.write_text(html, encoding="utf-8")
        if options:
            own.append(browser.new_context(offline=True, **options))
        page = (own[-1] if options else context).new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_default_timeout(15_000)
        page.on("console", lambda said: said.type == "error" and watched.errors.append(said.text))
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("request", lambda asked: _watch(asked, watched))
        page.goto(f"{file.as_uri()}{where}")
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_one
    for page in pages:
        # The next page is opened as if there had been none.
        page.evaluate("localStorage.clear()")
        page.close()
    for each in own:
        each.close()
    assert not watched.errors
    assert not watched.requests


def _watch(asked, watched):
    if not asked.url.startswith(("file:", "blob:", "data:")):
        watched.requests.append(asked.url)


@dataclass(frozen=True)
class Made:
    """A report, and the page of it."""

    inspection: Inspection
    report: report.Report
    html: str


def made(inspection, target="mlp", **options):
    document = report.document(inspection, target, **options)
    return Made(inspection, document, report_page.page(document, inspection))


@pytest.fixture(scope="session")
def mlp():
    """The whole report of the mlp."""
    return made(Inspection(resolve("mlp")))


@pytest.fixture(scope="session")
def unconstrained():
    """A transformer that the two partitioners shard differently; it is not compiled."""
    settings = {"layers": 1, "constrained": False}
    program = resolve("fsdp-transformer", settings=settings)
    return made(Inspection(program), "fsdp-transformer", compiled=False)


@pytest.fixture(scope="session")
def differing():
    """The same with two layers, compiled."""
    program = resolve("fsdp-transformer", settings={"constrained": False})
    return made(Inspection(program), "fsdp-transformer")


@pytest.fixture
def page(open_page, mlp):
    """The page of the mlp."""
    return open_page(mlp.html)


@pytest.fixture(scope="session")
def axe_source():
    return (ASSETS / "axe.min.js").read_text(encoding="utf-8")


#: Colours change in steps.
SETTLED = """async () => {
  const steps = document.getAnimations().filter((one) => one instanceof CSSTransition);
  await Promise.allSettled(steps.map((one) => one.finished));
}"""


@pytest.fixture
def violations(axe_source):
    """What axe-core finds that keeps people from using a page: serious and critical.

    In light and in dark colours, on the same page.
    """

    def find(page):
        page.evaluate(axe_source)
        before = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        found = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.evaluate(SETTLED)
            said = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [
                (scheme, one["id"], one["help"], [node["html"][:160] for node in one["nodes"][:3]])
                for one in said["violations"]
                if one["impact"] in ("serious", "critical")
            ]
        page.emulate_media(color_scheme="dark" if before else "light")
        return found

    return find
