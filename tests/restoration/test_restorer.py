"""Arrays in, arrays out."""

import subprocess
import sys

import numpy as np
import pytest

import pdrn
from pdrn.audio.quantizers import ALaw, MidRise, MidTread
from pdrn.restoration.restorer import Restorer

RATE = 16000
SIGNAL = 0.4 * np.sin(np.arange(5000) / 9)
QUANTIZED = MidRise(4).quantize(SIGNAL)


def test_the_package_offers_it_in_one_line():
    restored = pdrn.restore(QUANTIZED, RATE, bits=4)
    np.testing.assert_array_equal(restored, Restorer().restore(QUANTIZED, RATE, bits=4))
    assert pdrn.Restorer is Restorer


def test_importing_the_package_is_cheap():
    code = "import sys, pdrn; print({'numpy', 'scipy', 'typer', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_restoring_needs_no_torch():
    code = (
        "import sys, numpy, pdrn; pdrn.restore(numpy.zeros(9), 8000, bits=5); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError, match="destroy"):
        _ = pdrn.destroy


@pytest.mark.parametrize("shape", [(5000,), (1, 5000), (5, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_shape_is_kept(shape, dtype):
    restored = pdrn.restore(QUANTIZED.reshape(shape).astype(dtype), RATE, bits=4)
    assert (restored.shape, restored.dtype) == (shape, np.float64)


def test_the_levels_are_detected():
    restored = pdrn.restore(QUANTIZED, RATE, method="cp")
    assert np.abs(restored - QUANTIZED).max() <= 1 / 16 + 1e-9
    assert ((restored - SIGNAL) ** 2).mean() < 0.3 * ((QUANTIZED - SIGNAL) ** 2).mean()


@pytest.mark.parametrize("said", [{"bits": 8}, {"law": "alaw"}, {}])
def test_full_scale_is_not_taken_for_clipping_unless_said(said):
    loud = np.clip(3 * SIGNAL, -1, 1)
    quantized = ALaw().quantize(loud) if "law" in said else MidTread(8).quantize(loud)
    restored = pdrn.restore(quantized, RATE, **said)
    assert ((restored - loud) ** 2).mean() < ((quantized - loud) ** 2).mean()


def test_channels_are_independent():
    both = np.stack([QUANTIZED, QUANTIZED[::-1]])
    restored = pdrn.restore(both, RATE, bits=4)
    np.testing.assert_array_equal(restored[1], pdrn.restore(both[1], RATE, bits=4))


def test_threads_change_nothing():
    long = np.tile(QUANTIZED, 10)
    np.testing.assert_array_equal(
        Restorer(threads=2).restore(long, RATE, bits=4), Restorer().restore(long, RATE, bits=4)
    )


def test_more_iterations_go_further():
    few, many = (Restorer(iterations=count).restore(QUANTIZED, RATE, bits=4) for count in (1, 50))
    assert np.abs(few - QUANTIZED).mean() < np.abs(many - QUANTIZED).mean()


def test_missing_samples_are_filled_in():
    holes = QUANTIZED.copy()
    holes[1000:1016] = np.nan
    restored = pdrn.restore(holes, RATE, bits=4)
    assert np.isfinite(restored).all()
    assert np.abs(restored - SIGNAL)[1000:1016].max() < 0.3


def test_progress_is_told_to_the_end():
    calls = []
    pdrn.restore(np.zeros(200_000), RATE, bits=4, progress=lambda *call: calls.append(call))
    assert calls[-1] == (200_000, 200_000)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_no_samples_are_no_trouble():
    assert pdrn.restore(np.zeros((2, 0)), RATE, bits=4).shape == (2, 0)


@pytest.mark.parametrize(
    ("samples", "rate", "reason"),
    [
        (np.zeros((5000, 2)), RATE, r"\(5000, 2\)"),
        (np.zeros((2, 2, 2)), RATE, r"\(2, 2, 2\)"),
        (np.zeros(5, np.int16), RATE, "int16"),
        (np.array([np.inf]), RATE, "inf"),
        (np.zeros(5), 0, "sample rate"),
        (np.zeros(5), 16000.5, r"16000\.5"),
    ],
)
def test_what_makes_no_sense_is_refused(samples, rate, reason):
    with pytest.raises(ValueError, match=reason):
        pdrn.restore(samples, rate, bits=5)


@pytest.mark.parametrize("options", [{"mix": 2.0}, {"threads": 0}, {"iterations": 0}])
def test_impossible_settings_are_refused_at_once(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Restorer(**options)


@pytest.mark.parametrize("method", ["cp", "both"])
@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_what_is_restored_rounds_back_to_what_was_observed(kind, method):
    quantizer = kind(4)
    codes = quantizer.encode(SIGNAL)
    restored = pdrn.restore(quantizer.levels(codes), RATE, bits=4, method=method)
    np.testing.assert_array_equal(quantizer.encode(restored), codes)
    np.testing.assert_array_equal(quantizer.encode(restored.astype(np.float32)), codes)
