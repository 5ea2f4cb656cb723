"""HLO shardings: our parser against XLA's, on generated values and mangled text."""

import math
import re
import time
from dataclasses import replace

import hlo_strategies
import numpy as np
import pytest
from hlo_oracle import (
    Aborted,
    reads_named_form,
    reads_number_names,
    reads_single_device,
    xla_equal,
    xla_sharding,
    xla_tiles,
)
from hypothesis import given
from hypothesis import strategies as st
from mangling import in_the_text, mangled

from sdyscope.errors import SyntaxTextError
from sdyscope.syntax.hlo_sharding import LANGUAGE, parse_hlo_sharding, parse_unspecified_dims
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo
from sdyscope.values.sharding import DimSharding
from sdyscope.values.tiling import (
    AnyHloSharding,
    HloSharding,
    NamedHloSharding,
    OpMetadata,
    ShardGroup,
    TileAssignment,
    TupleSharding,
)


def reductions() -> tuple[str, ...]:
    return ("sum", "max", "min") if reads_single_device() else ("sum",)


@st.composite
def leaves(draw: st.DrawFn, *, metadata: bool = True) -> HloSharding | NamedHloSharding:
    """A sharding that the installed XLA can read."""
    if reads_named_form() and draw(st.booleans()):
        named = hlo_strategies.named_hlo_shardings(metadata=metadata, reductions=reductions())
        return draw(named.filter(lambda v: settled(v) and (reads_number_names() or plain_names(v))))
    return draw(hlo_strategies.hlo_shardings(metadata=metadata).filter(settled))


def plain_names(value: NamedHloSharding) -> bool:
    return not any(re.fullmatch(r"\s*[+-]?[0-9]+\s*", axis.name) for axis in value.mesh.axes)


def any_sharding(*, metadata: bool = True) -> st.SearchStrategy[AnyHloSharding]:
    one = leaves(metadata=metadata)
    return st.one_of(*[one] * 7, hlo_strategies.tuple_shardings(leaves(metadata=False)))


def settled(value: AnyHloSharding) -> bool:
    """Whether XLA reads what it prints for this sharding as the same sharding."""
    if isinstance(value, TupleSharding):
        return all(map(settled, value.elements))
    return named_settled(value) if isinstance(value, NamedHloSharding) else tiles_settled(value)


def named_settled(value: NamedHloSharding) -> bool:
    """Not so where axes that are manual or unreduced leave out only some of size 1.

    XLA prints just ``manual``, which is all of them.
    """
    mesh = value.mesh
    return bool(value.dim_shardings) or all(
        not axes or len(axes) == len(mesh.axes) or math.prod(map(mesh.axis_size, axes)) < mesh.size
        for axes in (value.manual_axes, value.unreduced_axes)
    )


def tiles_settled(value: HloSharding) -> bool:
    """Not so where only subgroups of size 1 are of another type than unreduced.

    XLA prints tiles, and reads them as ``{unreduced}``. Nor where nothing is left to print, and
    it prints ``{devices=[]<=[1]}``.
    """
    tile, types = value.tile_assignment, value.subgroup_types
    if tile is None or not types or math.prod(value.data_dims) > 1 or len(set(types)) == 1:
        return True
    sizes = tile.dims[len(value.data_dims) :]
    kinds = {kind for kind, size in zip(types, sizes, strict=True) if size > 1}
    return bool(kinds or value.data_dims) and kinds != {"unreduced"}


def canonical(value: AnyHloSharding, *, metadata: bool = False) -> AnyHloSharding:
    """What XLA's text of a value says: its canonical form, with metadata only if asked."""
    if isinstance(value, TupleSharding):
        return TupleSharding(tuple(canonical(leaf, metadata=metadata) for leaf in value.elements))
    if not metadata:
        value = replace(value, metadata=())
    return by_type(value) if isinstance(value, HloSharding) else value


