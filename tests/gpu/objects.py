# SPDX-License-Identifier: Apache-2.0
"""What a compiler made of each kernel, read from the built library."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOUNDS = {
    "gated_kernel": 256,
    "unary_kernel": 256,
    "rms_norm_kernel": 512,
    "layer_norm_kernel": 512,
    "rms_norm_gated_kernel": 512,
    "rotary_kernel": 256,
    "qk_norm_rope_kernel": 128,
}
"""The threads that each kernel is compiled for."""

_VECTORS = {"rms_norm_kernel": 1, "layer_norm_kernel": 0}
"""Which boolean template argument says vectors; the only one elsewhere."""

COUNT = 3 * (2 * 7 + 2 * 6 + 2 * 3 + 3 + 2 + 2 * 3 + 2)
"""Kernels of a target: dtypes by gated, unary, rms_norm, layer_norm, rms_norm_gated, rotary and
qk_norm_rope in their variants."""


@dataclass(frozen=True)
class Kernel:
    """Attributes:
    target: ``sm_90``, ``gfx942``.
    symbol: its mangled name.
    registers: of a thread.
    local: bytes of local memory of a thread, spills included.
    spills: registers that were spilled.
    """

    target: str
    symbol: str
    registers: int
    local: int
    spills: int

    @property
    def family(self) -> str:
        return kernel_name(self.symbol)

    @property
    def vectors(self) -> bool:
        flags = re.findall(r"Lb([01])E", self.symbol)
        return flags[_VECTORS.get(self.family, 0)] == "1"

    def __str__(self) -> str:
        return f"{self.target} {self.symbol}"


def kernel_name(symbol: str) -> str:
    match = re.search(r"3gpu\d+([a-z_]+_kernel)I", symbol)
    if match is None:
        raise ValueError(f"{symbol} is no kernel of ours")
    return match.group(1)


def tool(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def cuda_kernels(cuobjdump: str, library: str) -> list[Kernel]:
    text = _output(cuobjdump, "--dump-resource-usage", library)
    found = []
    target = ""
    for line in text.splitlines():
        if match := re.match(r"arch = (sm_\d+)", line):
            target = match.group(1)
        elif match := re.match(r" *Function (_Z\w+_kernel\w+):", line):
            symbol = match.group(1)
        elif match := re.match(r" *REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", line):
            registers, stack, local = map(int, match.groups())
            found.append(Kernel(target, symbol, registers, stack + local, 0))
    return found


def cuda_code(cuobjdump: str, library: str, target: str) -> dict[str, str]:
    """The machine code of each kernel of one target."""
    text = _output(cuobjdump, "-sass", "-arch", target, library)
    parts = re.split(r"\n\s*Function : (\S+)\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def code_objects(library: str) -> Iterator[tuple[str, bytes]]:
    """Target and code object of every offload bundle in a file: a magic word, the number of
    entries, then offset, size and name of each."""
    data = Path(library).read_bytes()
    magic = b"__CLANG_OFFLOAD_BUNDLE__"
    start = data.find(magic)
    while start >= 0:
        (count,) = struct.unpack_from("<Q", data, start + len(magic))
        at = start + len(magic) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            name = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if size and "amdgcn" in name:
                yield name.rpartition("-")[2], data[start + offset : start + offset + size]
        start = data.find(magic, at)


def rocm_kernels(readelf: str, target: str, code_object: Path) -> list[Kernel]:
    text = _output(readelf, "--notes", str(code_object))
    found = []
    for part in re.split(r"\n  - (?=\.a(?:gpr_count|rgs))", text)[1:]:

        def number(name: str, part: str = part) -> int:
            match = re.search(rf"^ *\.{name}: +(\d+)", part, re.MULTILINE)
            if match is None:
                raise ValueError(f"no {name} in the notes of {code_object}")
            return int(match.group(1))

        symbol = re.search(r"^ *\.name: +(\S+_kernel\S+)", part, re.MULTILINE)
        if symbol is None:
            raise ValueError(f"a kernel without a name in {code_object}")
        spills = number("vgpr_spill_count") + number("sgpr_spill_count")
        local = number("private_segment_fixed_size")
        found.append(Kernel(target, symbol.group(1), number("vgpr_count"), local, spills))
    return found


def rocm_code(objdump: str, code_object: Path) -> dict[str, str]:
    text = _output(objdump, "-d", str(code_object))
    parts = re.split(r"\n[0-9a-f]+ <(\S+)>:\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def assembly_code(path: Path) -> dict[str, str]:
    """The instructions of each function of an assembly file that clang wrote."""
    parts = re.split(r"^(\S+): +; @\S+$", path.read_text(), flags=re.MULTILINE)
    bodies = (part.partition(".Lfunc_end")[0] for part in parts[2::2])
    return dict(zip(parts[1::2], bodies, strict=True))


def check(kernels: list[Kernel], registers: int) -> None:
    """No spill, no local memory, and a full block's registers fit a file of ``registers``."""
    bad = [str(k) for k in kernels if k.spills or k.local]
    assert not bad, bad
    greedy = [f"{k}: {k.registers}" for k in kernels if k.registers * BOUNDS[k.family] > registers]
    assert not greedy, greedy
    for target in {k.target for k in kernels}:
        assert len({k.symbol for k in kernels if k.target == target}) == COUNT, target


def temporary(data: bytes) -> Path:
    with tempfile.NamedTemporaryFile(suffix=".co", delete=False) as file:
        file.write(data)
    return Path(file.name)
