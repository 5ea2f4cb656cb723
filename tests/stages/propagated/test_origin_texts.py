"""Origins as Shardy writes them, of which those that differ in numbers only are parsed once."""

import pytest

from sdyscope.errors import SdyscopeError
from sdyscope.stages.propagated import origin_texts
from sdyscope.syntax import shardy

TEXTS = [
    "self",
    "input: 0",
    "output: 12",
    "constraint_7",
    "mc_3_input: 41",
    "mc_41_output: 3",
    "mc_3",
]


@pytest.mark.parametrize("text", TEXTS)
def test_an_origin_is_what_the_parser_makes_of_it(text):
    written = origin_texts.parse_origins([("data", text)])
    assert [origin for _, origin in written.origins] == [shardy.parse_origin_sharding(text)]
    assert written.unread == ()


def test_an_error_is_about_the_text_that_stands_there():
    with pytest.raises(SdyscopeError) as raised:
        shardy.parse_origin_sharding("nothing_17")
    written = origin_texts.parse_origins([("data", "nothing_17")])
    said = str(raised.value).partition("\n")[0]
    assert written.unread == (('data = "nothing_17"', said),)
