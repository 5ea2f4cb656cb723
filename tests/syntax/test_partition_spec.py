"""PartitionSpec: our parser against what JAX prints and Python evaluates."""

import ast
import io
import itertools
import re
import tokenize
import warnings
from typing import Any

import jax
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as JaxSpec
from mangling import mangled

from sdyscope.errors import SyntaxTextError
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec

#: From JAX 0.12 on.
KINDS: Any = getattr(jax.sharding, "UnreducedKind", None)


@st.composite
def partition_specs(draw: st.DrawFn) -> PartitionSpec:
    mesh = draw(strategies.meshes(names=strategies.any_names, reorder=False))
    spec = draw(strategies.partition_specs(mesh, unreduced=True))
    unreduced = sorted(spec.unreduced)
    cut = draw(st.integers(0, len(unreduced)))
    kind = draw(st.sampled_from(["sum", "max", "min"])) if KINDS is not None else "sum"
    return PartitionSpec(spec.entries, frozenset(unreduced[:cut]), frozenset(unreduced[cut:]), kind)


def of_jax(spec: JaxSpec) -> PartitionSpec:
    """JAX's spec as ours."""
    partitions = spec._partitions
    kind = getattr(spec, "unreduced_kind", None)
    return PartitionSpec(
        tuple(UNCONSTRAINED if entry is JaxSpec.UNCONSTRAINED else entry for entry in partitions),
        spec.unreduced,
        spec.reduced,
        "sum" if kind is None else kind.name,
    )


def evaluated(text: str) -> JaxSpec | None:
    """What Python makes of the text, where JAX's names are known; None when it refuses."""
    names = {
        "P": JaxSpec,
        "PartitionSpec": JaxSpec,
        "UNCONSTRAINED": JaxSpec.UNCONSTRAINED,
        "jax": jax,
        "__builtins__": {"set": set, "frozenset": frozenset},
    }
    if KINDS is not None:
        names |= {kind.name: kind for kind in KINDS}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = eval(text.strip(), names)
    except Exception:
        return None
    return made if isinstance(made, JaxSpec) else None


@given(partition_specs())
def test_every_value_survives_its_text_and_jax_reads_the_same(spec: PartitionSpec) -> None:
    assert parse_partition_spec(str(spec)) == spec
    made = evaluated(str(spec))
    assert made is not None
    assert of_jax(made) == spec
    assert parse_partition_spec(repr(made)) == spec


SEEDS = [
    "P()",
    "P(None,)",
    "P('x', None)",
    "PartitionSpec('x', ('a', 'b'))",
    "P(('a', 'b'), UNCONSTRAINED)",
    "P('x', unreduced={'y'}, reduced={'z'})",
    "P(reduced=frozenset({'z', 'y'}), unreduced=set())",
    "jax.sharding.PartitionSpec(P.UNCONSTRAINED, ['a', 'b'])",
    "P(\n  'x',\n  \"y\",\n)",
]
PIECES = [
    *"()[]{}',=.",
    " ",
    '"',
    "\\",
    "\\n",
    "None",
    "'a'",
    "'b'",
    "unreduced=",
    "reduced=",
    "set()",
    "frozenset(",
    "UNCONSTRAINED",
    "P",
    "jax.",
]


def stricter_on_purpose(text: str, parsed: JaxSpec) -> bool:
    entries = [e if isinstance(e, tuple) else (e,) for e in parsed._partitions]
    axes = [name for entry in entries for name in entry if isinstance(name, str)]
    if len(set(axes)) < len(axes):
        return True  # An axis twice: JAX waits for the mesh.
    return not is_plain(text.strip())


def is_plain(text: str) -> bool:
    """Whether the text is in the part of Python that the grammar has."""
    if "\\\n" in text:
        return False  # A line that goes on.
    tree = ast.parse(text, mode="eval").body
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    strings = [token.type == tokenize.STRING for token in tokens if token.type != tokenize.NL]
    if any(one and other for one, other in itertools.pairwise(strings)):
        return False  # Strings side by side.
    if any(t.type == tokenize.STRING and t.string[0] not in "'\"" for t in tokens):
        return False  # A prefix.
    if any(t.type == tokenize.STRING and t.string[:3] in ("'''", '"""') for t in tokens):
        return False
    nodes = list(ast.walk(tree))
    needed = sum(isinstance(node, ast.Call | ast.Tuple) for node in nodes)
    single = len(re.findall(r"\(\s*(?:'[^']*'|\"[^\"]*\")\s*\)", text))
    if sum(token.string == "(" for token in tokens) > needed + single:
        return False  # Brackets around a value.
    return (
        isinstance(tree, ast.Call)
        and not any(isinstance(node, ast.Starred) for node in nodes)
        and all(map(is_plain_entry, tree.args))
        and all(
            keyword.arg == "unreduced_kind" or is_plain_set(keyword.value)
            for keyword in tree.keywords
        )
    )


