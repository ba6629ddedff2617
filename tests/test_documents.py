# SPDX-License-Identifier: Apache-2.0
"""The documents keep up with the code: schemas, layers, rows, links, and the tests they name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import vllm_ops.shared
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import tolerances
from vllm_ops.shared.testing.accuracy import SUBJECTS
from vllm_ops.shared.testing.cases import cases

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
OPS_PAGE = (DOCS / "ops.md").read_text("utf-8")
NUMERICS = (DOCS / "numerics.md").read_text("utf-8")
REPORTS = ROOT / "tests/field_reports/README.md"


def rows(page):
    """The cells of every table row."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def documented_schemas():
    found = {}
    for first, *rest in rows(OPS_PAGE):
        if first.startswith("`") and "->" in first:
            schema = torch._C.parse_schema("vllm_ops::" + first.strip("`"))
            found[schema.name.removeprefix("vllm_ops::")] = (schema, rest)
    return found


def test_every_schema_is_in_the_operator_page():
    documented = {name: str(schema) for name, (schema, _) in documented_schemas().items()}
    assert documented == {name: str(op.overload._schema) for name, op in OPS.items()}


def test_layers_in_the_operator_page_are_built_as_it_says():
    for name, (_, rest) in documented_schemas().items():
        for call in re.findall(r"`(\w+)\(([^`]*)\)`", rest[0] if len(rest) > 1 else ""):
            layer = getattr(vllm_ops.shared, call[0])
            if "..." in call[1] or call[0] == "QKNormRope":
                continue
            sizes = {"hidden_size": 8, "limit": 2.0, "in_features": 8, "out_features": 4}
            named = dict(re.findall(r"(\w+)=([^,]+)", call[1]))
            required = [part.strip() for part in call[1].split(",") if part and "=" not in part]
            built = layer(**{part: sizes[part] for part in required})
            assert name.removesuffix("_") in built.ops
            for option, default in named.items():
                value = getattr(built, option, None)
                if value is not None and not isinstance(value, torch.Tensor):
                    assert value == eval(default), (call, option)  # noqa: S307


def test_every_operator_has_a_row_of_numerics():
    table = {first.strip("`"): rest for first, *rest in rows(NUMERICS) if first.startswith("`")}
    assert set(table) == set(OPS)
    for name, (_, kind, pinned) in table.items():
        tolerance = getattr(tolerances, kind.upper())
        assert {case.tolerance for case in cases(name)} <= {tolerance}, name
        assert "::" in pinned


NAMED_TEST = r"`([\w./]+\.py)(?:::(\w+))?`"


def assert_named_tests_exist(page, base):
    """Each ``path`` or ``path::test``, where paths start at ``base``."""
    for path, test in re.findall(NAMED_TEST, page.read_text("utf-8")):
        if not test and not path.startswith("tests/"):
            continue
        source = base / path
        assert source.is_file(), path
        defined = rf"^def {test}\("
        assert not test or re.search(defined, source.read_text("utf-8"), re.MULTILINE), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page):
    assert_named_tests_exist(page, ROOT)


def test_tests_named_in_the_field_reports_exist():
    assert_named_tests_exist(REPORTS, REPORTS.parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_every_field_report_test_is_in_the_list():
    listed = REPORTS.read_text("utf-8")
    for path in sorted(REPORTS.parent.glob("test_*.py")):
        for test in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE):
            assert test in UNLISTED or f"{path.name}::{test}`" in listed, test


UNLISTED = {
    # What the reports suggest beyond what they say.
    "test_negative_is_not_what_a_stride_of_2_to_31_means",
    "test_every_operator_has_an_empty_case",
    "test_constant_row_of_layer_norm_with_eps_0_gives_the_bias",
    "test_one_column",
    "test_one_bad_row_stays_one_bad_row",
}


def test_every_operator_has_an_accuracy_subject():
    """``linear_int8`` has a comparison of its own; an in-place one is its twin's kernel."""
    expected = {name for name, op in OPS.items() if not op.in_place} - {"linear_int8"}
    assert {subject.op for subject in SUBJECTS} == expected


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["adding-an-op.md", "architecture.md", "ops.md"])
def test_the_python_of_a_page_runs(name):
    """In a process of its own, as it registers an operator."""
    source = "\n".join(python_blocks((DOCS / name).read_text("utf-8")))
    assert source
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
