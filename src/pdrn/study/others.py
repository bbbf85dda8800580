"""What a report says about networks that are neither in Table 1 nor part of a comparison."""

from __future__ import annotations

import dataclasses
import os

from pdrn.nets import Architecture
from pdrn.study.findings import load_comparisons
from pdrn.study.page import Compared, Grid, Section, duration
from pdrn.study.runs import runs_in
from pdrn.study.tables import others


def other_networks(runs: str | os.PathLike[str]) -> list[Section]:
    """Return a section about the networks that are not in Table 1, if there are any."""
    rows: list[list[str | Compared]] = []
    compared = {name for each in load_comparisons(runs).values() for name in each.get("runs", ())}
    for result in others(run for run in runs_in(runs) if run.folder.name not in compared):
        record, best = result.run.record() or {}, result.best
        bits = result.config.data.bits
        rows.append(
            [
                _described(result.config.architecture),
                f"{record['parameters']:,}",
                record["corpus"],
                " to ".join(f"{depth:g}" for depth in bits),
                duration(result.log[-1]["training_seconds"]),
                f"{1e4 * best['dev_mse']:.2f}",
                f"{best['dev_snr']:.2f}",
                f"{best['dev_ratio']:.3f}",
                result.run.folder.name,
            ]
        )
    if not rows:
        return []
    header = [
        "network",
        "weights",
        "corpus",
        "bits",
        "training",
        "MSE / 1e-4",
        "SNR / dB",
        "MSE ratio",
        "run",
    ]
    caption = (
        "The epoch with the smallest development error; the mean over bit depths where there are several."
    )
    return [Section("Other networks", "Trained by the same engine.", [Grid(caption, header, rows)])]


def _described(architecture: Architecture) -> str:
    """Return the name of a network: its kind, its depth, its map, and what else is not as usual."""
    shape = type(architecture.map).__name__.removesuffix("Map").lower()
    sizes = " x ".join(map(str, dataclasses.astuple(architecture.map)))
    settings = {part.name: getattr(architecture, part.name) for part in dataclasses.fields(architecture)}
    unusual = [
        settings[part.name] if isinstance(settings[part.name], str) else f"{part.name} {settings[part.name]}"
        for part in dataclasses.fields(architecture)
        if part.name not in ("map", "depth") and settings[part.name] != part.default
    ]
    return ", ".join(
        [f"{type(architecture).__name__} L = {architecture.depth}", f"{shape} {sizes}", *unusual]
    )
