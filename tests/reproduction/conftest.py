"""A small grid of networks, trained once for all tests here."""

import shutil

import pytest

from pdrn.reproduction.grid import Grid
from pdrn.reproduction.tables import measure_table_2, restore_example
from pdrn.training.loop import train

SMALL = Grid(depths=(1, 2), epochs=1, frame_length=32, lambdas=(1e-8, 1e-2))


def train_grid(grid, corpus, out):
    for config in grid.configs_before_lambda():
        train(config, corpus, out, threads=1)
    for config in grid.configs_after_lambda(grid.choose_lambdas(corpus, out)):
        train(config, corpus, out, threads=1)


@pytest.fixture(scope="session")
def finished(corpus, tmp_path_factory):
    """The folder of a finished grid, with Table 2 and an example; not to be changed."""
    out = tmp_path_factory.mktemp("runs")
    train_grid(SMALL, corpus, out)
    experiment, table = SMALL.table(corpus, out)
    measure_table_2(out, experiment, table, corpus)
    restore_example(out, experiment, table, corpus)
    return out


@pytest.fixture
def runs(finished, tmp_path):
    """A copy of the finished grid, to change."""
    return shutil.copytree(finished, tmp_path / "runs")
