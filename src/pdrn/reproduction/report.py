"""The report of a folder of runs: tables beside the paper's as Markdown, and figures as PNG."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdrn.errors import InputError
from pdrn.nets import CellArchitecture
from pdrn.nets.files import encode
from pdrn.reproduction.studies import confidence_interval, load_comparisons
from pdrn.reproduction.tables import (
    KINDS,
    PAPER_TABLE_1,
    PAPER_TABLE_2,
    Experiment,
    Result,
    Table1,
    Variant,
    best_runs,
    by_experiment,
    lambdas_tried,
    load_example,
    load_kept,
    load_results,
    load_table_2,
    table_1,
)
from pdrn.storage import atomic_write, make_folder
from pdrn.training.runs import runs_in, save_json

TITLE = "Primal-dual networks: tables and figures"


def write_report(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write report.md and its figures, and return the path of report.md."""
    if not any(run.is_done for run in runs_in(runs)) and not load_comparisons(runs):
        raise InputError(f"{runs} holds no finished run; make some with pdrn reproduce or pdrn train")
    make_folder(out)
    path = Path(out) / "report.md"
    with atomic_write(path, overwrite=True) as stream:
        stream.write(f"# {TITLE}\n\n{markdown(runs, Path(out))}".encode())
    return path


def markdown(runs: str | os.PathLike[str], figures: Path | None = None) -> str:
    """Return the report of a folder of runs; with a folder for figures, draw them there."""
    results, comparisons = load_results(runs_in(runs)), load_comparisons(runs)
    sections = []
    for experiment, found in by_experiment(results).items():
        table, table2 = table_1(found), load_table_2(runs, experiment)
        tables = [
            table_1_markdown(experiment, table),
            training_markdown(table),
            _lambdas_markdown(lambdas_tried(found)),
            table_2_markdown(experiment, table, table2) if table2 else "",
        ]
        drawn = _experiment_figures(runs, experiment, table, figures) if figures else []
        sections.append(experiment_section(experiment, [*tables, *drawn]))
    for name, comparison in comparisons.items():
        drawn = _comparison_figures(name, comparison, figures) if figures else []
        sections.append(comparison_section(name, comparison, drawn))
    in_comparisons = {name for comparison in comparisons.values() for name in comparison["runs"]}
    others = [each for each in results if each.variant is None and each.run.folder.name not in in_comparisons]
    if others:
        sections.append(_other_networks(others))
    return "\n".join(sections)


def export_logs(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Copy records, logs and tables, but no networks and sound, which may be large or not free.

    The copy gives the same report, but for the example.
    """
    make_folder(out)
    for result in load_results(runs_in(runs)):
        result.run.copy_log(Path(out) / result.run.folder.name)
    for path in (*Path(runs).glob("table2-*.json"), *Path(runs).glob("comparison-*.json")):
        save_json(Path(out) / path.name, load_kept(path))


# Markdown ---------------------------------------------------------------------------------------------------


def _section(title: str, text: str, parts: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", text, "", *filter(None, parts)])


def _table(caption: str, rows: Sequence[Mapping[str, str]]) -> str:
    """Return a table with a caption; each row maps columns to cells."""
    lines = [rows[0].keys(), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join([caption, "", *("| " + " | ".join(line) + " |" for line in lines), ""])


def _figure(folder: Path, name: str, caption: str, figure: Any) -> str:
    """Write a figure as PNG, and return the Markdown that shows it."""
    from pdrn.reproduction.figures import png

    with atomic_write(folder / f"{name}.png", overwrite=True) as stream:
        stream.write(png(figure))
    return f"![{caption}]({name}.png)\n\n{caption}\n"


def beside(here: float | None, paper: float | None, relative: bool = True) -> str:
    """Return a figure with the paper's and the difference, in per cent if relative; either may be missing.

    >>> beside(1.90, 1.81)
    '1.90 (1.81, +5 %)'
    >>> beside(19.0, 18.90, relative=False)
    '19.00 (18.90, +0.10)'
    """
    value = "" if here is None else f"{here:.2f}"
    if paper is None:
        return value
    if here is None:
        return f"({paper:.2f})"
    difference = f"{round(100 * (here / paper - 1)):+} %" if relative else f"{here - paper:+.2f}"
    return f"{value} ({paper:.2f}, {difference})"


def duration(seconds: float) -> str:
    """Return a time in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.2%}"


