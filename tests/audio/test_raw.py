import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.audio.files import ENCODINGS, RawFormat, settle
from pdrn.audio.quantizers import ALaw, MuLaw
from pdrn.cli.options import Encoding
from pdrn.errors import AudioError

PLAIN = [name for name in ENCODINGS if name not in ("mulaw", "alaw")]


@pytest.mark.parametrize("encoding", PLAIN)
@given(channels=st.integers(1, 3), frames=st.integers(0, 20), seed=st.integers(0, 99))
def test_what_is_encoded_is_decoded(encoding, channels, frames, seed):
    samples = np.random.default_rng(seed).uniform(-1, 1, (channels, frames))
    raw = RawFormat(encoding, channels)
    content = raw.encode(samples)
    assert len(content) == frames * raw.frame_bytes
    np.testing.assert_array_equal(raw.decode(content), settle(samples, None, raw.subtype))


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("u8", [192, 0]),
        ("s8", [64, 128]),
        ("s16le", [0, 64, 0, 128]),
        ("s16be", [64, 0, 128, 0]),
        ("s24le", [0, 0, 64, 0, 0, 128]),
        ("s32le", [0, 0, 0, 64, 0, 0, 0, 128]),
        ("f32le", [0, 0, 0, 63, 0, 0, 128, 191]),
    ],
)
def test_the_bytes_are_the_usual_ones(encoding, content):
    assert RawFormat(encoding).decode(bytes(content)).tolist() == [[0.5, -1.0]]
    assert RawFormat(encoding).encode(np.array([[0.5, -1.0]])) == bytes(content)


def test_samples_are_interleaved():
    assert RawFormat("s8", 2).decode(bytes([64, 192, 32, 224])).tolist() == [[0.5, 0.25], [-0.5, -0.25]]


@pytest.mark.parametrize(("encoding", "law"), [("mulaw", MuLaw()), ("alaw", ALaw())])
def test_g711_is_decoded(encoding, law):
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(RawFormat(encoding).decode(codes.tobytes())[0], law.levels(codes))


def test_cells_are_kept():
    cells = Cells(np.array([[0.301]]), np.array([[0.4]]))
    written = RawFormat("u8").decode(RawFormat("u8").encode(np.array([[0.3]]), cells))
    assert cells.violation(written) == 0


def test_the_command_line_offers_them_all():
    assert tuple(map(str, Encoding)) == ENCODINGS


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: RawFormat("mp3"), "mp3"),
        (lambda: RawFormat("s8", 0), "channel"),
        (lambda: RawFormat("alaw").encode(np.zeros((1, 1))), "alaw"),
        (lambda: RawFormat("f32le").decode(np.float32(np.inf).tobytes()), "inf"),
    ],
)
def test_what_cannot_be_is_refused(call, reason):
    with pytest.raises(AudioError, match=reason):
        call()
