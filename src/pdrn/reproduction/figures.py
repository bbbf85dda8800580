"""The figures of a report: learning curves as in the paper, a signal in its cells, spectrograms, studies."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator

from pdrn.audio.frames import cut
from pdrn.reproduction.studies import confidence_interval
from pdrn.reproduction.tables import PAPER_TABLE_1, Kind, Table1, Variant

Arrays = Mapping[str, np.ndarray[Any, Any]]

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}
COLOURS = {"signal": "#222222", "cells": "#d9dee5", "QU": "#8a94a3", "CP 25": "#c2800f", "PDN": "#2a78b5"}
COLOURS["PDRN"] = "#c8452e"
PALETTE = ("#8a94a3", "#2a78b5", "#c8452e", "#c2800f")

SAMPLES_SHOWN = 80

LOG_RATIO = 5
"""Epochs are on a logarithmic scale if the longest run has more than this multiple of the shortest."""


def curves(table: Table1, kind: Kind, with_paper: bool) -> Figure:
    """Draw training and development errors over the epochs, without and with regularisation.

    The layout is that of the paper's figures. Ticks at the right edge can mark the paper's minima.
    """
    depths = sorted({variant.depth for variant in table})
    palette = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(depths)))
    colours = dict(zip(depths, palette, strict=True))
    epochs = [result.epochs for result in table.values()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 5.6), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        lines: dict[int, Line2D] = {}
        for row, regularised in zip(axes, (False, True), strict=True):
            for panel, split in zip(row, ("train", "dev"), strict=True):
                for depth, colour in colours.items():
                    if (result := table.get(Variant(kind, regularised, depth))) is None:
                        continue
                    errors = [1e4 * entry[f"{split}_mse"] for entry in result.log]
                    marker = "." if result.epochs < 3 else None
                    (lines[depth],) = panel.plot(
                        [entry["epoch"] for entry in result.log], errors, color=colour, lw=1.2, marker=marker
                    )
                    papers = PAPER_TABLE_1.get((kind, split, regularised, depth))
                    if papers and with_paper:
                        at = panel.get_yaxis_transform()
                        panel.plot([0.985, 1.0], 2 * [1e4 * papers], transform=at, color=colour, lw=2.5)
                if not panel.lines:
                    panel.text(0.5, 0.5, "not trained", transform=panel.transAxes, ha="center", color="gray")
                data = {"train": "training", "dev": "development"}[split]
                panel.set_title(f"{data} error, {'with' if regularised else 'without'} regularisation")
                _scale_curves(panel, max(epochs) > LOG_RATIO * min(epochs))
        for panel in axes[:, 0]:
            panel.set_ylabel("MSE / 1e-4")
        for panel in axes[1]:
            panel.set_xlabel("epoch")
        shown = [depth for depth in depths if depth in lines]
        handles, labels = [lines[depth] for depth in shown], [f"L = {depth}" for depth in shown]
        figure.legend(handles, labels, loc="outside upper right", ncols=len(shown))
        return figure


def _scale_curves(panel: Axes, is_log: bool) -> None:
    """Scale errors logarithmically, and epochs too if their numbers differ much."""
    panel.set_yscale("log")
    if is_log:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
    else:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("")


def waveform(example: Arrays) -> Figure:
    """Draw the loudest part of an example: cells, signal, restored signals; below, relative to the cell."""
    signal = example["signal"]
    count = min(SAMPLES_SHOWN, len(signal))
    energy = np.convolve(np.square(signal), np.ones(count), "valid")
    begin = int(energy.argmax())
    here = slice(begin, begin + count)
    time = 1e3 * np.arange(begin, begin + count) / float(example["rate"][0])
    lower, upper = example["lower"][here], example["upper"][here]
    centre, step = (lower + upper) / 2, upper - lower
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        width = 1e3 / float(example["rate"][0])
        above.bar(time, step, width, lower, color=COLOURS["cells"], label="cells")
        above.plot(time, centre, ".", ms=3, color=COLOURS["QU"], label="quantized")
        below.bar(time, 1, width, -0.5, color=COLOURS["cells"])
        shown = {"original": (signal, COLOURS["signal"], 2.2)}
        shown |= {name: (example[name], COLOURS[name], 1.1) for name in _methods(example)}
        for name, (samples, colour, thickness) in shown.items():
            above.plot(time, samples[here], color=colour, lw=thickness, alpha=0.8, label=name)
            below.plot(time, (samples[here] - centre) / step, color=colour, lw=thickness, alpha=0.8)
        below.set_xlabel("time / ms")
        above.set_ylabel("amplitude")
        below.set_ylabel("place in the cell")
        above.margins(x=0)
        figure.legend(loc="outside upper right", ncols=6)
        return figure


def spectrograms(example: Arrays, frame_length: int = 512, hop: int = 64) -> Figure:
    """Draw an example before quantization, after it, and restored, all on one scale."""
    centre = (example["lower"] + example["upper"]) / 2
    shown = {"original": example["signal"], "quantized": centre}
    shown |= {name: example[name] for name in _methods(example)}
    rate = float(example["rate"][0])
    hop = max(hop, len(centre) // 600)
    window = np.hanning(frame_length)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(8, 1.25 * len(shown) + 0.5), layout="constrained")
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
        top = None
        for panel, (name, signal) in zip(panels, shown.items(), strict=True):
            frames = cut(np.pad(signal, (0, max(0, frame_length - len(signal)))), frame_length, hop)
            power = 20 * np.log10(np.abs(np.fft.rfft(frames * window)) + 1e-6).T
            top = power.max() if top is None else top
            extent = (0, len(signal) / rate, 0, rate / 2e3)
            image = panel.imshow(
                power, origin="lower", aspect="auto", extent=extent, vmin=top - 80, vmax=top, cmap="magma"
            )
            panel.set_title(name)
            panel.set_ylabel("kHz")
        panels[-1].set_xlabel("time / s")
        figure.colorbar(image, ax=list(panels), label="dB", pad=0.01)
        return figure


def extrapolation(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the error over the number of layers, a line for each kind of extrapolation."""
    panels = sorted({(each["labels"]["map"], each["labels"]["network"]) for each in results}, reverse=True)
    thetas = list(dict.fromkeys(each["labels"]["theta"] for each in results))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 3 * -(-len(panels) // 2)), layout="constrained")
        axes = figure.subplots(-(-len(panels) // 2), 2, squeeze=False)
        for panel, (map, network) in zip(axes.flat, panels, strict=False):
            panel.set_title(f"{network}, {map}")
            for index, (theta, colour) in enumerate(zip(thetas, PALETTE, strict=False)):
                shown = [
                    (each["labels"]["layers"], *confidence_interval(each["dev_ratio"]))
                    for each in results
                    if (each["labels"]["map"], each["labels"]["network"], each["labels"]["theta"])
                    == (map, network, theta)
                ]
                layers, means, halves = (np.array(part, float) for part in zip(*shown, strict=True))
                beside = layers * (1 + 0.02 * (index - 1.5))  # intervals do not hide each other
                style = {"color": colour, "lw": 1.2, "marker": "o", "ms": 3, "capsize": 2}
                panel.errorbar(beside, means, np.nan_to_num(halves), label=f"theta {theta}", **style)
            panel.set_xscale("log")
            panel.set_xticks(layers, [f"{count:g}" for count in layers], minor=False)
            panel.minorticks_off()
            panel.set_xlabel("layers")
            panel.set_ylabel("MSE ratio, development")
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(thetas))
        return figure


def iterating(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the error, and the duality gap of tied networks, over iterations beyond training."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        map = matplotlib.colormaps["tab20" if len(results) <= 20 else "turbo"]
        colours = map(np.linspace(0, 1, len(results)))
        for result, colour in zip(results, colours, strict=True):
            labels, curve = result["labels"], result["curve"]
            depth = int(labels["layers"])
            name = f"{labels['network']}, L = {depth}"
            name += "" if labels["gradient"] == "all" else f", gradient of the {labels['gradient']}"
            iterations = 1 + np.arange(len(curve["ratio"]))
            left.plot(iterations, curve["ratio"], color=colour, lw=1.2, label=name)
            left.plot(depth, curve["ratio"][depth - 1], "o", color=colour, ms=4)
            if curve["gap"]:
                right.plot(iterations, curve["gap"], color=colour, lw=1.2)
                right.plot(depth, curve["gap"][depth - 1], "o", color=colour, ms=4)
        left.set_title("error")
        left.set_ylabel("MSE ratio, development")
        left.set_ylim(top=min(1.2, left.get_ylim()[1]))
        right.set_title("duality gap of tied networks")
        right.set_ylabel("gap, relative to the value")
        right.set_yscale("log")
        for panel in (left, right):
            panel.set_xscale("log")
            panel.set_xlabel("iteration")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG, the same bytes for the same figure."""
    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()


def _methods(example: Arrays) -> Iterable[str]:
    return [name for name in ("CP 25", "PDN", "PDRN") if name in example]
