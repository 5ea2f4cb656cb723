import datetime
import math
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest

from sdyscope.analysis.cost.remarks import error_of_estimates
from sdyscope.analysis.trials.cost import FLOPS_PER_BYTE
from sdyscope.commands.search import command as search
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.gpus import gpus, target_config
from sdyscope.hardware.specs import FIGURES, Estimated, chip_of, chips, estimate_errors, sources
from sdyscope.words.remarks import ESTIMATED, remark_text

ROOT = Path(__file__).parents[2]


def test_every_figure_has_a_source_with_an_address_and_a_date():
    for source in sources().values():
        assert source.title
        assert source.url.startswith("https://")
        datetime.date.fromisoformat(source.date)
    used = {figure.source for chip in chips().values() for figure in chip.figures.values()}
    used |= {chip.gpu.source for chip in chips().values() if chip.gpu is not None}
    assert used == set(sources().values())


def test_figures_are_known_by_name_and_are_numbers():
    for chip in chips().values():
        assert set(chip.figures) <= set(FIGURES)
        for figure in chip.figures.values():
            assert math.isfinite(figure.value)
            assert figure.value > 0


def test_no_two_chips_are_called_the_same():
    kinds = [kind for chip in chips().values() for kind in chip.kinds]
    assert len(kinds) == len(set(kinds))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
    ],
)
def test_chips_are_found_by_what_jax_calls_their_devices(kind, key):
    chip = chip_of(kind)
    assert chip is not None
    assert chip.key == key


def test_what_is_not_in_the_table_is_not_guessed():
    assert chip_of("cpu") is None
    assert chip_of("NVIDIA H100 PCIe") is None
    assert chips()["v4"].value("dcn") is None


def test_xla_is_told_of_a_gpu_what_the_table_says():
    for chip in gpus().values():
        text = target_config(chip)
        assert f"device_memory_size: {chip.value('hbm_bytes'):.0f}\n" in text
        assert f"memory_bandwidth: {chip.value('hbm_bandwidth'):.0f}\n" in text
        assert f'device_description_str: "{chip.kinds[0]}"' in text


def test_the_page_about_hardware_names_the_gpus_and_the_tpus_of_two_devices():
    page = (ROOT / "docs" / "hardware.md").read_text()
    assert f"of a kind with a name: {', '.join(f'`{key}`' for key in gpus())} |" in page
    *first, last = (key for key, chip in chips().items() if chip.devices == 2)
    assert f"two on {', '.join(first)} and {last}:" in page


def test_what_arithmetic_counts_in_a_search_is_an_h100_s_and_about_a_tpu_v5e_s():
    assert chips()["h100"].flops_per_byte == FLOPS_PER_BYTE == 2200
    assert math.isclose(chips()["v5e"].flops_per_byte, FLOPS_PER_BYTE, rel_tol=0.01)
    (option,) = (param for param in search.params if param.name == "flops_per_byte")
    assert f"default {FLOPS_PER_BYTE:.0f}," in option.help


def test_which_dimensions_of_a_slice_are_rings():
    v5e, v5p = chips()["v5e"], chips()["v5p"]
    assert [v5e.is_ring(size, (4, 16)) for size in (4, 16)] == [False, True]
    assert v5p.is_ring(4, (4, 4, 8))
    assert not v5p.is_ring(4, (2, 4, 4))
    # A slice of 4 x 4 x 1 chips is no cube.
    assert not v5p.is_ring(4, (4, 4))


def test_the_table_is_package_data():
    assert files("sdyscope.hardware").joinpath("specs.toml").is_file()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "hardware/*.toml" in settings["package-data"]["sdyscope"]


def test_what_was_measured_of_estimates_is_said_and_nothing_else_is():
    known = estimate_errors("cpu")
    assert {error.of for error in known} == set(get_args(Estimated))
    # The tables of docs/cost.md have the figures.
    text = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
    of_cpus, _, of_gpus = text.partition("### On an H200")
    of_h200, _, of_h100 = of_gpus.partition("### On an H100")
    sections = {
        "cpu": of_cpus,
        "NVIDIA H200": of_h200,
        "NVIDIA H100 80GB HBM3": of_h100.partition("### Beside")[0],
    }
    for kind, section in sections.items():
        # Collectives of GPUs are compared with published tables.
        errors = [e for e in estimate_errors(kind) if kind == "cpu" or e.of != "collectives"]
        assert errors
        for error in errors:
            assert 0 < error.median < 1
            start = f"| {ESTIMATED[error.of]} |"
            (row,) = (row for row in section.splitlines() if row.startswith(start))
            # Steps are compared with the clock, too.
            clock = f"is known to be off by {error.median:.0%}" in section.replace("\n", " ")
            assert row.endswith(f"| {error.median:.0%} |") or (error.of == "steps" and clock)
    assert estimate_errors("TPU v5 lite") == ()
    assert error_of_estimates("TPU v5 lite") == Remark("error unknown", "TPU v5e")
    assert "not known, none was compared with a run on TPU v5e" in remark_text(
        error_of_estimates("TPU v5 lite")
    )
    steps = known[0].median
    assert remark_text(error_of_estimates("cpu")).startswith(
        f"Estimates are known to be off by {steps:.0%} for whole steps"
    )
