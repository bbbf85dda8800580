"""Levels that samples have, and their cells."""

import numpy as np
import pytest

from pdrn.audio.detection import detect
from pdrn.audio.levels import AnyLevels, BoundedLevels, DetectedLevels, LawLevels, UniformLevels, cells_of
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw


def test_missing_samples_may_be_anything():
    samples = np.array([[*ALaw().quantize([0.25]), np.nan]])
    cells = cells_of(samples, LawLevels("alaw"))
    assert (cells.lo[0, 1], cells.hi[0, 1]) == (-np.inf, np.inf)


def test_silence_in_a_mid_rise_recording_is_a_level_too():
    cells = UniformLevels(1 / 4, bits=3).cells([0.0, 0.125])
    assert cells.lo.tolist() == [-0.125, 0.0]


def test_silence_in_an_a_law_recording_reaches_to_its_least_levels():
    cells = LawLevels("alaw").cells([0.0, 8 / 32768])
    assert cells.lo.tolist() == [-1 / 4096, 0.0]
    assert cells.hi.tolist() == [1 / 4096, 2 / 4096]


def test_cells_can_be_made_to_end_at_full_scale():
    cells = BoundedLevels(UniformLevels(1 / 4, bits=3)).cells([-0.875, 0.875])
    assert (cells.lo[0], cells.hi[1]) == (-1, 1)


@pytest.mark.parametrize("peak", [0.69, 0.004, 2**-15, 1e-6])
@pytest.mark.parametrize("levels", [UniformLevels(2048.0), UniformLevels(1 / 2, bits=2)])
def test_sound_between_levels_of_too_long_a_step_is_no_silence(peak, levels):
    with pytest.raises(ValueError, match=f"{peak:g}"):
        levels.cells(peak * np.array([0.0, 1.0, -0.8]))


@pytest.mark.parametrize("step", [0.1, 0.01, 0.003])
@pytest.mark.parametrize(
    "stored",
    [
        lambda levels: np.rint(levels * 32768) / 32768,
        lambda levels: np.floor(levels * 32768) / 32768,
        lambda levels: np.rint(levels * 32767) / 32768,
        np.float32,
    ],
    ids=["rounded", "dropped", "32767", "float32"],
)
def test_levels_of_a_long_step_are_known_again_however_they_were_stored(stored, step):
    levels = step * np.rint(np.linspace(-0.9, 0.9, 999) / step)
    assert UniformLevels(step).cells(stored(levels)) == UniformLevels(step).cells(levels)


def test_a_peak_that_was_rounded_to_full_scale_is_a_level_on_either_side():
    cells = BoundedLevels(UniformLevels(1 / 16, bits=5)).cells([1.0, -1.0, 0.5])
    assert cells.lo.tolist() == [31 / 32, -1.0, 15 / 32]
    assert cells.hi.tolist() == [1.0, -31 / 32, 17 / 32]


@pytest.mark.parametrize(
    ("quantizer", "stored_bits"),
    [(MidTread(6), 16), (MidRise(6), 16), (MidTread(6), 24), (MuLaw(), 24), (ALaw(), 24)],
)
@pytest.mark.parametrize(("gain", "shift"), [(0.5, 0.0), (0.7311, 0.0), (0.7311, 0.01)])
def test_detected_cells_do_not_overlap_after_a_gain_or_an_offset(quantizer, stored_bits, gain, shift):
    levels = np.unique(quantizer.quantize(np.linspace(-0.9, 0.9, 9999)))
    observed = MidTread(stored_bits).quantize(gain * levels + shift)
    cells = DetectedLevels(detect(observed)).cells(observed)
    assert (cells.hi[:-1] <= cells.lo[1:]).all()
    assert cells.contains(observed).all()


def test_what_is_no_sound_is_refused():
    with pytest.raises(ValueError, match=r"1e\+06"):
        cells_of(np.array([[1e30]]), AnyLevels())
