"""The linear maps: how signals are laid out for them, and their dictionaries."""

import numpy as np
import pytest
from tests.nets.plans import CONVOLUTIONAL

from pdrn.convex.operators import norm_on_long_signals
from pdrn.nets import ConvolutionalMap, DenseMap


def test_the_batch_is_laid_out_with_zeros_between():
    map = ConvolutionalMap(4, window=6, hop=2)
    signals = np.array([[1.0, 2, 3], [4, 5, 6]])
    flat = map.lay_out(signals)
    assert flat.tolist() == [0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]
    assert np.array_equal(map.gather(flat, signals.shape), signals)


@pytest.mark.parametrize("coefficients", [5, 8, 12, 32])
def test_a_cosine_transform_of_any_size_has_norm_one(coefficients):
    K, norm = DenseMap(8, coefficients).dictionary()
    assert K.shape == (coefficients, 8)
    assert norm == 1.0
    gram = K.T @ K if coefficients >= 8 else K @ K.T
    np.testing.assert_allclose(gram, np.eye(min(8, coefficients)), atol=1e-12)


def test_the_convolutional_dictionary_has_unit_filters():
    K, norm = CONVOLUTIONAL.dictionary()
    assert np.allclose(np.linalg.norm(K, axis=1), 1)
    assert norm == pytest.approx(norm_on_long_signals(K, CONVOLUTIONAL.hop))
