"""Report: the tables with the paper's figures beside them, as Markdown and as one page, and the figures."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from pdrn.audio.placing import whole_or_gone
from pdrn.study import page
from pdrn.study.page import Compared, Grid, Picture, Section
from pdrn.study.paper import KINDS, TABLE_1, TABLE_2
from pdrn.study.runs import runs_in
from pdrn.study.tables import Place, Setting, Table, tables

ALL = ("table1", "training", "table2")


@dataclass(frozen=True)
class Findings:
    """All that is known about one setting."""

    setting: Setting
    table: Table
    table2: Mapping[str, Any] | None
    example: Mapping[str, np.ndarray[Any, Any]] | None


def findings_in(runs: str | os.PathLike[str]) -> list[Findings]:
    """Collect what the runs in a folder found, one for each recipe, bit depth and corpus."""
    found = []
    for setting, table in tables(runs_in(runs)).items():
        study, example = (Path(runs) / f"study-{setting.name}.{end}" for end in ("json", "safetensors"))
        table2 = json.loads(study.read_text()).get("table2") if study.exists() else None
        arrays = safetensors.numpy.load_file(example) if example.exists() else None
        found.append(Findings(setting, table, table2, arrays))
    if not found:
        raise ValueError(f"{runs} holds no finished run of the paper's grid; make some with pdrn reproduce")
    return found


def markdown(
    runs: str | os.PathLike[str], settings: Collection[Setting] = (), parts: Sequence[str] = ALL
) -> str:
    """Return the tables of all settings, or of some, as Markdown."""
    found = [each for each in findings_in(runs) if each.setting in settings or not settings]
    return page.as_markdown([section(each, parts) for each in found])


def write_report(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write report.md, report.html and the figures, and return the page's path."""
    folder, sections = Path(out), []
    found = findings_in(runs)
    folder.mkdir(parents=True, exist_ok=True)
    for each in found:
        drawn = section(each, ALL)
        sections.append(Section(drawn.title, drawn.text, [*drawn.parts, *_pictures(each, folder)]))
    for name, contents in (
        ("report.md", page.as_markdown(sections)),
        ("report.html", page.as_html(sections)),
    ):
        with whole_or_gone(folder / name, overwrite=True) as stream:
            stream.write(contents.encode())
    return folder / "report.html"


def section(found: Findings, parts: Sequence[str]) -> Section:
    """Return the tables of one setting."""
    setting = found.setting
    made = {"table1": _table_1, "training": _training, "table2": _table_2}
    grids = [made[part](found) for part in parts]
    return Section(
        f"{setting.recipe.capitalize()} recipe, {setting.bits} bits",
        f"Corpus {setting.corpus} ({setting.corpus_sha256[:12]}), frames of {setting.frame_length} samples.",
        [grid for grid in grids if grid is not None],
    )


def _table_1(found: Findings) -> Grid:
    depths = sorted({place.depth for place in found.table})
    rows: list[list[str | Compared]] = []
    for split, data in (("train", "training"), ("dev", "development")):
        for regularised, words in ((False, "without"), (True, "with")):
            for kind in KINDS:
                results = [found.table.get(Place(kind, regularised, depth)) for depth in depths]
                if not any(results):
                    continue
                values: list[str | Compared] = [
                    Compared(
                        1e4 * result.smallest(split) if result else None,
                        _in_1e4(found, TABLE_1.get((kind, split, regularised, depth))),
                    )
                    for depth, result in zip(depths, results, strict=True)
                ]
                rows.append([kind, data, words, *values])
    caption = (
        "Table 1. Smallest MSE over all epochs, in multiples of 1e-4: here, and in brackets the paper's and "
        "the difference. Training errors are means over an epoch while it is learned."
    )
    return Grid(caption, ["", "data", "regularisation", *(f"L = {depth}" for depth in depths)], rows)


def _training(found: Findings) -> Grid:
    rows: list[list[str | Compared]] = []
    for place, result in found.table.items():
        last = result.log[-1]
        record = result.run.record() or {}
        floor = float(np.median([entry["floor_fraction"] for entry in result.log]))
        rows.append(
            [
                f"{place.kind} L = {place.depth}",
                f"{result.config.loss.regularisation:g}",
                f"{record['parameters']:,}",
                str(result.epochs),
                str(last["best_epoch"]),
                _time(last["training_seconds"]),
                f"{floor:.0%}",
                result.run.folder.name,
            ]
        )
    caption = (
        "How these were trained. The speed is in units of the floor: the time of the matrix products alone, "
        "measured in the same run."
    )
    header = ["network", "lambda", "weights", "epochs", "best", "training", "speed", "run"]
    return Grid(caption, header, rows)


def _table_2(found: Findings) -> Grid | None:
    if found.table2 is None:
        return None
    rows: list[list[str | Compared]] = []
    heard = [name for name in ("pesq", "stoi") if found.table2["rows"][0].get(name) is not None]
    for row in found.table2["rows"]:
        mse, snr = TABLE_2[row["method"]]
        figures: list[str | Compared] = [
            Compared(1e4 * row["mse"], _in_1e4(found, mse)),
            Compared(row["snr"], snr if found.setting.is_the_papers else None, relative=False),
        ]
        hearing = [f"{row[name]:.3f}" for name in heard]
        rows.append([row["method"], *figures, f"{row['ratio']:.3f}", *hearing])
    files, frames = found.table2["rows"][0]["files"], found.table2["rows"][0]["frames"]
    caption = (
        f"Table 2. The test set, {frames} frames of {files} files: nothing done (QU), the networks that are "
        "best on the development set, and Chambolle-Pock. In brackets the paper's figures and the difference."
    )
    header = ["", "MSE / 1e-4", "SNR / dB", "MSE ratio", *(name.upper() for name in heard)]
    return Grid(caption, header, rows)


def _pictures(found: Findings, folder: Path) -> list[Picture]:
    from pdrn.study import figures

    drawn = [
        (
            f"curves-{kind.lower()}",
            f"Training and development errors of the {kind}s.",
            figures.curves(found.table, kind, found.setting.is_the_papers),
        )
        for kind in KINDS
    ]
    if found.example is not None:
        drawn.append(("waveform", "A few milliseconds in their cells.", figures.waveform(found.example)))
        drawn.append(("spectrograms", "Before and after.", figures.spectrograms(found.example)))
    pictures = []
    for name, caption, figure in drawn:
        name = f"{found.setting.name}-{name}"
        contents = figures.rendered(figure)
        for kind, file in contents.items():
            with whole_or_gone(folder / f"{name}.{kind}", overwrite=True) as stream:
                stream.write(file)
        pictures.append(Picture(caption, f"{name}.png", base64.b64encode(contents["svg"]).decode()))
    return pictures


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _in_1e4(found: Findings, papers: float | None) -> float | None:
    """Return the paper's error in multiples of 1e-4, where it may be compared."""
    return 1e4 * papers if papers is not None and found.setting.is_the_papers else None
