import io
import os
import struct
import threading
import time
import tracemalloc

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.corpus import speech
from pdrn.audio.files import Sound, blocks, info, read, resample, writer
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import MidTread, Truncation
from pdrn.errors import AudioError

GENERATOR = np.random.default_rng(0)
STEREO = GENERATOR.uniform(-1, 1, (3000, 2))

STORED_PCM = [
    ("WAV", "PCM_U8", 8),
    ("WAV", "PCM_16", 16),
    ("WAV", "PCM_24", 24),
    ("WAV", "PCM_32", 32),
    ("RF64", "PCM_16", 16),
    ("AIFF", "PCM_S8", 8),
    ("AIFF", "PCM_16", 16),
    ("AU", "PCM_16", 16),
    ("AU", "PCM_24", 24),
    ("FLAC", "PCM_S8", 8),
    ("FLAC", "PCM_16", 16),
    ("FLAC", "PCM_24", 24),
]
EVERY_FORMAT = [
    *[(format, subtype) for format, subtype, _ in STORED_PCM],
    ("WAV", "FLOAT"),
    ("AIFF", "DOUBLE"),
    ("WAV", "ULAW"),
    ("AU", "ALAW"),
    ("OGG", "VORBIS"),
]


def stored(samples, format, subtype, sample_rate_hz=8000):
    stream = io.BytesIO()
    soundfile.write(stream, samples, sample_rate_hz, format=format, subtype=subtype)
    return stream.getvalue()


def from_bytes(content):
    return read(io.BytesIO(content))


@pytest.mark.parametrize(("format", "subtype", "bits"), STORED_PCM)
def test_pcm_codes_are_read_exactly_and_become_cells(format, subtype, bits):
    codes = GENERATOR.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (500, 2))
    codes[:2] = [[-(2 ** (bits - 1))] * 2, [2 ** (bits - 1) - 1] * 2]
    sound = from_bytes(stored((codes << (32 - bits)).astype(np.int32), format, subtype))
    np.testing.assert_array_equal(sound.codes, codes.T)
    cells = sound.cells()
    assert cells.violation(sound.samples) == 0.0
    assert cells.radius.min() == 0.5 / 2 ** (bits - 1)
    assert cells.lo[0, 0] == -np.inf
    assert cells.hi[0, 1] == np.inf


@pytest.mark.parametrize(("encoding", "subtype"), [(1, "ULAW"), (27, "ALAW")])
def test_g711_bytes_become_their_own_cells_and_not_those_of_16_bit(encoding, subtype):
    stored_bytes = np.arange(256, dtype=np.uint8)
    header = struct.pack(">4sIIIII4x", b".snd", 28, 256, encoding, 8000, 1)
    sound = from_bytes(header + stored_bytes.tobytes())
    assert sound.subtype == subtype
    expected = np.where((stored_bytes == 0x7F) & (subtype == "ULAW"), 0xFF, stored_bytes)
    np.testing.assert_array_equal(sound.codes, expected)
    assert sound.cells().radius.min() == (1.5 / 8192 if subtype == "ULAW" else 2 / 4096)
    assert sound.cells().violation(sound.samples) == 0.0


