"""The commands of the study: train, evaluate, reproduce, report."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from pdrn.audio.corpus import Corpus

CORPUS = Annotated[Path, typer.Option(help="Folder of sound; its folders train, dev, test are the split.")]
OUT = Annotated[Path, typer.Option(help="Folder of run folders.")]
HEARING = Annotated[str, typer.Option(help="Comma-separated: pesq, stoi (slow).")]
THREADS = Annotated[int, typer.Option(min=0, help="0: what is fastest just now.")]

Number = TypeVar("Number", int, float)


def train(
    config: Annotated[Path, typer.Argument(help="TOML file; see docs/training.md.")],
    corpus: CORPUS,
    out: OUT = Path("runs"),
    threads: THREADS = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard too, into the run's folder.")
    ] = False,
) -> None:
    """Train a network; interrupted, the same command goes on where it stopped.

    Example: pdrn train pdrn.toml --corpus ieee --out runs
    """
    from pdrn.study.config import load

    require("torch", "train")
    settings = load(config)
    index = scanned(corpus, settings.data.sample_rate_hz)

    from pdrn.app.training import Board, display
    from pdrn.study.train import train as run_training

    with display() as shown:
        watcher = Board(shown) if tensorboard else shown
        run = run_training(settings, index, out, threads=threads, watcher=watcher)
    print(run.best_path)


def evaluate(
    corpus: CORPUS,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: qu, cp:ITERATIONS, files of networks.")
    ] = "qu,cp:10,cp:25,cp:50",
    hearing: HEARING = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per method.")] = False,
) -> None:
    """Measure methods on the frames of a corpus, as in Table 2 of the paper.

    Example: pdrn evaluate --corpus ieee --methods qu,cp:25,network.safetensors
    """
    import dataclasses
    from json import dumps

    from rich.console import Console
    from rich.table import Table

    from pdrn.study.evaluate import evaluate as rows_of

    heard = names(hearing)
    rows = rows_of(scanned(corpus), split, bits, methods.split(","), hearing=heard)
    if json:
        for row in rows:
            print(dumps(dataclasses.asdict(row)), flush=True)
        return
    table = Table(title=f"{corpus.name}, {split} split, {bits} bits")
    for heading in ("method", "MSE / 1e-4", "SNR / dB", "pooled SNR / dB", "ratio", *heard):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (f"{1e4 * row.mse:.3f}", f"{row.snr:.2f}", f"{row.snr_pooled:.2f}", f"{row.ratio:.3f}")
        table.add_row(row.method, *figures, *(f"{getattr(row, name):.3f}" for name in heard))
    Console().print(table)


def reproduce(
    what: Annotated[str, typer.Argument(help="table1, table2, figures or all.")],
    corpus: CORPUS,
    recipe: Annotated[str, typer.Option(help="paper or modern.")] = "paper",
    epochs: Annotated[int, typer.Option(min=0, help="0: as many as the recipe says.")] = 0,
    depths: Annotated[str, typer.Option(help="Comma-separated numbers of layers.")] = "1,2,5,10,15",
    lambdas: Annotated[
        str, typer.Option(help="Comma-separated: regularisations to choose from; empty for none.")
    ] = "1e-9,1e-8,1e-7",
    lambda_depth: Annotated[
        int, typer.Option(min=0, help="Number of layers at which lambda is chosen; 0: 2, or the least.")
    ] = 0,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=1, help="Samples of a frame.")] = 1024,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    hearing: HEARING = "",
    jobs: Annotated[int, typer.Option(min=1, help="Networks trained at the same time.")] = 1,
    out: OUT = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost.")] = False,
) -> None:
    """Train the networks of the paper and make its tables and figures; done ones are not done again.

    Example: pdrn reproduce all --corpus ieee --recipe modern --out runs
    """
    if what not in ("table1", "table2", "figures", "all"):
        raise ValueError(f"there are table1, table2, figures and all to reproduce, not {what!r}")
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.app.reproducing import show_plan, train_grid
    from pdrn.study import reproduce as steps
    from pdrn.study.report import markdown, write_report

    study = steps.Study(
        recipe=recipe,
        depths=tuple(numbers(depths, int, "depths")),
        epochs=epochs,
        bits=bits,
        frame_length=frame_length,
        lambdas=tuple(numbers(lambdas, float, "lambdas")),
        lambda_depth=lambda_depth,
        seed=seed,
    )
    index = scanned(corpus)
    if dry_run:
        show_plan(study, index, out, jobs)
        return
    train_grid(study, index, out, jobs)
    setting, table = study.table(index, out)
    if what in ("table2", "all"):
        rows = steps.table_2(setting, table, index, names(hearing))
        steps.save_study(out, setting, {"table2": rows})
    if what in ("figures", "all"):
        steps.save_example(out, setting, steps.example(setting, table, index))
    if what == "table1":
        print(markdown(out, [setting], ("table1",)))
    elif what == "table2":
        print(markdown(out, [setting], ("table2",)))
    else:
        print(write_report(out, out / "report"))


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of run folders.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; RUNS/report unless given.")] = None,
) -> None:
    """Render tables and figures of all runs in a folder, as Markdown and as a page.

    Example: pdrn report runs --out results/paper
    """
    require("matplotlib", "report")
    from pdrn.study.report import write_report

    print(write_report(runs, out or runs / "report"))


def numbers(text: str, kind: type[Number], name: str) -> list[Number]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in names(text)]
    except ValueError as error:
        raise ValueError(f"--{name} takes numbers with commas between, got {text!r}") from error


def names(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def require(module: str, extra: str) -> None:
    """Refuse to go on without a module that an extra of the package brings."""
    if find_spec(module) is None:
        raise ValueError(f"this needs {module}, which is not installed: pip install 'pdrn[{extra}]'")


def scanned(corpus: Path, sample_rate_hz: int = 0) -> Corpus:
    """Index a corpus, showing that this takes a moment."""
    from rich.console import Console

    from pdrn.audio.corpus import Corpus

    with Console(stderr=True).status(f"reading {corpus}"):
        return Corpus.scan(corpus, sample_rate_hz or None)