def by_type(value: HloSharding) -> HloSharding:
    """The form that XLA gives a sharding when it reads it (``HloSharding::Subgroup``).

    Subgroups of the same type become one, in the order of the types' numbers in xla_data.proto,
    replicated last; those of size 1 go; what is one type throughout has no tiles; devices that hold
    the same are sorted. XLA leaves out the third step where only a subgroup of size 1 is of another
    type than unreduced.
    """
    tile, types, data = value.tile_assignment, value.subgroup_types, value.data_dims
    if tile is None or not types:
        return value
    sizes = tile.dims[len(data) :]
    kept = [k for k in range(len(types)) if sizes[k] > 1]
    kinds = [
        kind
        for kind in ("manual", "unreduced", "replicated")
        if any(types[k] == kind for k in kept)
    ]
    whole = set(kinds) or set(types)
    if math.prod(data) == 1 and len(whole) == 1:
        return replace(value, type=whole.pop(), tile_assignment=None, subgroup_types=())
    if not data and not kinds:
        return replace(value, type="replicated", tile_assignment=None, subgroup_types=())
    order = [k for kind in kinds for k in kept if types[k] == kind]
    dropped = [k for k in range(len(types)) if k not in order]
    perm = [*range(len(data)), *(len(data) + k for k in (*order, *dropped))]
    dims = [*data, *(math.prod(sizes[k] for k in kept if types[k] == kind) for kind in kinds)]
    devices = np.array(tile.listed()).reshape(tile.dims).transpose(perm).reshape(dims)
    if kinds[-1:] == ["replicated"]:
        devices.sort()
    assignment = TileAssignment(tuple(dims), tuple(devices.ravel().tolist()))
    return replace(value, tile_assignment=assignment, subgroup_types=tuple(kinds))


@given(
    st.one_of(
        hlo_strategies.hlo_shardings(),
        hlo_strategies.named_hlo_shardings(reductions=("sum", "max", "min")),
        hlo_strategies.tuple_shardings(hlo_strategies.hlo_shardings(metadata=False)),
    )
)
def test_every_value_survives_its_text(value: AnyHloSharding) -> None:
    assert parse_hlo_sharding(str(value)) == value


@given(any_sharding())
def test_xla_reads_our_text_as_the_same_value(value: AnyHloSharding) -> None:
    theirs = xla_sharding(str(value))
    assert theirs is not None
    assert theirs is not Aborted
    # XLA does not escape the names that it prints, so not every text of its own can be read.
    if not odd_names(value):
        assert parse_hlo_sharding(theirs.text) == canonical(value)
        assert xla_equal(theirs.text, str(value))
    assert xla_equal(str(canonical(value, metadata=True)), str(value))


@given(leaves())
def test_metadata_reads_back_from_xla(value: HloSharding | NamedHloSharding) -> None:
    theirs = xla_sharding(str(value))
    assert theirs is not None
    assert theirs is not Aborted
    if theirs.full_text is None or odd_names(value) or "unreduced" in theirs.full_text:
        return  # No such text before 0.12; unreduced shardings carry their reduction in it.
    assert parse_hlo_sharding(theirs.full_text) == canonical(value, metadata=True)


@given(any_sharding(metadata=False))
def test_xla_prints_our_canonical_text(value: AnyHloSharding) -> None:
    made = canonical(value)
    theirs = xla_sharding(str(made))
    assert theirs is not None
    assert theirs is not Aborted
    text = theirs.text.replace("single_device[", "maximal_mesh[")
    if not odd_names(made):
        assert text == str(made)


def odd_names(value: AnyHloSharding) -> bool:
    """Whether an axis is called something that XLA does not print as it reads it."""
    if isinstance(value, TupleSharding):
        return any(map(odd_names, value.elements))
    return isinstance(value, NamedHloSharding) and any(
        not axis.name.isprintable() or re.search(r"['\\]", axis.name) for axis in value.mesh.axes
    )


@given(hlo_strategies.hlo_shardings(metadata=False).filter(settled))
def test_devices_are_those_of_xla(value: HloSharding) -> None:
    tiles = by_type(value).tile_assignment
    if tiles is None:
        return
    dims, devices = xla_tiles(str(value))
    assert tuple(dims) == tiles.dims
    assert devices == tiles.listed()


# ---- The same texts accepted as by XLA ----

