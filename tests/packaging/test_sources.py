# SPDX-License-Identifier: Apache-2.0
"""What every distribution has in common, read from its sources."""

import re

import pytest
from helpers.distributions import DISTRIBUTIONS, FOLDERS, ROOT


@pytest.fixture(params=DISTRIBUTIONS, ids=lambda distribution: distribution.name)
def distribution(request):
    return request.param


def test_the_distributions_are_found():
    assert {"shared", "cpu"} <= {folder.name for folder in FOLDERS}


def test_name(distribution):
    assert distribution.project["name"] == f"vllm-ops-{distribution.name}"


def test_versions_move_in_lockstep(distribution):
    version = DISTRIBUTIONS[0].project["version"]
    assert distribution.project["version"] == version
    if distribution.name != "shared":
        assert f"vllm-ops-shared=={version}" in distribution.project["dependencies"]


def test_the_version_in_the_code():
    init = (ROOT / "shared/src/vllm_ops/shared/__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.*)"$', init, re.MULTILINE)
    assert found == DISTRIBUTIONS[0].project["version"]


def test_licence(distribution):
    assert distribution.project["license"] == "Apache-2.0"
    assert distribution.project["license-files"] == ["LICENSE"]
    assert (distribution.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_vllm_ops_is_a_namespace(distribution):
    source = distribution.folder / "src" / "vllm_ops"
    assert [path.name for path in source.iterdir()] == [distribution.name]
    assert (source / distribution.name / "py.typed").exists()


def test_no_build_fetches_torch(distribution):
    """An isolated build would install a CUDA torch of several gigabytes."""
    requires = distribution.pyproject["build-system"]["requires"]
    assert not [name for name in requires if name.startswith("torch")]


def test_readme(distribution):
    text = (distribution.folder / distribution.project["readme"]).read_text()
    assert text.startswith(f"# vllm-ops-{distribution.name}\n")
