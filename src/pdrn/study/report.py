"""Report: the tables with the paper's figures beside them, as Markdown and as one page, and the figures."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.audio.placing import whole_or_gone
from pdrn.study import page
from pdrn.study.compared import comparisons, kind_of
from pdrn.study.findings import load_comparisons, load_example, load_study
from pdrn.study.others import other_networks
from pdrn.study.page import Compared, Grid, Picture, Section, duration
from pdrn.study.paper import KINDS, TABLE_1, TABLE_2
from pdrn.study.runs import runs_in
from pdrn.study.tables import (
    Place,
    Result,
    Setting,
    Table,
    chosen_runs,
    lambdas_tried,
    results,
    table_of,
)

ALL = ("table1", "training", "lambdas", "table2")


@dataclass(frozen=True)
class Findings:
    """All that is known about one setting."""

    setting: Setting
    table: Table
    table2: Mapping[str, Any] | None = None
    example: Mapping[str, np.ndarray[Any, Any]] | None = None
    example_by: Mapping[str, str] = field(default_factory=dict)
    """The runs that restored the example."""
    lambdas: Mapping[Place, Mapping[float, Result]] = field(default_factory=dict)
    """What every lambda reached where several were tried."""

    def outdated(self, chosen: Mapping[str, str], what: str) -> str:
        """Return a sentence where runs are not those of the best networks any more."""
        if chosen == chosen_runs(self.table):
            return ""
        return f" Other networks are the best by now: give pdrn reproduce {what} again."


def findings_in(runs: str | os.PathLike[str]) -> list[Findings]:
    """Collect what the runs in a folder found, one for each recipe, bit depth and corpus."""
    found = []
    for setting, reached in results(runs_in(runs)).items():
        study, example = (Path(runs) / f"study-{setting.name}.{end}" for end in ("json", "safetensors"))
        table2 = load_study(study).get("table2")
        arrays, by = load_example(example) or (None, {})
        found.append(Findings(setting, table_of(reached), table2, arrays, by, lambdas_tried(reached)))
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
    found, rest = findings_in(runs), other_networks(runs)
    if not found and not rest and not load_comparisons(runs):
        raise ValueError(f"{runs} holds no finished run; make some with pdrn reproduce or pdrn train")
    folder.mkdir(parents=True, exist_ok=True)
    for each in found:
        drawn = section(each, ALL)
        sections.append(Section(drawn.title, drawn.text, [*drawn.parts, *_pictures(each, folder)]))
    sections += [*_comparisons(runs, folder), *rest]
    for name, contents in (
        ("report.md", f"# {page.TITLE}\n\n{page.as_markdown(sections)}"),
        ("report.html", page.as_html(sections)),
    ):
        with whole_or_gone(folder / name, overwrite=True) as stream:
            stream.write(contents.encode())
    return folder / "report.html"


def section(found: Findings, parts: Sequence[str]) -> Section:
    """Return the tables of one setting."""
    setting = found.setting
    made = {"table1": _table_1, "training": _training, "lambdas": _lambdas, "table2": _table_2}
    grids = [made[part](found) for part in parts]
    resampled = f", resampled to {setting.resampled_hz} Hz" if setting.resampled_hz else ""
    seed = f", seed {setting.seed}" if setting.seed else ""
    return Section(
        f"{setting.recipe.capitalize()} recipe, {setting.bits} bits",
        f"Corpus {setting.corpus} ({setting.corpus_sha256[:12]}){resampled}, "
        f"frames of {setting.frame_length} samples{seed}."
        + _where_the_papers(found, " The paper's figures are those of its own corpus, after 1000 epochs."),
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
        "Table 1. Smallest MSE over all epochs, in multiples of 1e-4"
        + _where_the_papers(found, ": here, and in brackets the paper's and the difference")
        + ". Training errors are means over an epoch while it is learned."
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
                duration(last["training_seconds"]),
                f"{floor:.0%}",
                *(_percent(result.roughness(split)) for split in ("train", "dev")),
                result.run.folder.name,
            ]
        )
    caption = (
        "How these were trained; of several runs of a network the longest counts. The speed is in units of "
        "the floor: the time of the matrix products alone, measured in the same run. Roughness is how far an "
        "error is from the mean of those before and after, over the later half of the epochs."
    )
    header = ["network", "lambda", "weights", "epochs", "best", "time", "speed"]
    header += ["roughness of training", "of development", "run"]
    return Grid(caption, header, rows)


def _lambdas(found: Findings) -> Grid | None:
    tried = sorted({value for of in found.lambdas.values() for value in of})
    if not tried:
        return None
    rows: list[list[str | Compared]] = [
        [
            f"{place.kind} L = {place.depth}",
            *(Compared(1e4 * of[value].smallest("dev") if value in of else None) for value in tried),
        ]
        for place, of in found.lambdas.items()
    ]
    caption = "Smallest development MSE, in multiples of 1e-4, by lambda: the best of each kind is chosen."
    return Grid(caption, ["network", *(f"{value:g}" for value in tried)], rows)


def _table_2(found: Findings) -> Grid | None:
    if found.table2 is None:
        return None
    rows: list[list[str | Compared]] = []
    heard = [name for name in ("pesq", "stoi") if found.table2["rows"][0].get(name) is not None]
    for row in found.table2["rows"]:
        mse, snr = TABLE_2.get(row["method"], (None, None))
        figures: list[str | Compared] = [
            Compared(1e4 * row["mse"], _in_1e4(found, mse), is_learned=row["method"] in KINDS),
            Compared(
                row["snr"],
                snr if found.setting.is_the_papers else None,
                relative=False,
                is_learned=row["method"] in KINDS,
            ),
        ]
        hearing = [f"{row[name]:.3f}" for name in heard]
        rows.append([row["method"], *figures, f"{row['ratio']:.3f}", *hearing])
    files, frames = found.table2["rows"][0]["files"], found.table2["rows"][0]["frames"]
    caption = (
        f"Table 2. The test set, {frames} frames of {files} files: nothing done (QU), the networks that are "
        "best on the development set, Chambolle-Pock, and Chambolle-Pock on overlapping frames (pdrn restore "
        "--method cp)." + _where_the_papers(found, " In brackets the paper's figures and the difference.")
    )
    caption += found.outdated(found.table2["chosen"], "table2")
    header = ["", "MSE / 1e-4", "SNR / dB", "MSE ratio", *(name.upper() for name in heard)]
    return Grid(caption, header, rows)


def _pictures(found: Findings, folder: Path) -> list[Picture]:
    from pdrn.study import figures

    drawn = [
        (
            f"curves-{kind.lower()}",
            f"Training and development errors of the {kind}s."
            + _where_the_papers(found, " Ticks at the right are the paper's smallest ones."),
            figures.curves(found.table, kind, found.setting.is_the_papers),
        )
        for kind in KINDS
    ]
    if found.example is not None:
        outdated = found.outdated(found.example_by, "figures")
        caption = "A few milliseconds in their cells." + outdated
        drawn.append(("waveform", caption, figures.waveform(found.example)))
        drawn.append(("spectrograms", "Before and after." + outdated, figures.spectrograms(found.example)))
    name = found.setting.name
    return [_picture(folder, f"{name}-{end}", caption, figure) for end, caption, figure in drawn]


def _comparisons(runs: str | os.PathLike[str], folder: Path) -> list[Section]:
    """Return a section about each comparison, with its figure if there is one."""
    from pdrn.study import figures

    drawn = {
        "extrapolation": (figures.extrapolation, "Means over the seeds, and their intervals of 95 %."),
        "iterating": (figures.iterating, "Iterations as trained (up to the dot) and beyond."),
    }
    sections = []
    for name, told in comparisons(runs).items():
        parts = list(told.parts)
        if kind_of(name) in drawn:
            draw, caption = drawn[kind_of(name)]
            parts.append(_picture(folder, name, caption, draw(load_comparisons(runs)[name]["outcomes"])))
        sections.append(Section(told.title, told.text, parts))
    return sections


def _picture(folder: Path, name: str, caption: str, figure: Any) -> Picture:
    """Write a figure beside the page, as PNG and SVG."""
    from pdrn.study.figures import rendered

    contents = rendered(figure)
    for kind, file in contents.items():
        with whole_or_gone(folder / f"{name}.{kind}", overwrite=True) as stream:
            stream.write(file)
    return Picture(caption, f"{name}.png", base64.b64encode(contents["svg"]).decode())


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.2%}"


def _where_the_papers(found: Findings, words: str) -> str:
    """Return words about the paper's figures, where these stand beside."""
    return words if found.setting.is_the_papers else ""


def _in_1e4(found: Findings, papers: float | None) -> float | None:
    """Return the paper's error in multiples of 1e-4, where it may be compared."""
    return 1e4 * papers if papers is not None and found.setting.is_the_papers else None
