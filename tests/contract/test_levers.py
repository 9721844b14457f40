"""Each lever of ours keeps the contract that other people's have to keep."""

import pytest

from steptime.levers import NAMES, load
from steptime.testing.levers import LeverContract


@pytest.fixture(params=NAMES)
def lever(request):
    return load(request.param)


class TestLevers(LeverContract):
    pass
