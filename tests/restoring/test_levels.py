"""Levels that samples have, and their cells."""

import numpy as np
import pytest

from pdrn.audio.g711 import ALaw
from pdrn.restoring.levels import AnyLevels, BoundedLevels, LawLevels, UniformLevels, cells_of


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


def test_what_is_no_sound_is_refused():
    with pytest.raises(ValueError, match="a sample is beyond 1e"):
        cells_of(np.array([[1e30]]), AnyLevels())
