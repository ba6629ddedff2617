# SPDX-License-Identifier: Apache-2.0
"""The SPIR-V of every kernel, and what Intel's offline compiler makes of it for two GPUs."""

import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass

import pytest

TARGETS = {"acm-g10": "Arc A770", "pvc": "Data Center GPU Max"}
NOT_COMPILED = ("bmg-g21", "lnl-m", "ptl-h")
"""Newer GPUs: Battlemage, Lunar Lake, Panther Lake."""


@dataclass(frozen=True)
class Image:
    """One SPIR-V module as it lies in the cache."""

    key: str
    number: int
    code: bytes

    @property
    def unit(self):
        return self.key.split("\n")[1].replace(" ", "-")


def images(folder):
    """Every module in the cache; cache.cpp describes the format. Of a unit that lies there more
    than once, in a folder that was kept, the newest."""
    newest = {}
    for path in sorted(folder.glob("*.spirv"), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        newest[data.split(b"\n")[3]] = data
    for data in newest.values():
        assert data.startswith(b"vllm_ops.xpu 1\n")
        at = len(b"vllm_ops.xpu 1\n") + 16

        def sized(at, data=data):
            size, _, _ = data[at : at + 24].partition(b"\n")
            begin = at + len(size) + 1
            return data[begin : begin + int(size)], begin + int(size)

        key, at = sized(at)
        counts, _, _ = data[at : at + 40].partition(b"\n")
        entries, modules = map(int, counts.split())
        for _ in range(entries + 1):
            at = data.index(b"\n", at) + 1
        for number in range(modules):
            code, at = sized(at)
            at += 1  # the newline between two modules
            yield Image(key.decode(), number, code)


def tool(name, package):
    found = shutil.which(name)
    if found:
        return found
    missing = f"{name} was not found (Debian's {package})"
    if "ocloc" in os.environ.get("VLLM_OPS_REQUIRE", "").replace(",", " ").split():
        pytest.fail(f"VLLM_OPS_REQUIRE lists ocloc, but {missing}")
    pytest.skip(missing)


@pytest.fixture(scope="session")
def modules(kernels, tmp_path_factory):
    """A path per module, by the name of its unit."""
    units, cache = kernels
    folder = tmp_path_factory.mktemp("spirv")
    paths = []
    for image in images(cache):
        path = folder / f"{image.unit}-{image.number}.spv"
        path.write_bytes(image.code)
        paths.append(path)
    assert {path.name.rpartition("-")[0] for path in paths} == {
        f"{unit.family}-{unit.dtype}" for unit in units
    }
    return paths


def fusible(text):
    """The kernels in which a driver may fuse a product with a sum."""
    off = set(re.findall(r"OpExecutionMode (\S+) ContractionOff", text))
    found = []
    for function in re.findall(r" (%\S+) = OpFunction .*?OpFunctionEnd", text, re.DOTALL):
        body = text[text.index(f" {function} = OpFunction ") :].partition("OpFunctionEnd")[0]
        both = "OpFMul" in body and ("OpFAdd" in body or "OpFSub" in body)
        found += [function] if both and function not in off else []
    return found


def test_every_kernel_has_an_entry_point(modules, kernels):
    units, _ = kernels
    dis = tool("spirv-dis", "spirv-tools")
    names = []
    for path in modules:
        text = subprocess.run([dis, str(path)], capture_output=True, text=True, check=True).stdout
        entries = re.findall(r'OpEntryPoint Kernel \S+ "(\S+)"', text)
        names += entries
        # Products and sums are rounded one by one, and no kernel asks for fp64.
        assert not fusible(text), path.name
        assert "AllowContract" not in text, path.name
        assert "OpCapability Float64" not in text, path.name
        assert text.count("SubgroupSize 16") == len(entries), path.name
    assert len(set(names)) == len(names) == sum(unit.kernels for unit in units)


def described(binary):
    """Each kernel of a zebin and what .ze_info, a section of YAML in an ELF file, says about it."""
    data = binary.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    text = ""
    for name, _, _, _, offset, length in sections:
        at = sections[names][4] + name
        if data[at : data.index(b"\0", at)] == b".ze_info":
            text = data[offset : offset + length].decode()
    kernels, _, _ = text.partition("\nkernels_misc_info")
    for part in re.split(r"\n  - name: +", kernels)[1:]:
        name, _, rest = part.partition("\n")
        yield name.strip(), rest


def compiled(source, target, folder, *options):
    """The kernels of a module for a GPU, and those that the compiler says spill registers: in
    words, or by scratch memory."""
    ocloc = tool("ocloc", "intel-opencl-icd")
    command = [ocloc, "compile", "-file", str(source), *options, "-device", target]
    done = subprocess.run(
        [*command, "--format", "zebin", "-output", source.stem, "-out_dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{source.name}: {said}"
    (binary,) = folder.glob(f"{source.stem}_*.bin")
    kernels = {name: rest for name, rest in described(binary) if "_kernel_" in name}
    assert all("grf_count" in rest for rest in kernels.values())
    spilled = [name for name, rest in kernels.items() if re.search("scratch|spill", rest)]
    return list(kernels), spilled + re.findall(r"kernel (\S+) .*spilled", said)


@pytest.mark.parametrize("target", TARGETS)
def test_compiles_without_spills(target, modules, kernels, tmp_path):
    units, _ = kernels
    found = []
    for path in modules:
        names, spilled = compiled(path, target, tmp_path, "-spirv_input")
        assert not spilled, path.name
        found += names
    assert len(set(found)) == len(found) == sum(unit.kernels for unit in units)


SPILLS = """
__kernel __attribute__((intel_reqd_sub_group_size(16))) void a_kernel_(__global float* x) {
  float v[200];
  #pragma unroll
  for (int i = 0; i < 200; ++i) v[i] = x[i * 64 + get_global_id(0)];
  barrier(CLK_GLOBAL_MEM_FENCE);
  #pragma unroll
  for (int i = 0; i < 200; ++i) x[i * 64 + get_global_id(0)] = v[199 - i] * v[i];
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_spill_is_found(target, tmp_path):
    source = tmp_path / "spills.cl"
    source.write_text(SPILLS)
    names, spilled = compiled(source, target, tmp_path)
    assert names == ["a_kernel_"]
    assert set(spilled) == {"a_kernel_"}


def test_what_is_not_compiled(modules, tmp_path):
    """Names the GPUs that this ocloc doesn't know; where it does, add them to TARGETS."""
    ocloc = tool("ocloc", "intel-opencl-icd")
    version = subprocess.run(
        [ocloc, "compile", "--help"], capture_output=True, text=True, check=False
    ).stdout
    unknown = [name for name in NOT_COMPILED if name not in version]
    print(f"not compiled, as this ocloc doesn't know them: {', '.join(unknown)}")
    assert all(target in version for target in TARGETS)
    assert set(unknown) == set(NOT_COMPILED), "compile for the others as well"
