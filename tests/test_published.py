"""The published tables of collectives: each with its source, each row possible."""

from datetime import date
from typing import get_args

from published import published_tables

from sdyscope.facts.traffic import CollectiveKind
from sdyscope.hardware.nccl import nccl
from sdyscope.hardware.specs import chips


def test_each_table_has_a_source_and_rows_that_its_links_can_carry():
    tables = published_tables()
    assert len(tables) == 15
    for table in tables:
        assert table.source.url.startswith("https://")
        assert date(2021, 1, 1) < date.fromisoformat(table.source.date)
        assert table.collective in get_args(CollectiveKind)
        assert table.devices % table.hosts == 0
        sizes, seconds = zip(*table.rows, strict=True)
        assert list(sizes) == sorted(set(sizes))
        assert sizes[0] >= 64 << 10
        assert all(0 < each < 1 for each in seconds)
        assert table.what


def test_the_tables_of_nccl_are_of_the_gpus_that_the_table_of_hardware_has():
    majors = {chip.gpu.compute_capability[0] for chip in chips().values() if chip.gpu is not None}
    assert majors == set(nccl().gpus)
    assert nccl().source.url.startswith("https://github.com/NVIDIA/nccl/")