@pytest.mark.parametrize(("format", "subtype"), [("WAV", "ULAW"), ("AU", "ALAW"), ("AIFF", "ULAW")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_cells_of_g711_files_hold_what_libsndfile_was_given(format, subtype, dtype):
    truth = speech()[0][:100000].astype(dtype)
    for gain in (1, 0.01):
        sound = from_bytes(stored(dtype(gain) * truth, format, subtype))
        assert sound.cells().violation(dtype(gain) * truth) == 0.0


@pytest.mark.parametrize(("subtype", "bits"), [("PCM_U8", 8), ("PCM_16", 16), ("PCM_24", 24)])
def test_pcm_that_was_truncated_has_cells_above_its_codes(subtype, bits):
    truth = STEREO[:, 0] * 0.9
    codes = np.floor(truth * 2 ** (bits - 1)).astype(np.int64)
    sound = from_bytes(stored((codes << (32 - bits)).astype(np.int32), "WAV", subtype))
    assert sound.cells(Truncation).violation(truth) == 0.0
    assert sound.cells().violation(truth) > 0.0
    with pytest.raises(AudioError, match="ULAW"):
        from_bytes(stored(truth, "WAV", "ULAW")).cells(Truncation)


def test_samples_off_the_grid_that_a_header_promises_have_no_cells():
    content = bytearray(stored(STEREO[:, 0], "FLAC", "PCM_24"))
    assert content[20] & 1 == 1  # 24 bits are written as 23, in five bits from here on
    content[20:22] = bytes([content[20] & 0xFE, content[21] & 0x0F | 0x70])
    sound = from_bytes(bytes(content))
    assert sound.subtype == "PCM_S8"
    with pytest.raises(AudioError, match="PCM_S8"):
        sound.cells()


def test_blocks_of_many_channels_are_as_long_as_asked():
    content = stored(np.zeros((70000, 32)), "WAV", "PCM_U8")
    assert [block.samples.shape for block in blocks(io.BytesIO(content))] == [(32, 65536), (32, 4464)]


def ogg_pages(content):
    starts = [at for at in range(len(content)) if content.startswith(b"OggS", at)]
    return [content[a:b] for a, b in zip(starts, [*starts[1:], len(content)], strict=True)]


def test_an_ogg_file_without_one_of_its_pages_is_refused():
    pages = ogg_pages(stored(np.tile(STEREO / 2, (10, 1)), "OGG", "VORBIS"))
    assert from_bytes(b"".join(pages)).samples.shape == (2, 30000)
    for lost in range(len(pages) - 1):
        with pytest.raises(AudioError, match=rf"\b{lost}\b"):
            from_bytes(b"".join(pages[:lost] + pages[lost + 1 :]))
    with pytest.raises(AudioError, match=str(len(pages[0] + pages[1]))):
        from_bytes(b"".join([*pages[:2], b"junk", *pages[2:]]))


@pytest.mark.parametrize(
    ("filling", "reason"),
    [(b"\0" * 8, "chunk"), (b"junk\0\0\0\0", "10000")],
)
@pytest.mark.parametrize("start", [b"RIFF", b"RIFX", b"FORM"])
def test_endless_empty_chunks_are_refused_at_once(start, filling, reason):
    content = start + b"\0\0\0\1WAVE" + filling * 2_000_000
    began = time.process_time()
    with pytest.raises(AudioError, match=reason):
        from_bytes(content)
    assert time.process_time() - began < 1


def test_junk_without_end_is_refused_at_once():
    with open("/dev/zero", "rb") as stream, pytest.raises(AudioError, match="/dev/zero"):
        read(stream)


def test_a_stream_that_fails_or_is_closed_gets_one_clear_error():
    class Failing(io.RawIOBase):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(AudioError, match="Input/output error"):
        read(Failing())
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(AudioError, match="closed"):
        read(closed)


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_float_samples_have_no_cells_of_their_own(subtype):
    sound = from_bytes(stored(STEREO, "WAV", subtype))
    with pytest.raises(AudioError, match=subtype):
        sound.cells()


@pytest.mark.parametrize(("format", "subtype"), EVERY_FORMAT)
def test_every_format_keeps_channels_length_and_rate(format, subtype):
    content = stored(STEREO / 2, format, subtype, 11025)
    sound = from_bytes(content)
    assert sound.samples.shape == (2, 3000)
    assert (sound.channels, sound.sample_rate_hz, sound.subtype) == (2, 11025, subtype)
    header = info(io.BytesIO(content))
    assert (header.frames, header.channels, header.format) == (3000, 2, format)
    if format != "OGG":
        assert np.abs(sound.samples.T - STEREO / 2).max() < 0.05


@pytest.mark.parametrize(("format", "subtype"), EVERY_FORMAT)
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.9])
def test_a_cut_file_is_refused(format, subtype, kept):
    content = stored(STEREO / 2, format, subtype)
    with pytest.raises(AudioError):
        from_bytes(content[: int(len(content) * kept)])


@pytest.mark.parametrize("format", ["WAV", "AIFF", "AU"])
def test_one_lost_sample_is_noticed(format):
    content = stored(STEREO[:, 0], format, "PCM_16")
    with pytest.raises(AudioError, match=r"\b2\b"):
        from_bytes(content[:-2])


@pytest.mark.parametrize(
    ("format", "subtype", "boundary"), [("FLAC", "PCM_16", b"\xff\xf8"), ("OGG", "VORBIS", b"OggS")]
)
def test_a_compressed_file_cut_between_two_blocks_is_noticed(format, subtype, boundary):
    content = stored(np.tile(STEREO / 2, (10, 1)), format, subtype)
    starts = [at for at in range(100, len(content)) if content.startswith(boundary, at)]
    assert len(starts) > 1
    for at in starts:
        with pytest.raises(AudioError):
            from_bytes(content[:at])


def test_a_decoder_that_stops_early_without_an_error_is_noticed(monkeypatch):
    monkeypatch.setattr(soundfile.SoundFile, "frames", property(lambda file: 3001))
    with pytest.raises(AudioError, match="3001"):
        from_bytes(stored(STEREO, "WAV", "PCM_16"))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000, 0x80000000, 0])
def test_a_wave_of_unknown_size_as_pipes_have_is_read_to_its_end(size):
    content = bytearray(stored(STEREO[:, 0], "WAV", "PCM_16"))
    content[4:8] = struct.pack("<I", min(size + 36, 0xFFFFFFFF) if size else 8)
    content[40:44] = struct.pack("<I", size)
    assert from_bytes(bytes(content)).samples.shape == (3000,)


def test_mono_is_one_dimensional_and_64_channels_are_rows():
    assert from_bytes(stored(STEREO[:, 0], "WAV", "PCM_16")).samples.shape == (3000,)
    assert from_bytes(stored(np.zeros((7, 64)), "WAV", "PCM_16")).samples.shape == (64, 7)


