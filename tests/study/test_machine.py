"""Threads, and the floor that matrix products set."""

import os
import subprocess
import sys
import time

import torch

from pdrn.study.machine import MatrixProducts, fastest_threads, multiplications_per_second, repeatable


def test_the_products_of_a_gradient_are_remembered_and_done_again():
    a, w = torch.ones(8, 300), torch.ones(300, 200, requires_grad=True)
    products = MatrixProducts()
    with products:
        (a @ w).square().sum().backward()
    assert len(products._calls) == 2  # forward, and one for the gradient: none is needed for a
    begin = time.perf_counter()
    once = products.seconds(at_least=0.05)
    spent = time.perf_counter() - begin
    assert 0 < once < spent
    assert spent >= 0.05


def test_the_number_of_threads_is_one_or_all():
    assert fastest_threads() in {1, len(os.sched_getaffinity(0))}
    assert multiplications_per_second(1) > 1e8


def test_settings_of_torch_come_back():
    before = torch.get_num_threads()
    with repeatable(1):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_compiler_of_torch_is_not_imported():
    """It takes seconds, and an interrupt in the midst of them comes out as an error of torch."""
    code = (
        "import sys, pdrn.study.machine as m\nwith m.repeatable(1): print('torch._inductor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
