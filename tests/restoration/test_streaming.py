"""Any method gives the same samples however the signal arrives."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.audio.corpus import speech
from pdrn.audio.files import RawFormat
from pdrn.audio.quantizers import MidRise
from pdrn.errors import AudioError, InputError
from pdrn.restoration.restorer import Restorer
from pdrn.restoration.streaming import BlockRestorer, restore_bytes


class Average:
    """A method that can be checked by hand: each sample is the mean of the centres around it."""

    model = None
    before, after = 4, 2

    def restore(self, cells):
        return np.convolve(cells.centre, np.ones(7) / 7, "valid")


def cells_of(samples):
    return Cells(samples - 1, samples + 1)


def fed(blocks, cells, lengths):
    pieces, start = [], 0
    for length in lengths:
        pieces.append(blocks.feed(cells[:, start : start + length]))
        start += length
    pieces += [blocks.feed(cells[:, start:]), blocks.flush()]
    pieces = [piece for piece in pieces if piece.samples.size]
    return tuple(
        np.concatenate([part(piece) for piece in pieces], axis=-1)
        for part in (lambda p: p.samples, lambda p: p.cells.lo, lambda p: p.cells.hi)
    )


@given(
    length=st.integers(1, 60),
    channels=st.integers(1, 3),
    block=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 20), max_size=8),
    threads=st.integers(1, 2),
)
def test_every_sample_comes_out_once_with_its_cell(length, channels, block, lengths, threads):
    samples = np.random.default_rng(length).standard_normal((channels, length))
    cells = cells_of(samples)
    restored, lo, hi = fed(BlockRestorer(Average(), block, threads=threads), cells, lengths)
    padded = np.pad(cells.centre, [(0, 0), (4, 2)])
    expected = [np.convolve(row, np.ones(7) / 7, "valid") for row in padded]
    np.testing.assert_allclose(restored, cells.project_inside(np.array(expected)))
    np.testing.assert_array_equal(lo, cells.lo)
    np.testing.assert_array_equal(hi, cells.hi)


@given(length=st.integers(1, 60), block=st.integers(1, 12))
def test_delay_is_at_most_the_latency(length, block):
    blocks = BlockRestorer(Average(), block)
    assert blocks.latency == block + 2 - 1
    out = 0
    for fed_so_far in range(1, length + 1):
        out += blocks.feed(cells_of(np.zeros((1, 1)))).samples.shape[-1]
        assert fed_so_far - out <= blocks.latency
    assert out + blocks.flush().samples.shape[-1] == length


def test_queue_is_bounded():
    blocks = BlockRestorer(Average(), 4)
    for _ in range(100):
        blocks.feed(cells_of(np.zeros((1, 5))))
        assert sum(piece.shape[-1] for piece in blocks._waiting) <= blocks.latency + Average.before + 1


@given(mix=st.floats(0, 1))
def test_mix_interpolates_centres_and_restoration(mix):
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    (mixed, *_), (full, *_) = (fed(BlockRestorer(Average(), 4, mix=share), cells, []) for share in (mix, 1))
    np.testing.assert_allclose(mixed, (1 - mix) * cells.centre + mix * full, atol=1e-12)
    assert cells.violation(mixed) == 0


def test_mix_of_zero_is_exactly_the_centres():
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    none, *_ = fed(BlockRestorer(Average(), 4, mix=0), cells, [])
    np.testing.assert_array_equal(none, cells.centre)


def test_result_is_projected_into_cells():
    class Wild(Average):
        def restore(self, cells):
            return np.full(cells.shape[-1] - 6, 1e6)

    cells = cells_of(np.zeros((1, 9)))
    restored, *_ = fed(BlockRestorer(Wild(), 4), cells, [])
    np.testing.assert_array_equal(restored, cells.project_inside(cells.hi))


def test_flush_resets():
    blocks = BlockRestorer(Average(), 4)
    cells = cells_of(np.random.default_rng(0).standard_normal((1, 21)))
    first, *_ = fed(blocks, cells, [3])
    second, *_ = fed(blocks, cells, [8])
    np.testing.assert_array_equal(first, second)


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
def test_stream_equals_offline(lengths):
    restored = streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED, lengths)
    np.testing.assert_array_equal(
        restored, streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED, [])
    )
    np.testing.assert_allclose(restored, OFFLINE, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 447, 448, 449, 1024, 1472, 1473])
def test_stream_keeps_any_length(length):
    restored = streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED[:length], [1] * min(length, 3))
    np.testing.assert_allclose(
        restored, Restorer(method="cp").restore(QUANTIZED[:length], RATE, bits=5), atol=1e-6
    )


def test_stream_channels_are_independent():
    pair = np.stack([QUANTIZED, -QUANTIZED[::-1]])
    together = streamed(Restorer(method="cp").stream(RATE, bits=5), pair, [999])
    for row, restored in zip(pair, together, strict=True):
        np.testing.assert_array_equal(
            restored, streamed(Restorer(method="cp").stream(RATE, bits=5), row, [17])
        )


def test_stream_keeps_shape_of_one_row():
    assert streamed(Restorer(method="cp").stream(RATE, bits=5), QUANTIZED[None], [100]).shape == (
        1,
        len(QUANTIZED),
    )


def test_reset_forgets():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(QUANTIZED[:999])
    stream.reset()
    np.testing.assert_array_equal(streamed(stream, QUANTIZED, [5]), streamed(stream, QUANTIZED, [50]))


def test_stream_keeps_its_latency():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    assert stream.latency_seconds == stream.latency_samples / RATE < 0.1
    assert len(stream.feed(QUANTIZED[: stream.latency_samples])) == 0
    assert len(stream.feed(QUANTIZED[:1])) > 0


def test_empty_stream():
    assert Restorer(method="cp").stream(RATE, bits=5).flush().shape == (0,)
    assert Restorer(method="cp").stream(RATE, bits=5).feed(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("chunk", [np.zeros((2, 5)), np.zeros((3, 5))])
def test_refuses_change_of_channels(chunk):
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(np.zeros(5))
    with pytest.raises(ValueError, match=r"\([23], 5\)"):
        stream.feed(chunk)


@settings(max_examples=15)
@given(at=st.integers(0, len(QUANTIZED)))
def test_refused_chunk_leaves_stream_unchanged(at):
    stream = Restorer(method="cp").stream(RATE, bits=5)
    pieces = [stream.feed(QUANTIZED[:at])]
    with pytest.raises(InputError, match=r"0\.1\b"):
        stream.feed(np.array([QUANTIZED[0], 0.1]))
    pieces += [stream.feed(QUANTIZED[at:]), stream.flush()]
    np.testing.assert_allclose(np.concatenate(pieces), OFFLINE, atol=1e-6)


def test_refuses_mixed_levels_in_distant_chunks():
    stream = Restorer(method="cp").stream(RATE, bits=5)
    stream.feed(QUANTIZED)
    stream.feed(np.zeros(10))
    with pytest.raises(ValueError, match=r"0\.0625"):
        stream.feed(np.full(3000, 1 / 16))
    stream.reset()
    assert len(stream.feed(np.full(3000, 1 / 16))) > 0


def test_refuses_transposed_chunk():
    with pytest.raises(ValueError, match=r"\(16000, 2\)"):
        Restorer(method="cp").stream(RATE, bits=5).feed(np.zeros((16000, 2)))


def test_refuses_nan_without_gaps():
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


# --- Raw bytes ---

STEREO = MidRise(5).quantize(
    np.stack([0.5 * np.sin(np.arange(4000) / 7), 0.2 * np.cos(np.arange(4000) / 11)])
)


class Trickle(io.BytesIO):
    """A pipe that has few bytes at a time."""

    def read1(self, size=-1):
        return super().read1(min(size, 777))


def piped(content, read_as, write_as, source=Trickle):
    stream = Restorer(method="cp").stream(RATE, bits=5)
    return b"".join(restore_bytes(stream, source(content), read_as, write_as))


@pytest.mark.parametrize("source", [io.BytesIO, Trickle])
@pytest.mark.parametrize("encoding", ["s16le", "s24le", "f32le"])
def test_raw_pipe_equals_offline(source, encoding):
    read_as, write_as = RawFormat(encoding, 2), RawFormat("f64le", 2)
    restored = write_as.decode(piped(read_as.encode(STEREO), read_as, write_as, source))
    np.testing.assert_allclose(restored, Restorer(method="cp").restore(STEREO, RATE, bits=5), atol=1e-6)


def test_raw_pipe_is_incremental():
    raw = RawFormat("s16le")
    stream = Restorer(method="cp").stream(RATE, bits=5)
    pieces = restore_bytes(stream, Trickle(raw.encode(STEREO[:1])), raw, raw)
    assert sum(len(piece) > 0 for piece in pieces) > 2


def test_refuses_incomplete_last_frame_after_the_rest():
    raw = RawFormat("s16le", 2)
    pieces = restore_bytes(
        Restorer(method="cp").stream(RATE, bits=5), io.BytesIO(raw.encode(STEREO) + b"ab"), raw, raw
    )
    done = bytearray()
    with pytest.raises(AudioError, match=r"\b2\b"):
        done.extend(b"".join(iter_into(pieces, done)))
    assert len(done) == STEREO.size * 2


def iter_into(pieces, done):
    for piece in pieces:
        done.extend(piece)
    return []


def test_empty_raw_pipe():
    assert piped(b"", RawFormat("s16le"), RawFormat("s16le")) == b""
