"""Rules of custom_partitioning: our parser against JAX's own."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src import custom_partitioning_sharding_rule as theirs
from mangling import mangled

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.syntax.sharding_rule import parse_sdy_sharding_rule
from sdyscope.values.custom_partitioning_rule import ArrayMapping, CompoundFactor, SdyShardingRule

FACTORS = st.sampled_from(["i", "j", "k", "l", "batch", "head_dim", "d_1", "é", "x2"])


@st.composite
def array_mappings(draw: st.DrawFn, whole: list[str], parts: list[str]) -> ArrayMapping:
    """Dimensions made of whole factors, or of several factors of ``parts``."""
    dims: list[st.SearchStrategy[Any]] = []
    if whole:
        dims.append(st.sampled_from(whole))
    if parts:
        factors = st.lists(st.sampled_from(parts), min_size=2, max_size=3)
        dims.append(factors.map(lambda names: CompoundFactor(tuple(names))))
    drawn = draw(st.lists(st.one_of(dims), max_size=4)) if dims else []
    return ArrayMapping(tuple(drawn), draw(st.none() | st.sampled_from([0, 0, 1, 12])))


@st.composite
def sharding_rules(draw: st.DrawFn) -> SdyShardingRule:
    names = draw(st.lists(FACTORS, unique=True, max_size=6))
    cut = draw(st.integers(0, len(names)))
    lists = st.lists(array_mappings(names[:cut], names), min_size=1, max_size=3).map(tuple)
    operands, results = draw(lists), draw(lists)
    mappings = (*operands, *results)
    used = dict.fromkeys(factor for mapping in mappings for factor in mapping.factors())
    whole = {dim for mapping in mappings for dim in mapping.dims if isinstance(dim, str)}
    sizes = tuple((name, draw(st.integers(1, 99))) for name in used if name not in whole)
    kinds: list[list[str]] = [[], [], [], []]
    for name in used:
        kinds[draw(st.integers(0, 3))].append(name)
    return SdyShardingRule(operands, results, sizes, *map(tuple, kinds[:3]))


def keywords(rule: SdyShardingRule) -> dict[str, Any]:
    return {
        "reduction_factors": rule.reduction_factors,
        "need_replication_factors": rule.need_replication_factors,
        "permutation_factors": rule.permutation_factors,
        **dict(rule.factor_sizes),
    }


def ours_of(mapping: theirs.ArrayMapping) -> ArrayMapping:
    """JAX's mapping as ours."""
    group = None
    dims: list[str | CompoundFactor] = []
    for dim in mapping:
        if isinstance(dim, theirs.CompoundFactor):
            dims.append(CompoundFactor(tuple(dim)))
        elif dim.startswith(theirs.BATCHING):
            group = int(dim[1:] or 0)
        else:
            dims.append(dim)
    return ArrayMapping(tuple(dims), group)


@given(sharding_rules())
def test_every_value_survives_its_text_and_jax_reads_the_same(rule: SdyShardingRule) -> None:
    assert parse_sdy_sharding_rule(str(rule), **keywords(rule)) == rule
    made = theirs.str_to_sdy_sharding_rule(str(rule), **keywords(rule))
    assert tuple(map(ours_of, made.operand_mappings)) == rule.operand_mappings
    assert tuple(map(ours_of, made.result_mappings)) == rule.result_mappings
    assert tuple(made.factor_sizes.items()) == rule.factor_sizes
    assert made.reduction_factors == rule.reduction_factors
    assert made.need_replication_factors == rule.need_replication_factors
    assert made.permutation_factors == rule.permutation_factors


SEEDS = [
    "i j, j k -> i k",
    "... i j -> ... j i",
    "...1 i, ...2 j -> ...1 ...2",
    "(i j) k, l -> i (j k)",
    "->",
    "i,,j ->",
    "batch head_dim -> batch",
]
PIECES = [*"()ijk_,.-> 0123é½²", "...", "->", "...2", "(i j)", "…"]


def stricter_on_purpose(text: str) -> bool:
    # A comma inside of brackets, where JAX puts a scalar in front of the compound factor.
    return bool(re.search(r"\([^()]*,", text))


@given(mangled(SEEDS, PIECES))
def test_reads_exactly_what_jax_reads(text: str) -> None:
    # Sizes come beside the text, so that only the text is compared.
    try:
        known = theirs._parse_values(text.replace("...", theirs.BATCHING).partition("->")[0])
        known += theirs._parse_values(text.replace("...", theirs.BATCHING).partition("->")[2])
    except ValueError:
        known = ()
    factors = {f for m in known for d in m if isinstance(d, theirs.CompoundFactor) for f in d}
    whole = {d for m in known for d in m if isinstance(d, str)}
    sizes = dict.fromkeys(factors - whole, 2)
    expected: theirs.SdyShardingRule | None
    try:
        expected = theirs.str_to_sdy_sharding_rule(text, **sizes)
    except ValueError:
        expected = None
    try:
        rule = parse_sdy_sharding_rule(text, **sizes)
    except (SyntaxTextError, ConversionError):
        assert expected is None or stricter_on_purpose(text), f"only JAX reads {text!r}"
        return
    assert expected is not None, f"only we read {text!r}"
    assert tuple(map(ours_of, expected.operand_mappings)) == rule.operand_mappings
    assert tuple(map(ours_of, expected.result_mappings)) == rule.result_mappings


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("", 1, "unexpected end of the text in a sharding rule"),
        ("i j", 4, "Expected ',' or '->'."),
        ("i -> j -> k", 8, "Expected the end of the text or ','."),
        ("(i j -> k", 6, "Expected the name of a factor or ')'."),
        ("(i) -> i", 3, "Expected the name of a factor."),
        ("((i j) k) -> i", 2, "Expected the name of a factor."),
        ("i ... -> i", 3, "unexpected '...' in a sharding rule"),
        ("1i -> i", 1, "unexpected"),
        ("_i -> i", 1, "unexpected"),
        ("i, -> .. i", 7, "unexpected '.'"),
        ("½ -> i", 1, "the name of a factor starts with a letter: '½'"),
    ],
)
def test_an_error_shows_the_place(text: str, column: int, told: str) -> None:
    with pytest.raises(SyntaxTextError) as caught:
        parse_sdy_sharding_rule(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "given", "told"),
    [
        ("(i j) -> i", {}, "factor j is only in compound factors and needs a size"),
        ("i -> i", {"i": 2}, "factor i is a whole dimension and needs no size"),
        ("i -> i", {"k": 2}, "factor k has a size but is not in the rule"),
        ("i -> i", {"reduction_factors": ("k",)}, "factor k of reduction_factors is not in"),
        (
            "i -> i",
            {"reduction_factors": ("i",), "permutation_factors": ("i",)},
            "factor i has more than one special kind",
        ),
    ],
)
def test_keywords_must_fit_the_text(text: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConversionError, match=re.escape(told)):
        parse_sdy_sharding_rule(text, **given)
    with pytest.raises(ValueError, match=r"."):
        theirs.str_to_sdy_sharding_rule(text, **given)
