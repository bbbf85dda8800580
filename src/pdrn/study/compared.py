"""What a report says about comparisons: a table for each, and a figure where there is extrapolation."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pdrn.study import page
from pdrn.study.comparison import interval
from pdrn.study.findings import load_comparisons
from pdrn.study.page import Compared, Grid, Section

TEXTS = {
    "neighbours": "Primal-dual networks and their neighbours, about as many weights each where their kind "
    "allows that, every one trained for the time that the first takes for its epochs.",
    "extrapolation": "Every network with every kind of extrapolation, each trained for as many steps.",
    "iterating": "Networks whose last block is repeated beyond the depth that they were trained with. What a "
    "training step remembers is what it keeps in memory for its gradient, weights aside.",
}


def comparisons(runs: str | os.PathLike[str]) -> dict[str, Section]:
    """Return a section about each comparison in a folder that came to its end."""
    return {
        name: _section(kind_of(name), found)
        for name, found in load_comparisons(runs).items()
        if found.get("outcomes")
    }


def markdown(runs: str | os.PathLike[str], name: str) -> str:
    """Return one comparison as Markdown."""
    return page.as_markdown([comparisons(runs)[name]])


def kind_of(name: str) -> str:
    """Return what kind of comparison a name is of."""
    return name.partition("-")[0]


def _section(kind: str, found: Mapping[str, Any]) -> Section:
    asked, outcomes = found["asked"], found["outcomes"]
    text = (
        f"{TEXTS[kind]} Corpus {asked['corpus']} ({asked['corpus_sha256'][:12]}), {asked['bits']} bits, "
        f"frames of {asked['frame_length']} samples, epochs: {asked['epochs']}."
    )
    return Section(kind.capitalize(), text, [_grid(outcomes)])


def _grid(outcomes: Sequence[Mapping[str, Any]]) -> Grid:
    seeds = len(outcomes[0]["dev_ratio"])
    header = [*outcomes[0]["labels"], "weights", "steps", "learning rate"]
    header += ["MSE ratio, dev", "MSE ratio, test", "SNR / dB, test"]
    learned = any(outcome["theta"] for outcome in outcomes)
    rows: list[list[str | Compared]] = []
    for outcome in outcomes:
        row = [
            *map(str, outcome["labels"].values()),
            f"{outcome['parameters']:,}",
            str(outcome["steps"]),
            f"{outcome['learning_rate']:g}",
            _with_interval(outcome["dev_ratio"], 4),
            _with_interval(outcome["test_ratio"], 4),
            _with_interval(outcome["test_snr"], 2),
        ]
        row += [_mean_theta(outcome["theta"])] if learned else []
        row += _iterated(outcome["course"], outcome["labels"]["layers"]) if outcome["course"] else []
        rows.append([*row])
    caption = "The epoch and the learning rate that are best on the development set" + (
        f", the latter from one seed. Means over {seeds} seeds, and half the width of their interval of 95 %."
        if seeds > 1
        else "."
    )
    header += ["theta that was learned"] if learned else []
    if outcomes[0]["course"]:
        header += [
            "best iteration",
            "ratio there",
            "ratio at twice the depth",
            "at ten times",
            "remembered / MB",
        ]
    return Grid(caption, header, rows)


def _iterated(course: Mapping[str, Any], depth: int) -> list[str]:
    ratios = course["ratio"]
    best = int(np.argmin(ratios))
    shown = (ratios[best], ratios[2 * depth - 1], ratios[-1])
    return [str(best + 1), *(f"{ratio:.4f}" for ratio in shown), f"{course['remembered_bytes'] / 1e6:.1f}"]


def _with_interval(values: Sequence[float], digits: int) -> str:
    mean, half = interval(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _mean_theta(thetas: Sequence[Sequence[float]]) -> str:
    """Return the extrapolation of every layer but the last, after which it has no say."""
    if not thetas:
        return ""
    mean = np.mean(thetas, axis=0)
    return " ".join(f"{value:.2f}" for value in (mean[:-1] if len(mean) > 1 else mean))
