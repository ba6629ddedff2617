# SPDX-License-Identifier: Apache-2.0
"""Build each distribution once."""

import shutil

import pytest
from helpers.distributions import BUILT, build


@pytest.fixture(scope="session")
def all_built():
    """Every built distribution."""
    archives = [build(name) for name in BUILT]
    yield archives
    for archive in archives:
        shutil.rmtree(archive.wheel.parent)


@pytest.fixture(scope="session", params=BUILT)
def built(request, all_built):
    return all_built[BUILT.index(request.param)]
