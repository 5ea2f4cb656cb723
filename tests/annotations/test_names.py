"""What ops and tensors are called."""

import pytest

from sdyscope.annotations import called_text, within_program


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("jit(step)/jvp(layer0)/dot_general", "jvp(layer0)/dot_general"),
        ("pjit(step)/layer0", "layer0"),
        ("jit(step)", ""),
        ("layer0/jit(relu)", "layer0/jit(relu)"),
        ("params['jit(w)/a']", "params['jit(w)/a']"),
        ("", ""),
    ],
)
def test_the_program_s_own_name_is_no_part_of_a_scope(path: str, own: str) -> None:
    assert within_program(path) == own


def test_a_collective_is_called_what_the_program_calls():
    assert called_text("psum_invariant") == "psum"
    assert called_text("all_to_all") == "all_to_all"
