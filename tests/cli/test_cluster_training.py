"""The paper's grid on a Ray cluster: a lost node changes no weights."""

import json
import threading

import numpy as np
import pytest
from tests.cli.clusters import two_nodes
from tests.cli.running import pdrn, wait_until
from tests.cli.test_study import folder, is_training  # noqa: F401 (a fixture)
from tests.training.test_loop import weights_of

from pdrn.audio.corpus import Corpus
from pdrn.cli import study as command
from pdrn.reproduction.grid import Grid
from pdrn.training.loop import train
from pdrn.training.runs import Run, run_for, runs_in
from pdrn.workers import connect_ray

pytestmark = pytest.mark.cluster

OPTIONS = ("--epochs", 60, "--depths", 1, "--frame-length", 64, "--lambdas", "1e-8")


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture
def observed(monkeypatch, tmp_path):
    """Let workers save a checkpoint after every epoch; note node, run and epochs at each start."""
    notes = tmp_path / "notes"

    def begin(config, corpus, out, threads):
        import ray

        from pdrn.cli.study import _train_on_cluster
        from pdrn.training.loop import train
        from pdrn.training.runs import run_for

        train.__kwdefaults__["seconds_between_states"] = 0.0
        run = run_for(config, corpus.checksum, out)
        node = ray.get_runtime_context().get_node_id()
        with open(notes, "a") as stream:
            print(json.dumps([node, run.folder.name, len(run.log())]), file=stream)
        return _train_on_cluster(config, corpus, out, threads)

    monkeypatch.setattr(command, "_train_on_cluster", begin)
    return lambda: [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


def test_lost_node_changes_no_weights(cluster, observed, folder, tmp_path):  # noqa: F811
    out = tmp_path / "runs"

    def kill():
        def has_begun():
            runs = [Run(out / name) for node, name, _ in observed() if node == cluster.second.node_id]
            return any(len(run.log()) > 2 and not run.is_done for run in runs)

        wait_until(has_begun)
        cluster.remove_node(cluster.second, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    ray_options = ("--engine", "ray", "--address", cluster.address)
    result = pdrn("reproduce", "table1", "--corpus", folder, *OPTIONS, "--out", out, *ray_options)
    killer.join()
    assert result.returncode == 0, result.stderr
    assert "4/4" in result.stderr
    on_dead = {name for node, name, _ in observed() if node == cluster.second.node_id}
    gone_on = {name for node, name, epochs in observed() if node != cluster.second.node_id and epochs > 0}
    assert gone_on
    assert gone_on <= on_dead
    corpus = Corpus.scan(folder)
    for run in runs_in(out):
        local = weights_of(train(run.config(), corpus, tmp_path / "local", threads=1))
        assert all(np.array_equal(local[name], part) for name, part in weights_of(run).items())
    before = len(observed())
    again = pdrn("reproduce", "table1", "--corpus", folder, *OPTIONS, "--out", out, *ray_options)
    assert (again.returncode, len(observed())) == (0, before)


def test_networks_share_a_cpu_and_end_with_their_caller(cluster, observed, folder, tmp_path):  # noqa: F811
    corpus, long = Corpus.scan(folder), Grid(epochs=10**6, depths=(1,), frame_length=64)
    quick = Grid(epochs=1, depths=(1,), frame_length=64)
    endless = long.config("PDN", 1), long.config("PDRN", 1)
    with connect_ray(cluster.address, 1) as ray:
        configs = [*endless, quick.config("PDN", 1)]
        results = command.train_networks(configs, corpus, tmp_path, ray=ray, cpus=0.3)
        assert next(results).run.is_done
        runs = [run_for(config, corpus.checksum, tmp_path) for config in endless]
        wait_until(lambda: all(map(is_training, runs)))
        results.close()
        wait_until(lambda: not any(map(is_training, runs)))
        with pytest.raises(ValueError, match="64 CPUs"):
            next(command.train_networks(configs, corpus, tmp_path, ray=ray, cpus=64.0))
