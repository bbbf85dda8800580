import numpy as np

from pdrn.audio import metrics
from pdrn.audio.corpus import speech
from pdrn.audio.quantizers import MidRise


def test_the_sample_is_half_a_minute_of_loud_16_bit_speech():
    samples, sample_rate_hz = speech()
    assert sample_rate_hz == 16000
    assert 25 < len(samples) / sample_rate_hz < 35
    assert 0.9 < np.abs(samples).max() < 1.0
    assert 0.05 < np.sqrt(np.mean(samples**2)) < 0.3
    np.testing.assert_array_equal(samples * 32768, np.rint(samples * 32768))


def test_the_sample_quantizes_like_speech():
    samples, _ = speech()
    assert 8 < metrics.snr(samples, MidRise(bits=5).quantize(samples)) < 20
