"""The report of a folder of runs."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.reproduction.conftest import SMALL
from tests.training.folders import reopen

from pdrn.errors import InputError
from pdrn.nets import DenseMap
from pdrn.reproduction import figures
from pdrn.reproduction.report import beside, export_logs, markdown, write_report
from pdrn.reproduction.tables import best_results
from pdrn.training.config import from_table
from pdrn.training.loop import train
from pdrn.training.runs import Run, runs_in, save_json


def test_report_has_tables_and_figures(finished, tmp_path):
    report = write_report(finished, tmp_path / "report")
    text = report.read_text()
    assert text.count("\n| --- ") == 4
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 4
    assert {path.name for path in report.parent.iterdir()} == {"report.md", *pictures}
    for picture in pictures:
        assert (report.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_figures_are_deterministic(finished, corpus):
    _, table = SMALL.table(corpus, finished)
    first, second = (figures.png(figures.curves(table, "PDN", True)) for _ in range(2))
    assert first == second


def test_epoch_axis_is_whole_or_logarithmic(finished, corpus):
    _, table = SMALL.table(corpus, finished)
    axes = figures.curves(table, "PDN", True).axes[0]
    assert axes.get_xscale() == "linear"
    assert np.array_equal(axes.get_xticks(), np.round(axes.get_xticks()))
    variant, result = next(iter(table.items()))
    log = [result.log[0] | {"epoch": epoch} for epoch in range(1, 7)]
    longer = replace(result, log=log)
    assert figures.curves(table | {variant: longer}, "PDN", True).axes[0].get_xscale() == "log"


def test_tables_show_the_errors_of_the_runs(finished, corpus):
    _, table = SMALL.table(corpus, finished)
    text = markdown(finished)
    for variant, result in table.items():
        assert f"{1e4 * result.min_mse('dev'):.2f}" in text
        assert result.run.folder.name in text
        assert f"{variant.kind} L = {variant.depth} |" in text
    errors = SMALL.dev_errors(corpus, finished)
    for kind in ("PDN", "PDRN"):
        by_lambda = " | ".join(f"{1e4 * errors[kind][value]:.2f}" for value in (1e-8, 1e-2))
        assert f"| {kind} L = 2 | {by_lambda} |" in text
    assert "paper" not in text.lower().replace("paper recipe", "")  # its figures are for frames of 1024


@pytest.mark.parametrize(
    ("here", "paper", "shown"),
    [(1.9, 1.81, "1.90 (1.81, +5 %)"), (None, 1.81, "(1.81)"), (1.0, None, "1.00"), (None, None, "")],
)
def test_beside_formats_our_and_the_papers_value(here, paper, shown):
    assert beside(here, paper) == shown


def test_paper_values_appear_for_its_experiment(runs):
    for run in runs_in(runs):  # make it an experiment with frames of 1024
        record, config = run.record(), run.config()
        config = replace(
            config,
            data=replace(config.data, length=1024),
            architecture=replace(config.architecture, map=DenseMap(1024)),
        )
        run.save_record(replace(record, config=config))
    text = markdown(runs)
    assert re.search(r"\(2\.43, [+-]\d+ %\)", text)
    assert re.search(r"\(2\.24, [+-]\d+ %\)", text)


def test_outdated_table_2_is_marked(runs, corpus):
    outdated = "Other networks are the best by now"
    assert outdated not in markdown(runs)
    shutil.rmtree(best_results(SMALL.table(corpus, runs)[1])["PDRN"].run.folder)
    assert outdated in markdown(runs)


def test_measured_metrics_have_columns(runs, corpus):
    experiment, _ = SMALL.table(corpus, runs)
    row = {"method": "QU", "mse": 1e-4, "snr": 15.0, "ratio": 1.0, "files": 1, "frames": 2}
    row |= {"pesq": 2.0, "stoi": None}
    save_json(runs / f"table2-{experiment.name}.json", {"networks": {}, "rows": [row]})
    assert "| MSE ratio | PESQ |\n" in markdown(runs)


def test_other_networks_have_a_table(corpus, tmp_path):
    filters = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
    for kind, more in (("LISTA", {}), ("PrimalDual", {"memory": "mix"})):
        network = {"kind": kind, "depth": 2, "map": filters} | more
        data = {"length": 256, "bits": [3, 6], "measured_on": "files"}
        settings = from_table({"architecture": network, "data": data, "budget": {"steps": 2}})
        train(settings, corpus, tmp_path, threads=1)
    text = markdown(tmp_path)
    assert "## Other networks" in text
    assert "| LISTA L = 2, convolutional 8 x 16 x 8 | " in text
    assert "| PrimalDual L = 2, convolutional 8 x 16 x 8, mix | " in text
    assert "3 to 6" in text
    assert "Table 1" not in text


def test_refuses_folders_without_runs(tmp_path):
    with pytest.raises(InputError, match="no finished run"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_exported_logs_give_the_same_report(runs, tmp_path):
    first, *rest = runs_in(runs)
    reopen(first)
    once, twice = tmp_path / "once", tmp_path / "twice"
    export_logs(runs, once)
    assert {path.suffix for path in once.rglob("*") if path.is_file()} == {".json", ".jsonl"}
    assert [run.name for run in runs_in(once)] == [run.name for run in rest]  # those that are done
    assert markdown(once) == markdown(runs)
    for _ in range(2):
        export_logs(once, twice)
    assert markdown(twice) == markdown(runs)


def test_refuses_export_over_runs_and_training_over_logs(finished, runs, corpus, tmp_path):
    with pytest.raises(InputError, match="has networks"):
        export_logs(runs, runs)
    export_logs(finished, tmp_path)
    with pytest.raises(InputError, match="networks"):
        train(SMALL.config("PDN", 1), corpus, tmp_path, threads=1)
    assert table_1_of(tmp_path, corpus) == table_1_of(finished, corpus)


def table_1_of(folder, corpus):
    return {variant: result.log for variant, result in SMALL.table(corpus, folder)[1].items()}


def test_refuses_changed_logs(finished, tmp_path):
    export_logs(finished, tmp_path)
    log = Run(runs_in(tmp_path)[0].folder).log_path
    log.write_text(log.read_text().replace('"step": ', '"step": 1'))
    with pytest.raises(InputError, match="changed"):
        markdown(tmp_path)
