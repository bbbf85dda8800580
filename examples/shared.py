"""Helpers of the examples: a table of results, plots of curves in their cells, and a training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]
COLOURS = ["#222222", "#8a94a3", "#c2800f", "#c8452e", "#2a78b5"]


def compare(title: str, measure: Callable[[Array], float], results: Mapping[str, Array]) -> dict[str, float]:
    """Print the measure of every result, and return them by name."""
    figures = {name: float(measure(result)) for name, result in results.items()}
    print(title)
    for name, figure in figures.items():
        print(f"  {name:<44}{figure:8.2f}")
    return figures


def snr_db(clean: Array, peak: bool = False) -> Callable[[Array], float]:
    """Return a function that measures the SNR in dB, or the PSNR of signals whose peak is 1."""
    power = 1.0 if peak else np.mean(clean**2)
    return lambda result: 10 * np.log10(power / np.mean((result - clean) ** 2))


def draw(
    path: str | Path,
    title: str,
    times: Array,
    curves: Mapping[str, Array],
    cells: tuple[Array, Array] | None = None,
    unit: str = "",
    clock: str = "seconds",
) -> None:
    """Plot curves over time, the first in black, on cells in grey."""
    figure = Figure((8, 3.2), layout="constrained")
    axes = figure.subplots()
    low, high = min(map(np.nanmin, curves.values())), max(map(np.nanmax, curves.values()))
    margin = 0.08 * (high - low)
    axes.set_ylim(low - margin, high + margin)
    if cells:
        ends = (np.clip(end, low - 9 * margin, high + 9 * margin) for end in cells)
        axes.fill_between(times, *ends, step="mid", color="#e3e8ef", label="cells", linewidth=0)
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        axes.plot(times, curve, color=colour, label=name, linewidth=1.4)
    axes.set(title=title, xlabel=clock, ylabel=unit, xlim=(times[0], times[-1]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def draw_images(path: str | Path, images: Mapping[str, Array]) -> None:
    """Plot images with values from 0 to 1 side by side."""
    figure = Figure((2 * len(images), 2.5), layout="constrained")
    for axes, (name, image) in zip(figure.subplots(1, len(images)), images.items(), strict=True):
        axes.imshow(image, "gray", vmin=0, vmax=1)
        axes.set_title(name.replace(", ", ",\n", 1), fontsize=8)
        axes.axis("off")
    figure.savefig(path, dpi=110)


def train(net: Any, problem: Callable[..., Any], data: tuple[Array, ...], clean: Array, epochs: int) -> None:
    """Train a network on clean signals; ``problem`` makes the problem of a batch of the data."""
    import torch

    tensors = [torch.tensor(part, dtype=torch.float32) for part in (*data, clean)]
    adam = torch.optim.Adam(net.parameters(), 3e-2)
    for _ in range(epochs):
        for *batch, target in zip(*(part.split(20) for part in tensors), strict=True):
            loss = ((net(problem(*batch)) - target) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()


def has_torch() -> bool:
    """Whether torch is installed; print a hint if not."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        print("(no network: pip install 'pdrn[train]')")
        return False
    return True
