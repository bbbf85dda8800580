"""The commands evaluate, train, search, reproduce, study and report, as a user runs them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from tests.cli.running import pdrn, wait_until
from tests.training.test_config import scaled_down

from pdrn.audio.corpus import Corpus, speech
from pdrn.cli import options
from pdrn.cli.study import train_networks
from pdrn.errors import LockedError
from pdrn.nets import DenseMap, Network, PrimalDual, files
from pdrn.reproduction import evaluate
from pdrn.reproduction.grid import Grid
from pdrn.restoration.restorer import Restorer
from pdrn.training import config
from pdrn.training.config import load, run_name
from pdrn.training.runs import runs_in

NETWORK = 'kind = "PrimalDual"\ndepth = 1\nmap = { kind = "DenseMap", samples = 64 }\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dozen short files in one folder, without a split."""
    folder = tmp_path_factory.mktemp("dozen")
    samples, rate = speech()
    for i in range(12):
        soundfile.write(folder / f"{i}.wav", samples[2 * i * rate :][: rate // 2], rate)
    return folder


@pytest.fixture(scope="module")
def reproduced(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    options = ("--epochs", 1, "--depths", "1,2", "--frame-length", 64, "--lambdas", "1e-8", "--out", out)
    return out, pdrn("reproduce", "all", "--corpus", folder, *options)


def test_reproduce_makes_tables_and_figures(reproduced):
    out, result = reproduced
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(out / "report" / "report.md")
    assert len(runs_in(out)) == 8
    assert len(list((out / "report").glob("*.png"))) == 4
    assert "M samples/s" in result.stderr
    assert "8/8" not in result.stderr  # the last two wait for lambda
    assert "2/2  PDRN L=1 lambda=1e-08" in result.stderr


@pytest.mark.slow
def test_reproduce_takes_a_dozen_short_files(tmp_path):
    samples, rate = speech()
    (tmp_path / "sounds").mkdir()
    for i in range(12):
        soundfile.write(tmp_path / "sounds" / f"{i}.wav", samples[2 * i * rate :][: 2 * rate], rate)
    options = ("--epochs", 1, "--depths", "1,2", "--out", tmp_path / "runs")
    result = pdrn("reproduce", "all", "--corpus", tmp_path / "sounds", *options)
    assert result.returncode == 0, result.stderr
    assert len(runs_in(tmp_path / "runs")) == 12
    page = (tmp_path / "runs" / "report" / "report.md").read_text()
    assert "Table 1." in page
    assert "Table 2." in page
    assert page.count("![") == 4


def test_tensorboard_has_the_epochs_of_a_shorter_run(folder, tmp_path, monkeypatch):
    boards = []

    class Writer:
        def __init__(self, folder, purge_step):
            self.folder, self.shown = folder, {}
            assert purge_step == 1
            boards.append(self)

        def add_scalar(self, name, value, epoch):
            self.shown.setdefault(name, []).append((epoch, value))

        def flush(self):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    for epochs in (1, 3):
        text = f"[architecture]\n{NETWORK}[data]\nlength = 64\n[budget]\nepochs = {epochs}\n"
        (tmp_path / "a.toml").write_text(text)
        settings = ("--corpus", folder, "--threads", 1, "--out", tmp_path / "runs", "--tensorboard")
        assert pdrn("train", tmp_path / "a.toml", *settings).returncode == 0
    (longer,) = (run for run in runs_in(tmp_path / "runs") if len(run.log()) == 3)
    assert boards[1].folder == str(longer.folder / "tensorboard")
    assert boards[1].shown["dev_mse"] == [(entry["epoch"], entry["dev_mse"]) for entry in longer.log()]


def test_finished_runs_are_reused(reproduced, folder):
    out, first = reproduced
    network = next(iter(runs_in(out))).best_path
    before = network.stat().st_mtime_ns
    options = ("--epochs", 1, "--depths", "1,2", "--frame-length", 64, "--lambdas", "1e-8", "--out", out)
    again = pdrn("reproduce", "table1", "--corpus", folder, *options)
    assert again.returncode == 0
    assert "epoch" in first.stderr
    assert "epoch" not in again.stderr
    assert "| PDRN | development | with |" in again.stdout
    assert network.stat().st_mtime_ns == before


@pytest.mark.slow
def test_report_is_made_again_from_its_logs(reproduced, tmp_path):
    out, _ = reproduced
    published = tmp_path / "published"
    assert pdrn("report", out, "--out", published, "--logs").stdout.strip() == str(published / "report.md")
    assert not list(published.rglob("*.safetensors"))
    again = pdrn("report", published)
    assert again.stdout.strip() == str(published / "report" / "report.md")
    tables, same = ((folder / "report.md").read_text() for folder in (published, published / "report"))
    assert same.split("![")[0] == tables.split("![")[0]
    assert "Table 2." in same


def test_failed_network_is_named_after_training_the_others(folder, tmp_path):
    options = ("--epochs", 1, "--depths", "1,2", "--frame-length", 64, "--lambdas", "1e-8,1e-7")
    study = Grid(epochs=1, depths=(1, 2), frame_length=64)
    bad = tmp_path / run_name(study.config("PDN", 2, 1e-8), Corpus.scan(folder).checksum)
    bad.write_text("no folder")
    result = pdrn("reproduce", "table2", "--corpus", folder, *options, "--out", tmp_path)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"pdrn: PDN L=2 lambda=1e-08 was not trained: {bad} cannot be written")
    assert last.endswith("what could be trained is in the tables")
    assert "lambda=1e-07" in result.stderr
    assert [run.is_done for run in runs_in(tmp_path)] == 9 * [True]
    assert "| PDRN | " in result.stdout
    assert "| PDN L = 1 | 1e-07 |" in result.stdout


@pytest.mark.slow
def test_tables_have_lambda_and_epochs(reproduced, folder):
    options = ("--epochs", 1, "--depths", "1,2", "--frame-length", 64, "--lambdas", "1e-8")
    result = pdrn("reproduce", "table1", "--corpus", folder, *options, "--out", reproduced[0])
    assert re.search(r"\| PDRN L = 2 \| 1e-08 \| [0-9,]+ \| 1 \|", result.stdout)
    other = pdrn("reproduce", "table1", "--corpus", folder, *options, "--seed", 5, "--out", reproduced[0])
    assert other.returncode == 0, other.stderr
    assert "seed 5" in other.stdout
    assert "seed 5" not in result.stdout


@pytest.mark.slow
def test_parallel_training_shows_its_progress(folder, tmp_path):
    options = ("--epochs", 2, "--depths", 1, "--frame-length", 64, "--lambdas", "", "--jobs", 2)
    result = pdrn("reproduce", "table1", "--corpus", folder, *options, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    for name in ("PDN L=1 lambda=0", "PDRN L=1 lambda=0"):
        assert f"{name}: " in result.stderr
        assert re.search(rf"^{name}  epoch 2/2  train .* M samples/s  0:00:00 left$", result.stderr, re.M)


def test_evaluation_and_reports_need_no_torch(reproduced, folder):
    network = next(iter(runs_in(reproduced[0]))).best_path
    program = (
        "import sys\nsys.modules['torch'] = None\n"
        "import pdrn.reproduction.figures, pdrn.reproduction.report\n"
        "from pdrn.cli.main import main\nmain()"
    )
    arguments = ["evaluate", "--corpus", str(folder), "--methods", f"qu,{network}", "--json"]
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["method"] for row in rows] == ["qu", str(network)]
    assert rows[1]["ratio"] != 1.0
    assert rows[1]["pesq"] is None


def test_evaluate_takes_any_frame_length(folder):
    for length, frames in ((1024, 7), (64, 125)):  # of 8000 samples
        options = ("--methods", "qu", "--frame-length", length, "--json")
        row = json.loads(pdrn("evaluate", "--corpus", folder, *options).stdout)
        assert row["frames"] == row["files"] * frames


def shown_methods(output):
    """Return the names in a table of methods; folded names are joined."""
    rows = [re.split(r"\s*│\s?", line) for line in output.splitlines() if line.startswith("│")]
    names = list[str]()
    for _, name, ratio, *_ in rows:
        names[len(names) :] = [name] if ratio else [names.pop() + name]
    return names


def test_long_method_names_are_folded(folder, tmp_path):
    long = tmp_path / "a-rather-long-folder-name-for-runs"
    long.mkdir()
    paths = [str(long / name) for name in ("first.safetensors", "second.safetensors")]
    for path in paths:
        files.save(path, Network.started(PrimalDual(DenseMap(64), depth=1)))
    result = pdrn("evaluate", "--corpus", folder, "--methods", ",".join(["qu", *paths]))
    assert result.returncode == 0, result.stderr
    assert shown_methods(result.stdout) == ["qu", *paths]


@pytest.mark.parametrize("name", ["q[/red]", "n[red]x", "a:dog:b"])
def test_markup_in_names_is_not_interpreted(folder, tmp_path, monkeypatch, name):
    shutil.copytree(folder, tmp_path / name)
    files.save(tmp_path / f"{name}.net", Network.started(PrimalDual(DenseMap(64), depth=1)))
    monkeypatch.chdir(tmp_path)
    measured = pdrn("evaluate", "--corpus", name, "--methods", f"{name}.net")
    assert measured.returncode == 0, measured.stderr
    assert f"{os.path.basename(name)}, test split, 5 bits" in measured.stdout
    assert shown_methods(measured.stdout) == [f"{name}.net"]
    options = ("--depths", 1, "--lambdas", "", "--frame-length", 64, "--dry-run")
    planned = pdrn("reproduce", "table1", "--corpus", name, *options)
    assert planned.returncode == 0, planned.stderr
    assert f"5 bits, {name}" in planned.stdout
    sound = tmp_path / name / "0.wav"
    compared = pdrn("compare", sound.relative_to(tmp_path), sound.relative_to(tmp_path))
    assert f"{name}/0.wav" in compared.stdout.replace("│", "")


def test_table_title_is_the_resolved_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = pdrn("evaluate", "--corpus", ".", "--methods", "qu")
    assert f"{folder.name}, test split, 5 bits" in result.stdout


def test_plan_has_epochs_done_and_cost(reproduced, folder):
    out, _ = reproduced
    options = ("--epochs", 1, "--depths", "1,5", "--frame-length", 64, "--lambdas", "1e-8", "--out", out)
    before = len(runs_in(out))
    result = pdrn("reproduce", "table1", "--corpus", folder, *options, "--dry-run")
    assert result.returncode == 0, result.stderr
    lines = [re.split(r"\s*│\s*", line)[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    done = {name: count for name, _, count, _, _ in lines}
    assert done["PDN L=1 lambda=0"] == "1"
    assert done["PDN L=5 lambda=0"] == "0"
    assert "GFLOPS" in result.stdout
    assert len(runs_in(out)) == before


def test_plan_counts_nothing_done_before_lambda_is_chosen(reproduced, folder):
    options = ("--epochs", 1, "--depths", "1,2", "--frame-length", 64, "--lambdas", "1e-8,1e-7")
    plan = pdrn(
        "reproduce", "table1", "--corpus", folder, *options, "--out", reproduced[0], "--dry-run"
    ).stdout
    (row,) = re.findall(r"PDN L=1 lambda as chosen +\S+ +(\d+) \S+ +(\d+) ", plan)
    assert row == ("1", "0")  # epochs, done: though one with 1e-8 is there


def test_plan_counts_usable_cores(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("pdrn.training.machine.usable_cores", lambda: 4)
    monkeypatch.setattr("pdrn.training.machine.multiplications_per_second", lambda threads: 1e6 * threads)

    def plan(jobs):
        options = ("--depths", 1, "--epochs", 1000, "--lambdas", "", "--jobs", jobs, "--out", tmp_path)
        text = pdrn("reproduce", "table1", "--corpus", folder, *options, "--dry-run").stdout
        return [re.search(rf"│ +{name} .*│ +(\S+) │", text)[1] for name in ("PDN L=1", "PDRN L=1", "all")]

    alone, four, sixteen = plan(1), plan(4), plan(16)
    assert alone[-1] == four[-1] == sixteen[-1]  # all cores are busy in each case
    hours = [[int(clock.split(":")[0]) for clock in clocks] for clocks in (alone, four, sixteen)]
    assert hours[1][0] == pytest.approx(4 * hours[0][0], abs=4)
    assert hours[2][0] == pytest.approx(16 * hours[0][0], abs=16)


def planned(folder, out, *options):
    plan = ("--frame-length", 64, "--out", out, "--dry-run")
    result = pdrn("reproduce", "table1", "--corpus", folder, *options, *plan)
    lines = [re.split(r"\s*│\s*", line)[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    return {name: count for name, _, count, _, _ in lines}, result.stdout


def test_plan_uses_chosen_lambda_and_shorter_runs(reproduced, folder):
    out, _ = reproduced
    done, text = planned(folder, out, "--epochs", 1, "--depths", "1,2", "--lambdas", "1e-8")
    assert done["PDRN L=1 lambda=1e-08"] == "1"
    assert "is chosen at L=2" in text
    done, text = planned(folder, out, "--epochs", 3, "--depths", "1", "--lambdas", "")
    assert done["PDRN L=1 lambda=0"] == "1"
    assert "is chosen" not in text


def test_train_prints_the_path_of_the_best_network(folder, tmp_path):
    (tmp_path / "a.toml").write_text(f"[architecture]\n{NETWORK}[data]\nlength = 64\n[budget]\nsteps = 5\n")
    result = pdrn("train", tmp_path / "a.toml", "--corpus", folder, "--out", tmp_path / "runs")
    assert result.returncode == 0, result.stderr
    (run,) = runs_in(tmp_path / "runs")
    assert result.stdout.strip() == str(run.best_path)
    assert run.is_done
    assert run.log()[-1]["step"] == 5


def test_named_configuration_trains_on_several_folders(folder, tmp_path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    small = scaled_down(load("speech-small"))
    monkeypatch.setattr("pdrn.training.config.load", lambda name: {"speech-small": small}[name])
    folders = ("--corpus", folder, "--corpus", other)
    result = pdrn("train", "speech-small", *folders, "--out", tmp_path / "runs")
    assert result.returncode == 0, result.stderr
    (run,) = runs_in(tmp_path / "runs")
    joined = Corpus.joined([Corpus.scan(folder), Corpus.scan(other)])
    assert run.record().corpus_sha256 == joined.checksum
    assert np.isfinite(Restorer(str(run.best_path)).restore(np.zeros(999), 16000, bits=5)).all()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["train", "speech-larg", "--corpus", "FOLDER"],
            "'speech-larg'; there are adapt, minute, speech-large, ",
        ),
        (["train", "FOLDER", "--corpus", "FOLDER"], "Is a directory"),
        (["train", "WRONG", "--corpus", "FOLDER"], "has no 'architectur'"),
        (["train", "RIGHT", "--corpus", "nowhere"], "nowhere is no folder"),
        (["train", "RIGHT", "--corpus", "FOLDER", "--out", "RIGHT"], "cannot be written"),
        (["train", "RIGHT", "--corpus", "FOLDER", "--tensorboard"], "TensorBoard is not installed"),
        (["reproduce", "all", "--corpus", "FOLDER", "--depths", "1,two"], "--depths takes numbers"),
        (["reproduce", "all", "--corpus", "FOLDER", "--metrics", "ears"], "no metric is called 'ears'"),
        (["reproduce", "all", "--corpus", "FOLDER", "--metrics", "stoi"], "pip install 'pdrn[metrics]'"),
        (["reproduce", "all", "--corpus", "FOLDER", "--frame-length", "9999"], "the train split of"),
        (["evaluate", "--corpus", "FOLDER", "--metrics", "stoi"], "pip install 'pdrn[metrics]'"),
        (["evaluate", "--corpus", "FOLDER", "--methods", ""], "no method to measure; name some"),
        (
            ["reproduce", "table1", "--corpus", "FOLDER", "--metrics", "pesq"],
            "--metrics is for table2, not for table1",
        ),
        (["report", "FOLDER"], "no finished run"),
        (["evaluate", "--corpus", "FOLDER", "--metrics", "ears"], "no metric is called 'ears'"),
        (["evaluate", "--corpus", "nowhere"], "nowhere"),
        (["evaluate", "--corpus", "FOLDER", "--methods", "magic"], "no method is called 'magic'"),
    ],
)
def test_mistakes_get_one_sentence(folder, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(evaluate.PERCEPTUAL, "stoi", "not_installed")
    (tmp_path / "wrong.toml").write_text(f"[architectur]\n{NETWORK}")
    (tmp_path / "right.toml").write_text(f"[architecture]\n{NETWORK}[data]\nlength = 64\n")
    places = {"FOLDER": folder, "WRONG": tmp_path / "wrong.toml", "RIGHT": tmp_path / "right.toml"}
    result = pdrn(*(places.get(part, part) for part in arguments))
    assert result.returncode in (1, 2)
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["reproduce", "table3"], ["reproduce", "all", "--recipe", "cake"], ["evaluate", "--split", "exam"]],
)
def test_unknown_choices_are_refused(folder, arguments):
    result = pdrn(*arguments, "--corpus", folder)
    assert result.returncode == 2
    assert arguments[-1] in result.stderr


def test_missing_extras_are_named(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    result = pdrn("reproduce", "all", "--corpus", folder, "--out", tmp_path)
    assert result.returncode == 1
    assert "pdrn[train]" in result.stderr


@pytest.mark.parametrize(
    ("what", "options", "reason"),
    [
        ("extrapolation", ["--depths", ""], "takes learning rates, and numbers of layers from 1 on"),
        ("neighbours", ["--rates", ""], "takes learning rates"),
        ("iterating", ["--depths", "1,5"], "numbers of layers from 2 on"),
    ],
)
def test_refuses_studies_without_rates_or_depths(folder, tmp_path, what, options, reason):
    result = pdrn("study", what, "--corpus", folder, *options, "--out", tmp_path)
    assert result.returncode == 2
    assert reason in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []


def test_failed_study_keeps_the_earlier_result(folder, tmp_path):
    options = ("--frame-length", 16, "--depths", 2, "--epochs", 1, "--batches", 1, "--threads", 1)
    study = ("study", "iterating", "--corpus", folder, *options, "--out", tmp_path)
    some = pdrn(*study, "--rates", "1e-3,1e38")
    assert some.returncode == 0, some.stderr
    assert some.stderr.count("; this learning rate does not count") == 5
    (path,) = tmp_path.glob("comparison-iterating-*.json")
    found = path.read_bytes()
    none = pdrn(*study, "--rates", "1e38", "--bits", 4)
    assert none.returncode == 1
    assert "learning rate" in none.stderr
    assert path.read_bytes() == found


def test_studies_of_other_lengths_are_kept_apart(folder, tmp_path):
    options = ("--frame-length", 16, "--depths", 2, "--epochs", 1, "--rates", "1e-3", "--threads", 1)
    for batches in (1, 2):
        done = pdrn(
            "study", "iterating", "--corpus", folder, *options, "--batches", batches, "--out", tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert "activations / MB" in done.stdout
    found = [json.loads(path.read_text())["steps"] for path in tmp_path.glob("comparison-iterating-*.json")]
    assert sorted({*steps}.pop() for steps in found) == [1, 2]
    assert len(runs_in(tmp_path)) == 2 * 5
    assert pdrn("report", tmp_path).returncode == 0
    assert (tmp_path / "report" / "report.md").read_text().count("## Iterating") == 2


@pytest.fixture(scope="module")
def two_rates(tmp_path_factory):
    """A dozen short files, half of them at another rate."""
    folder = tmp_path_factory.mktemp("rates")
    samples, rate = speech()
    for i in range(12):
        every = 1 + i % 2
        soundfile.write(folder / f"{i}.wav", samples[2 * i * rate :][: rate // 2 : every], rate // every)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["reproduce", "table2", "--epochs", 1, "--depths", 1, "--frame-length", 64, "--lambdas", ""],
        ["study", "iterating", "--epochs", 1, "--depths", 2, "--frame-length", 16, "--batches", 1],
        ["evaluate", "--methods", "qu,cp:2"],
    ],
    ids=["reproduce", "study", "evaluate"],
)
def test_mixed_sample_rates_need_resampling(two_rates, tmp_path, command):
    command = [*command, "--corpus", two_rates]
    if command[0] != "evaluate":
        command += ["--out", tmp_path]
    refused = pdrn(*command)
    assert refused.returncode == 1
    assert "[8000, 16000] Hz" in refused.stderr
    done = pdrn(*command, "--sample-rate", 8000)
    assert done.returncode == 0, done.stderr
    trained = {run.config().data.sample_rate_hz for run in runs_in(tmp_path)}
    assert trained == (set() if command[0] == "evaluate" else {8000})


def test_report_has_the_resampled_rate(two_rates, tmp_path):
    options = ("--epochs", 1, "--depths", 1, "--frame-length", 64, "--lambdas", "", "--sample-rate", 8000)
    done = pdrn("reproduce", "table1", "--corpus", two_rates, *options, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resampled to 8000 Hz, frames of 64 samples" in done.stdout


@pytest.fixture
def split_folder(tmp_path):
    samples, rate = speech()
    for split, length in (("train", 3 * rate), ("dev", 1000), ("test", 3 * rate)):
        (tmp_path / split).mkdir()
        soundfile.write(tmp_path / split / "a.wav", samples[rate : rate + length], rate)
    return tmp_path


def test_evaluate_prints_one_json_object_per_method(split_folder):
    result = pdrn("evaluate", "--corpus", split_folder, "--methods", "qu,cp:5", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["method"] for row in rows] == ["qu", "cp:5"]
    assert rows[1]["ratio"] < rows[0]["ratio"] == 1.0


def test_evaluate_takes_models(split_folder, tiny_models):
    result = pdrn("evaluate", "--corpus", split_folder, "--methods", "qu,speech-small", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["method"] for row in rows] == ["qu", "speech-small"]
    assert rows[1]["ratio"] != 1


def test_help_of_train_lists_the_named_configurations():
    text = "".join(pdrn("train", "--help").stdout.split())  # lines may end at a hyphen
    assert all(name in text for name in config.names())


def test_evaluate_prints_a_table(split_folder):
    result = pdrn("evaluate", "--corpus", split_folder, "--methods", "qu")
    assert result.returncode == 0
    assert "SNR / dB" in result.stdout
    assert "1.000" in result.stdout


SMALL = Grid(depths=(1, 2), epochs=1, frame_length=32, lambdas=(1e-8, 1e-2))


@pytest.mark.slow
def test_failed_network_stops_no_other(corpus, tmp_path):
    bad, *good = Grid(epochs=1, frame_length=10**6).config("PDN", 1), *SMALL.configs_before_lambda()[:2]
    results = {each.config: each for each in train_networks([bad, *good], corpus, tmp_path, jobs=2)}
    assert "1000000" in results[bad].error
    assert results[bad].run is None
    assert all(results[each].run.is_done for each in good)


ENDLESS = """
import signal, sys
from pathlib import Path
from pdrn.audio.corpus import Corpus
from pdrn.cli.study import train_networks
from pdrn.reproduction.grid import Grid

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    grid = Grid(epochs=10**6, frame_length=32)
    configs = [grid.config("PDN", 1), grid.config("PDRN", 1)]
    list(train_networks(configs, Corpus.scan(sys.argv[1]), Path(sys.argv[2]), jobs=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_training_processes_end_with_their_parent(corpus, tmp_path, how):
    (tmp_path / "endless.py").write_text(ENDLESS)
    with subprocess.Popen([sys.executable, tmp_path / "endless.py", corpus.folder, tmp_path]) as parent:
        wait_until(lambda: sum(bool(run.log()) for run in runs_in(tmp_path)) == 2)
        parent.send_signal(how)
    assert parent.returncode == (143 if how == signal.SIGTERM else -how)
    wait_until(lambda: not any(map(is_training, runs_in(tmp_path))))
    assert [run.is_done for run in runs_in(tmp_path)] == [False, False]


def is_training(run):
    try:
        with run.locked():
            return False
    except LockedError:
        return True


@pytest.mark.slow
def test_sigint_of_all_processes_prints_no_traceback(corpus, tmp_path):
    """A terminal interrupts the whole group, also processes that are still starting."""
    command = [sys.executable, "-m", "pdrn", "reproduce", "table1", "--corpus", corpus.folder, "--jobs", 2]
    options = ["--depths", 1, "--lambdas", "", "--frame-length", 32, "--epochs", 10**6, "--out", tmp_path]
    with subprocess.Popen(
        [str(part) for part in command + options],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        wait_until(lambda: len(children(parent.pid)) > 1)
        os.killpg(parent.pid, signal.SIGINT)
        errors = parent.communicate(timeout=60)[1]
    assert parent.returncode == 130
    assert "Traceback" not in errors


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--address", "auto"), "--address is for a Ray cluster; add --engine ray"),
        (("--cpus-per-network", 2), "--cpus-per-network is for a Ray cluster; add --engine ray"),
        (("--engine", "ray", "--jobs", 2), "--jobs is for this machine"),
        (("--engine", "ray", "--dry-run"), "--dry-run is for this machine; leave it or --engine out"),
        (("--engine", "ray", "--cpus-per-network", 0), "--cpus-per-network is a number above 0"),
    ],
)
def test_refuses_options_of_the_other_engine(folder, tmp_path, options, reason):
    result = pdrn("reproduce", "table1", "--corpus", folder, "--out", tmp_path, *options)
    assert result.returncode == 2
    assert reason in " ".join(result.stderr.split())
