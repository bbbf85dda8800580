"""The stream gives the samples of the whole, for any chunks."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdrn.audio.corpus import speech
from pdrn.restoration.restorer import Restorer

RATE = 16000
SPEECH = speech()[0][2 * RATE : 2 * RATE + 6000]
QUANTIZED = (np.floor(SPEECH * 16) + 0.5) / 16
OFFLINE = Restorer(method="cp").restore(QUANTIZED, RATE, bits=5)


def streamed(stream, samples, lengths):
    pieces, start = [], 0
    for length in lengths:
        pieces.append(stream.feed(samples[..., start : start + length]))
        start += length
    return np.concatenate([*pieces, stream.feed(samples[..., start:]), stream.flush()], axis=-1)


@settings(max_examples=15)
@given(lengths=st.lists(st.sampled_from([0, 1, 7, 160, 511, 1023, 2500]), max_size=6))
def test_any_chunks_give_the_offline_samples(lengths):
    restored = streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED, lengths)
    np.testing.assert_array_equal(
        restored, streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED, [])
    )
    np.testing.assert_allclose(restored, OFFLINE, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 447, 448, 449, 1024, 1472, 1473])
def test_signals_of_any_length_come_out_whole(length):
    restored = streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED[:length], [1] * min(length, 3))
    np.testing.assert_allclose(
        restored, Restorer(method="cp").restore(QUANTIZED[:length], RATE, bits=5), atol=1e-6
    )


def test_channels_do_not_influence_each_other():
    pair = np.stack([QUANTIZED, -QUANTIZED[::-1]])
    together = streamed(Restorer(method="cp").stream(RATE, bits=5), pair, [999])
    for row, restored in zip(pair, together, strict=True):
        np.testing.assert_array_equal(
            restored, streamed(Restorer(method="cp").stream(RATE, bits=5), row, [17])
        )


def test_one_channel_may_be_a_row():
    assert streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED[None], [100]).shape == (
        1,
        len(QUANTIZED),
    )


def test_a_reset_forgets():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(QUANTIZED[:999])
    stream.reset()
    np.testing.assert_array_equal(streamed(stream, QUANTIZED, [5]), streamed(stream, QUANTIZED, [50]))


def test_the_latency_is_told_and_kept():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    assert stream.latency_seconds == stream.latency_samples / RATE < 0.1
    assert len(stream.feed(QUANTIZED[: stream.latency_samples])) == 0
    assert len(stream.feed(QUANTIZED[:1])) > 0


def test_nothing_in_nothing_out():
    assert Restorer(method="cp").stream(RATE, bits=5).flush().shape == (0,)
    assert Restorer(method="cp").stream(RATE, bits=5).feed(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("chunk", [np.zeros((2, 5)), np.zeros((3, 5))])
def test_channels_cannot_come_and_go(chunk):
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(np.zeros(5))
    with pytest.raises(ValueError, match=r"\([23], 5\)"):
        stream.feed(chunk)


def test_a_refused_chunk_leaves_the_stream_as_it_was():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(QUANTIZED[:5])
    stream.feed(np.array([0.1]))
    with pytest.raises(ValueError, match=r"0\.1\b"):
        stream.feed(QUANTIZED[5:3000])
    pieces = [stream.feed(QUANTIZED[3000:]), stream.flush()]
    np.testing.assert_allclose(np.concatenate(pieces), OFFLINE, atol=1e-6)


def test_nothing_is_lost_where_a_refused_chunk_is_the_last():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(np.array([0.1]))
    with pytest.raises(ValueError, match=r"0\.1\b"):
        stream.feed(QUANTIZED)
    np.testing.assert_allclose(stream.flush(), OFFLINE, atol=1e-6)
    stream.feed(np.array([0.1]))
    with pytest.raises(ValueError, match=r"0\.1\b"):
        stream.flush()
    assert stream.flush().shape == (0,)


def test_levels_that_do_not_go_together_are_refused_however_far_apart():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(QUANTIZED)
    stream.feed(np.zeros(10))
    with pytest.raises(ValueError, match=r"0\.0625"):
        stream.feed(np.full(3000, 1 / 16))
    stream.reset()
    assert len(stream.feed(np.full(3000, 1 / 16))) > 0


def test_a_chunk_that_completes_no_block_costs_little():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    sample = QUANTIZED[:1]
    begin = time.process_time()
    for _ in range(1000):
        stream.feed(sample)
    assert time.process_time() - begin < 0.3  # 0.6 when every chunk is looked at for itself


def test_a_transposed_chunk_is_refused():
    with pytest.raises(ValueError, match=r"\(16000, 2\)"):
        Restorer(method="cp").stream(RATE, bits=5).feed(np.zeros((16000, 2)))


def test_missing_samples_are_refused_unless_gaps_are_asked_for():
    holes = QUANTIZED.copy()
    holes[1000:1016] = np.nan
    stream = Restorer().stream(RATE, bits=5)
    with pytest.raises(ValueError, match="NaN"):
        stream.feed(holes)
    np.testing.assert_array_equal(
        streamed(stream, QUANTIZED, []), streamed(Restorer().stream(RATE, bits=5), QUANTIZED, [])
    )
    filled = streamed(Restorer().stream(RATE, bits=5, gaps=True), holes, [700, 1100])
    np.testing.assert_allclose(filled, Restorer().restore(holes, RATE, bits=5), atol=1e-6)
