"""Reweighted l1 finds what is sparse, inside the cells."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.convex.laws import cells, seeds

from pdrn.convex import DCT, GaborFrame, dequantization, reweighted, solve


def sparse_with_gaps(seed, length=256, coefficients=35):
    """Cells that are points or, for six samples in ten, unbounded: too few for l1 to find the signal."""
    generator = np.random.default_rng(seed)
    spectrum = np.zeros(length)
    spectrum[generator.choice(length, coefficients, replace=False)] = generator.normal(size=coefficients)
    signal = DCT(length).adjoint(spectrum)
    missing = generator.random(length) < 0.6
    return signal, np.where(missing, -np.inf, signal), np.where(missing, np.inf, signal)


def test_it_finds_more_of_a_sparse_signal_than_one_problem_does():
    errors = []
    for signal, lower, upper in map(sparse_with_gaps, range(5)):
        found = [
            reweighted(lower, upper, DCT(256), faint=0.1, rounds=rounds, iterations=iterations, move=0.1).x
            for rounds, iterations in ((1, 200), (4, 50))
        ]
        errors.append([np.sum((x - signal) ** 2) for x in found])
    once, again = np.sum(errors, axis=0)
    assert again < 0.1 * once


@given(seeds)
@settings(max_examples=10)
def test_it_stays_in_the_cells_and_one_round_is_the_problem_itself(seed):
    lower, upper = cells(seed, 2, 32)
    K = GaborFrame(32, window_length=8, hop=4)
    x = reweighted(lower, upper, K, faint=0.1, group=2, rounds=3, iterations=5).x
    assert ((lower <= x) & (x <= upper)).all()
    once = reweighted(lower, upper, K, faint=0.1, rounds=1, iterations=5).x
    assert np.array_equal(once, solve(dequantization(lower, upper, K), iterations=5).x)


def test_tensors_give_what_arrays_give():
    lower, upper = cells(1, 2, 16)
    expected = reweighted(lower, upper, DCT(16), faint=0.1, group=2, iterations=5).x
    found = reweighted(torch.tensor(lower), torch.tensor(upper), DCT(16), faint=0.1, group=2, iterations=5).x
    assert np.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "round"),
        ({"group": 5}, "group"),
        ({"faint": 0.0}, "faint"),
        ({"move": -1.0}, "move"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        reweighted(np.zeros(16), np.ones(16), DCT(16), **({"faint": 0.1} | settings))
