"""More of a corpus: other speeds, offsets and slow waves."""

import numpy as np
import pytest

from pdrn.nets import DenseMap, PrimalDual
from pdrn.nets.files import encode
from pdrn.training.config import Data, from_table
from pdrn.training.data import OFFSETS, WAVES, TrainingData, add_rumble, change_speed, quantized

RATE = 16000


def tone(hertz, seconds=1.0):
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE).astype(np.float32)


def peak_hertz(signal):
    return np.argmax(np.abs(np.fft.rfft(signal * np.hanning(len(signal))))) * RATE / len(signal)


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.25])
def test_faster_is_higher_and_shorter(speed):
    played = change_speed(tone(1000), speed)
    assert len(played) == pytest.approx(RATE / speed, abs=1)
    assert peak_hertz(played) == pytest.approx(1000 * speed, abs=2)
    assert played.dtype == np.float32


def test_a_share_of_the_segments_rumbles_slowly():
    signals = np.zeros((2000, 512), np.float32)
    changed = add_rumble(signals, 0.25, np.random.default_rng(0))
    rumbling = np.ptp(changed, axis=-1) > 0
    assert rumbling.mean() == pytest.approx(0.25, abs=0.03)
    assert np.abs(changed).max() <= OFFSETS[1] + WAVES[1]
    assert np.abs(np.diff(changed)).max() < WAVES[1] * 2 * np.pi * 7.5e-3
    assert (changed[rumbling].mean(-1) > 0).mean() == pytest.approx(0.5, abs=0.1)


def test_what_exceeds_full_scale_is_turned_down():
    loud = np.stack([tone(500), 0.5 * tone(500)])
    changed = add_rumble(loud, 1.0, np.random.default_rng(1))
    assert np.abs(changed).max(-1)[0] == 1
    assert np.abs(changed).max(-1)[1] < 0.7


def test_rumbling_segments_lie_in_their_cells():
    data = Data(bits=(2.0, 9.0), unit="cell", quantizer="both", flips=True, rumble=1.0)
    examples = quantized(np.stack([tone(300), tone(70)]), data, np.random.default_rng(0))
    assert (examples.lo <= examples.signal + 1e-4).all()
    assert (examples.signal <= examples.hi + 1e-4).all()


def test_training_signals_are_there_at_every_speed(corpus):
    def signals(speeds):
        table = {"recipe": "modern", "architecture": encode(PrimalDual(DenseMap(64), 1))}
        return TrainingData.read(
            corpus, from_table(table | {"data": {"speeds": speeds, "length": 64}})
        ).signals

    once, thrice = signals([1.0]), signals([0.9, 1.0, 1.1])
    assert len(thrice) == 3 * len(once)
    np.testing.assert_array_equal(thrice[len(once)], once[0])
    assert len(thrice[0]) > len(once[0]) > len(thrice[-len(once)])


def test_no_speed_leads_beyond_full_scale():
    square = np.sign(np.sin(np.arange(4000) / 9)).astype(np.float32)
    for speed in (0.9, 1.1):
        assert np.abs(change_speed(square, speed)).max() <= 1
