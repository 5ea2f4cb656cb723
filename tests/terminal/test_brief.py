"""Brief documents: few tokens, the same keys, and a count of what was cut."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdyscope.terminal.brief import LIMIT, shortened, tokens
from sdyscope.terminal.document import brief, encode, plain
from sdyscope.terminal.plain import json_text

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=600)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=60)
        | st.dictionaries(st.from_regex(r"[a-z]{1,12}", fullmatch=True), inner, max_size=8)
        | st.dictionaries(st.text(max_size=40), inner, max_size=60)
    ),
    max_leaves=80,
)
fields = st.dictionaries(st.from_regex(r"[a-r]{1,12}", fullmatch=True), values, max_size=12)


def test_tokens_are_not_fewer_than_words_numbers_and_signs():
    assert tokens('{"sharding":"P(\'data\')","bytes":1234567}') == 24
    assert tokens("é→") == 5


@settings(max_examples=12)
@given(fields)
def test_any_wholefits_and_keeps_its_keys(document):
    text = shortened({"schema": "sdyscope.toy/1", **document}, ["toy", "mlp", "--brief"]).decode()
    assert tokens(text) < LIMIT
    read = json.loads(text)
    assert set(read) - {"schema", "document", "brief"} == set(document) - {"brief"}
    assert read["brief"]["whole"] == "sdyscope toy --json mlp"


def test_what_is_cut_is_counted_and_the_first_entries_are_whole():
    rows = [{"name": f"params['w{n}']", "bytes": n, "source": None} for n in range(5_000)]
    document = {"schema": "sdyscope.toy/1", "count": 5_000, "rows": rows, "none": []}
    read = json.loads(shortened(document, ["toy"]))
    assert read["document"] == "sdyscope.toy/1"
    assert (read["count"], read["none"]) == (5_000, [])
    assert read["rows"] == [
        {"name": row["name"], "bytes": row["bytes"]} for row in rows[: len(read["rows"])]
    ]
    assert read["brief"]["left_out"] == {"rows": 5_000 - len(read["rows"])}
    assert len(read["rows"]) > 100


def test_a_large_part_leaves_room_for_the_small_ones():
    document = {
        "schema": "sdyscope.toy/1",
        "large": [{"text": "word " * 200} for _ in range(90)],
        "small": [{"n": n} for n in range(20)],
        "by_scope": {f"layer{n}/attention": {"count": n} for n in range(900)},
    }
    read = json.loads(shortened(document, ["toy"]))
    assert read["small"] == document["small"]
    assert 0 < len(read["by_scope"]) < 900
    assert list(read["by_scope"]) == list(document["by_scope"])[: len(read["by_scope"])]


def test_options_of_a_recorded_script_are_its_own():
    words = ["record", "--brief", "-o", "a b", "--", "python", "train.py", "--brief"]
    read = json.loads(shortened({"schema": "sdyscope.record/1"}, words))
    assert read["brief"]["whole"] == ("sdyscope record --json -o 'a b' -- python train.py --brief")


def test_stored_documents_are_whole():
    document = {"schema": "sdyscope.toy/1", "rows": list(range(9_000))}
    whole = encode(document)
    with brief(["toy"]):
        assert json_text(plain(document)) == whole
        assert tokens(encode(document).decode()) < LIMIT
    assert encode(document) == whole


@pytest.mark.compiles
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("fsdp-transformer", {"layers": "80"}),
        ("axlearn-transformer", {}),
        ("parallel-3d", {}),
        ("levanter-gpt2", {}),
    ],
)
def test_the_largest_reference_models(target, options):
    from sdyscope.inspection import Inspection
    from sdyscope.page.document import document
    from sdyscope.targets import resolve

    small = target != "fsdp-transformer"
    report = document(Inspection(resolve(target, settings=options)), target, compiled=small)
    for part in (
        report,
        report.show,
        report.check,
        report.lint,
        report.propagate,
        report.source,
        report.memory,
        report.comms,
    ):
        if part is not None:
            whole = {"schema": "sdyscope.part/1", **plain(part)}
            assert tokens(shortened(whole, ["show", target]).decode()) < LIMIT
