"""Reports: tables with the paper's figures beside them, as Markdown."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.errors import InputError
from pdrn.nets import Architecture
from pdrn.reproduction.paper import KINDS, TABLE_1, TABLE_2
from pdrn.reproduction.studies import interval
from pdrn.reproduction.tables import (
    Place,
    Result,
    Setting,
    Table,
    chosen_runs,
    lambdas_tried,
    load_comparisons,
    load_example,
    load_study,
    others,
    results,
    table_of,
)
from pdrn.storage import atomic_write
from pdrn.training.runs import runs_in

TITLE = "Primal-dual networks: tables and figures"
"""What a report is called."""


@dataclass(frozen=True)
class Compared:
    """A figure, and the paper's; either may be missing."""

    here: float | None
    paper: float | None = None
    relative: bool = True
    """Whether the difference is in per cent; else in the figure's own unit."""

    @property
    def value(self) -> str:
        """The figure itself."""
        return "" if self.here is None else f"{self.here:.2f}"

    @property
    def comparison(self) -> str:
        """The paper's figure and the difference."""
        if self.paper is None:
            return ""
        if self.here is None:
            return f"{self.paper:.2f}"
        if self.relative:
            return f"{self.paper:.2f}, {round(100 * (self.here / self.paper - 1)):+} %"
        return f"{self.paper:.2f}, {self.here - self.paper:+.2f}"


@dataclass(frozen=True)
class Grid:
    """A table."""

    caption: str
    header: list[str]
    rows: list[list[str | Compared]]


@dataclass(frozen=True)
class Picture:
    """A figure in a PNG file beside the report."""

    caption: str
    file: str


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, and what follows."""

    title: str
    text: str
    parts: Sequence[Grid | Picture]


def as_markdown(sections: Sequence[Section]) -> str:
    """Return sections as Markdown."""
    lines: list[str] = []
    for section in sections:
        lines += [f"## {section.title}", "", section.text, ""]
        for part in section.parts:
            if isinstance(part, Picture):
                lines += [f"![{part.caption}]({part.file})", "", part.caption, ""]
                continue
            lines += [part.caption, ""]
            lines += [_row(part.header), _row(["---"] * len(part.header))]
            lines += [_row([_plain(cell) for cell in row]) for row in part.rows]
            lines.append("")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a time in words."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(cell: str | Compared) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.value} ({cell.comparison})".strip() if cell.comparison else cell.value


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
        if found.get("results")
    }


def comparison_markdown(runs: str | os.PathLike[str], name: str) -> str:
    """Return one comparison as Markdown."""
    return as_markdown([comparisons(runs)[name]])


def kind_of(name: str) -> str:
    """Return what kind of comparison a name is of."""
    return name.partition("-")[0]


def _section(kind: str, found: Mapping[str, Any]) -> Section:
    asked, outcomes = found["task"], found["results"]
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
        row += _iterated(outcome["curve"], outcome["labels"]["layers"]) if outcome["curve"] else []
        rows.append([*row])
    caption = "The epoch and the learning rate that are best on the development set" + (
        f", the latter from one seed. Means over {seeds} seeds, and half the width of their interval of 95 %."
        if seeds > 1
        else "."
    )
    header += ["theta that was learned"] if learned else []
    if outcomes[0]["curve"]:
        header += [
            "best iteration",
            "ratio there",
            "ratio at twice the depth",
            "at ten times",
            "activations / MB",
        ]
    return Grid(caption, header, rows)


def _iterated(course: Mapping[str, Any], depth: int) -> list[str]:
    ratios = course["ratio"]
    best = int(np.argmin(ratios))
    shown = (ratios[best], ratios[2 * depth - 1], ratios[-1])
    return [str(best + 1), *(f"{ratio:.4f}" for ratio in shown), f"{course['activation_bytes'] / 1e6:.1f}"]


def _with_interval(values: Sequence[float], digits: int) -> str:
    mean, half = interval(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _mean_theta(thetas: Sequence[Sequence[float]]) -> str:
    """Return the extrapolation of every layer but the last, after which it has no say."""
    if not thetas:
        return ""
    mean = np.mean(thetas, axis=0)
    return " ".join(f"{value:.2f}" for value in (mean[:-1] if len(mean) > 1 else mean))


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
    return as_markdown([section(each, parts) for each in found])


def write_report(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write report.md and its figures, and return its path."""
    folder, sections = Path(out), []
    found, rest = findings_in(runs), other_networks(runs)
    if not found and not rest and not load_comparisons(runs):
        raise InputError(f"{runs} holds no finished run; make some with pdrn reproduce or pdrn train")
    folder.mkdir(parents=True, exist_ok=True)
    for each in found:
        drawn = section(each, ALL)
        sections.append(Section(drawn.title, drawn.text, [*drawn.parts, *_pictures(each, folder)]))
    sections += [*_comparisons(runs, folder), *rest]
    path = folder / "report.md"
    with atomic_write(path, overwrite=True) as stream:
        stream.write(f"# {TITLE}\n\n{as_markdown(sections)}".encode())
    return path


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
            Compared(1e4 * row["mse"], _in_1e4(found, mse)),
            Compared(row["snr"], snr if found.setting.is_the_papers else None, relative=False),
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
    from pdrn.reproduction import figures

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
    from pdrn.reproduction import figures

    drawn = {
        "extrapolation": (figures.extrapolation, "Means over the seeds, and their intervals of 95 %."),
        "iterating": (figures.iterating, "Iterations as trained (up to the dot) and beyond."),
    }
    sections = []
    for name, told in comparisons(runs).items():
        parts = list(told.parts)
        if kind_of(name) in drawn:
            draw, caption = drawn[kind_of(name)]
            parts.append(_picture(folder, name, caption, draw(load_comparisons(runs)[name]["results"])))
        sections.append(Section(told.title, told.text, parts))
    return sections


def _picture(folder: Path, name: str, caption: str, figure: Any) -> Picture:
    """Write a figure as PNG."""
    from pdrn.reproduction.figures import png

    with atomic_write(folder / f"{name}.png", overwrite=True) as stream:
        stream.write(png(figure))
    return Picture(caption, f"{name}.png")


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.2%}"


def _where_the_papers(found: Findings, words: str) -> str:
    """Return words about the paper's figures, where these stand beside."""
    return words if found.setting.is_the_papers else ""


def _in_1e4(found: Findings, papers: float | None) -> float | None:
    """Return the paper's error in multiples of 1e-4, where it may be compared."""
    return 1e4 * papers if papers is not None and found.setting.is_the_papers else None
