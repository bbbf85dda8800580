"""Search: every trial is a run, and a search that is killed resumes and finds the same."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
from tests.cli.running import pdrn
from tests.training.test_loop import config

from pdrn.errors import InputError, LockedError
from pdrn.nets.files import encode
from pdrn.training.config import as_toml, from_complete_table, load, run_name
from pdrn.training.loop import Callback, Diverged, train
from pdrn.training.runs import Run, runs_in

pytest.importorskip("optuna")
from pdrn.training import search as searching
from pdrn.training.search import Range, Search

SETTINGS = config(budget={"epochs": 3})
RATES = "optimiser.learning_rate=1e-4..3e-3,log"


def a_search(corpus, out, *ranges, settings=SETTINGS):
    found = tuple(Range.read(text, settings) for text in ranges or (RATES, "start.sigma=1..10"))
    return Search(settings, corpus, out, found, threads=1)


def silent(title):
    return nullcontext(Callback())


@pytest.fixture(scope="module")
def found(corpus, tmp_path_factory):
    """A search that was not interrupted, and its trials."""
    out = tmp_path_factory.mktemp("whole")
    search = a_search(corpus, out)
    return search, list(search.run_trials(7, silent))


def test_trials_are_runs_in_range(found, corpus):
    search, tried = found
    assert [each.number for each in tried] == [1, 2, 3, 4, 5, 6, 7]
    for each in tried:
        config, run = search.config_for(each.values), search.run_for(each.values)
        assert 1e-4 <= config.optimiser.learning_rate <= 3e-3
        assert 1 <= config.start.sigma <= 10
        assert run.folder.name == run_name(config, corpus.checksum)
        assert run.is_done == (each.error is not None)
        if run.is_done:
            assert each.error == min(entry["dev_ratio"] for entry in run.log())
    assert len({search.run_for(each.values).folder for each in tried}) == 7
    best = search.best()
    assert best.error == min(each.error for each in tried if each.error is not None)
    assert best.values == tried[best.number - 1].values


def test_prunes_bad_trials(found):
    search, tried = found
    stopped = [each for each in tried if each.error is None]
    assert stopped
    for each in stopped:
        assert each.number > 5
        assert f"stopped after epoch {len(search.run_for(each.values).log())}" in each.reason


KILLABLE = """
import sys
from pdrn.audio.corpus import Corpus
from tests.training.test_search import a_search, silent
from pathlib import Path

search = a_search(Corpus.scan(sys.argv[1]), Path(sys.argv[2]))
for tried in search.run_trials(7, silent):
    print(tried.number, flush=True)