CLASSIC = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{unreduced}",
    "{maximal device=3}",
    "{unknown shard_as 8}",
    "{devices=[4,2]<=[8]}",
    "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
    "{devices=[2,4]<=[4,2]T(1,0)}",
    "{devices=[4,2]7,6,5,4,3,2,1,0}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
    "{devices=[2,2,2]<=[2,2,2]T(2,0,1) last_tile_dims={unreduced} shard_like 1}",
    '{replicated metadata={op_name="a/b" source_file="x.py" source_line=3}}',
    '{manual metadata={{op_name="a"}, {op_type="b"}}}',
    "{{replicated}, {devices=[2]<=[2]}}",
    "{}",
]
NAMED = [
    "{mesh['a'=4,'b'=2], [{'a'}, {'b', ?}]}",
    "{mesh['a'=4,'b'=2], [{'a':(1)2}, {}], unreduced={'b'}}",
    "{mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)), [{?}], replicated={'a'}}",
    "{mesh['a'=4,'b'=2], device_ids=(7,6,5,4,3,2,1,0), [{'a'}], manual={'b'}}",
    "{mesh['a'=4,'b'=2], replicated}",
    "{mesh['a'=4,'b'=2], manual}",
    "{mesh['a'=4,'b'=2], [{}], unreduced=max{'a'}, metadata={op_name=\"x\"}}",
    "{mesh['a'=4,'b'=2], unreduced=max}",
    "{mesh['a'=4,'b'=1], unreduced{'a'}}",
    "{mesh['a'=8], [{'a':(1)2}, {'a':(4)2}], manual={'a':(2)2}}",
    "{maximal_mesh[device_id=3]}",
    "{{mesh['a'=4], [{'a'}]}, {maximal_mesh[device_id=3]}}",
]
PIECES = [
    *"{}[](),=:?0123",
    " ",
    "-1",
    "<=",
    "T",
    "T(1,0)",
    "'a'",
    "'b'",
    "'c'",
    "'0'",
    "'a':(2)2",
    '"x"',
    "replicated",
    "manual",
    "unreduced",
    "maximal",
    "unknown",
    "last_tile_dim_replicate",
    "shard_as 3",
    "device=1",
    "devices=",
    "device_ids=",
    "last_tile_dims=",
    "metadata={}",
    "op_name=",
    "source_line=2",
    "mesh",
    "replicated=",
    "manual=",
    "unreduced=",
    "max",
    "9223372036854775808",
]

#: What we refuse on purpose though XLA reads it, by our words for it.
STRICTER = (
    "can't have two",  # contradictions and repetitions, of which XLA takes one
    "has no tiles",  # {devices=[2]<=[2] replicated} is {replicated} to XLA
    "only a sharding with tiles",  # and so is {replicated last_tile_dims={manual}}
    "and no other, has a device",  # {device=1 devices=[2]0} are two devices to it
    "must be positive",  # sizes below 1
    "not a permutation",  # T(0,0)
    "devices, but",  # XLA reads beyond the list, or leaves devices as memory has them
    "does not fit in 64 bits",  # wraps around
    "sizes start at 1",
    "must not be negative",
    "need as many tile dimensions",
)


def stricter_on_purpose(error: SyntaxTextError, text: str) -> bool:
    if any(words in error.message for words in STRICTER):
        return True
    if re.search(r"last_tile_dims=\s*\{[^}]*maximal", text):  # no subgroup can be maximal
        return True
    if re.search(r"[={]\s*\{\s*,", text):  # metadata={, op_name="a"}
        return True
    # XLA of JAX 0.10 takes any attribute, or a second comma, where device_ids may stand.
    return not reads_single_device() and bool(re.search(r"\]\s*,\s*(,|[A-Za-z_][\w.-]*=)", text))


def looser_on_purpose(value: AnyHloSharding, text: str) -> bool:
    words = "maximal|replicated|manual|unknown|unreduced|last_tile_dim_replicate"
    words += "|shard_as|shard_like|sum|max|min|T"
    if re.search(rf"(?:{words}|\0)[\w.-]", text.replace("last_tile_dim_replicate", "\0")):
        return True  # Words without a space between them.
    if re.search(r"<=\[1\]|\[[1,]+\]\s*-?[0-9]", str(value) + text):
        return True  # One device in a list: XLA can't read what it prints.
    if re.search(r"profile_type|stack_frame_id|source_end|'[^']*\"|=\s*'", text):
        return True  # Fields and quotes of other versions.
    fields = set(re.findall(r"([A-Za-z_][\w.-]*)=", text))
    known = {"devices", "device", "metadata", "last_tile_dims", "op_name", "op_type"}
    if "metadata" in fields and fields - known - {"source_file", "source_line"}:
        return True  # Fields that XLA of these versions does not have.
    if "device_ids=(" in re.sub(r"\s", "", text):
        return True  # Devices in order, written as a list: XLA aborts.
    if re.search(r"(replicated|unreduced|manual)=\s*(max|min|sum)?\s*\{.*,", text):
        return True  # Axes in another order than the mesh's: XLA aborts.
    return not reads_single_device() and bool(
        re.search(r"single_device|unreduced\s*(=\s*(max|min|sum)|\{)", text)
    )