def is_plain_entry(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    if isinstance(node, ast.Name | ast.Attribute):
        # JAX takes any object as the name of an axis.
        return (node.id if isinstance(node, ast.Name) else node.attr) == "UNCONSTRAINED"
    return is_plain_list(node)


def is_plain_list(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple | ast.List | ast.Set) and all(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts
    )


def is_plain_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return all(is_plain_set(arg) or is_plain_list(arg) for arg in node.args)
    return isinstance(node, ast.Set) and is_plain_list(node)


def looser_on_purpose(text: str) -> bool:
    # Any path in front of the names, names of later versions, a line break outside of brackets.
    paths = re.findall(r"[\w.\s]*\.\s*(?:PartitionSpec|P|UNCONSTRAINED|sum|max|min)", text)
    return bool(paths) or "unreduced_kind" in text or "\n" in text or "\\" in text


@given(mangled(SEEDS, PIECES))
def test_reads_what_python_evaluates(text: str) -> None:
    theirs = evaluated(text)
    try:
        ours = parse_partition_spec(text)
    except SyntaxTextError:
        assert theirs is None or stricter_on_purpose(text, theirs), f"only Python reads {text!r}"
        return
    if theirs is None:
        assert looser_on_purpose(text), f"only we read {text!r}"
    elif not re.search(r"''|\"\"", text):  # JAX makes '' None, but not ('',)
        assert of_jax(theirs) == ours


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("P()", PartitionSpec()),
        ("P(None,)", PartitionSpec((None,))),
        ("PartitionSpec('x', None)", PartitionSpec(("x", None))),
        ("P('a' , ('b', 'c'),)", PartitionSpec(("a", ("b", "c")))),
        ("P((), [], ('a',))", PartitionSpec((None, None, "a"))),
        ("P(PartitionSpec.UNCONSTRAINED)", PartitionSpec((UNCONSTRAINED,))),
        ("jax.P(\"it's\", '\\x41')", PartitionSpec(("it's", "A"))),
        ("P('x', unreduced={'y'})", PartitionSpec(("x",), frozenset("y"))),
        (
            "P('x', reduced=frozenset({'z'}), unreduced=set(['y']))",
            PartitionSpec(("x",), frozenset("y"), frozenset("z")),
        ),
        (
            "P(unreduced={'y'}, unreduced_kind=max)",
            PartitionSpec((), frozenset("y"), unreduced_kind="max"),
        ),
        (
            "P(unreduced={'y'}, unreduced_kind=jax.sharding.UnreducedKind.min)",
            PartitionSpec((), frozenset("y"), unreduced_kind="min"),
        ),
    ],
)
def test_a_text_and_its_value(text: str, value: PartitionSpec) -> None:
    assert parse_partition_spec(text) == value


@pytest.mark.parametrize(
    ("text", "line", "column", "told"),
    [
        ("", 1, 1, "Expected 'PartitionSpec'."),
        ("Q('a')", 1, 1, "Expected 'PartitionSpec'."),
        ("P('x'", 1, 6, "Expected ',' or ')'."),
        ("P('x' 'y')", 1, 7, "Expected ',' or ')'."),
        ("P('x',\n  3)", 2, 3, "unexpected '3' in a partition spec"),
        ("P(x)", 1, 3, "an axis name in quotes"),
        ("P('x'))", 1, 7, "Expected the end of the text."),
        ("P(,)", 1, 3, "unexpected ','"),
        ("P('x', unreduced='y')", 1, 18, "unexpected"),
        ("P('x', unreduced={})", 1, 19, "Expected an axis name in quotes."),
        ("P('\\xg')", 1, 3, "'\\xg' is not a Python string"),
        ("P('x', 'x')", 1, 1, "axis 'x' is used twice"),
        ("P('x', unreduced={'x'})", 1, 1, "axis 'x' is used twice"),
        ("P(unreduced={'x'}, reduced={'x'})", 1, 1, "axis 'x' is used twice"),
        ("P(reduced={'y'}, 'x')", 1, 1, "a dimension can't follow a keyword argument"),
        ("P(reduced={'y'}, reduced={'x'})", 1, 1, "reduced is given twice"),
        ("P('x', unreduced_kind=max)", 1, 1, "unreduced_kind needs unreduced axes"),
    ],
)
def test_an_error_shows_the_place(text: str, line: int, column: int, told: str) -> None:
    with pytest.raises(SyntaxTextError) as caught:
        parse_partition_spec(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert told in str(caught.value)
