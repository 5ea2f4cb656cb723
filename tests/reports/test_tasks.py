"""What people open the page for, each answered within two clicks from the overview."""

import pytest

from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from tests.reports.conftest import made

pytestmark = pytest.mark.compiles

#: An MoE, and GPT-2 with named axes and stacked layers: half a minute each.
LARGE = ("axlearn-transformer", "levanter-gpt2")


@pytest.fixture(
    scope="module",
    params=["fsdp-transformer", *(pytest.param(n, marks=pytest.mark.thorough) for n in LARGE)],
)
def subject(request):
    if request.param == "fsdp-transformer":
        return request.getfixturevalue("differing")
    if request.param == "levanter-gpt2":
        pytest.importorskip("haliax", reason="the model needs it")
    return made(Inspection(resolve(request.param)), request.param)


class Visit:
    """Somebody who starts at the overview, and whose clicks are counted."""

    def __init__(self, page):
        self.page = page
        self.clicks = 0

    def start(self):
        self.page.evaluate("location.hash = '#overview'")
        self.page.wait_for_selector(".view[data-view=overview]")
        self.clicks = 0

    def click(self, selector):
        self.page.locator(selector).first.click()
        self.clicks += 1

    def open(self, view):
        self.click(f".tab[data-view={view}]")
        self.page.wait_for_selector(f"main .view[data-view={view}]")

    def read(self, selector):
        self.page.locator(selector).first.wait_for()
        assert self.clicks <= 2
        return self.page.locator(selector).first.inner_text()


def test_seven_tasks(open_page, subject):
    visit = Visit(open_page(subject.html))
    report = subject.report

    # Why is it replicated?
    visit.start()
    visit.open("tensors")
    visit.page.fill("input[type=search]", "replicated")
    visit.click(".grid-body .grid-row:has(.replicated):has(.leaf)")
    # It is worked out when it is looked at, and then stands before the module's text.
    slots = visit.page.locator(".details .details-slot:visible")
    slots.filter(has_text="How it came there").first.wait_for()
    why = visit.read(".details .details-slot:visible >> nth=0")
    assert why.startswith("How it came there")
    assert any(reason in why for reason in ("stopped", "annotation", "no dimension"))

    # Which devices hold a block of it? The same click shows it.
    assert "device" in visit.read(".details .placement")
    assert visit.page.locator(".details .placement-picture").count() >= 1

    # Which weight is sharded less than it could be?
    visit.start()
    visit.open("memory")
    savings = report.memory.compiled[0].savings
    assert (savings[0] if savings else "held once") in visit.read("[data-slot=savings]")

    # What is in memory at the peak? The same click shows it, what takes most first.
    step = report.memory.over_time[0]
    assert "peak" in visit.read(".step-caption").lower()
    largest = max(step.held, key=lambda held: held.bytes)
    assert largest.array.partition("{")[0] in visit.read(".holding")

    # Which line causes this all-gather, and which annotations?
    visit.start()
    visit.open("communication")
    visit.click(".collective-line:has-text('all-gather')")
    told = visit.read(".collective:has(.collective-line[aria-expanded=true])")
    assert "because" in told
    assert visit.page.locator(".collective code.source a").count() >= 1

    # What removes it? Edits that are proven, or what looks for them.
    visit.start()
    assert "sdyscope report --fix" in visit.read("[data-slot=notTried]")

    # Where do the partitioners differ first, and why?
    visit.start()
    detail = visit.read(".headline-detail:has-text('under GSPMD')")
    assert "under Shardy but" in detail
    begins = ("beginning at", "differently: ", "The differences begin at", "The first of them: ")
    assert any(words in detail for words in begins)

    # Propagation, step by step.
    visit.start()
    visit.open("propagation")
    total = report.propagate.propagations[0].step_count
    assert visit.read("[data-slot=count]").startswith(f"0 of {total:,} steps")
    visit.click(".player-button[aria-label^='A step on']")
    assert visit.read("[data-slot=count]").startswith(f"1 of {total:,} steps")
    assert " through " in visit.read(".player-now")
