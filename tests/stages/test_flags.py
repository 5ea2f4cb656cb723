"""What `XLA_FLAGS` says of compiling."""

import pytest

from sdyscope.stages.compile_options import compiled_with
from sdyscope.stages.recorder.flags import flags_in


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("", []),
        ("--xla_force_host_platform_device_count=8 --xla_dump_to=/x", []),
        (
            "--xla_a=false --xla_b --xla_c=TRUE",
            [("xla_a", False), ("xla_b", True), ("xla_c", True)],
        ),
        ("--xla_a=1 --xla_a=2 --xla_b=", [("xla_a", "2"), ("xla_b", "")]),
        ("--xla_disable_hlo_passes='a, b'", [("xla_disable_hlo_passes", "a, b")]),
        ("flags.txt", []),
        ("--xla_a='", []),
    ],
)
def test_flags_are_options_but_for_devices_and_dumps(text, flags):
    assert flags_in(text) == flags


def test_a_flag_that_is_1_can_be_of_a_boolean():
    class Options:
        env_option_overrides: list[tuple[str, object]]

    options = Options()

    def compile_(_):
        if ("xla_a", "1") in options.env_option_overrides:
            raise RuntimeError("While setting option xla_a, '1' is not a valid bool value.")
        return options.env_option_overrides

    given = [["xla_a", "1"], ["xla_b", "1"]]  # As JSON has them.
    assert compiled_with(compile_, options, (), given) == [("xla_a", True), ("xla_b", "1")]
