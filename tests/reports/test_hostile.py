"""Names that try to be something else: every text of a report is hostile, and is shown as text."""

import re
import types
import typing
from dataclasses import fields, is_dataclass, replace

import pytest

from sdyscope.page import markdown as report_markdown
from sdyscope.page import page as report_page
from sdyscope.page.page import VIEWS
from sdyscope.terminal.plain import fields_of

pytestmark = pytest.mark.compiles

HOSTILE = (
    "<script>globalThis.broken=1</script>"
    "<img src=x onerror=globalThis.broken=1>"
    "</script><!--<script>&amp;\"'`|\\ \u202e\u2028\u0000\ud7ff "
    "{{ 7 * 7 }} ${globalThis.broken=1} javascript:alert(1)"
)
LONG = "a_very/long['path']." * 500

#: Fields whose words decide what is shown where, or that are read again as a sharding.
KEPT = ("text", "schema", "state", "view", "query", "exactness", "fate", "order")


def spoilt(value, name="", hint=str, texts=(HOSTILE,)):
    """The same with a hostile text in every field of the document that may hold any text."""
    if is_dataclass(value) and not isinstance(value, type):
        hints = typing.get_type_hints(type(value))
        written = fields_of(type(value))
        return replace(
            value,
            **{
                one.name: spoilt(getattr(value, one.name), one.name, hints[one.name], texts)
                for one in fields(value)
                if one.init and one.name in written
            },
        )
    if isinstance(value, tuple):
        inner = typing.get_args(hint)
        inner_hint = inner[0] if inner else object
        return tuple(spoilt(item, name, inner_hint, texts) for item in value)
    if isinstance(value, dict) and name == "axes":
        return {"".join(texts) + axis: length for axis, length in value.items()}
    if isinstance(value, dict):
        return {key: spoilt(item, name, object, texts) for key, item in value.items()}
    if isinstance(value, str) and name not in KEPT and may_be_any_text(hint):
        return "".join(texts) + value
    return value


def may_be_any_text(hint):
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return str in typing.get_args(hint)
    return hint is str


@pytest.fixture(scope="module")
def hostile(mlp):
    document = spoilt(mlp.report)
    assert document.name.startswith("<script>")
    return report_page.page(document, mlp.inspection)


@pytest.fixture(scope="module")
def long(mlp):
    document = spoilt(mlp.report, texts=(LONG,))
    assert len(document.name) > 9_000
    return report_page.page(document, mlp.inspection)


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_hostile_texts_are_texts(open_page, hostile, view):
    page = open_page(hostile, f"#{view}")
    page.wait_for_selector(f".view[data-view={view}]")
    assert page.evaluate("globalThis.broken") is None
    assert page.locator("main img, main script").count() == 0
    assert page.locator("main .missing[data-tone]").count() == 0
    assert "<script>globalThis.broken=1</script>" in page.inner_text("h1")


def test_a_hostile_tensor_opens(open_page, hostile):
    page = open_page(hostile, "#tensors")
    page.click(".grid-body .grid-row[data-kind=leaf] >> nth=0")
    assert "<img src=x onerror=globalThis.broken=1>" in page.inner_text(".details")
    assert page.evaluate("globalThis.broken") is None
    other = open_page(hostile, page.evaluate("location.hash"))
    assert other.inner_text(".details-name") == page.inner_text(".details-name")


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_long_texts_do_not_break_the_page(open_page, long, view):
    page = open_page(long, f"#{view}", width=400)
    page.wait_for_selector(f".view[data-view={view}]")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('main').scrollWidth") <= width


def test_bytes_stay_in_sight_beside_long_names(open_page, long):
    page = open_page(long, "#memory", width=400)
    page.wait_for_selector(".groups-frame")
    wide = page.locator(".groups-frame").evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert wide[0] <= wide[1]


def test_markdown_is_one_comment_whatever_names_are(mlp):
    for texts in ((HOSTILE,), (LONG,)):
        text = report_markdown.markdown(spoilt(mlp.report, texts=texts))
        assert len(text) <= report_markdown.LIMIT
        assert "\u2028" not in text
        outside_code = re.sub(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
        assert not re.search(r"(?<!\\)<(?!/?details|/?summary)", outside_code)
