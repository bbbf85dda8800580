"""The command ``pdrn reproduce``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pdrn.app.options import Address, CorpusFolder, CorpusRate, EngineName, EngineOption, Hearing, RunsFolder
from pdrn.app.studying import names, numbers, require, scanned_at

EXAMPLES = """\b
For example:
  pdrn reproduce all --corpus ieee --recipe paper --dry-run
  pdrn reproduce all --corpus ieee --recipe modern --out runs
  pdrn reproduce all --corpus ieee --engine ray --address auto --cpus-per-network 2"""


def reproduce(
    what: Annotated[str, typer.Argument(help="table1, table2, figures or all.")],
    corpus: CorpusFolder,
    recipe: Annotated[str, typer.Option(help="paper or modern.")] = "paper",
    epochs: Annotated[int, typer.Option(min=0, help="0: as many as the recipe says.")] = 0,
    depths: Annotated[str, typer.Option(help="Comma-separated numbers of layers.")] = "1,2,5,10,15",
    lambdas: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: regularisations to choose from; empty for none. "
            "1e-8,1e-7,1e-6 at 5 bits unless given, and at others as cells are wider or narrower.",
            show_default=False,
        ),
    ] = None,
    lambda_depth: Annotated[
        int, typer.Option(min=0, help="Number of layers at which lambda is chosen; 0: 2, or the least.")
    ] = 0,
    bits: Annotated[int, typer.Option(min=1, max=24, help="Bit depth of the quantizer.")] = 5,
    frame_length: Annotated[int, typer.Option(min=1, help="Samples of a frame.")] = 1024,
    sample_rate: CorpusRate = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    hearing: Hearing = "",
    jobs: Annotated[
        int, typer.Option(min=1, help="Networks trained at the same time, by this machine alone.")
    ] = 1,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    cpus_per_network: Annotated[
        float | None,
        typer.Option(
            help="CPUs that Ray sets aside for each network, and its threads: 1 unless given. "
            "Below 1, several share a CPU.",
        ),
    ] = None,
    out: RunsFolder = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and its cost.")] = False,
) -> None:
    """Train the networks of the paper and make its tables and figures; done ones are not done again."""
    if what not in ("table1", "table2", "figures", "all"):
        raise ValueError(f"there are table1, table2, figures and all to reproduce, not {what!r}")
    _check_engine(engine, address, cpus_per_network, jobs)
    if dry_run and engine is EngineName.ray:
        raise typer.BadParameter("the plan is one for this machine; leave --engine out, or --dry-run")
    heard = names(hearing)
    require("torch", "train")
    require("matplotlib", "report")
    from pdrn.app.reproducing import in_turn, show_plan, side_by_side, train_grid
    from pdrn.study import reproduce as steps
    from pdrn.study.findings import save_example, save_study, with_known_hearing
    from pdrn.study.page import as_markdown
    from pdrn.study.report import Findings, section, write_report
    from pdrn.study.tables import chosen_runs

    if heard and what not in ("table2", "all"):
        raise ValueError(f"--hearing is for table2, which {what} is not a part of; leave it out")
    index = scanned_at(corpus, sample_rate)
    study = steps.Study(
        recipe=recipe,
        depths=tuple(numbers(depths, int, "depths")),
        epochs=epochs,
        bits=bits,
        frame_length=frame_length,
        lambdas=steps.lambdas_at(bits) if lambdas is None else tuple(numbers(lambdas, float, "lambdas")),
        lambda_depth=lambda_depth,
        sample_rate_hz=index.sample_rate_hz or 0,
        seed=seed,
    )
    study.check(index, heard)
    if dry_run:
        show_plan(study, index, out, jobs)
        return
    if engine is EngineName.ray:
        from pdrn.app.on_ray import connected
        from pdrn.app.training_on_ray import train_on_ray

        with connected(address, os.cpu_count() or 1) as ray:
            failure = train_grid(study, index, out, partial(train_on_ray, ray, cpus_per_network or 1.0))
    else:
        failure = train_grid(study, index, out, partial(side_by_side, jobs=jobs) if jobs > 1 else in_turn)
    setting, table = study.table(index, out)
    if failure and not table:
        raise ValueError(failure)
    table2 = None
    if what in ("table2", "all"):
        table2 = steps.table_2(setting, table, index, heard)
        save_study(out, setting, {"table2": with_known_hearing(table2, out, setting)})
    if what in ("figures", "all"):
        save_example(out, setting, steps.example(setting, table, index), chosen_runs(table))
    if what in ("table1", "table2"):
        print(as_markdown([section(Findings(setting, table, table2), (what, "training"))]))
    else:
        print(write_report(out, out / "report"))
    if failure:
        raise ValueError(f"{failure}; what could be trained is in the tables")


def _check_engine(engine: EngineName, address: str | None, cpus_per_network: float | None, jobs: int) -> None:
    """Refuse options of the other engine."""
    if engine is EngineName.ray:
        if jobs > 1:
            raise typer.BadParameter("a Ray trains as many networks as it has CPUs for; leave --jobs out")
        if cpus_per_network is not None and not 0 < cpus_per_network < float("inf"):
            raise typer.BadParameter("--cpus-per-network is a number above 0")
        return
    for name, given in {"--address": address, "--cpus-per-network": cpus_per_network}.items():
        if given is not None:
            raise typer.BadParameter(f"{name} is for a Ray; add --engine ray")
