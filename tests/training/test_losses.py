"""The distance of spectra that a loss may have, and networks that learn by it."""

import numpy as np
import pytest
import torch

from pdrn.training.config import Loss, from_table
from pdrn.training.data import quantized
from pdrn.training.loop import Trainer, check, train
from pdrn.training.losses import LEAST_RATIO, RESOLUTIONS, data_losses, spectral_distance

GENERATOR = np.random.default_rng(0)
SIGNALS = torch.tensor(GENERATOR.standard_normal((2, 2048)), dtype=torch.float32)
STEPS = torch.ones(2)
TABLE = {
    "architecture": {
        "kind": "PrimalDual",
        "depth": 2,
        "memory": "gain",
        "map": {"kind": "ConvolutionalMap", "channels": 16, "window": 32, "hop": 16},
    },
    "start": {"kind": "chambolle pock", "sigma": 2.0},
    "data": {"bits": 4, "unit": "cell", "length": 1024, "placing": "random", "measured_on": "files"},
    "optimiser": {"learning_rate": 1e-3, "batch_size": 4},
    "budget": {"steps": 30},
}


def test_a_signal_is_at_no_distance_from_itself():
    assert spectral_distance(SIGNALS, SIGNALS, STEPS).tolist() == [0, 0]


def test_twice_as_loud_is_as_far_everywhere_above_the_floor():
    loud = 100 * SIGNALS
    assert spectral_distance(2 * loud, loud, STEPS) == pytest.approx(np.log(4), rel=1e-3)


def test_powers_far_below_the_step_do_not_count():
    assert float(spectral_distance(1e-4 * SIGNALS, 0 * SIGNALS, STEPS).max()) < 1e-4


def test_the_unit_does_not_matter():
    noisy = SIGNALS + 0.1 * SIGNALS.flip(-1)
    one, other = (
        spectral_distance(noisy, SIGNALS, STEPS),
        spectral_distance(8 * noisy, 8 * SIGNALS, 8 * STEPS),
    )
    assert one.numpy() == pytest.approx(other.numpy(), rel=1e-5)


def test_silence_has_a_finite_gradient():
    silence = torch.zeros(1, 1024, requires_grad=True)
    spectral_distance(silence, SIGNALS[:1, :1024], STEPS[:1]).sum().backward()
    assert torch.isfinite(silence.grad).all()


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("unit", ["full scale", "cell"])
def test_spectral_loss_lowers_the_spectral_distance(relative, unit):
    signals = np.cumsum(GENERATOR.standard_normal((4, 1024)), axis=-1).astype(np.float32)
    signals /= np.abs(signals).max()

    def distance(spectral):
        table = TABLE | {
            "data": TABLE["data"] | {"unit": unit},
            "start": {"kind": "chambolle pock", "sigma": 2.0 if unit == "cell" else 16.0},
            "loss": {"relative": relative, "spectral": spectral},
        }
        config = from_table(table)
        trainer = Trainer(config, 30)
        examples = quantized(signals, config.data, GENERATOR)
        for _ in range(30):
            trainer.step(examples)
        restored = torch.tensor(trainer.restore(examples.lo, examples.hi))
        steps = torch.tensor(examples.hi - examples.lo)[:, 0]
        return float(spectral_distance(restored, torch.tensor(examples.signal), steps).mean())

    assert distance(10.0) < distance(0.0)


def test_logarithmic_loss_counts_gains_in_decibels():
    signals, lo = SIGNALS[:1], torch.floor(SIGNALS[:1])
    hi = lo + 1
    estimates = [signals + share * ((lo + hi) / 2 - signals) for share in (1.0, 0.5)]
    losses = [
        data_losses(Loss(relative=True, logarithmic=True), estimate, signals, lo, hi)
        for estimate in estimates
    ]
    assert float(losses[0] - losses[1]) == pytest.approx(np.log((1 + LEAST_RATIO) / (0.25 + LEAST_RATIO)))


@pytest.mark.parametrize("loss", [Loss(relative=True), Loss(relative=True, spectral=0.1), Loss(spectral=0.1)])
def test_half_open_cells_have_a_finite_loss(loss):
    hi = torch.where(SIGNALS > 1, torch.inf, torch.floor(SIGNALS) + 1)
    lo = torch.where(SIGNALS > 1, 1.0, torch.floor(SIGNALS))
    estimates = torch.clamp(SIGNALS, max=1.0).requires_grad_()
    losses = data_losses(loss, estimates, SIGNALS, lo, hi)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(estimates.grad).all()


DENSE = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": 64}}


@pytest.mark.parametrize(
    "short",
    [
        TABLE | {"data": TABLE["data"] | {"length": 1000}},
        {"architecture": DENSE, "data": {"length": 64}, "budget": {"steps": 1}},
    ],
    ids=["convolutional", "dense"],
)
def test_refuses_segments_shorter_than_a_window(corpus, tmp_path, short):
    config = from_table(short | {"loss": {"spectral": 1.0}})
    with pytest.raises(ValueError, match="1024"):
        train(config, corpus, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_segments_of_the_longest_window_are_accepted(corpus):
    longer = {"kind": "PrimalDual", "depth": 1, "map": {"kind": "DenseMap", "samples": max(RESOLUTIONS)}}
    check(from_table({"architecture": longer, "loss": {"spectral": 1.0}}), corpus)
