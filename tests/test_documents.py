# SPDX-License-Identifier: Apache-2.0
"""The documents keep up with the code: every operator has its rows, every named test exists."""

import re
from pathlib import Path

import pytest
from vllm_ops.shared.ops import OPS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.mark.parametrize("op", OPS)
def test_operator_has_a_row_in_numerics(op):
    rows = re.findall(rf"^\| `{op}` \|.*`tests/.*\|$", (DOCS / "numerics.md").read_text(), re.M)
    assert len(rows) == 1


@pytest.mark.parametrize("op", OPS)
def test_operator_is_in_the_contract(op):
    text = (DOCS / "ops.md").read_text()
    assert f"`{op}(" in text


@pytest.mark.parametrize("document", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_named_tests_exist(document):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", document.read_text()):
        source = ROOT / path
        assert source.exists(), path
        assert not name or re.search(rf"^def {name}\(", source.read_text(), re.M), f"{path}::{name}"


@pytest.mark.parametrize("document", [*sorted(DOCS.glob("*.md")), ROOT / "README.md"], ids=str)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
