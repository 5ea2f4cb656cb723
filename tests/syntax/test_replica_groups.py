"""Replica groups: our parser against XLA's, and the groups against what a compiled program does."""

import math
import re

import hlo_strategies
import pytest
import strategies
from hlo_oracle import Aborted, reads_mesh_groups, reads_single_device, xla_groups
from hypothesis import given
from hypothesis import strategies as st
from mangling import mangled

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.syntax.replica_groups import LANGUAGE, parse_replica_groups
from sdyscope.values.mesh import AxisRef, IotaTile, Mesh, SubAxisInfo
from sdyscope.values.replica_groups import (
    CollectiveDeviceList,
    IotaReplicaGroupList,
    MeshAxesReplicaGroupList,
    ReplicaGroups,
)

FORMS = (
    hlo_strategies.device_lists(),
    hlo_strategies.iota_groups(),
    hlo_strategies.mesh_axes_groups(),
)


@st.composite
def readable(draw: st.DrawFn) -> ReplicaGroups:
    """Groups that the installed XLA can read."""
    if not reads_mesh_groups() or draw(st.integers(0, 2)):
        return draw(hlo_strategies.device_lists() | hlo_strategies.iota_groups())
    made = draw(hlo_strategies.mesh_axes_groups())
    # XLA of JAX 0.10 does not read groups of one device.
    old = made.group_size == 1 and not reads_single_device()
    return MeshAxesReplicaGroupList(AB, (A,)) if old else made


A, B = AxisRef("a"), AxisRef("b")
AB = Mesh.of({"a": 4, "b": 2})


@given(st.one_of(FORMS))
def test_every_value_survives_its_text(value: ReplicaGroups) -> None:
    assert parse_replica_groups(str(value)) == value


@given(readable())
def test_xla_reads_our_text_as_the_same_value(value: ReplicaGroups) -> None:
    theirs = xla_groups(str(value))
    assert theirs is not None
    assert not isinstance(theirs, type)
    if isinstance(value, MeshAxesReplicaGroupList) and any(
        not axis.name.isprintable() or re.search(r"['\\]", axis.name) for axis in value.mesh.axes
    ):
        return  # XLA does not escape the names that it prints.
    assert parse_replica_groups(theirs) == value
    assert theirs == str(value)


# ---- The same texts accepted as by XLA ----

SEEDS = [
    "{}",
    "{{0,1},{2,3}}",
    "{{0,1,2,3}}",
    "{{0},{}}",
    "[2,4]<=[8]",
    "[8,2]<=[2,8]T(1,0)",
    "[4,3]<=[2,2,3]T(2,0,1)",
]
MESH_SEEDS = [
    "mesh['a'=4,'b'=2] {'a'}",
    "mesh['a'=4,'b'=2] {'b','a':(2)2}",
    "mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}",
    "mesh['a'=4,'b'=2], device_ids=(7,6,5,4,3,2,1,0) {'b'}",
]
PIECES = [*"{}[](),=:0123", " ", "-1", "<=", "T", "T(1,0)", "'a'", "'b'", "'c'", "'a':(2)2", "mesh"]

#: What we refuse on purpose though XLA reads it, by our words for it.
STRICTER = (
    "devices, but",  # XLA of JAX 0.10 reads groups of another size than the order
    "must be positive",  # sizes below 1
    "need positive sizes",
    "not a permutation",
    "sizes start at 1",
)


def read(text: str) -> ReplicaGroups | SyntaxTextError:
    try:
        return parse_replica_groups(text)
    except SyntaxTextError as error:
        return error


def looser_on_purpose(value: ReplicaGroups, text: str) -> bool:
    if re.search(r"mesh\s*\[.*\]\s*,", text) and "device_ids=(" in re.sub(r"\s", "", text):
        return True  # Devices in order, written as a list: XLA aborts.
    if "single_device" in text or "maximal_mesh" in text:
        return not reads_single_device()
    if re.search(r"[\])]\s*,\s*\{", text):
        return True  # A comma in front of the axes, which XLA of JAX 0.10 reads.
    return value.group_size == 1 and not reads_single_device()