"""


@pytest.mark.slow
def test_killed_search_resumes_and_finds_the_same(found, corpus, tmp_path):
    whole, tried = found
    with subprocess.Popen(
        [sys.executable, "-c", KILLABLE, str(corpus.folder), str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        second = Run(tmp_path / whole.run_for(tried[1].values).folder.name)
        while not second.log():
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert not second.is_done
    search = a_search(corpus, tmp_path)
    again = list(search.run_trials(7, silent))
    assert [each.number for each in again] == [2, 3, 4, 5, 6, 7]
    assert [(each.values, each.error, each.reason) for each in again] == [
        (each.values, each.error, each.reason) for each in tried[1:]
    ]
    assert search.best().values == whole.best().values
    assert list(search.run_trials(7, silent)) == []


def test_refuses_second_process(corpus, tmp_path):
    tries = a_search(corpus, tmp_path).run_trials(2, silent)
    next(tries)
    with pytest.raises(LockedError):
        next(a_search(corpus, tmp_path).run_trials(2, silent))


def test_diverged_trial_does_not_end_the_search(corpus, tmp_path, monkeypatch):
    def failing(*arguments, **options):
        raise Diverged("the loss is not a number any more")

    monkeypatch.setattr(searching, "train", failing)
    search = a_search(corpus, tmp_path)
    assert [each.reason for each in search.run_trials(2, silent)] == 2 * ["the loss is not a number any more"]
    with pytest.raises(InputError, match="no trial finished"):
        search.best()


def test_command_prints_a_trained_configuration(corpus, tmp_path):
    (tmp_path / "a.toml").write_text(as_toml(SETTINGS))
    options = ("--corpus", corpus.folder, "--out", tmp_path / "runs")
    result = pdrn("search", tmp_path / "a.toml", *options, "--trials", 2)
    assert result.returncode == 0, result.stderr
    assert "2/2  dev ratio" in result.stderr
    assert "loss.regularisation=" in result.stderr
    (tmp_path / "best.toml").write_text(result.stdout)
    run = train(load(tmp_path / "best.toml"), corpus, tmp_path / "runs", callbacks=[Refusing()])
    assert str(run.best_path) in result.stdout.splitlines()[0]
    assert len(runs_in(tmp_path / "runs")) == 2


class Refusing(Callback):
    """Hears of no training."""

    def on_start(self, run, record, first_epoch):
        raise AssertionError


def test_integers_stay_integers(corpus, tmp_path):
    search = a_search(corpus, tmp_path, "architecture.depth=1..3")
    (trial,) = search.run_trials(1, silent)
    assert isinstance(search.config_for(trial.values).architecture.depth, int)


@pytest.mark.parametrize(
    "text",
    [
        "optimiser.rate=1..2",
        "optimiser.schedule=1..2",
        "data.flips=0..1",
        "data=1..2",
        "optimiser.learning_rate=1",
        "optimiser.learning_rate=2..1",
        "optimiser.learning_rate=1..nan",
        "optimiser.learning_rate=1..2,lin",
        "architecture.depth=1.5..3",
        "loss.regularisation=0..1,log",
        "optimiser.beta2=0.9..1.5",
    ],
)
def test_refuses_invalid_ranges(text):
    with pytest.raises(InputError):
        Range.read(text, SETTINGS)


def test_rounded_values_stay_in_range():
    close = Range.read("optimiser.averaging=0.99996..0.99999", SETTINGS)
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    values = [close.suggest(study.ask()) for _ in range(5)]
    assert all(0.99996 <= value <= 0.99999 for value in values)


def test_refuses_two_ranges_of_a_setting(corpus, tmp_path):
    with pytest.raises(InputError, match="two ranges"):
        a_search(corpus, tmp_path, RATES, RATES)


def test_sigma_is_tuned_for_chambolle_pock_only():
    paper = config(recipe="paper")
    with pytest.raises(InputError, match=r"start\.sigma"):
        Range.read("start.sigma=1..2", paper)
    assert len(searching.default_ranges(paper)) + 1 == len(searching.default_ranges(SETTINGS))


def test_refuses_unusable_storage(corpus, tmp_path):
    (tmp_path / "a.toml").write_text(as_toml(SETTINGS))
    options = ("--corpus", corpus.folder, "--out", tmp_path / "runs", "--storage", "sqlite:////no/where")
    result = pdrn("search", tmp_path / "a.toml", *options)
    assert result.returncode == 1
    assert "sqlite:////no/where" in result.stderr
    assert "Traceback" not in result.stderr


def test_invalid_values_fail_one_trial_only(corpus, tmp_path):
    table = encode(SETTINGS)
    table["architecture"] |= {"depth": 2, "weighting": "spectrum", "stages": 2}
    settings = from_complete_table(table)
    search = a_search(corpus, tmp_path, "architecture.depth=2..6", settings=settings)
    tried = list(search.run_trials(6, silent))
    assert len(tried) == 6
    odd = [each for each in tried if each.values["architecture.depth"] % 2]
    assert odd
    assert all(each.reason for each in odd)
    assert all(not each.reason or "stopped" in each.reason for each in tried if each not in odd)
    assert search.best().values["architecture.depth"] % 2 == 0


def test_best_values_are_rounded_like_trials(corpus, tmp_path):
    search = a_search(corpus, tmp_path, "optimiser.learning_rate=0.00123431..0.00123439")
    (tried,) = search.run_trials(1, silent)
    assert search.best().values == tried.values
    assert search.run_for(tried.values).is_done
