"""The whole reproduction, on a small scale, and its report."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import soundfile
from tests.training.folders import reopen

from pdrn.audio.corpus import Corpus
from pdrn.nets import files
from pdrn.reproduction import figures, grid, paper
from pdrn.reproduction.evaluate import evaluate
from pdrn.reproduction.grid import Study, lambdas_at
from pdrn.reproduction.report import Compared, findings_in, markdown, write_report
from pdrn.reproduction.tables import (
    Place,
    Result,
    Setting,
    best,
    chosen_runs,
    place_of,
    publish,
    save_example,
    save_study,
    tables,
    with_known_metrics,
)
from pdrn.training.config import from_table, run_name
from pdrn.training.loop import train
from pdrn.training.runs import Run, runs_in

SMALL = Study(depths=(1, 2), epochs=1, frame_length=32, lambdas=(1e-8, 1e-2))


def train_all(study, corpus, out):
    for config in study.first_part():
        train(config, corpus, out, threads=1)
    for config in study.second_part(study.chosen_lambdas(corpus, out)):
        train(config, corpus, out, threads=1)


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """A finished study, with Table 2 and an example."""
    out = tmp_path_factory.mktemp("runs")
    train_all(SMALL, corpus, out)
    setting, table = SMALL.table(corpus, out)
    save_study(out, setting, {"table2": grid.table_2(setting, table, corpus)})
    save_example(out, setting, grid.example(setting, table, corpus), chosen_runs(table))
    return out


def test_the_grid_is_that_of_table_1():
    study = Study()
    configs = study.first_part() + study.second_part({"PDN": 1e-8, "PDRN": 1e-9})
    places = [place_of(config) for config in configs]
    assert set(places) == {
        Place(k, r, d) for k in ("PDN", "PDRN") for r in (False, True) for d in paper.DEPTHS
    }
    assert len(configs) == 20 + 2 * 2  # two more lambdas at one depth
    assert {config.data.length for config in configs} == {1024}
    assert {config.budget.epochs for config in configs} == {1000}
    assert study.config("PDRN", 10).architecture.parameter_count == 10 * (2 * 1024**2 + 1024)


def test_lambda_is_chosen_at_two_layers_or_where_it_is_said():
    assert Study().depth_for_lambda == 2
    assert Study(depths=(5, 10)).depth_for_lambda == 5
    study = Study(lambda_depth=10, lambdas=(1e-8,))
    assert {place_of(c).depth for c in study.first_part() if c.loss.regularisation} == {10}
    assert {place_of(c).depth for c in study.second_part({"PDN": 1e-8})} == {1, 2, 5, 15}


def test_where_a_lambda_cannot_be_trained_another_is_chosen_and_said(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    assert SMALL.chosen_lambdas(corpus, tmp_path) == {"PDN": 1e-8, "PDRN": 1e-8}
    for kind, values in (("PDN", (1e-8,)), ("PDRN", (1e-8, 1e-2))):
        for value in values:
            name = run_name(SMALL.config(kind, 2, value), corpus.checksum)
            shutil.rmtree(tmp_path / name)
    assert SMALL.chosen_lambdas(corpus, tmp_path) == {}
    chosen = SMALL.chosen_lambdas(corpus, tmp_path, all_done=False)
    assert chosen == {"PDN": 1e-2}
    assert SMALL.remarks(chosen) == [
        "lambda=0.01, chosen for PDNs, is the largest tried; try larger ones",
        "without a lambda, PDRNs with regularisation are left out at other depths",
    ]
    assert SMALL.remarks({"PDN": 1e-8, "PDRN": 1e-8})[0].endswith("is the smallest tried; try smaller ones")
    assert Study().remarks({"PDN": 1e-7, "PDRN": 1e-7}) == []
    assert Study(lambdas=()).remarks({}) == Study(lambdas=(1e-8,)).remarks({"PDN": 1e-8, "PDRN": 1e-8}) == []


def test_lambda_follows_the_width_of_cells():
    assert lambdas_at(5) == (1e-8, 1e-7, 1e-6)
    assert lambdas_at(6) == pytest.approx((2.5e-9, 2.5e-8, 2.5e-7))


def test_every_place_has_its_run_and_lambda_is_the_better_one(runs, corpus):
    _, table = SMALL.table(corpus, runs)
    assert set(table) == {Place(k, r, d) for k in ("PDN", "PDRN") for r in (False, True) for d in (1, 2)}
    assert len(runs_in(runs)) == 4 + 2 * 2 + 2
    for place, result in table.items():
        assert result.config.loss.regularisation == (1e-8 if place.regularised else 0)
        assert result.epochs == 1
        assert result.smallest("dev") == result.log[0]["dev_mse"]
    assert best(table, "PDN").smallest("dev") == min(
        r.smallest("dev") for p, r in table.items() if p.kind == "PDN"
    )


def test_a_study_tables_what_it_asked_for_whatever_else_is_there(runs, corpus):
    _, table = dataclasses.replace(SMALL, depths=(2,), lambdas=()).table(corpus, runs)
    assert set(table) == {Place(kind, False, 2) for kind in ("PDN", "PDRN")}
    _, table = dataclasses.replace(SMALL, depths=(2,), lambdas=(1e-2,)).table(corpus, runs)
    assert {r.config.loss.regularisation for r in table.values()} == {0, 1e-2}  # though 1e-8 is better


def test_a_report_says_what_every_lambda_reached(runs, corpus):
    text = markdown(runs)
    assert "| network | 1e-08 | 0.01 |" in text
    errors = SMALL.lambda_errors(corpus, runs)
    for kind in ("PDN", "PDRN"):
        reached = " | ".join(f"{1e4 * errors[kind][value]:.2f}" for value in (1e-8, 1e-2))
        assert f"| {kind} L = 2 | {reached} |" in text


def test_hearing_that_was_measured_is_kept_while_networks_are_the_same(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    (found,) = findings_in(tmp_path)
    rows = [row | {"pesq": 2.0, "stoi": 0.5} for row in found.table2["rows"]]
    save_study(tmp_path, found.setting, {"table2": found.table2 | {"rows": rows}})
    again = grid.table_2(found.setting, SMALL.table(corpus, tmp_path)[1], corpus)
    assert {row["pesq"] for row in again["rows"]} == {None}
    again["rows"][1]["mse"] *= 2
    kept = with_known_metrics(again, tmp_path, found.setting)["rows"]
    assert [row["pesq"] for row in kept] == [2.0, None, *(len(kept) - 2) * [2.0]]


def test_a_corpus_has_its_table_under_any_name(runs, corpus, tmp_path):
    (tmp_path / "link").symlink_to(corpus.folder)
    shutil.copytree(corpus.folder, tmp_path / "copy")
    setting, table = SMALL.table(corpus, runs)
    for name, resolved in (("link", corpus.folder.name), ("copy", "copy")):
        again, same = SMALL.table(Corpus.scan(tmp_path / name), runs)
        assert same == table
        assert (again, again.corpus) == (setting, resolved)


def test_the_longest_training_counts(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    longer = Study(depths=(1,), epochs=2, frame_length=32, lambdas=())
    train_all(longer, corpus, tmp_path)
    (table,) = tables(runs_in(tmp_path)).values()
    epochs = {place: result.epochs for place, result in table.items()}
    assert epochs[Place("PDN", False, 1)] == 2
    assert epochs[Place("PDN", True, 1)] == 1


def test_every_seed_has_its_own_table(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    other = Study(depths=(1,), epochs=2, frame_length=32, lambdas=(), seed=5)
    train_all(other, corpus, tmp_path)
    settings = tables(runs_in(tmp_path))
    assert {setting.seed: len(table) for setting, table in settings.items()} == {0: 8, 5: 2}
    assert len({setting.name for setting in settings}) == 2
    setting, table = other.table(corpus, tmp_path)
    assert {result.epochs for result in table.values()} == {2}
    assert "frames of 32 samples, seed 5." in markdown(tmp_path, [setting])


@pytest.mark.parametrize(("rate", "resampled"), [(16000, 0), (16000, 16000), (8000, 0), (48000, 0)])
def test_the_papers_figures_are_for_its_sample_rate(rate, resampled):
    setting = Setting("paper", 5, 1024, "any", "0" * 64, rate, resampled)
    assert setting.is_the_papers == (rate == 16000)


def test_what_the_paper_did_comes_first():
    wanted = [("paper", 5), ("modern", 5), ("paper", 4), ("modern", 4)]
    settings = [Setting(recipe, bits, 1024, "any", "0" * 64, 16000) for recipe, bits in sorted(wanted)]
    assert [(each.recipe, each.bits) for each in sorted(settings, key=lambda each: each.order)] == wanted


def test_curves_that_decay_evenly_are_smooth_and_those_that_jump_are_not(tmp_path):
    def roughness(errors):
        log = [{"epoch": epoch + 1, "dev_mse": error} for epoch, error in enumerate(errors)]
        return Result(Run(tmp_path), Study().config("PDN", 1), log).roughness("dev")

    even = 0.9 ** np.arange(20)
    assert roughness(even) == pytest.approx(0, abs=1e-12)
    jumps = even * np.exp(0.05 * (-1.0) ** np.arange(20))
    assert roughness(jumps) == pytest.approx(0.1)
    wild_at_first = np.where(np.arange(20) < 10, 7 * jumps, even)
    assert roughness(wild_at_first) == pytest.approx(0, abs=1e-12)
    assert np.isnan(roughness(even[:4]))


def test_runs_that_are_no_place_of_the_table_are_left_out():
    dense = {"kind": "DenseMap", "samples": 32}
    filters = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
    network = {"kind": "PrimalDual", "depth": 1, "map": dense}
    for architecture in (
        network | {"map": filters},
        network | {"memory": "mix"},
        network | {"theta": 1.0},
        network | {"tying": "tied"},
        {"kind": "LISTA", "depth": 1, "map": dense},
    ):
        assert place_of(from_table({"recipe": "paper", "architecture": architecture})) is None
    assert place_of(from_table({"architecture": network})) is None
    cell = {"recipe": "paper", "architecture": network, "data": {"length": 32}}
    assert place_of(from_table(cell | {"recipe": "modern"})) == Place("PDN", False, 1)
    assert place_of(from_table(cell | {"seed": 3, "budget": {"steps": 7}})) == Place("PDN", False, 1)
    for other in (
        {"data": {"length": 32, "placing": "random"}},
        {"data": {"length": 32, "quantizer": "mid-tread"}},
        {"data": {"length": 32, "unit": "cell"}},
        {"data": {"length": 32, "bits": [5, 8]}},
        {"data": {"length": 32, "bits": 5.5}},
        {"start": {"kind": "identity"}},
        {"optimiser": {"learning_rate": 1e-2}},
        {"loss": {"relative": True}},
    ):
        assert place_of(from_table(cell | other)) is None, other


def test_table_2_has_the_rows_of_the_paper(runs, corpus):
    (found,) = findings_in(runs)
    rows = {row["method"]: row for row in found.table2["rows"]}
    assert list(rows) == [*paper.TABLE_2, "CP overlapped"]
    assert rows["CP overlapped"]["ratio"] < rows["CP 50"]["ratio"]
    (nothing_learned,) = evaluate(corpus, "test", SMALL.bits, ["overlapped"], SMALL.frame_length)
    assert rows["CP overlapped"]["mse"] == nothing_learned.mse
    assert rows["QU"]["ratio"] == 1.0
    assert rows["CP 50"]["ratio"] < 1
    network, _ = files.load(runs / found.table2["chosen"]["PDRN"] / "best.safetensors")
    assert network.architecture.memory == "bias"


def test_a_table_2_of_networks_that_are_not_the_best_any_more_says_so(runs, corpus, tmp_path):
    assert "Other networks are the best by now" not in markdown(runs)
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    _, table = SMALL.table(corpus, tmp_path)
    shutil.rmtree(best(table, "PDRN").run.folder)
    assert "Other networks are the best by now: give pdrn reproduce table2 again" in markdown(tmp_path)
    write_report(tmp_path, tmp_path / "report")
    assert (tmp_path / "report" / "report.md").read_text().count("give pdrn reproduce figures again") == 4


def test_a_best_network_of_another_architecture_is_refused(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    setting, table = SMALL.table(corpus, tmp_path)
    pdn, pdrn = best(table, "PDN").run, best(table, "PDRN").run
    shutil.copy(pdn.best_path, pdrn.best_path)
    with pytest.raises(ValueError, match="is of another architecture than its run"):
        grid.table_2(setting, table, corpus)


def test_a_best_network_that_is_gone_is_named_with_a_remedy(runs, corpus, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    setting, table = SMALL.table(corpus, tmp_path)
    best(table, "PDN").run.best_path.unlink()
    with pytest.raises(ValueError, match=r"best\.safetensors is missing; remove that folder to train it"):
        grid.table_2(setting, table, corpus)


def test_the_cost_of_a_run_is_that_of_its_products(corpus):
    config = SMALL.config("PDN", 2)
    frames = {split: sum(len(s) // 32 for s in corpus.signals(split)) for split in ("train", "dev")}
    per_frame = 2 * 2 * 32 * 32
    assert grid.multiplications(config, corpus) == per_frame * (3 * frames["train"] + frames["dev"])


def test_the_report_has_tables_and_figures(runs, tmp_path):
    report = write_report(runs, tmp_path / "report")
    text = report.read_text()
    assert text.count("\n| --- ") == 4
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) == 4
    assert {path.name for path in report.parent.iterdir()} == {"report.md", *pictures}
    for picture in pictures:
        assert (report.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_figures_are_the_same_every_time(runs):
    (found,) = findings_in(runs)
    first, second = (figures.png(figures.curves(found.table, "PDN", True)) for _ in range(2))
    assert first == second


def test_epochs_are_whole_numbers_in_the_figures(runs):
    (found,) = findings_in(runs)
    ticks = figures.curves(found.table, "PDN", True).axes[0].get_xticks()
    assert np.array_equal(ticks, np.round(ticks))


def test_epochs_are_on_a_scale_that_shows_short_and_long_runs(runs):
    (found,) = findings_in(runs)
    assert figures.curves(found.table, "PDN", True).axes[0].get_xscale() == "linear"
    place, result = next(iter(found.table.items()))
    long = dataclasses.replace(result, log=[entry | {"epoch": 6} for entry in result.log])
    assert figures.curves(found.table | {place: long}, "PDN", True).axes[0].get_xscale() == "log"


def test_tables_say_what_was_measured(runs):
    (found,) = findings_in(runs)
    text = markdown(runs)
    for place, result in found.table.items():
        assert f"{1e4 * result.smallest('dev'):.2f}" in text
        assert result.run.folder.name in text
        assert f"{place.kind} L = {place.depth} |" in text
    assert "L = 1 | L = 2" in text
    assert "2.43" not in text  # the paper's figures are for frames of 1024
    assert "the paper's" not in text.lower()


def test_the_papers_figures_stand_beside_those_of_its_own_setting():
    assert paper.TABLE_1["PDRN", "dev", True, 10] == pytest.approx(1.81e-4)
    assert min(paper.TABLE_1, key=paper.TABLE_1.get) == ("PDN", "train", False, 10)
    assert (Compared(1.90, 1.81).value, Compared(1.90, 1.81).comparison) == ("1.90", "1.81, +5 %")
    assert Compared(19.0, 18.90, relative=False).comparison == "18.90, +0.10"
    assert Compared(None, 1.81).comparison == "1.81"
    assert Compared(1.0).comparison == ""


def test_the_report_sets_the_papers_figures_beside_its_own(runs, tmp_path):
    for run in runs_in(runs):  # a study of frames of 1024, as far as the table knows
        folder = tmp_path / run.folder.name
        shutil.copytree(run.folder, folder)
        record = json.loads((folder / "run.json").read_text())
        record["config"]["data"]["length"] = 1024
        record["config"]["architecture"]["map"] = {"kind": "DenseMap", "samples": 1024}
        Run(folder).save_record(record)
    text = markdown(tmp_path)
    assert re.search(r"\(2\.43, [+-]\d+ %\)", text)
    assert re.search(r"\(2\.24, [+-]\d+ %\)", text)
    assert "in brackets the paper's and the difference. Training" in text


def test_the_example_holds_signals_inside_their_cells(runs):
    (found,) = findings_in(runs)
    example = found.example
    assert set(example) == {"signal", "lower", "upper", "rate", "CP 25", "PDN", "PDRN"}
    for name in ("signal", "CP 25", "PDN", "PDRN"):
        assert np.all((example["lower"] - 1e-6 <= example[name]) & (example[name] <= example["upper"] + 1e-6))


def test_networks_that_are_not_the_papers_have_a_table_of_their_own(corpus, tmp_path):
    filters = {"kind": "ConvolutionalMap", "channels": 8, "window": 16, "hop": 8}
    for kind, more in (("LISTA", {}), ("PrimalDual", {"memory": "mix"})):
        network = {"kind": kind, "depth": 2, "map": filters} | more
        data = {"length": 256, "bits": [3, 6], "measured_on": "files"}
        settings = from_table({"architecture": network, "data": data, "budget": {"steps": 2}})
        train(settings, corpus, tmp_path, threads=1)
    write_report(tmp_path, tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert "## Other networks" in text
    assert "| LISTA L = 2, convolutional 8 x 16 x 8 | " in text
    assert "| PrimalDual L = 2, convolutional 8 x 16 x 8, mix | " in text
    assert "3 to 6" in text
    assert "Table 1" not in text


@pytest.mark.parametrize("log", ["", '{"epoch": 1}\n', "5\n", '{"epoch": 1', "[" * 100_000, "\x80"])
def test_a_finished_run_whose_log_lacks_epochs_is_named(runs, tmp_path, log):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    run = runs_in(tmp_path)[0]
    (run.folder / "log.jsonl").write_text(log, encoding="latin1")
    with pytest.raises(ValueError, match=f"{run.folder.name} has 0 of 1 epochs; remove that folder"):
        write_report(tmp_path, tmp_path / "report")


def test_a_changed_figure_in_a_log_is_noticed(runs, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    log = runs_in(tmp_path)[0].folder / "log.jsonl"
    log.write_text(log.read_text().replace('"step": ', '"step": 1'))
    with pytest.raises(ValueError, match="some bits of the log of"):
        markdown(tmp_path)


def test_what_is_published_makes_the_same_tables_and_has_no_networks_and_no_sound(runs, tmp_path):
    publish(runs, tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".jsonl"}
    assert markdown(tmp_path) == markdown(runs)
    write_report(tmp_path, tmp_path / "report")
    assert (tmp_path / "report" / "report.md").read_text().count("![") == 2  # the curves
    publish(tmp_path, tmp_path / "again")
    publish(runs, tmp_path / "again")
    assert markdown(tmp_path / "again") == markdown(runs)


def test_only_runs_that_are_done_are_published(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs")
    first, *rest = runs_in(tmp_path / "runs")
    reopen(first)
    publish(tmp_path / "runs", tmp_path / "published")
    published = runs_in(tmp_path / "published")
    assert [run.name for run in published] == [run.name for run in rest]
    assert all(run.is_done and not run.best_path.exists() for run in published)


def test_nothing_is_published_over_runs_nor_trained_over_what_is_published(runs, corpus, tmp_path):
    with pytest.raises(ValueError, match="has networks; choose another folder for the logs"):
        publish(runs, runs)
    publish(runs, tmp_path)
    config = SMALL.config("PDN", 1)
    with pytest.raises(ValueError, match="the log of this run without its networks; choose another"):
        train(config, corpus, tmp_path, threads=1)
    longer = dataclasses.replace(config, budget=dataclasses.replace(config.budget, epochs=2))
    assert len(train(longer, corpus, tmp_path, threads=1).complete_log()) == 2


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace('"step": ', '"step": 1'), "some bits of the log of"),
        (lambda text: "", "has 0 of 1 epochs"),
    ],
)
def test_a_published_log_that_changed_is_noticed(runs, tmp_path, damage, said):
    publish(runs, tmp_path)
    log = runs_in(tmp_path)[0].folder / "log.jsonl"
    log.write_text(damage(log.read_text()))
    with pytest.raises(ValueError, match=said):
        markdown(tmp_path)


@pytest.mark.parametrize("finished", [{}, 1, {"epochs": "many", "log_sha256": ""}])
def test_a_record_that_does_not_say_how_long_its_log_is_is_named(runs, tmp_path, finished):
    publish(runs, tmp_path)
    run = runs_in(tmp_path)[0]
    run.save_record(run.record() | {"finished": finished})
    with pytest.raises(ValueError, match=r"run\.json is damaged .*; remove "):
        markdown(tmp_path)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_damaged_findings_are_named(runs, tmp_path, suffix):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    (path,) = tmp_path.glob(f"study-*.{suffix}")
    whole = path.read_bytes()
    changed = whole.replace(b'"ratio": 1.0', b'"ratio": 1.1') if suffix == "json" else flipped(whole)
    assert changed != whole
    for contents in (b"", b"[]", b"[" * 100_000, b"\xff", whole[:-9], changed):
        path.write_bytes(contents)
        with pytest.raises(ValueError, match=f"{path} is damaged .*; remove it and make it again"):
            findings_in(tmp_path)


def flipped(contents):
    """Return the contents with the last bit changed."""
    return contents[:-1] + bytes([contents[-1] ^ 1])


def test_folders_without_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no finished run"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_what_cannot_be_measured_is_refused_before_training(corpus):
    entries = [dataclasses.replace(e, frames=31 if e.split == "test" else e.frames) for e in corpus.entries]
    with pytest.raises(ValueError, match=r"the test split of .* has no file of 32 samples or more"):
        SMALL.check(dataclasses.replace(corpus, entries=tuple(entries)), [])
    SMALL.check(corpus, [])
    with pytest.raises(ValueError, match="PESQ is defined at 8000 and 16000 Hz, and this is 44100 Hz; leave"):
        SMALL.check(dataclasses.replace(corpus, sample_rate_hz=44100), ["pesq"])


def test_files_that_cannot_be_measured_are_named_before_training(tmp_path):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 320)
    for split in ("train", "dev", "test"):
        (tmp_path / split).mkdir()
        soundfile.write(tmp_path / split / "a.wav", noise, 16000)
    with_sound_in_its_tail = np.concatenate([np.zeros(320), noise[:20]])
    soundfile.write(tmp_path / "test" / "b.wav", with_sound_in_its_tail, 16000)
    with pytest.raises(ValueError, match=r"the whole frames of .*b\.wav are silent.*; leave it out"):
        SMALL.check(Corpus.scan(tmp_path), [])
    soundfile.write(tmp_path / "test" / "b.wav", np.zeros(400), 16000)
    with pytest.raises(ValueError, match=r"b\.wav is silent and cannot be normalised; leave it out"):
        SMALL.check(Corpus.scan(tmp_path), [])
    for file in (tmp_path / "test").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"the test split of .* is empty; add sound files"):
        SMALL.check(Corpus.scan(tmp_path), [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"recipe": "cake"}, "no recipe"),
        ({"lambdas": (), "lambda_depth": 2}, "without lambdas none is chosen"),
        ({"depths": ()}, "depths"),
        ({"depths": (0,)}, "depths"),
        ({"depths": (1, 1)}, "name each once"),
        ({"lambdas": (1e-8, 1e-8)}, "name each once"),
        ({"lambdas": (0.0,)}, "lambdas"),
        ({"depths": (1, 2), "lambda_depth": 5}, "cannot be chosen at 5 layers"),
    ],
)
def test_studies_that_make_no_sense_are_refused(change, reason):
    with pytest.raises(ValueError, match=reason):
        Study(**change)