@given(st.integers(1, 400))
def test_blocks_are_the_file_in_pieces(block_length):
    content = stored(STEREO[:300], "FLAC", "PCM_16")
    pieces = list(blocks(io.BytesIO(content), block_length))
    assert {piece.samples.shape[1] for piece in pieces[:-1]} <= {block_length}
    np.testing.assert_array_equal(
        np.concatenate([piece.samples for piece in pieces], axis=1), from_bytes(content).samples
    )


@pytest.mark.parametrize(("format", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS")])
def test_a_pipe_is_read_like_a_file(format, subtype):
    content = stored(STEREO, format, subtype)
    reading, writing = os.pipe()

    def feed():
        with os.fdopen(writing, "wb") as stream:
            stream.write(content)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reading, "rb") as stream:
        sound = read(stream)
    feeder.join()
    np.testing.assert_array_equal(sound.samples, from_bytes(content).samples)


def test_a_stream_that_was_looked_into_is_read_from_its_start(tmp_path):
    (tmp_path / "a.wav").write_bytes(stored(STEREO, "WAV", "PCM_16"))
    with open(tmp_path / "a.wav", "rb") as stream:
        stream.read(4)
        stream.seek(0)
        assert read(stream).samples.shape == (2, 3000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "WAV"),
        (b"RIFF", "WAV"),
        (b"Dear reader, this is a letter." * 9, "WAV"),
        (stored(np.zeros(0), "WAV", "PCM_16"), "samples"),
        (stored(np.zeros(0), "AU", "PCM_16"), "samples"),
        (stored(np.array([0.0, np.nan]), "WAV", "FLOAT"), "frame 1"),
        (stored(np.array([[0.0, -np.inf]]), "AIFF", "DOUBLE"), "channel 1"),
        (stored(np.zeros(5), "SVX", "PCM_16"), "SVX"),
    ],
    ids=["nothing", "cut off", "letter", "empty WAV", "empty AU", "NaN", "infinite", "SVX"],
)
def test_what_is_no_sound_gets_one_clear_error(content, reason):
    with pytest.raises(AudioError, match=reason):
        from_bytes(content)


@pytest.mark.parametrize("sample_rate_hz", [0, 10_000_001, 0x7FFFFFFF, 0xFFFFFFFF])
def test_absurd_sample_rates_are_refused(sample_rate_hz):
    content = bytearray(stored(np.zeros(5), "WAV", "PCM_16"))
    content[24:28] = struct.pack("<I", sample_rate_hz)
    with pytest.raises(AudioError):
        from_bytes(bytes(content))


@pytest.mark.parametrize("channels", [0, 1025, 65535])
def test_absurd_channel_counts_are_refused(channels):
    content = bytearray(stored(np.zeros(5), "WAV", "PCM_16"))
    content[22:24] = struct.pack("<H", channels)
    with pytest.raises(AudioError):
        from_bytes(bytes(content))


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(AudioError, match=r"absent\.wav"):
        read(tmp_path / "absent.wav")
    with pytest.raises(AudioError, match="null"):
        read("a\0.wav")
    with pytest.raises(AudioError, match=tmp_path.name):
        read(str(tmp_path))


def test_a_block_needs_a_frame():
    with pytest.raises(ValueError, match=r"\b0\b"):
        next(blocks(io.BytesIO(), 0))


def test_resampling_keeps_a_tone_and_gives_up_the_cells():
    time = np.arange(48000) / 48000
    tone = np.stack([np.sin(2 * np.pi * 440 * time), np.cos(2 * np.pi * 440 * time)])
    sound = resample(Sound(tone, 48000, "PCM_16"), 16000)
    assert (sound.samples.shape, sound.sample_rate_hz) == ((2, 16000), 16000)
    assert np.abs(sound.samples - tone[:, ::3])[:, 100:-100].max() < 1e-4
    with pytest.raises(AudioError, match="cells"):
        sound.cells()
    assert resample(sound, 16000) is sound


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for minutes in (1, 8):
        with writer(tmp_path / "long.wav", 16000, 2, subtype="PCM_16", overwrite=True) as put:
            for _ in range(minutes):
                put(np.zeros((2, 16000 * 60)))
        tracemalloc.start()
        frames = sum(cut(block.samples, 1024).shape[1] for block in blocks(tmp_path / "long.wav", 16384))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert frames == 16000 * 60 * minutes // 1024
    assert peaks[0] < 3e6
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize(
    ("suffix", "right", "wrong"), [("wav", Truncation, MidTread), ("flac", MidTread, Truncation)]
)
def test_the_converter_that_made_a_file_holds_the_truth_and_the_other_does_not(
    tmp_path, suffix, right, wrong
):
    truth = 0.777 * np.sin(0.01 * np.arange(4000))
    file = tmp_path / f"floats.{suffix}"
    soundfile.write(file, truth, 16000, subtype="PCM_16")
    sound = read(file)
    assert sound.cells(right).violation(truth) < 1e-9
    assert sound.cells(wrong).violation(truth) * 32768 == pytest.approx(0.5, abs=0.02)


def test_infinite_samples_are_no_gaps():
    content = stored(np.array([np.nan, np.inf]), "WAV", "FLOAT")
    with pytest.raises(AudioError, match="frame 1"):
        list(blocks(io.BytesIO(content), 10, gaps=True))