@given(st.deferred(lambda: mangled(SEEDS + (MESH_SEEDS if reads_mesh_groups() else []), PIECES)))
def test_reads_exactly_what_xla_reads(text: str) -> None:
    ours, theirs = read(text), xla_groups(text)
    if isinstance(ours, SyntaxTextError):
        assert ours.line is not None
        refused = theirs is None or theirs is Aborted
        strict = any(words in ours.message for words in STRICTER)
        # XLA of JAX 0.10 takes any attribute, or a second comma, where device_ids may stand.
        old = re.search(r"\]\s*,\s*(,|[A-Za-z_][\w.-]*=)", text) and not reads_single_device()
        assert refused or strict or old, f"only XLA reads {text!r}"
    elif theirs is None or theirs is Aborted:
        assert looser_on_purpose(ours, text), f"only we read {text!r}"
    else:
        assert parse_replica_groups(str(theirs)) == ours


# ---- The groups themselves ----


@given(st.one_of(hlo_strategies.iota_groups(), hlo_strategies.mesh_axes_groups()))
def test_groups_are_counted_without_listing_them(value: ReplicaGroups) -> None:
    groups = value.groups()
    assert len(groups) == value.num_groups
    assert {len(group) for group in groups} == {value.group_size}
    total = value.num_groups * (value.group_size or 0)
    assert sorted(device for group in groups for device in group) == list(range(total))


@given(
    st.one_of(hlo_strategies.iota_groups(), hlo_strategies.mesh_axes_groups()),
    st.one_of(hlo_strategies.iota_groups(), hlo_strategies.mesh_axes_groups()),
)
def test_digits_are_the_same_when_the_lists_are(one: ReplicaGroups, other: ReplicaGroups) -> None:
    mine, theirs = one.digits(), other.digits()
    if mine is not None and theirs is not None:
        assert (mine == theirs) == (sorted(one.groups()) == sorted(other.groups()))


@given(st.data())
def test_mesh_axes_and_the_iota_of_the_same_groups(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4))
    perm = data.draw(st.permutations(range(len(sizes))))
    cut = data.draw(st.integers(0, len(sizes)))
    mesh = Mesh.of({f"x{k}": size for k, size in enumerate(sizes)})
    axes = tuple(AxisRef(f"x{k}") for k in perm[cut:])
    size = math.prod(sizes[k] for k in perm[cut:])
    iota = IotaReplicaGroupList(mesh.size // size, size, IotaTile(tuple(sizes), tuple(perm)))
    assert MeshAxesReplicaGroupList(mesh, axes).digits() == iota.digits()


def test_groups_of_a_large_mesh_are_compared_without_listing() -> None:
    mesh = Mesh.of({"a": 1 << 20, "b": 1 << 20})
    by_axis = MeshAxesReplicaGroupList(mesh, (B,))
    iota = IotaReplicaGroupList(1 << 20, 1 << 20, IotaTile.identity(1 << 40))
    assert by_axis.digits() == iota.digits() != MeshAxesReplicaGroupList(mesh, (A,)).digits()


def test_all_devices_need_their_number() -> None:
    every = parse_replica_groups("{}")
    assert every.groups(3) == [[0, 1, 2]]
    assert (every.num_groups, every.group_size) == (1, None)
    with pytest.raises(ConversionError, match="their number is unknown"):
        every.groups()


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3,4}}", [[0, 1], [2, 3, 4]]),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=4,'b'=2] {'a'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['a'=4,'b'=2] {'b','a'}", [[0, 2, 4, 6, 1, 3, 5, 7]]),
        ("mesh['a'=4,'b'=2] {'b','a':(1)2}", [[0, 4, 1, 5], [2, 6, 3, 7]]),
        ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'a'}", [[3, 2], [1, 0]]),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}", [[0, 1], [2, 3]]),
        ("mesh['a'=2] {}", [[0], [1]]),
        ("single_device[device_id=3] {}", [[3]]),
    ],
)
def test_the_groups_of_a_text(text: str, groups: list[list[int]]) -> None:
    assert parse_replica_groups(text).groups() == groups


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{ {0, 1}, {2 ,3} }", CollectiveDeviceList(((0, 1), (2, 3)))),
        ("[2,4]<=[2,4]T(0,1)", IotaReplicaGroupList(2, 4, IotaTile.identity(8))),
        (
            "mesh['a'=4,'b'=2], {'b', 'a':(1)2}",
            MeshAxesReplicaGroupList(AB, (B, AxisRef("a", SubAxisInfo(1, 2)))),
        ),
    ],
)
def test_a_text_and_its_value(text: str, value: ReplicaGroups) -> None:
    assert parse_replica_groups(text) == value


