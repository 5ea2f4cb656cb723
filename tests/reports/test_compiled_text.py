"""The page of a compiled program's text: four views, and why there are no others."""

import pytest

from sdyscope.inspection import read
from sdyscope.page import document as report
from sdyscope.page import page as report_page

HLO = """HloModule jit_f, is_scheduled=true, num_partitions=8, \
entry_computation_layout={(f32[1024]{0})->f32[1024]{0}}

ENTRY e {
  %p = f32[1024]{0} parameter(0), metadata={op_name="x"}
  ROOT %r = f32[1024]{0} all-reduce(%p), channel_id=1, replica_groups=[4,2]<=[8], \
use_global_device_ids=true, metadata={op_name="jit(f)/layer/psum" source_file="a.py" source_line=3}
}
"""

WITHOUT = {
    "tensors": "has no tensors of the program",
    "graph": "the stages before are not in it",
    "propagation": "the stages before are not in it",
    "differences": "is one compiled program, so there is nothing to compare it with",
    "ir": "the stages before are not in it",
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "after.txt"
    file.write_text(HLO)
    program = read(file)
    return report_page.page(report.document(program, "after.txt"), program)


def test_what_it_has_is_shown(open_page, text, violations):
    page = open_page(text, "#overview")
    stages = page.locator(".stage").all_inner_texts()
    assert [" ".join(words.split()).startswith("– ") for words in stages][:3] == [True] * 3
    assert "by XLA" in stages[2]
    assert "JAX" not in page.inner_text(".overview-facts")
    assert page.inner_text(".card-unit") == "4.0 KiB sent by a device"
    page.goto(page.url.replace("#overview", "#source"))
    page.wait_for_selector(".source-line")
    assert page.locator(".source-heads span").all_inner_texts() == ["sent", "line"]
    page.goto(page.url.replace("#source", "#memory"))
    page.wait_for_selector(".view[data-view=memory]")
    assert "A device holds 8.0 KiB of arguments and results." in page.inner_text("main")
    assert violations(page) == []


def test_what_it_does_not_have_says_so(open_page, text):
    page = open_page(text, "#overview")
    for view, words in WITHOUT.items():
        page.goto(f"{page.url.partition('#')[0]}#{view}")
        page.wait_for_function(
            "words => document.querySelector('main').innerText.includes(words)", arg=words
        )
