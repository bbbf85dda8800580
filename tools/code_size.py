"""Measure the source: modules and lines, and what one restoration imports and calls.

    python tools/code_size.py [FOLDER] [--imports]

*Lines proper* are lines of code: no docstrings (nor strings below what they document), comments, blank lines
or imports. A *call edge* goes from the nearest function of the package up the stack to the one called.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tokenize
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile

SECONDS = 3

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

WATCHED = """
import json, sys, threading
edges = set()

def own(frame):
    name = frame.f_globals.get("__name__") or ""
    return name if name.partition(".")[0] == "pdrn" else None

def watch(frame, event, argument):
    callee = own(frame) if event == "call" and frame.f_code.co_name != "<module>" else None
    if callee:
        caller = frame.f_back
        while caller and not own(caller):
            caller = caller.f_back
        if caller and own(caller) != callee:
            edges.add((own(caller), callee))

sys.setprofile(watch)
threading.setprofile(watch)
try:
    from pdrn.__main__ import main
    main()
except SystemExit as end:
    assert not end.code, end.code
sys.setprofile(None)
print(json.dumps([[name for name in sys.modules if name.partition(".")[0] == "pdrn"], sorted(edges)]))
"""
"""Runs a command, and prints the package's modules that it imported and the call edges between them."""


def lines_proper(source: Path) -> int:
    """Count the lines of code of a module."""
    with tokenize.open(source) as stream:
        tokens = [token for token in tokenize.generate_tokens(stream.readline) if token.type not in LAYOUT]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source.read_bytes())):
        is_docstring = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def restoration(package: Path) -> tuple[list[str], list[list[str]]]:
    """Restore a few seconds in 5 bits; return the modules imported and the call edges between modules."""
    (recording,) = package.rglob("speech.flac")
    samples, rate = soundfile.read(recording)
    with TemporaryDirectory() as folder:
        quantized = (np.floor(samples[: SECONDS * rate] * 16) + 0.5) / 16
        soundfile.write(Path(folder) / "speech.wav", quantized, rate, subtype="PCM_16")
        output = subprocess.run(
            [sys.executable, "-c", WATCHED, "restore", "speech.wav", "--quiet"],
            check=True,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"},
        ).stdout
    modules, edges = json.loads(output.splitlines()[-1])
    return modules, edges


def package_of(module: str) -> str:
    """Return the second component of a module's name."""
    return [*module.split("."), ""][1]


def main() -> None:
    """Print the figures."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("src/pdrn"))
    parser.add_argument("--imports", action="store_true", help="watch a restoration, too")
    arguments = parser.parse_args()
    package = arguments.folder.resolve()
    modules = sorted(package.rglob("*.py"))
    proper = sum(map(lines_proper, modules))
    print(f"modules: {len(modules)}")
    print(f"lines: {sum(len(module.read_bytes().splitlines()) for module in modules)}")
    print(f"lines proper: {proper}")
    print(f"lines proper per module: {proper / len(modules):.1f}")
    if arguments.imports:
        imported, edges = restoration(package)
        crossings = [(package_of(caller), package_of(callee)) for caller, callee in edges]
        between = [(caller, callee) for caller, callee in crossings if caller != callee]
        print(f"modules imported by pdrn restore: {len(imported)}")
        print(f"call edges between packages: {len(set(between))}")
        print(f"call edges between modules: {len(edges)}, {len(between)} of them between packages")


if __name__ == "__main__":
    main()