# The paper's experiments ------------------------------------------------------------------------------------


def experiment_section(experiment: Experiment, parts: Iterable[str]) -> str:
    """Return the section of an experiment with its tables and figures."""
    rate_hz = experiment.data.sample_rate_hz
    resampled = f", resampled to {rate_hz} Hz" if rate_hz else ""
    seed = f", seed {experiment.seed}" if experiment.seed else ""
    text = (
        f"Corpus {experiment.corpus} ({experiment.corpus_sha256[:12]}){resampled}, "
        f"frames of {experiment.data.length} samples{seed}."
    )
    if experiment.matches_paper:
        text += " The paper's figures are those of its own corpus, after 1000 epochs."
    return _section(f"{experiment.recipe.capitalize()} recipe, {experiment.bits} bits", text, parts)


def table_1_markdown(experiment: Experiment, table: Table1) -> str:
    """Return Table 1: the smallest error of each network, on training and development data."""
    depths = sorted({variant.depth for variant in table})
    papers = PAPER_TABLE_1 if experiment.matches_paper else {}
    rows = []
    for split, data in (("train", "training"), ("dev", "development")):
        for regularised, words in ((False, "without"), (True, "with")):
            for kind in KINDS:
                results = [table.get(Variant(kind, regularised, depth)) for depth in depths]
                if not any(results):
                    continue
                row = {"": kind, "data": data, "regularisation": words}
                for depth, result in zip(depths, results, strict=True):
                    here = 1e4 * result.min_mse(split) if result else None
                    paper = papers.get((kind, split, regularised, depth))
                    row[f"L = {depth}"] = beside(here, 1e4 * paper if paper else None)
                rows.append(row)
    caption = (
        "Table 1. Smallest MSE over all epochs, in multiples of 1e-4"
        + (": here, and in brackets the paper's and the difference" if experiment.matches_paper else "")
        + ". Training errors are means over an epoch while it is learned."
    )
    return _table(caption, rows)


def training_markdown(table: Table1) -> str:
    """Return a table of how the networks of Table 1 were trained."""
    rows = [
        {
            "network": f"{variant.kind} L = {variant.depth}",
            "lambda": f"{result.config.loss.regularisation:g}",
            "weights": f"{result.record.parameters:,}",
            "epochs": str(result.epochs),
            "best": str(result.log[-1]["best_epoch"]),
            "time": duration(result.log[-1]["training_seconds"]),
            "roughness of training": _percent(result.roughness("train")),
            "of development": _percent(result.roughness("dev")),
            "run": result.run.folder.name,
        }
        for variant, result in table.items()
    ]
    caption = (
        "How these were trained; of several runs of a network the longest counts. Roughness is how far an "
        "error is from the mean of those before and after, over the later half of the epochs."
    )
    return _table(caption, rows)


def _lambdas_markdown(lambdas: Mapping[Variant, Mapping[float, Result]]) -> str:
    tried = sorted({value for found in lambdas.values() for value in found})
    if not tried:
        return ""
    rows = [
        {"network": f"{variant.kind} L = {variant.depth}"}
        | {f"{x:g}": f"{1e4 * found[x].min_mse('dev'):.2f}" if x in found else "" for x in tried}
        for variant, found in lambdas.items()
    ]
    caption = "Smallest development MSE, in multiples of 1e-4, by lambda: the best of each kind is chosen."
    return _table(caption, rows)