@pytest.mark.parametrize(
    ("text", "column", "told"),
    [
        ("", 1, "Expected '{', '[', 'maximal_mesh', 'mesh' or 'single_device'."),
        ("{{0,1}", 7, "Expected ',' or '}'."),
        ("{0,1}", 2, "Expected '{' or '}'."),
        ("[2,2,2]<=[8]", 5, "Expected ']'."),
        ("[2,4]", 6, "Expected '<='."),
        ("[2,4]<=[4]", 1, "2 groups of 4 hold 8 devices, but 4 are given"),
        ("[0,4]<=[4]", 1, "replica groups need positive sizes, not [0,4]"),
        ("[2,2]<=[2,2]", 8, "several reshape dimensions need a transpose"),
        ("mesh['a'=4] {'b'}", 1, 'unknown mesh axis "b"; the mesh has: a'),
        ("mesh['a'=4] {'a','a'}", 1, "axis 'a' is used twice"),
        ("mesh['a'=4]", 12, "Expected ',', '{' or ', device_ids='."),
        ("@mesh {'a'}", 1, "unexpected '@'"),
    ],
)
def test_an_error_shows_the_place(text: str, column: int, told: str) -> None:
    with pytest.raises(SyntaxTextError) as caught:
        parse_replica_groups(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert told in str(caught.value)


def test_rules_make_the_values_of_their_name() -> None:
    names = {rule.origin.name for rule in LANGUAGE._parser.rules}
    for value in (CollectiveDeviceList, IotaReplicaGroupList, MeshAxesReplicaGroupList):
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", value.__name__).lower() in names


# ---- Against a program that runs ----

GATHER = """HloModule m, replica_count=8
ENTRY e {{
  id = u32[] replica-id()
  one = u32[1] reshape(id)
  ROOT all = u32[{size}] all-gather(one), replica_groups={groups}, dimensions={{0}}
}}"""


@pytest.mark.compiles
@pytest.mark.parametrize(
    "text",
    [
        "{{0,3},{5,1},{2,4},{7,6}}",
        "[4,2]<=[2,4]T(1,0)",
        "mesh['a'=4,'b'=2] {'a'}",
        "mesh['a'=4,'b'=2] {'b','a'}",
        "mesh['a'=4,'b'=2] {'b','a':(1)2}",
        "mesh['a'=2,'c'=2,'b'=2] {'b','a'}",
    ],
)
def test_an_all_gather_gathers_our_groups(text: str) -> None:
    groups = parse_replica_groups(text)
    if isinstance(groups, MeshAxesReplicaGroupList) and not reads_mesh_groups():
        return
    size = groups.group_size
    assert size is not None
    expected = {device: group for group in groups.groups() for device in group}
    gathered = run_on_eight_replicas(GATHER.format(size=size, groups=groups))
    assert gathered == [expected[device] for device in range(8)]


def run_on_eight_replicas(text: str) -> list[list[int]]:
    """The result of an HLO module without arguments, on each of eight replicas."""
    import jax
    import numpy as np
    from jaxlib import _jax, xla_client

    try:
        from jaxlib import _hlo as hlo
    except ImportError:
        from jaxlib import _jax as hlo

    module = hlo.hlo_module_from_text(text)
    program = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = 8, 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(8).reshape(8, 1))
    devices = jax.devices()
    client = devices[0].client
    compiled = client.compile_and_load(program, _jax.DeviceList(tuple(devices)), options)
    (result,) = compiled.execute_sharded([]).disassemble_into_single_device_arrays()
    return [np.asarray(part).tolist() for part in result]


@given(strategies.meshes(max_devices=64), st.data())
def test_a_device_is_in_one_group_with_those_that_differ_in_the_axes(
    mesh: Mesh, data: st.DataObject
) -> None:
    axes = data.draw(strategies.split_axes(mesh, sub_axes=False))
    groups = MeshAxesReplicaGroupList(mesh, tuple(axes)).groups()
    at = {device: position for position, device in enumerate(mesh.devices())}

    def others(device: int) -> tuple[int, ...]:
        digits = [mesh.position_digit(AxisRef(axis.name)) for axis in mesh.axes]
        return tuple(
            at[device] // stride % size
            for axis, (size, stride) in zip(mesh.axes, digits, strict=True)
            if AxisRef(axis.name) not in axes
        )

    for group in groups:
        assert len({others(device) for device in group}) == 1
