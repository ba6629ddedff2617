# SPDX-License-Identifier: Apache-2.0
"""Every distribution of the repository, and the archives that are built from it."""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "shared", *sorted(p.parent for p in ROOT.glob("packages/*/pyproject.toml"))]
# The others need a toolchain of their own; their sessions build them.
BUILT = ("shared", "cpu", "tpu")


@dataclass(frozen=True)
class Distribution:
    """The sources of one distribution."""

    name: str
    folder: Path

    @property
    def pyproject(self):
        return tomllib.loads((self.folder / "pyproject.toml").read_text())

    @property
    def project(self):
        return self.pyproject["project"]


DISTRIBUTIONS = [Distribution(folder.name, folder) for folder in FOLDERS]


@dataclass(frozen=True)
class Built:
    """A wheel and an sdist: paths, and the names of the files in them."""

    distribution: Distribution
    wheel: Path
    sdist: Path

    @property
    def wheel_files(self):
        with zipfile.ZipFile(self.wheel) as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]

    @property
    def sdist_files(self):
        """Without the leading folder."""
        with tarfile.open(self.sdist) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
        return [member.name.partition("/")[2] for member in members]

    @property
    def metadata(self):
        (name,) = (name for name in self.wheel_files if name.endswith(".dist-info/METADATA"))
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(name).decode()


def build(name):
    """Build the sdist, and the wheel from the sdist, so that nothing is missing in it."""
    (distribution,) = (d for d in DISTRIBUTIONS if d.name == name)
    target = Path(tempfile.mkdtemp(prefix=f"dist-{name}-"))
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(target)]
    ran = subprocess.run(
        [*command, str(distribution.folder)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(distribution, wheel, sdist)