def read(text: str) -> AnyHloSharding | SyntaxTextError:
    try:
        return parse_hlo_sharding(text)
    except SyntaxTextError as error:
        return error


@given(st.deferred(lambda: mangled(CLASSIC + (NAMED if reads_named_form() else []), PIECES)))
def test_reads_exactly_what_xla_reads(text: str) -> None:
    ours = read(text)
    if isinstance(ours, SyntaxTextError) and "devices, but" in ours.message:
        return  # XLA copies the list over memory of another size.
    theirs = xla_sharding(text)
    if isinstance(ours, SyntaxTextError):
        assert in_the_text(ours, text)
        refused = theirs is None or theirs is Aborted
        assert refused or stricter_on_purpose(ours, text), f"only XLA reads {text!r}"
    elif theirs is None or theirs is Aborted:
        assert looser_on_purpose(ours, text), f"only we read {text!r}"
    else:
        assert xla_equal(str(ours), text)
        if settled(ours):
            assert canonical(parse_hlo_sharding(theirs.text)) == canonical(ours)


@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_junk_is_refused_with_a_place(pieces: list[str]) -> None:
    text = "".join(pieces)
    ours = read(text)
    assert not isinstance(ours, SyntaxTextError) or in_the_text(ours, text)


# ---- Examples ----

AB = Mesh.of({"a": 4, "b": 2})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{replicated}", HloSharding("replicated")),
        ("{maximal device=0}", HloSharding("maximal", device=0)),
        ("{device=0 maximal}", HloSharding("maximal", device=0)),
        (
            "{unknown shard_as 8}",
            HloSharding("unknown", shard_group=ShardGroup("shard_as", 8)),
        ),
        (
            "{last_tile_dim_replicate devices=[4,1,2]<=[8]}",
            HloSharding("tiled", TileAssignment((4, 1, 2), IotaTile.identity(8)), ("replicated",)),
        ),
        (
            '{ devices=[ 4, 2 ]/* two rows */ 7,6,5,4,3,2,1,0 metadata={op_name="a\\"\\303\\251"}}',
            HloSharding(
                "tiled",
                TileAssignment((4, 2), (7, 6, 5, 4, 3, 2, 1, 0)),
                metadata=(OpMetadata((("op_name", 'a"é'),)),),
            ),
        ),
        ("{}", TupleSharding(())),
        ("{{replicated}}", TupleSharding((HloSharding("replicated"),))),
        (
            "{mesh['a'=4,'b'=2], [{'a':(1)2, ?}, {}], unreduced=max{'b'}}",
            NamedHloSharding(
                AB,
                (DimSharding((AxisRef("a", SubAxisInfo(1, 2)),), is_closed=False), DimSharding()),
                unreduced_axes=(AxisRef("b"),),
                reduction="max",
            ),
        ),
        ("{mesh['a'=4,'b'=2] [{'1'}]}", NamedHloSharding(AB, (DimSharding((AxisRef("b"),)),))),
        (
            "{mesh['a'=4,'b'=2], manual}",
            NamedHloSharding(AB, manual_axes=(AxisRef("a"), AxisRef("b"))),
        ),
        (
            "{mesh['a'=4,'b'=2], unreduced{'b'}}",
            NamedHloSharding(AB, unreduced_axes=(AxisRef("b"),)),
        ),
        (
            "{mesh['a'=4,'b'=2], unreduced=max{'a'}}",
            NamedHloSharding(AB, unreduced_axes=(AxisRef("a"),), reduction="max"),
        ),
        ("{single_device[device_id=3]}", NamedHloSharding(Mesh((), (3,)))),
        ("{maximal_mesh[device_id=3]}", NamedHloSharding(Mesh((), (3,)))),
        (
            "{replicated metadata={from_the_future=3}}",
            HloSharding("replicated", metadata=(OpMetadata((("from_the_future", 3),)),)),
        ),
    ],
)
def test_a_text_and_its_value(text: str, value: AnyHloSharding) -> None:
    assert parse_hlo_sharding(text) == value


def test_xla_numbers_every_fifth_element_of_a_tuple() -> None:
    value = TupleSharding((HloSharding("replicated"),) * 7)
    theirs = xla_sharding(str(value))
    assert theirs is not None
    assert theirs is not Aborted
    assert theirs.text == str(value)
    assert "/*index=5*/" in str(value)


