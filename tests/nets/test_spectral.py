"""Spectral networks start at Chambolle-Pock, and serve any rate and any cells."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.convex.laws import normal, seeds
from tests.nets.plans import SPECTRAL, disturbed

from pdrn.convex import Box, ChambollePock, GaborFrame, GroupL21, Problem, solve
from pdrn.errors import InputError
from pdrn.nets import DenseMap, Network, PrimalDual, SpectralPrimalDual, spectral
from pdrn.nets.runtime import RunningSpectralNetwork
from pdrn.nets.spectral import OVERLAP, TimeFrequencyConvolution
from pdrn.nets.torch import NetworkModule

PLAN, CAUSAL = SPECTRAL.values()
RATES = [8000, 11025, 16000, 44100, 48000]


def sound(seed, length=700):
    return np.cumsum(normal(seed, length, scale=0.05))


def cells(seed, length=700, step=1 / 16):
    lo = step * np.floor(sound(seed, length) / step)
    return lo, lo + step


def clipped(seed, level=0.2):
    """Cells of clipped sound: exact below the level, half-open above it."""
    s = sound(seed)
    kept = np.clip(s, -level, level)
    return np.where(s <= -level, -np.inf, kept), np.where(s >= level, np.inf, kept)


def test_at_its_start_it_is_reweighted_chambolle_pock():
    plan = SpectralPrimalDual(windows=(0.008,), steps=4, channels=4, blocks=1, sample_rate_hz=8000)
    lo, hi = cells(1)
    network = Network.started(plan, dtype=np.float64)
    (window,) = plan.window_lengths()
    K = GaborFrame(len(lo), window, window // OVERLAP)
    pairs = K.apply((lo + hi) / 2).reshape(-1, K.channels // 2, 2)
    # Frames beyond the ends hold fewer cells, hence a smaller mean square radius.
    inside = np.pad(np.ones(len(lo)), (window - K.hop, 2 * window))
    share = np.array([(inside[i * K.hop :][:window] * K.window**2).sum() for i in range(len(pairs))])
    g = np.sqrt(share / (K.window**2).sum()) / 32
    power = np.pad((pairs**2).sum(-1) / g[:, None] ** 2, [(0, 0), (1, 1)], "edge")
    m = np.sqrt((power[:, :-2] + power[:, 1:-1] + power[:, 2:]) / 3 + 1e-6)
    weight = g[:, None] / (1 + np.exp(1.5) * m)
    problem = Problem(GroupL21(2, weight.ravel()), Box(lo, hi), K, (lo + hi) / 2)
    wanted = solve(problem, ChambollePock(sigma=1.0, tau=1.0, theta=1.0), iterations=4).x
    np.testing.assert_allclose(network(lo, hi), wanted, atol=1e-12)


@pytest.mark.parametrize("rate", RATES)
@settings(max_examples=5)
@given(seeds)
def test_one_set_of_weights_serves_every_rate(rate, seed):
    network = disturbed(PLAN, seed).at(rate)
    lo, hi = cells(seed)
    restored = network(lo, hi)
    assert network.architecture.sample_rate_hz == rate
    assert (lo <= restored).all()
    assert (restored <= hi).all()
    assert not np.array_equal(restored, (lo + hi) / 2)


def test_weights_mean_the_same_at_another_rate():
    """A signal below 4 kHz, at 8 and at 48 kHz: the prior weights agree where the rates do."""
    plan = SpectralPrimalDual(windows=(0.032,), steps=2, channels=4, blocks=2, hidden=3, sample_rate_hz=8000)
    network = disturbed(plan, 9)
    tones, generator = [310.0, 620.0, 1550.0, 2480.0], np.random.default_rng(1)
    corrections = {}
    for rate in (8000, 48000):
        time = np.arange(rate // 2) / rate
        s = sum(np.sin(2 * np.pi * tone * time + phase) for phase, tone in enumerate(tones))
        noise = generator.uniform(-1, 1, len(s))
        at = network.at(rate).architecture
        window = at.window_lengths()[0]
        K = GaborFrame(len(s), window, window // OVERLAP)
        pairs = K.apply(s + 0.01 * noise)[None].reshape(1, -1, window // 2 + 1, 2)
        square = np.full((1, pairs.shape[1], 1), 0.01**2)
        priors = at.priors(0, network.weights, pairs, pairs, square, square)
        weight = next(priors).weight.reshape(pairs.shape[1], -1) / 0.01
        corrections[rate] = weight[10:-10, :100].mean(0)
    ratio = corrections[48000] / corrections[8000]
    peaks = [round(tone * 0.032) for tone in tones]
    assert np.abs(np.log(ratio[peaks])).max() < np.log(3)  # a coefficient has sqrt(6) of the power over noise
    assert np.corrcoef(np.log(corrections[8000]), np.log(corrections[48000]))[0, 1] > 0.9


@settings(max_examples=10)
@given(seeds, st.sampled_from([1e-4, 0.3, 50.0]))
def test_louder_cells_give_louder_sound(seed, factor):
    network = disturbed(PLAN, seed)
    lo, hi = cells(seed)
    np.testing.assert_allclose(
        network(factor * lo, factor * hi), factor * network(lo, hi), atol=1e-9 * factor
    )


@settings(max_examples=10)
@given(seeds)
def test_upside_down_cells_give_sound_upside_down(seed):
    network = disturbed(PLAN, seed)
    lo, hi = cells(seed)
    np.testing.assert_allclose(network(-hi, -lo), -network(lo, hi), atol=1e-12)


@settings(max_examples=5)
@given(seeds)
def test_clipped_sound_is_restored_beyond_its_level_alike_by_numpy_and_torch(seed):
    network = disturbed(PLAN, seed)
    lo, hi = clipped(seed)
    restored = network(lo, hi)
    tensors = NetworkModule.of(network)(torch.tensor(lo), torch.tensor(hi)).detach().numpy()
    assert np.isfinite(restored).all()
    assert ((lo <= restored) & (restored <= hi)).all()
    np.testing.assert_allclose(restored, tensors, atol=1e-12)


def test_digital_silence_stays_silent():
    network = disturbed(PLAN, 3)
    silence = np.zeros(500)
    assert not network(silence, silence).any()
    assert not network(silence - 1 / 32, silence + 1 / 32).any()


@pytest.mark.parametrize("plan", [PLAN, CAUSAL])
@pytest.mark.parametrize("rate", [8000, 22050])
def test_it_sees_as_far_as_its_reach(plan, rate):
    network = disturbed(plan, 4).at(rate)
    grid, (before, after) = network.architecture.grid, network.architecture.reach
    start = before + 5 * grid
    beyond = start + 4 * grid + after
    lo, hi = cells(5, beyond + 3000)
    whole = network(lo, hi)[start : start + 4 * grid]
    part = network(lo[start - before : beyond], hi[start - before : beyond])[before : before + 4 * grid]
    np.testing.assert_allclose(part, whole, atol=1e-12)
    if plan.causal:
        assert after < before


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("at_once", [1, 20, 1000])
def test_a_convolution_is_that_of_torch(dilation, causal, width, at_once, monkeypatch):
    monkeypatch.setattr(spectral, "POSITIONS_AT_ONCE", at_once)
    h, mix, bias = normal(1, 2, 9, 7, 3), normal(4, 3, 3), normal(5, 3)
    parts = normal(2, 3, 3, width, 3), normal(3, 3)
    ours = TimeFrequencyConvolution(*parts, dilation, before=2 * dilation if causal else dilation)
    theirs = TimeFrequencyConvolution(*map(torch.tensor, parts), dilation, ours.before)
    np.testing.assert_allclose(ours(h), theirs(torch.tensor(h)), atol=1e-12)
    blocks = (
        ours.residual(h, 2, mix, bias),
        theirs.residual(torch.tensor(h), 2, *map(torch.tensor, (mix, bias))),
    )
    np.testing.assert_allclose(*blocks, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"windows": ()}, "windows"),
        ({"windows": (5.0,)}, "windows"),
        ({"windows": (0.005, 0.004)}, "multiples"),
        ({"windows": (0.001,) * 1000, "steps": 1, "blocks": 2}, "blocks"),
        ({"steps": 0}, "steps"),
        ({"channels": 0}, "channels"),
        ({"sample_rate_hz": 0}, "sample_rate_hz"),
        ({"steps": 1000}, "steps"),
    ],
)
def test_impossible_sizes_are_refused(changed, word):
    with pytest.raises(InputError, match=word):
        SpectralPrimalDual(**{"windows": (0.03, 0.03), "steps": 2, "channels": 4, "blocks": 1} | changed)


def test_only_spectral_networks_change_their_rate():
    with pytest.raises(InputError, match="rate"):
        Network.started(PrimalDual(DenseMap(8), depth=1)).at(8000)


@pytest.mark.parametrize("rate", [8000, 11025, 44100])
@pytest.mark.parametrize("windows", [(0.008, 0.004), (0.004, 0.008), (0.006, 0.004, 0.002)])
@pytest.mark.parametrize("make", [cells, clipped])
def test_a_stream_is_the_signal_restored_at_once(rate, windows, make):
    plan = SpectralPrimalDual(windows, 2, 4, 2, hidden=3, causal=True, sample_rate_hz=rate)
    network, running = disturbed(plan, 7), RunningSpectralNetwork(disturbed(plan, 7))
    before, after = plan.reach
    assert running.latency == after
    lo, hi = make(3, length=4 * plan.grid) if make is cells else (bound[: 4 * plan.grid] for bound in make(3))
    lo, hi = (np.concatenate([np.zeros(before), bound, np.zeros(after)]) for bound in (lo, hi))
    blocks = zip(*(bound.reshape(-1, plan.grid) for bound in (lo, hi)), strict=True)
    streamed = np.concatenate([running.push(*block) for block in blocks])
    wanted = network(lo, hi)[before:-after]
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(streamed[before + after :], wanted, atol=1e-10)


def test_only_causal_networks_run_as_streams():
    with pytest.raises(InputError, match="causal"):
        RunningSpectralNetwork(disturbed(PLAN, 1))
    with pytest.raises(InputError, match="blocks"):
        RunningSpectralNetwork(disturbed(CAUSAL, 1)).push(np.zeros(3), np.zeros(3))
