"""Laws of the operators: each holds for every operator and any batch of vectors."""

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.convex.laws import OPERATORS, normal, scales, seeds

from pdrn.convex import DCT, DCT2D, Convolution, Dense, GaborFrame, Identity, Operator, operators
from pdrn.convex.operators import Composed, estimate_norm

each_operator = pytest.mark.parametrize("K", OPERATORS.values(), ids=OPERATORS)


def as_matrix(K: Operator) -> np.ndarray:
    return K.apply(np.eye(K.shape[1])).T


@each_operator
@given(seeds, scales)
def test_adjoint(K, seed, scale):
    m, n = K.shape
    x, y = normal(seed, n, scale=scale), normal(seed + 1, m)
    forward, backward = K.apply(x) @ y, x @ K.adjoint(y)
    assert abs(forward - backward) <= 1e-10 * (np.linalg.norm(x) * np.linalg.norm(y) * K.norm + 1e-300)


@each_operator
@given(seeds)
def test_norm_is_an_upper_bound(K, seed):
    x = normal(seed, K.shape[1])
    assert np.linalg.norm(K.apply(x)) <= K.norm * np.linalg.norm(x) * (1 + 1e-12)


@each_operator
def test_norm_is_tight(K):
    true_norm = np.linalg.norm(as_matrix(K), 2)
    assert true_norm * (1 - 1e-12) <= K.norm <= true_norm * (1 + 1e-5)
    assert true_norm * (1 - 1e-12) <= estimate_norm(K) <= true_norm * (1 + 1e-5)


@each_operator
@given(seeds)
def test_batch_equals_rows(K, seed):
    m, n = K.shape
    x, y = normal(seed, 2, 3, n), normal(seed + 1, 2, 3, m)
    assert K.apply(x).shape == (2, 3, m)
    assert K.adjoint(y).shape == (2, 3, n)
    for i in np.ndindex(2, 3):
        assert np.allclose(K.apply(x)[i], K.apply(x[i]), atol=1e-12)
        assert np.allclose(K.adjoint(y)[i], K.adjoint(y[i]), atol=1e-12)


@each_operator
@given(seeds)
def test_tensors_equal_arrays(K, seed):
    m, n = K.shape
    x, y = normal(seed, 2, n), normal(seed + 1, 2, m)
    assert np.allclose(K.apply(torch.tensor(x)), K.apply(x), atol=1e-12)
    assert np.allclose(K.adjoint(torch.tensor(y)), K.adjoint(y), atol=1e-12)


@each_operator
def test_gradients_of_apply_and_adjoint(K):
    m, n = K.shape
    assert torch.autograd.gradcheck(K.apply, torch.tensor(normal(1, 2, n), requires_grad=True))
    assert torch.autograd.gradcheck(K.adjoint, torch.tensor(normal(2, 2, m), requires_grad=True))


@each_operator
@pytest.mark.parametrize("convert", [lambda x: x.astype(np.float32), lambda x: torch.tensor(x).float()])
def test_float32_stays_float32(K, convert):
    m, n = K.shape
    x, y = convert(normal(1, n)), convert(normal(2, m))
    assert K.apply(x).dtype == x.dtype
    assert K.adjoint(y).dtype == y.dtype
    assert np.allclose(K.apply(x), K.apply(normal(1, n)), atol=1e-4)


@each_operator
def test_arguments_are_not_changed_or_shared(K):
    m, n = K.shape
    x, y = normal(1, n), normal(2, m)
    for operation, argument in ((K.apply, x), (K.adjoint, y)):
        before = argument.copy()
        result = operation(argument)
        assert np.array_equal(argument, before)
        assert not np.shares_memory(result, argument)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 40), st.integers(0, 9), seeds)
def test_any_gabor_frame_is_tight(size, window, hop, extra, seed):
    K = GaborFrame(size, max(window, hop), min(window, hop), fft_length=max(window, hop) + extra)
    x = normal(seed, size)
    assert np.allclose(K.adjoint(K.apply(x)), x, atol=1e-12)
    assert K.norm == K.injectivity == 1


@pytest.mark.parametrize(("window", "hop", "redundancy"), [(512, 128, 4), (320, 160, 2), (256, 64, 4)])
def test_redundancy_of_gabor_frame(window, hop, redundancy):
    m, n = GaborFrame(16000, window, hop).shape
    assert m / n == pytest.approx(redundancy, rel=0.05)


