"""Everything here is about processes: each is a new one."""

import pytest


@pytest.fixture(autouse=True)
def _new_processes(new_processes):
    pass
