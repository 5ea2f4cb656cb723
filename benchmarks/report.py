"""What does the report cost beyond the inspection, and how quick is its page in a browser?

The program is `fsdp-transformer` on a 16x16 mesh, under both partitioners, not compiled or, with
`--compiled`, compiled under both. What the page does is measured in headless Chromium: opening it
until it can be used, each of its views, a key in the search field at the median of several, and
what is opened in the graph, each until the browser has drawn it. Needs
`pip install -e '.[test]'` and Chromium.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from sdyscope.inspection import Inspection
from sdyscope.page import document as report
from sdyscope.page import page as report_page
from sdyscope.targets import resolve_program
from sdyscope.terminal.table import Column, Table, number, print_table

#: Milliseconds from an input to the frame that shows what it did.
DRAWN = """async (run) => {
  const start = performance.now();
  await eval(run)();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""

#: Milliseconds from a click on a group of the graph to the frame that shows it open; null where
#: there is no such group, as of layers where there are few.
OPENED = """async ([name]) => {
  const shown = (kind) => [...document.querySelectorAll(kind)];
  const title = (item) => item.querySelector('.graph-name, .graph-title').textContent;
  const named = shown('.graph-item').find((item) => title(item).startsWith(name));
  if (named === undefined) return null;
  const open = shown('.graph-open').length;
  const start = performance.now();
  named.querySelector('.graph-fold').dispatchEvent(new MouseEvent('click', {bubbles: true}));
  while (shown('.graph-open').length === open) {
    await new Promise((done) => requestAnimationFrame(done));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - start;
}"""

#: What is opened in the graph, how its name begins, and how long it may take.
GROUPS = (
    ("opening the layers in the graph", "layer0 – ", ""),
    ("opening a layer in the graph", "layer0", "200 ms"),
    ("opening its attention", "attention", "200 ms"),
)

WORDS = ("w", "wq", "wq ", "wq f", "wq fsdp", "mlp", "mlp 24", "dot", "attention", "P('fsdp'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--compiled", action="store_true", help="compile it, for every view")
    parser.add_argument("--output", type=Path, default=Path("report-benchmark.html"))
    parser.add_argument("--page", type=Path, help="measure this page, made before")
    asked = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    path = asked.page
    if path is None:
        path = asked.output
        rows += written(asked.layers, asked.compiled, path)
    rows += shown(path)
    print_table(Table((Column("what"), number("measured"), number("wanted")), tuple(rows)))


def written(layers: int, compiled: bool, path: Path) -> list[tuple[str, ...]]:
    """Makes the page; what the inspection takes is not the report's.

    The report is made in one thread, and its time is that thread's: what else the machine does
    does not count.
    """
    gc.set_threshold(2_000_000, 50, 1_000)  # as the command line does, see child.py
    settings = {"layers": layers, "batch": 256, "heads": 16}
    mesh = {"fsdp": 16, "model": 16}
    inspection = Inspection(resolve_program("fsdp-transformer", mesh=mesh, settings=settings))
    start = time.perf_counter()
    for partitioner in inspection.lowered:
        inspection.annotations(partitioner)
        inspection.propagated(partitioner)
        if compiled:
            inspection.compiled(partitioner)
    inspected = time.perf_counter() - start
    start = time.process_time()
    whole = report.document(inspection, "fsdp-transformer", compiled=compiled)
    html = report_page.page(whole, inspection)
    spent = time.process_time() - start
    path.write_text(html, encoding="utf-8")
    ops = sum(1 for _ in inspection.graph().operations())
    return [
        (f"inspection: {layers} layers, {ops:,} ops", f"{inspected:.1f} s", ""),
        ("report beyond it", f"{spent:.1f} s", "15 s"),
        ("size of the page", f"{len(html.encode()) / 1e6:.1f} MB", "8 MB"),
    ]


def shown(path: Path) -> list[tuple[str, ...]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        views: list[tuple[str, ...]] = []
        for view in report_page.VIEWS:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            start = time.perf_counter()
            page.goto(f"{path.resolve().as_uri()}#{view.name}")
            page.wait_for_selector("html[data-ready]")
            page.evaluate(DRAWN, "() => {}")
            seconds = time.perf_counter() - start
            views.append(
                (f"opening the page at {view.title}", f"{seconds * 1000:.0f} ms", "2,000 ms")
            )
            page.close()
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{path.resolve().as_uri()}#tensors")
        page.wait_for_selector(".grid-body .grid-row")

        def median(actions: list[str]) -> float:
            return float(statistics.median(page.evaluate(DRAWN, action) for action in actions))

        typed = [
            "() => { const field = document.querySelector('[data-slot=search]');"
            f" field.value = {json.dumps(word)}; field.dispatchEvent(new Event('input')); }}"
            for word in WORDS
        ]
        first = page.evaluate(DRAWN, typed[0])
        key = median(typed[1:])
        clear = typed[0].replace('"w"', '""')
        page.evaluate(DRAWN, clear)
        click = "() => document.querySelectorAll('.grid-row[data-kind=group]')[2].click()"
        group = median([click] * 8)
        page.evaluate("location.hash = '#graph?open=none'")
        page.wait_for_selector(".graph-item")
        opened = [(what, page.evaluate(OPENED, [name]), most) for what, name, most in GROUPS]
        page.evaluate("location.hash = '#propagation?show=graph&step=99'")
        page.wait_for_selector(".propagation .graph-item")
        forward = "() => document.querySelectorAll('.player-button')[3].click()"
        step = median([forward] * 9)
        browser.close()
    return [
        *views,
        ("the first key in search", f"{first:.0f} ms", ""),
        ("a key in search", f"{key:.0f} ms", "50 ms"),
        ("opening or closing a group of tensors", f"{group:.0f} ms", "200 ms"),
        *((what, f"{spent:.0f} ms", most) for what, spent, most in opened if spent is not None),
        ("a step of the propagation on the graph", f"{step:.0f} ms", ""),
    ]


if __name__ == "__main__":
    main()
