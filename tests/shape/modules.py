"""Print every module of the packages with the first sentence about it: `make map [IN=client]`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("client", "server", "shared", "simulations")


def module_lines(package: str) -> Iterator[str]:
    """Yield each folder and module of a package, indented by depth, with its first sentence."""
    top = ROOT / package
    for path in sorted(top.rglob("*.py"), key=lambda each: (*each.parent.parts, each.stem)):
        if "_pb2" in path.name:
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        place = path.relative_to(top).with_suffix("")
        is_folder = place.name == "__init__"
        name = f"{place.parent.name}/" if is_folder else place.name
        depth = len(place.parts) - 1 - is_folder
        yield f"{'  ' * depth}{name}: {docstring.partition(chr(10) * 2)[0].replace(chr(10), ' ')}"


def main(packages: list[str]) -> None:
    """Print the map of these packages, of all by default."""
    for package in packages or PACKAGES:
        print("\n".join(module_lines(package)))


if __name__ == "__main__":
    main(sys.argv[1:])
