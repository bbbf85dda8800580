import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pdrn.audio.frames import cut, join, split

signals = hnp.arrays(np.float64, st.integers(0, 70), elements=st.floats(-1e3, 1e3))


@st.composite
def shapes(draw):
    frame_length = draw(st.integers(1, 20))
    return frame_length, draw(st.integers(1, frame_length))


@given(signals, shapes(), st.data())
def test_join_of_split_is_identity(signal, shape, data):
    frame_length, hop = shape
    window = data.draw(hnp.arrays(np.float64, frame_length, elements=st.floats(0, 1e3)))
    joined = join(split(signal, frame_length, hop), len(signal), hop, window)
    np.testing.assert_array_equal(joined, signal)


@given(signals, shapes())
def test_cut_follows_equation_4_1(signal, shape):
    n, s = shape
    expected = (
        [signal[j * s : j * s + n] for j in range((len(signal) - n) // s + 1)] if len(signal) >= n else []
    )
    frames = cut(signal, n, s)
    assert frames.shape == (len(expected), n)
    for frame, by_hand in zip(frames, expected, strict=True):
        np.testing.assert_array_equal(frame, by_hand)


@given(signals, shapes())
def test_samples_are_in_equally_many_frames_up_to_one(signal, shape):
    frame_length, hop = shape
    held = split(np.arange(1.0, len(signal) + 1), frame_length, hop)
    counts = np.bincount(held.astype(int).ravel(), minlength=len(signal) + 1)[1:]
    assert set(counts) <= {frame_length // hop, -(-frame_length // hop)}


@given(signals, shapes(), st.data())
def test_join_averages_by_the_window(signal, shape, data):
    frame_length, hop = shape
    window = data.draw(hnp.arrays(np.float64, frame_length, elements=st.floats(0.1, 10)))
    frames = split(signal, frame_length, hop)
    noisy = frames + data.draw(hnp.arrays(np.float64, frames.shape, elements=st.floats(-1, 1)))
    total, weight = np.zeros((2, len(frames) * hop + 2 * frame_length))
    for index, frame in enumerate(noisy):
        total[index * hop :][:frame_length] += window * frame
        weight[index * hop :][:frame_length] += window
    lead = frame_length - hop
    expected = (total / np.where(weight, weight, 1))[lead : lead + len(signal)]
    np.testing.assert_allclose(join(noisy, len(signal), hop, window), expected, rtol=1e-9, atol=1e-9)


def test_sample_without_weight_comes_from_first_frame():
    frames = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 0.0]])
    assert join(frames, 2, 1, np.zeros(2)).tolist() == [1.0, 3.0]
    assert join(frames, 2, 1, np.array([1.0, 3.0])).tolist() == [1.25, 3.25]


def test_framing_works_along_last_axis_and_keeps_float32():
    stereo = np.arange(20, dtype=np.float32).reshape(2, 10)
    frames = split(stereo, 4, 2)
    assert frames.shape == (2, 6, 4)
    joined = join(frames, 10, 2)
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined, stereo)


def test_short_signal_has_no_whole_frame_but_splits():
    assert cut(np.ones(3), 4).shape == (0, 4)
    np.testing.assert_array_equal(join(split(np.ones(3), 8, 8), 3, 8), np.ones(3))


@pytest.mark.parametrize("hop", [0, 5, -1])
def test_refuses_hop_longer_than_frame(hop):
    with pytest.raises(ValueError, match="hop"):
        split(np.ones(8), 4, hop)


@pytest.mark.parametrize(("frames", "length"), [((3, 4), 9), ((3, 4), 5), ((1, 4), -1), ((0, 4), 1)])
def test_join_refuses_other_number_of_frames(frames, length):
    with pytest.raises(ValueError, match=str(length)):
        join(np.ones(frames), length, 4 - 1)


def test_join_refuses_unsplit_signal():
    with pytest.raises(ValueError, match=r"\(4,\)"):
        join(np.ones(4), 4, 1)


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-39, 1.0, 1e39])
def test_join_is_independent_of_dtype_and_window_scale(dtype, scale):
    frames = np.array([[0, 1], [2, 3], [4, 0]], dtype)
    joined = join(frames, 2, 1, scale * np.array([1.0, 3.0]))
    assert joined.tolist() == [1.25, 3.25]
    assert joined.dtype == (np.float32 if dtype in (np.int16, np.float32) else np.float64)


@pytest.mark.parametrize("window", [np.ones(3), -np.ones(4), np.full(4, np.nan)])
def test_join_refuses_impossible_windows(window):
    with pytest.raises(ValueError, match="window"):
        join(np.ones((2, 4)), 8, 4, window)
