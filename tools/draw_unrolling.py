"""Draw the picture of docs/unrolling.md, from the code on that page.

python tools/draw_unrolling.py docs/images/unrolling.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

PAGE = Path(__file__).parents[1] / "docs" / "unrolling.md"
CURVES = {"clean": "#222222", "noisy": "#c5ccd6", "after_5": "#c2800f", "trained": "#c8452e"}
LABELS = {"after_5": "5 iterations", "trained": "5 trained layers"}


def main(path: str) -> None:
    """Run the page, and draw three of its signals."""
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, PAGE.name, "exec"), names)
    figure = Figure((9, 2.6), layout="constrained")
    for place, axes in enumerate(figure.subplots(1, 3)):
        for name, colour in CURVES.items():
            axes.plot(names[name][place], color=colour, label=LABELS.get(name, name), linewidth=1.4)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main(*sys.argv[1:])