def test_tone_has_one_frequency_in_gabor_frame():
    t = np.arange(640)
    K = GaborFrame(640, window_length=64, hop=16)
    pairs = K.apply(np.cos(2 * np.pi * 8 * t / 64)).reshape(-1, 33, 2)
    energy = (pairs**2).sum((0, 2))
    assert energy.argmax() == 8
    assert energy[7:10].sum() > 0.9 * energy.sum()


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1024])
def test_dct_equals_scipy_and_is_orthonormal(n):
    x = normal(3, 4, n)
    K = DCT(n)
    assert np.array_equal(K.apply(x), scipy.fft.dct(x, norm="ortho"))
    assert np.allclose(K.adjoint(K.apply(x)), x)
    assert np.allclose(K.adjoint(K.apply(torch.tensor(x))), x)


@each_operator
def test_injectivity_is_a_lower_bound(K):
    m, n = K.shape
    least = np.linalg.svd(as_matrix(K), compute_uv=False)[-1] if m >= n else 0.0
    assert K.injectivity <= least * (1 + 1e-12)
    assert K.injectivity == pytest.approx(least) or isinstance(K, Composed | Convolution)


def test_norm_of_a_nearly_flat_spectrum():
    diagonal = np.full(1500, 0.98)
    diagonal[7] = 1.0
    K = Dense(np.diag(diagonal)) @ DCT(1500)
    assert 1 <= K.norm <= 1 + 1e-5


def test_norm_of_a_tensor_with_gradient():
    W = torch.randn(40, 40, dtype=torch.float64, requires_grad=True)
    assert (Dense(W) @ DCT(40)).norm == pytest.approx(np.linalg.norm(W.detach().numpy(), 2), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Dense(np.ones(3)), "matrix"),
        (lambda: Dense(np.ones((0, 3))), "matrix"),
        (lambda: Dense(np.array([[np.nan]])), "NaN"),
        (lambda: Dense([[1.0]]), "float64"),
        (lambda: Dense(np.ones((2, 2), complex)), "float64"),
        (lambda: Identity(0), "size"),
        (lambda: GaborFrame(16, 8, 2).apply(np.ones(16, ">f8")), "float64"),
        (lambda: DCT(16).apply(np.ones(16, int)), "float64"),
        (lambda: np.ones(3) * DCT(3), "factor"),
        (lambda: DCT(0), "size"),
        (lambda: GaborFrame(0, 4, 2), "size"),
        (lambda: GaborFrame(9, 4, 5), "hop"),
        (lambda: GaborFrame(9, 4, 0), "hop"),
        (lambda: GaborFrame(9, 4, 2, fft_length=3), "fft_length"),
        (lambda: DCT(3) @ DCT(4), r"\(4, 4\)"),
        (lambda: DCT2D(3, 0), "3 by 0"),
        (lambda: Convolution(np.ones((2, 5)), hop=2, count=3), "hops"),
        (lambda: Convolution(np.ones((2, 4)), hop=8, count=3), "hops"),
        (lambda: Convolution(np.ones((2, 4)), hop=2, count=0), "view"),
        (lambda: Convolution(np.ones(4), hop=2, count=3), "filters"),
        (lambda: Convolution(np.full((2, 4), np.nan), hop=2, count=3), "NaN"),
        (lambda: float("nan") * DCT(3), "nan"),
    ],
)
def test_refuses_invalid_parameters(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


@each_operator
def test_refuses_wrong_lengths(K):
    m, n = K.shape
    with pytest.raises(ValueError, match="length"):
        K.apply(np.ones(n + 1))
    with pytest.raises(ValueError, match="length"):
        K.adjoint(np.ones((2, m + 1)))


def test_norm_of_a_long_convolution_needs_no_iteration(monkeypatch):
    filters = np.array([[1.0, -2.0, 1.0]])
    assert Convolution(filters, 1, 400).norm == pytest.approx(4, rel=1e-3)
    monkeypatch.delattr(operators, "estimate_norm")
    assert 4 <= Convolution(filters, 1, 100_000).norm <= 4 * 1.002


def test_convolution_by_hand():
    filters = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    K = Convolution(filters, hop=2, count=3)
    assert K.apply(np.arange(8.0)).reshape(3, 2).tolist() == [[0, 6], [2, 14], [4, 22]]


def test_norm_of_zero_is_zero():
    assert Convolution(np.zeros((4, 8)), 4, 200).norm == 0