@pytest.mark.parametrize(
    ("text", "dims"),
    [("unspecified_dims=[1]", (1,)), ("unspecified_dims=[0, 2]", (0, 2))],
)
def test_unspecified_dims(text: str, dims: tuple[int, ...]) -> None:
    assert parse_unspecified_dims(text) == dims


@pytest.mark.parametrize(
    ("text", "line", "column", "told"),
    [
        ("", 1, 1, "Expected '{'."),
        ("replicated", 1, 1, "unexpected 'replicated' in a sharding"),
        ("{replicated", 1, 12, "unexpected end of the text in a sharding"),
        ("{replicated}\n{", 2, 1, "Expected the end of the text."),
        ("{replicated manual}", 1, 1, "a sharding can't have two types"),
        ("{devices=[2,2]<=[4]T(0)}", 1, 17, "one reshape dimension has no transpose"),
        ("{devices=[2,2]<=[2,2]}", 1, 17, "need a transpose: [2,4]T(1,0)"),
        ("{devices=[2,2]<=[2,2]T(0,0)}", 1, 17, "not a permutation of the 2 reshape dimensions"),
        ("{devices=[4]<=[8]}", 1, 2, "tile dimensions [4] hold 4 devices, but 8 are given"),
        ("{devices=[2]\n0 1}", 2, 3, "unexpected '1' in a sharding"),
        ("{maximal}", 1, 1, "a maximal sharding, and no other, has a device"),
        ("{replicated metadata={op_name=3}}", 1, 23, "op_name is a string"),
        (r'{replicated metadata={op_name="\q"}}', 1, 31, "is not an escape in a string"),
        ('{replicated metadata={op_name="a" op_name="b"}}', 1, 22, "metadata gives op_name twice"),
        ("{mesh['a'=4], [{a}]}", 1, 17, "Expected '?', '}' or a string in quotes."),
        ("{mesh['a'=4,'a'=2], []}", 1, 2, 'duplicate axis name "a" in a mesh'),
        ("{mesh['a'=4], [{'b'}]}", 1, 1, 'unknown mesh axis "b"; the mesh has: a'),
        ("{mesh['a'=4], [{'a'}, {'a'}]}", 1, 1, "axis 'a' is used twice in one sharding"),
        ("{mesh['a'=4], [{'a':(1)2, 'a':(2)2}]}", 1, 1, "are one sub-axis"),
        ("{mesh['a'=12], [{'a':(1)2}, {'a':(3)2}]}", 1, 1, "no split of axis 'a' has both"),
        ("{mesh['a'=12], [{'a':(1)4}, {'a':(2)3}]}", 1, 1, "'a':(2)3 overlaps 'a':(1)4"),
        ("{devices=[1]9223372036854775808}", 1, 13, "does not fit in 64 bits"),
    ],
)
def test_an_error_shows_the_place(text: str, line: int, column: int, told: str) -> None:
    with pytest.raises(SyntaxTextError) as caught:
        parse_hlo_sharding(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert told in str(caught.value)


def test_rules_make_the_values_of_their_name() -> None:
    names = {rule.origin.name for rule in LANGUAGE._parser.rules}
    made = (HloSharding, NamedHloSharding, TupleSharding, OpMetadata, ShardGroup, TileAssignment)
    for value in (*made, Mesh, IotaTile, AxisRef, DimSharding, SubAxisInfo):
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", value.__name__).lower() in names


def test_a_text_is_parsed_once() -> None:
    text = "{devices=[3]2,0,1}"
    assert parse_hlo_sharding(text) is parse_hlo_sharding(text)


def test_a_long_list_of_devices_is_read_in_a_moment():
    devices = ",".join(map(str, range(100_000)))
    start = time.perf_counter()
    found = parse_hlo_sharding.__wrapped__("{devices=[100000]" + devices + "}")
    assert time.perf_counter() - start < 3
    assert isinstance(found, HloSharding)
    with pytest.raises(SyntaxTextError, match="does not fit in 64 bits"):
        parse_hlo_sharding("{devices=[1]" + "9" * 5_000 + "}")


def test_an_axis_called_by_thousands_of_digits_is_no_number_of_an_axis():
    with pytest.raises(SyntaxTextError):
        parse_hlo_sharding("{mesh['a'=2], [{'" + "9" * 5_000 + "'}]}")
