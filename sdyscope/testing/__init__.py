"""Assertions for tests: where tensors are, what is communicated, what a device holds.

They need no pytest; what they say when they fail names the tensor, its source line and the
annotation that is behind it.
"""

from sdyscope.testing.compiled import assert_max_bytes as assert_max_bytes
from sdyscope.testing.compiled import assert_no_collectives as assert_no_collectives
from sdyscope.testing.shardings import assert_sharding as assert_sharding
