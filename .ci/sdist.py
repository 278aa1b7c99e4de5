"""Whether an sdist holds what a build and the tests need, and nothing else: python .ci/sdist.py FILE."""

import sys
import tarfile
from pathlib import PurePosixPath

NEEDED = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "xmcjax/native/CMakeLists.txt",
    "xmcjax/native/interface/abi.cc",
    "tests/conftest.py",
}
# Libraries, models and arrays are made; data that the package ships stand below xmcjax/data.
MADE = {".so", ".o", ".pyc", ".npz", ".npy", ".safetensors", ".whl", ".parquet", ".svm"}
LARGEST = 400_000  # bytes of one file: the results of a study have traces


def faults(path: str):
    """One sentence for each fault of the sdist."""
    with tarfile.open(path) as archive:
        files = {str(PurePosixPath(*PurePosixPath(m.name).parts[1:])): m.size for m in archive if m.isfile()}
    for name in sorted(NEEDED - files.keys()):
        yield f"{name} is not there"
    for name, size in files.items():
        if PurePosixPath(name).suffix in MADE:
            yield f"{name} is made, not written"
        elif size > LARGEST:
            yield f"{name} has {size} bytes, more than {LARGEST}"


if __name__ == "__main__":
    found = list(faults(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    raise SystemExit(bool(found))