def table_2_markdown(experiment: Experiment, table: Table1, table2: Mapping[str, Any]) -> str:
    """Return Table 2: the errors of the best networks and of Chambolle-Pock on the test set."""
    first = table2["rows"][0]
    metrics = [name for name in ("pesq", "stoi", "zimtohrli") if first.get(name) is not None]
    papers = PAPER_TABLE_2 if experiment.matches_paper else {}
    rows = []
    for row in table2["rows"]:
        mse, snr = papers.get(row["method"], (None, None))
        rows.append(
            {
                "": row["method"],
                "MSE / 1e-4": beside(1e4 * row["mse"], 1e4 * mse if mse else None),
                "SNR / dB": beside(row["snr"], snr, relative=False),
                "MSE ratio": f"{row['ratio']:.3f}",
                **{name.upper(): f"{row[name]:.3f}" for name in metrics},
            }
        )
    caption = (
        f"Table 2. The test set, {first['frames']} frames of {first['files']} files: quantized (QU), the "
        "networks that are best on the development set, Chambolle-Pock, and Chambolle-Pock on overlapping "
        "frames (pdrn restore --method cp)."
        + (" In brackets the paper's figures and the difference." if experiment.matches_paper else "")
        + _outdated(table, table2["networks"], "table2")
    )
    return _table(caption, rows)


def _outdated(table: Table1, networks: Mapping[str, str], what: str) -> str:
    """Return a warning if other networks have become the best since something was measured."""
    if networks == best_runs(table):
        return ""
    return f" Other networks are the best by now: run pdrn reproduce {what} again."


def _experiment_figures(
    runs: str | os.PathLike[str], experiment: Experiment, table: Table1, folder: Path
) -> list[str]:
    from pdrn.reproduction import figures

    papers = " Ticks at the right are the paper's smallest ones." if experiment.matches_paper else ""
    drawn = []
    for kind in KINDS:
        caption = f"Training and development errors of the {kind}s.{papers}"
        curves = figures.curves(table, kind, experiment.matches_paper)
        drawn.append(_figure(folder, f"{experiment.name}-curves-{kind.lower()}", caption, curves))
    if example := load_example(runs, experiment):
        arrays, networks = example
        outdated = _outdated(table, networks, "figures")
        for name, caption, figure in (
            ("waveform", "A few milliseconds in their cells.", figures.waveform(arrays)),
            ("spectrograms", "Before and after.", figures.spectrograms(arrays)),
        ):
            drawn.append(_figure(folder, f"{experiment.name}-{name}", caption + outdated, figure))
    return drawn


# Comparisons and other networks -----------------------------------------------------------------------------

DESCRIPTIONS = {
    "neighbours": "Primal-dual networks and their neighbours, of about the same size where possible, all "
    "trained for the time that the first takes for its epochs.",
    "extrapolation": "Every network with every kind of extrapolation, trained for the same number of steps.",
    "iterating": "Networks whose last block is repeated beyond the depth at which they were trained. "
    "Activations are those that a training step stores for its gradient.",
}


def comparison_section(name: str, comparison: Mapping[str, Any], drawn: Iterable[str] = ()) -> str:
    """Return the section of a comparison; its name begins with that of its study."""
    study, task = name.partition("-")[0], comparison["task"]
    text = (
        f"{DESCRIPTIONS[study]} Corpus {task['corpus']} ({task['corpus_sha256'][:12]}), {task['bits']} bits, "
        f"frames of {task['frame_length']} samples, epochs: {task['epochs']}."
    )
    return _section(study.capitalize(), text, [_comparison_table(comparison["results"]), *drawn])


