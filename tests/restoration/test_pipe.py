"""Raw samples through a pipe."""

import io

import numpy as np
import pytest

from pdrn.audio.files import RawFormat
from pdrn.audio.quantizers import MidRise
from pdrn.errors import AudioError
from pdrn.restoration.restorer import Restorer
from pdrn.restoration.streaming import restored_bytes

RATE = 16000
SIGNAL = np.stack([0.5 * np.sin(np.arange(4000) / 7), 0.2 * np.cos(np.arange(4000) / 11)])
QUANTIZED = MidRise(5).quantize(SIGNAL)


class Trickle(io.BytesIO):
    """A pipe that has few bytes at a time."""

    def read1(self, size=-1):
        return super().read1(min(size, 777))


def piped(content, read_as, write_as, source=Trickle):
    stream = Restorer(method="cp").stream(RATE, bits=5)
    return b"".join(restored_bytes(stream, source(content), read_as, write_as))


@pytest.mark.parametrize("source", [io.BytesIO, Trickle])
@pytest.mark.parametrize("encoding", ["s16le", "s24le", "f32le"])
def test_a_pipe_gives_the_offline_samples(source, encoding):
    read_as, write_as = RawFormat(encoding, 2), RawFormat("f64le", 2)
    restored = write_as.decode(piped(read_as.encode(QUANTIZED), read_as, write_as, source))
    np.testing.assert_allclose(restored, Restorer(method="cp").restore(QUANTIZED, RATE, bits=5), atol=1e-6)


def test_samples_come_before_the_end():
    raw = RawFormat("s16le")
    pieces = list(
        restored_bytes(
            Restorer(method="cp").stream(RATE, bits=5), Trickle(raw.encode(QUANTIZED[:1])), raw, raw
        )
    )
    assert len(pieces) > 2


def test_half_a_frame_at_the_end_is_named_after_the_rest():
    raw = RawFormat("s16le", 2)
    pieces = restored_bytes(
        Restorer(method="cp").stream(RATE, bits=5), io.BytesIO(raw.encode(QUANTIZED) + b"ab"), raw, raw
    )
    done = bytearray()
    with pytest.raises(AudioError, match=r"\b2\b"):
        done.extend(b"".join(iter_into(pieces, done)))
    assert len(done) == QUANTIZED.size * 2


def iter_into(pieces, done):
    for piece in pieces:
        done.extend(piece)
    return []


def test_nothing_in_nothing_out():
    assert piped(b"", RawFormat("s16le"), RawFormat("s16le")) == b""
