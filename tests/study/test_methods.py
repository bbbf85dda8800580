"""The methods of the study, by name."""

import numpy as np
import pytest

from pdrn.audio.cells import Cells
from pdrn.audio.quantizers import MidRise
from pdrn.convex import DCT
from pdrn.study.methods import method_named


@pytest.fixture
def cells() -> Cells:
    signal = 0.6 * np.sin(np.arange(2 * 256).reshape(2, 256) / 9)
    quantizer = MidRise(5, full_scale=True)
    return quantizer.cells(quantizer.encode(signal))


def test_qu_is_the_quantized_signal(cells):
    assert np.array_equal(method_named("qu")(cells), cells.centre)


def test_cp_is_the_algorithm_with_the_steps_of_table_2(cells):
    K = DCT(256)
    x = x_bar = cells.centre
    y = np.zeros_like(x)
    for _ in range(10):
        y = np.clip(y + 10 * K.apply(x_bar), -1, 1)
        new = np.clip(x - 0.1 * K.adjoint(y), cells.lo, cells.hi)
        x_bar, x = 2 * new - x, new
    assert np.allclose(method_named("cp:10")(cells), x, atol=1e-12)


@pytest.mark.parametrize("name", ["", "cp", "cp:", "cp:0", "cp:-1", "cp:ten", "cp:1.5", "qu:3", "network"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="no method is called"):
        method_named(name)
