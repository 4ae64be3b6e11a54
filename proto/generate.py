"""Generate the wire modules from the .proto files, or check that they are in step.

Run `make proto` to write them and `make contracts` to check them.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("fedperf_shared/wire")


def generate(target: Path) -> None:
    """Write modules and stubs of every .proto file below `target`."""
    sources = sorted(str(path) for path in (ROOT / PACKAGE).glob("*.proto"))
    outputs = [f"--python_out={target}", f"--pyi_out={target}"]
    if protoc.main(["protoc", f"-I{ROOT}", *outputs, *sources]) != 0:
        sys.exit("protoc failed; see the lines above")


def differing(expected: Path, committed: Path) -> list[str]:
    """Names of generated files that the commit lacks or holds in another version."""
    return sorted(
        path.name
        for path in (expected / PACKAGE).iterdir()
        if not (other := committed / PACKAGE / path.name).is_file()
        or other.read_bytes() != path.read_bytes()
    )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    committed = ROOT.parent / "shared"
    if not parser.parse_args().check:
        generate(committed)
        return
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / PACKAGE).mkdir(parents=True)
        generate(Path(scratch))
        if stale := differing(Path(scratch), committed):
            sys.exit(f"not in step with proto/: {', '.join(stale)}; run `make proto`")


if __name__ == "__main__":
    main()
