"""Check what a source distribution and a wheel hold: ``python tools/distribution.py dist``.

Both have the licence, the provenance of the data with their licences, and the citation. The source
distribution has the sources of the site and nothing that is built from them; the wheel has every
file of the package, and no other.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

NEEDED = {
    "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "noxfile.py",
    "pyproject.toml", ".ci/run", ".github/workflows/test.yml", "benchmarks/README.md",
    "conda/recipe/recipe.yaml", "docs/conf.py", "docs/index.md", "docs/_ext/checks.py",
    "docs/_static/vcomp.css", "docs/gallery/README.rst", "docs/reference/changelog.md",
    "tests/test_readme.py", "tools/datasets/docsearch.py", "vcomp/__init__.py", "vcomp/py.typed",
}  # fmt: skip
"""Some files of every folder of the source distribution."""

BUILT = re.compile(
    r"^(build|dist)/|^docs/(pictures|reference/api|jupyter_execute|_build)/|sg_execution_times"
    r"|(^|/)__pycache__/|\.(nb[ci]|pyc|pickle)$|^benchmarks/bias_study/results/"
)
"""What is made from sources, and is in no distribution."""

OF_WHEEL = (
    "METADATA", "entry_points.txt", "licenses/LICENSE", "extra_metadata/CITATION.cff",
    "licenses/vcomp/data/shipped/PROVENANCE.md",
)  # fmt: skip


def faults_of_source(names: Iterable[str]) -> list[str]:
    """Return what a source distribution lacks, or has too much of."""
    missing = [f"sdist: no {name}" for name in sorted(NEEDED - set(names))]
    return missing + [f"sdist: {name} is built" for name in sorted(names) if BUILT.search(name)]


def faults_of_wheel(names: Iterable[str], source: Iterable[str]) -> list[str]:
    """Return what a wheel lacks, or has too much of, compared with its source distribution."""
    folder = re.compile(r"variance_components-[^/]+\.dist-info/")
    package = {name for name in source if name.startswith("vcomp/")}
    metadata = {folder.sub("", name) for name in names if folder.match(name)}
    modules = {name for name in names if not folder.match(name)}
    missing = sorted((set(OF_WHEEL) - metadata) | (package - modules))
    strange = sorted(modules - package)
    return [f"wheel: no {name}" for name in missing] + [f"wheel: {name} too" for name in strange]


def main(folder: Path) -> int:
    """Print the faults of the distributions in a folder; return 1 if there is one."""
    (sdist,), (wheel,) = (folder.glob(f"variance_components-*.{end}") for end in ("tar.gz", "whl"))
    with tarfile.open(sdist) as archive:
        source = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    with zipfile.ZipFile(wheel) as archive:
        package = set(archive.namelist())
    faults = faults_of_source(source) + faults_of_wheel(package, source)
    print("\n".join(faults) or f"{sdist.name}: {len(source)} files; {wheel.name}: {len(package)}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