def _comparison_table(results: Sequence[Mapping[str, Any]]) -> str:
    seeds, has_theta = len(results[0]["dev_ratio"]), any(result["theta"] for result in results)
    rows = [
        {
            **{column: str(label) for column, label in result["labels"].items()},
            "weights": f"{result['parameters']:,}",
            "steps": str(result["steps"]),
            "learning rate": f"{result['learning_rate']:g}",
            "MSE ratio, dev": _with_interval(result["dev_ratio"], 4),
            "MSE ratio, test": _with_interval(result["test_ratio"], 4),
            "SNR / dB, test": _with_interval(result["test_snr"], 2),
            **({"learned theta": _mean_theta(result["theta"])} if has_theta else {}),
            **(_iterations(result["curve"], result["labels"]["layers"]) if result["curve"] else {}),
        }
        for result in results
    ]
    caption = "The epoch and the learning rate that are best on the development set" + (
        f", the latter with one seed. Means over {seeds} seeds, with 95 % confidence intervals."
        if seeds > 1
        else "."
    )
    return _table(caption, rows)


def _with_interval(values: Sequence[float], digits: int) -> str:
    mean, half = confidence_interval(values)
    return f"{mean:.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def _mean_theta(thetas: Sequence[Sequence[float]]) -> str:
    """Return the mean theta of every layer but the last, where it has no effect."""
    if not thetas:
        return ""
    mean = np.mean(thetas, axis=0)
    return " ".join(f"{value:.2f}" for value in (mean[:-1] if len(mean) > 1 else mean))


def _iterations(curve: Mapping[str, Any], depth: int) -> dict[str, str]:
    ratios = curve["ratio"]
    best = int(np.argmin(ratios))
    return {
        "best iteration": str(best + 1),
        "ratio there": f"{ratios[best]:.4f}",
        "ratio at twice the depth": f"{ratios[2 * depth - 1]:.4f}",
        "at ten times": f"{ratios[-1]:.4f}",
        "activations / MB": f"{curve['activation_bytes'] / 1e6:.1f}",
    }


def _comparison_figures(name: str, comparison: Mapping[str, Any], folder: Path) -> list[str]:
    from pdrn.reproduction import figures

    study, results = name.partition("-")[0], comparison["results"]
    if study == "extrapolation":
        caption = "Means over the seeds, with 95 % confidence intervals."
        return [_figure(folder, name, caption, figures.extrapolation(results))]
    if study == "iterating":
        caption = "Iterations as trained (up to the dot) and beyond."
        return [_figure(folder, name, caption, figures.iterating(results))]
    return []


def _other_networks(results: Iterable[Result]) -> str:
    """Return the section of networks that are not in Table 1, best first."""
    rows = [
        {
            "network": _describe(result.config.architecture),
            "weights": f"{result.record.parameters:,}",
            "corpus": result.record.corpus,
            "bits": " to ".join(f"{depth:g}" for depth in result.config.data.bits),
            "training": duration(result.log[-1]["training_seconds"]),
            "MSE / 1e-4": f"{1e4 * result.best['dev_mse']:.2f}",
            "SNR / dB": f"{result.best['dev_snr']:.2f}",
            "MSE ratio": f"{result.best['dev_ratio']:.3f}",
            "run": result.run.folder.name,
        }
        for result in sorted(results, key=lambda result: float(result.best["dev_ratio"]))
    ]
    caption = "The epoch with the smallest development error; its mean over bit depths, if several."
    return _section("Other networks", "Trained by the same engine.", [_table(caption, rows)])


def _describe(architecture: CellArchitecture) -> str:
    """Return kind, depth, map, and the fields that are not at their default."""
    described = [f"{type(architecture).__name__} L = {architecture.depth}"]
    for name, value in encode(architecture).items():
        if name == "map":
            kind, *sizes = value.values()
            described.insert(1, f"{kind.removesuffix('Map').lower()} {' x '.join(map(str, sizes))}")
        elif name not in ("kind", "depth") and value != getattr(type(architecture), name, None):
            described.append(value if isinstance(value, str) else f"{name} {value}")
    return ", ".join(described)
