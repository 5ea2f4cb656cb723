"""Stack frames that an XLA got wrong."""

import pytest

from sdyscope.hlo.frames import with_known_frames

LINE = '  %add = f32[] add(%a, %b), metadata={op_name="jit(step)/add" stack_frame_id=8}'


@pytest.mark.parametrize(
    ("jax", "line"),
    [
        ("0.8.3", LINE.replace(" stack_frame_id=8", "")),
        ("0.8.1", LINE),
        ("0.10.2", LINE),
        ("", LINE),
    ],
)
def test_frames_are_left_out_where_they_are_others(jax, line):
    assert with_known_frames(LINE, jax) == line
