"""Cores, threads, and computation that can be repeated."""

import os
import subprocess
import sys

import pytest
import torch

from pdrn.training import machine
from pdrn.training.machine import (
    fastest_threads,
    multiplications_per_second,
    repeatable,
    usable_cores,
)


@pytest.mark.parametrize(
    ("processes", "speeds", "threads"), [(1, {1: 1, 8: 5}, 8), (1, {1: 1, 8: 0.3}, 1), (3, {1: 1, 2: 2}, 2)]
)
def test_threads_are_one_or_all_whichever_is_faster(monkeypatch, processes, speeds, threads):
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    monkeypatch.setattr(machine, "multiplications_per_second", speeds.__getitem__)
    assert fastest_threads(processes) == threads


def test_cores_are_those_that_a_process_may_use():
    script = (
        "import os; from pdrn.training.machine import usable_cores\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); print(usable_cores())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"1\n"
    assert usable_cores() == len(os.sched_getaffinity(0))
    assert multiplications_per_second(1) > 1e8


@pytest.mark.parametrize("fills", [True, False])
def test_settings_of_torch_come_back(monkeypatch, fills):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", fills)
    before = torch.get_num_threads()
    with repeatable(1):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert torch.utils.deterministic.fill_uninitialized_memory is fills
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()
