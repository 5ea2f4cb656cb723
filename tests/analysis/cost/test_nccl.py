"""Times of NCCL's collectives: against published rows, its choices, and what must hold of any."""

import dataclasses
import itertools
import math
import statistics

import pytest
from published import published_tables

from sdyscope.analysis.cost.links import DeviceRow, Level
from sdyscope.analysis.cost.nccl import expected_seconds, nccl_seconds
from sdyscope.analysis.cost.time import collective_seconds, group_seconds, is_of_nccl
from sdyscope.hardware.nccl import nccl
from sdyscope.hardware.specs import chips, estimate_errors

A100, H100, H200, B200, V5E = (chips()[name] for name in ("a100", "h100", "h200", "b200", "v5e"))


def links(chip, gpus, hosts=1):
    """What connects GPUs on some hosts."""
    sizes = {"NVLink": (gpus, chip.value("nvlink")), "network": (hosts, chip.value("network"))}
    return tuple(
        Level(name, (DeviceRow("", size, False, bandwidth),), None)
        for name, (size, bandwidth) in sizes.items()
        if size > 1
    )


def rows(chip, hosts):
    for table in published_tables():
        if table.chip is chip and table.hosts == hosts:
            over = links(chip, table.devices // hosts, hosts)
            for size, seconds in table.rows:
                yield nccl_seconds(table.collective, size, over, chip), seconds


@pytest.mark.parametrize("chip", [chips()[name] for name in ("a100", "h100", "b200", "gb200")])
def test_estimates_are_as_far_from_published_rows_as_the_table_says(chip):
    hosts = {table.hosts for table in published_tables() if table.chip is chip}
    off = [
        abs(estimate - seconds) / seconds
        for each in hosts
        for estimate, seconds in rows(chip, each)
    ]
    (error,) = [error for error in estimate_errors(chip.kinds[0]) if error.of == "collectives"]
    # It is of rates that are fitted to other sources.
    assert abs(error.median - statistics.median(off)) < 0.03


def test_large_collectives_come_near_the_bandwidth_and_small_ones_to_what_starting_takes():
    large = expected_seconds("all-gather", 1 << 34, links(A100, 8), A100)
    assert math.isclose(large, 7 / 8 * (1 << 34) / 2.4e11, rel_tol=0.01)
    small = nccl_seconds("all-gather", 64, links(A100, 8), A100)
    assert nccl().overhead < small < 2 * nccl().overhead
    assert expected_seconds("all-reduce", 64, links(A100, 2), A100) < 1e-5  # LL


def test_switches_that_reduce_are_faster_than_rings():
    def reduced_by_gathered(chip, gpus):
        over = links(chip, gpus)
        both = (
            expected_seconds(kind, 1 << 30, over, chip) for kind in ("all-reduce", "all-gather")
        )
        return next(both) / next(both)

    assert reduced_by_gathered(H100, 8) < 1.7
    # Of two GPUs NCCL uses none, and A100's do not reduce.
    assert math.isclose(reduced_by_gathered(H100, 2), 2, rel_tol=0.01)
    assert math.isclose(reduced_by_gathered(A100, 8), 2, rel_tol=0.05)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all"])
def test_several_hosts_take_longer(kind):
    each = [expected_seconds(kind, 1 << 28, links(B200, 8, hosts), B200) for hosts in (1, 2, 4, 16)]
    assert each == sorted(each)
    # Rings of eight GPUs a host send over eight networks at once; all send as much in exchanges.
    spread = expected_seconds(kind, 1 << 28, links(B200, 1, 128), B200)
    assert (spread > 2 * each[-1]) == (kind != "all-to-all")


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "all-to-all", "collective-permute"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_more_bytes_take_no_less_time(kind, hosts):
    each = [expected_seconds(kind, 1 << at, links(H100, 8, hosts), H100) for at in range(6, 34)]
    assert all(later >= 0.7 * earlier for earlier, later in itertools.pairwise(each))
    assert each[-1] > 100 * each[0]


def test_what_is_not_known_stays_so():
    assert H200.value("network") is None
    assert nccl_seconds("all-reduce", 1024, links(H200, 8, 2), H200) is None
    assert group_seconds("all-reduce", 1024, links(H200, 8, 2), H200) is None
    older = dataclasses.replace(A100, gpu=dataclasses.replace(A100.gpu, compute_capability=(7, 0)))
    assert expected_seconds("all-reduce", 1024, links(A100, 8), older) is None
    assert group_seconds("all-reduce", 1024, links(A100, 8), older) == collective_seconds(
        "all-reduce", 1024, links(A100, 8)
    )
    assert nccl_seconds("all-reduce", 1024, (), H100) == 0
    assert nccl_seconds("recv", 1024, links(H100, 8), H100) == 0


def test_given_rates_and_other_chips_are_none_of_nccl():
    for level in (
        Level("given", (DeviceRow("", 8, False, 1e9),), None),
        Level("NVLink", (DeviceRow("", 8, False, 1e9),), 1e-6),
    ):
        assert not is_of_nccl((level,), H100)
        assert group_seconds("all-reduce", 1 << 20, (level,), H100) == collective_seconds(
            "all-reduce", 1 << 20, (level,)
        )
    assert not is_of_nccl(links(H100, 8), V5E)
    assert not is_of_nccl(links(H100, 8), None)
    assert is_of_nccl(links(H100, 8), H100)
