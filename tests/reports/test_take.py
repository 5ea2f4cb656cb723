"""What is taken along from the page: rows, tables, pictures."""

import csv
import io
import xml.etree.ElementTree as ElementTree

import pytest

pytestmark = pytest.mark.compiles

COPIED = (
    "window.copied = []; navigator.clipboard.writeText = async (text) => { copied.push(text); }; 0"
)


@pytest.fixture
def taken(open_page, mlp):
    """The page with a clipboard that can be looked into."""
    page = open_page(mlp.html, "#tensors?kind=argument&tensor=params['w1']&sort=bytes:desc")
    page.wait_for_selector(".details")
    page.evaluate(COPIED)
    return page


def press(page, words, at=0):
    page.click(f".take button:text-is('{words}') >> nth={at}")


def test_rows_tables_and_pictures(taken, mlp, violations, tmp_path):
    page = taken
    page.click("#take")
    assert violations(page) == []
    press(page, "Copy as CSV")
    press(page, "Copy as Markdown")
    press(page, "Copy the row")
    table, markdown, row = page.evaluate("copied")
    rows = list(csv.reader(io.StringIO(table)))
    named = {tensor.name: tensor for tensor in mlp.report.show.tensors if tensor.kind == "argument"}
    assert {len(each) for each in rows} == {len(rows[0])}
    assert rows[0][:2] == ["tensor", "type"]
    # All rows, whether in sight or not, with the columns that there was no room for.
    assert sum(each[1] != "" for each in rows[1:]) == len(named)
    assert "replicas" in rows[0]
    assert markdown.count("\n") == len(rows) + 1
    assert "\\['w1'\\]" in row
    assert "f32\\[128,256\\]" in row
    assert row.count("\n") == 3
    with page.expect_download() as download:
        press(page, "Save as SVG")
    download.value.save_as(tmp_path / "mesh.svg")
    picture = ElementTree.parse(tmp_path / "mesh.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    text = (tmp_path / "mesh.svg").read_text()
    assert "class=" not in text
    assert "url(" not in text.replace("url(&quot;#", "").replace("url(#", "")
    with page.expect_download() as download:
        press(page, "Save as PNG")
    download.value.save_as(tmp_path / "mesh.png")
    assert (tmp_path / "mesh.png").read_bytes().startswith(b"\x89PNG")


def test_the_graph_is_saved_whole(open_page, mlp, tmp_path):
    page = open_page(mlp.html, "#graph", width=400)
    page.wait_for_selector(".graph-item")
    page.keyboard.press("x")
    with page.expect_download() as download:
        press(page, "Save as SVG")
    download.value.save_as(tmp_path / "graph.svg")
    picture = ElementTree.parse(tmp_path / "graph.svg").getroot()
    drawn = page.evaluate("document.querySelector('.graph-picture g').getBBox().width")
    assert float(picture.get("width")) == pytest.approx(drawn + 16)
    assert len(picture.findall(".//{*}text")) == page.locator(".graph-picture text").count()


def test_a_cell_is_no_formula_and_no_markup(open_page, mlp):
    page = open_page(mlp.html)
    page.click("#take")
    found = page.evaluate(
        """async () => {
          const { csv, markdown } = await sdyscope.load("base/take.js");
          const rows = [["name"], ['=HYPERLINK("x")'], ["-1.5"], ["a,b|<i>"]];
          return [csv(rows), markdown(rows)];
        }"""
    )
    assert found[0] == 'name\r\n"\'=HYPERLINK(""x"")"\r\n-1.5\r\n"a,b|<i>"\r\n'
    assert "a,b\\|\\<i\\>" in found[1]
