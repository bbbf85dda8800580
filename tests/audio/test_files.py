"""Files in, files out: every format, cut-off containers, atomic writes inside the cells, raw PCM."""

import io
import os
import re
import struct
import subprocess
import sys
import threading
import tracemalloc
from typing import get_args

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.audio.files import (
    ENCODINGS,
    RawFormat,
    Sound,
    blocks,
    info,
    read,
    resample,
    round_to_subtype,
    write,
    writer,
)
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, Truncation
from pdrn.cli.options import Encoding
from pdrn.errors import AudioError, PdrnError

RATE = 16000
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
def test_reads_pcm_codes_exactly(format, subtype, bits):
    codes = GENERATOR.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (500, 2))
    codes[:2] = [[-(2 ** (bits - 1))] * 2, [2 ** (bits - 1) - 1] * 2]
    sound = from_bytes(stored((codes << (32 - bits)).astype(np.int32), format, subtype))
    np.testing.assert_array_equal(MidTread(bits).codes_of(sound.samples), codes.T)


def test_blocks_of_many_channels_have_block_length():
    content = stored(np.zeros((70000, 32)), "WAV", "PCM_U8")
    assert [block.samples.shape for block in blocks(io.BytesIO(content))] == [(32, 65536), (32, 4464)]


def ogg_pages(content):
    starts = [at for at in range(len(content)) if content.startswith(b"OggS", at)]
    return [content[a:b] for a, b in zip(starts, [*starts[1:], len(content)], strict=True)]


def test_refuses_ogg_without_a_page():
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
def test_refuses_endless_empty_chunks(start, filling, reason, monkeypatch):
    reads, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *place: reads.append(place) or pread(*place))
    with pytest.raises(AudioError, match=reason):
        from_bytes(start + b"\0\0\0\1WAVE" + filling * 2_000_000)
    assert len(reads) < 10_100


def test_refuses_endless_junk():
    with open("/dev/zero", "rb") as stream, pytest.raises(AudioError, match="/dev/zero"):
        read(stream)


def test_failing_or_closed_source_is_an_audio_error():
    class Failing(io.RawIOBase):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(AudioError, match="Input/output error"):
        read(Failing())
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(AudioError, match="closed"):
        read(closed)


@pytest.mark.parametrize(("format", "subtype"), EVERY_FORMAT)
def test_formats_keep_channels_length_and_rate(format, subtype):
    content = stored(STEREO / 2, format, subtype, 11025)
    sound = from_bytes(content)
    assert sound.samples.shape == (2, 3000)
    assert (len(sound.samples), sound.sample_rate_hz, sound.subtype) == (2, 11025, subtype)
    header = info(io.BytesIO(content))
    assert (header.frames, header.channels, header.format) == (3000, 2, format)
    if format != "OGG":
        assert np.abs(sound.samples.T - STEREO / 2).max() < 0.05


@pytest.mark.parametrize(("format", "subtype"), EVERY_FORMAT)
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.9])
def test_refuses_truncated_file(format, subtype, kept):
    content = stored(STEREO / 2, format, subtype)
    with pytest.raises(AudioError):
        from_bytes(content[: int(len(content) * kept)])


@pytest.mark.parametrize("format", ["WAV", "AIFF", "AU"])
def test_refuses_file_without_last_sample(format):
    content = stored(STEREO[:, 0], format, "PCM_16")
    with pytest.raises(AudioError, match=r"\b2\b"):
        from_bytes(content[:-2])


@pytest.mark.parametrize(
    ("format", "subtype", "boundary"), [("FLAC", "PCM_16", b"\xff\xf8"), ("OGG", "VORBIS", b"OggS")]
)
def test_refuses_compressed_file_cut_between_blocks(format, subtype, boundary):
    content = stored(np.tile(STEREO / 2, (10, 1)), format, subtype)
    starts = [at for at in range(100, len(content)) if content.startswith(boundary, at)]
    assert len(starts) > 1
    for at in starts:
        with pytest.raises(AudioError):
            from_bytes(content[:at])


def test_refuses_early_end_of_decoder(monkeypatch):
    monkeypatch.setattr(soundfile.SoundFile, "frames", property(lambda file: 3001))
    with pytest.raises(AudioError, match="3001"):
        from_bytes(stored(STEREO, "WAV", "PCM_16"))


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFF000, 0x80000000, 0])
def test_reads_wave_of_unknown_size_to_end(size):
    content = bytearray(stored(STEREO[:, 0], "WAV", "PCM_16"))
    content[4:8] = struct.pack("<I", min(size + 36, 0xFFFFFFFF) if size else 8)
    content[40:44] = struct.pack("<I", size)
    assert from_bytes(bytes(content)).samples.shape == (3000,)


def test_mono_is_1d_and_channels_are_rows():
    assert from_bytes(stored(STEREO[:, 0], "WAV", "PCM_16")).samples.shape == (3000,)
    assert from_bytes(stored(np.zeros((7, 64)), "WAV", "PCM_16")).samples.shape == (64, 7)


@given(st.integers(1, 400))
def test_blocks_concatenate_to_file(block_length):
    content = stored(STEREO[:300], "FLAC", "PCM_16")
    pieces = list(blocks(io.BytesIO(content), block_length))
    assert {piece.samples.shape[1] for piece in pieces[:-1]} <= {block_length}
    np.testing.assert_array_equal(
        np.concatenate([piece.samples for piece in pieces], axis=1), from_bytes(content).samples
    )


@pytest.mark.parametrize(("format", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_24"), ("OGG", "VORBIS")])
def test_pipe_is_read_like_file(format, subtype):
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


def test_reads_file_object_from_start(tmp_path):
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
def test_refuses_other_files(content, reason):
    with pytest.raises(AudioError, match=reason):
        from_bytes(content)


@pytest.mark.parametrize(
    ("place", "layout", "value"),
    [(24, "<I", rate) for rate in (0, 10_000_001, 0x7FFFFFFF, 0xFFFFFFFF)]
    + [(22, "<H", channels) for channels in (0, 1025, 65535)],
)
def test_refuses_absurd_rates_and_channels(place, layout, value):
    content = bytearray(stored(np.zeros(5), "WAV", "PCM_16"))
    content[place : place + struct.calcsize(layout)] = struct.pack(layout, value)
    with pytest.raises(AudioError):
        from_bytes(bytes(content))


def test_names_missing_file(tmp_path):
    with pytest.raises(AudioError, match=r"absent\.wav"):
        read(tmp_path / "absent.wav")
    with pytest.raises(AudioError, match="null"):
        read("a\0.wav")
    with pytest.raises(AudioError, match=tmp_path.name):
        read(str(tmp_path))


def test_refuses_empty_block_length():
    with pytest.raises(ValueError, match=r"\b0\b"):
        next(blocks(io.BytesIO(), 0))


def test_resample_keeps_tone():
    time = np.arange(48000) / 48000
    tone = np.stack([np.sin(2 * np.pi * 440 * time), np.cos(2 * np.pi * 440 * time)])
    sound = resample(Sound(tone, 48000, "PCM_16"), 16000)
    assert (sound.samples.shape, sound.sample_rate_hz) == ((2, 16000), 16000)
    assert np.abs(sound.samples - tone[:, ::3])[:, 100:-100].max() < 1e-4
    assert sound.subtype == "DOUBLE"
    assert resample(sound, 16000) is sound


def test_memory_is_independent_of_file_length(tmp_path):
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
def test_only_the_right_converter_holds_the_truth(tmp_path, suffix, right, wrong):
    truth = 0.777 * np.sin(0.01 * np.arange(4000))
    file = tmp_path / f"floats.{suffix}"
    soundfile.write(file, truth, 16000, subtype="PCM_16")
    samples = read(file).samples
    assert right(16).observe(samples).violation(truth) < 1e-9
    assert wrong(16).observe(samples).violation(truth) * 32768 == pytest.approx(0.5, abs=0.02)


def test_refuses_infinite_samples_with_gaps():
    content = stored(np.array([np.nan, np.inf]), "WAV", "FLOAT")
    with pytest.raises(AudioError, match="frame 1"):
        list(blocks(io.BytesIO(content), 10, gaps=True))


# --- Writing ---

SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]

quantizers = st.one_of(
    st.builds(
        lambda kind, bits, full_scale: kind(bits, full_scale=full_scale),
        st.sampled_from([MidRise, MidTread, Truncation]),
        st.integers(1, 24),
        st.booleans(),
    ),
    st.builds(MidRise, st.integers(2, 16), st.floats(1e-7, 1e-4), st.floats(-0.1, 0.1)),
    st.builds(MuLaw),
    st.builds(ALaw),
)


@pytest.mark.parametrize("subtype", SUBTYPES)
@given(quantizer=quantizers, seed=st.integers(0, 999))
def test_written_samples_stay_in_cells_or_are_refused(quantizer, seed, subtype, tmp_path_factory):
    generator = np.random.default_rng(seed)
    truth = generator.uniform(-1, 1, 200)
    cells = quantizer.cells(quantizer.encode(truth))
    target = tmp_path_factory.getbasetemp() / "rounded.wav"
    restored = cells.project(np.clip(truth + generator.normal(0, 0.1, 200), -1, 1))
    try:
        write(target, restored, RATE, cells, subtype=subtype, overwrite=True)
    except AudioError as refusal:
        assert subtype in str(refusal)  # noqa: PT017 (either is right)
        finest = {"PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32, "FLOAT": 24}[subtype]
        assert np.min(2 * cells.radius) < 2.0 ** (2 - finest)
        return
    written = read(target).samples
    assert cells.violation(written) == 0.0
    if subtype.startswith("PCM"):
        np.testing.assert_array_equal(quantizer.cells(quantizer.encode(written)).lo, cells.lo)


@pytest.mark.parametrize("quantizer", [MidTread(16), MidTread(15), MidRise(16), MidRise(15), Truncation(16)])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_pcm_16_of_16_bit_cells_keeps_codes(quantizer, place):
    codes = quantizer.encode(np.linspace(-0.9, 0.9, 999))
    cells = quantizer.cells(codes)
    restored = cells.project(cells.lo + place * (cells.hi - cells.lo))
    np.testing.assert_array_equal(quantizer.encode(round_to_subtype(restored, cells, "PCM_16")), codes)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("place", [0.0, 1.0])
def test_stored_samples_round_back_with_any_ties(subtype, place):
    codes = np.arange(-14, 15)
    cells = MidTread(5).cells(codes)
    stored = round_to_subtype(cells.lo + place * (cells.hi - cells.lo), cells, subtype)
    for rounded in (np.ceil(16 * stored - 0.5), np.floor(16 * stored + 0.5)):
        np.testing.assert_array_equal(rounded, codes)


def test_point_cell_keeps_its_point():
    assert round_to_subtype([0.3], Cells([0.5], [0.5]), "PCM_16").tolist() == [0.5]


def test_refuses_cell_with_only_its_end_storable():
    with pytest.raises(AudioError, match="PCM_16"):
        round_to_subtype([0.5], Cells([0.5 - 1e-6], [0.5]), "PCM_16")


def test_refuses_peaks_beyond_full_scale():
    cells = Cells([0.9], [np.inf])
    with pytest.raises(AudioError, match=r"1\.3"):
        round_to_subtype([1.3], cells, "PCM_24")
    assert round_to_subtype([1.3], cells, "DOUBLE").tolist() == [1.3]
    assert round_to_subtype([1.3], Cells([0.9], [1.0]), "PCM_16").tolist() == [32767 / 32768]


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2), ()])
def test_refuses_cells_of_other_shape(tmp_path, shape):
    cells = Cells(np.zeros(shape), np.ones(shape))
    with pytest.raises(AudioError, match=r"\(2,\)"):
        write(tmp_path / "a.wav", [0.5, 0.5], RATE, cells)
    assert os.listdir(tmp_path) == []


def test_refuses_subtype_too_coarse_for_cells():
    with pytest.raises(AudioError, match="PCM_16"):
        round_to_subtype([0.0, 0.5], Cells([0.0, 0.500001], [0.1, 0.50002]), "PCM_16")
    with pytest.raises(AudioError, match="FLOAT"):
        round_to_subtype([0.1], Cells([0.1], [0.1 + 1e-12]), "FLOAT")


def test_rounds_to_nearest_value_in_cell():
    assert (round_to_subtype([0.3, 0.9], Cells([0.0, 0.0], [0.5, 0.51]), "PCM_U8") * 128).tolist() == [38, 65]


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_keeps_full_scale_and_refuses_beyond(subtype):
    assert round_to_subtype([1.0, -1.0], None, subtype)[1] == -1.0
    with pytest.raises(AudioError, match=r"1\.001"):
        round_to_subtype([1.001], None, subtype)
    assert round_to_subtype([1.001], None, "DOUBLE") == [1.001]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_nan_and_infinity(value, tmp_path):
    with pytest.raises(AudioError, match=r"NaN|inf"):
        write(tmp_path / "a.wav", [0.0, value], RATE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "subtype"),
    [
        ("a.wav", "PCM_U8"),
        ("a.wav", "FLOAT"),
        ("a.rf64", "PCM_16"),
        ("a.aiff", "PCM_S8"),
        ("a.aif", "DOUBLE"),
        ("a.flac", "PCM_16"),
        ("a.flac", "PCM_24"),
        ("a.au", "PCM_32"),
        ("a.snd", "PCM_16"),
    ],
)
@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("frames", [1, 300, 301])
def test_file_holds_rounded_samples_exactly(tmp_path, name, subtype, channels, frames):
    samples = np.random.default_rng(0).uniform(-1, 1, (channels, frames))
    if (subtype, channels, frames % 2) == ("PCM_S8", 1, 1):
        with pytest.raises(AudioError, match="AIFF"):
            write(tmp_path / name, samples, RATE, subtype=subtype)
        return
    write(tmp_path / name, samples, RATE, subtype=subtype)
    sound = read(tmp_path / name)
    np.testing.assert_array_equal(np.atleast_2d(sound.samples), round_to_subtype(samples, None, subtype))
    assert (sound.sample_rate_hz, sound.subtype) == (RATE, subtype)


def test_writer_equals_write(tmp_path):
    samples = np.random.default_rng(0).uniform(-1, 1, (2, 1000))
    with writer(tmp_path / "blocks.flac", RATE, 2) as put:
        for start in range(0, 1000, 300):
            put(samples[:, start : start + 300])
    write(tmp_path / "whole.flac", samples, RATE)
    assert (tmp_path / "blocks.flac").read_bytes() == (tmp_path / "whole.flac").read_bytes()


def test_refuses_to_overwrite_by_default(tmp_path):
    target = tmp_path / "a.wav"
    write(target, [0.5], RATE)
    with pytest.raises(PdrnError, match=r"a\.wav"):
        write(target, [0.25], RATE)
    assert read(target).samples.tolist() == [0.5]
    write(target, [0.25], RATE, overwrite=True)
    assert read(target).samples.tolist() == [0.25]


def test_keeps_file_that_appears_meanwhile(tmp_path):
    target = tmp_path / "a.wav"

    def race():
        with writer(target, RATE) as put:
            put([0.5])
            target.write_text("mine")

    with pytest.raises(PdrnError, match=r"a\.wav"):
        race()
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_failure_leaves_old_file_only(tmp_path, failure):
    target = tmp_path / "a.wav"
    write(target, [0.5], RATE)

    def fail():
        with writer(target, RATE, overwrite=True) as put:
            put(np.zeros(100))
            raise failure

    with pytest.raises(failure):
        fail()
    assert read(target).samples.tolist() == [0.5]
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize(
    ("name", "frames"), [("a.wav", 50000), ("a.flac", 50000), ("written_at_the_end.flac", 4000)]
)
def test_full_disk_leaves_no_file(tmp_path, name, frames):
    script = (
        "import resource, sys, numpy, pdrn.audio.files as w\nfrom pdrn.errors import PdrnError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "noise = numpy.random.default_rng(0).uniform(-1, 1, int(sys.argv[2]))\n"
        "try: w.write(sys.argv[1], noise, 16000)\n"
        "except PdrnError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, tmp_path / name, str(frames)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert name in done.stdout
    assert done.stdout.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_standard_input_and_output_are_pipes(tmp_path):
    samples = round_to_subtype(np.random.default_rng(0).uniform(-1, 1, 5000))
    write(tmp_path / "a.flac", samples, RATE)
    script = (
        "from pdrn.audio.files import blocks\n"
        "from pdrn.audio.files import writer\n"
        "with writer('-', 16000) as put:\n"
        "    for block in blocks('-', 999): put(block.samples)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=(tmp_path / "a.flac").read_bytes(),
        capture_output=True,
        check=True,
    )
    (tmp_path / "b.wav").write_bytes(done.stdout)
    np.testing.assert_array_equal(read(tmp_path / "b.wav").samples, samples)
    broken = subprocess.run([sys.executable, "-c", script], input=b"RIFF", capture_output=True, check=False)
    assert broken.returncode != 0
    assert broken.stdout == b""


@pytest.mark.parametrize(
    ("target", "arguments", "reason"),
    [
        ("a.mp3", {}, r"a\.mp3"),
        ("a.flac", {"subtype": "FLOAT"}, "FLOAT"),
        ("a.wav", {"subtype": "ULAW"}, "ULAW"),
        ("a.wav", {"sample_rate_hz": 0}, "sample rate"),
        ("a.wav", {"sample_rate_hz": 16000.0}, r"16000\.0"),
        ("a.flac", {"sample_rate_hz": 2_000_000}, "2000000"),
        ("a.flac", {"sample_rate_hz": 65536}, "65536"),
        ("a.flac", {"samples": np.zeros((9, 10))}, r"\b9\b"),
        ("a.wav", {"samples": np.zeros((16000, 2))}, r"\(16000, 2\)"),
        ("a.wav", {"samples": np.zeros((1025, 2000))}, "1025"),
        ("a.wav", {"samples": 0.5}, r"\(\)"),
        ("a.wav", {"samples": np.zeros((2, 2, 2))}, r"\(2, 2, 2\)"),
        ("a.wav", {"samples": [0.5j]}, "complex128"),
        ("a.wav", {"samples": ["0.5"]}, "<U3"),
        ("a" * 300 + ".wav", {}, "File name too long"),
        ("a\0.wav", {}, "null"),
        ("absent/a.wav", {}, "absent/a"),
        (".", {"format": "WAV"}, None),
    ],
)
def test_refuses_impossible_outputs(tmp_path, target, arguments, reason):
    with pytest.raises(PdrnError, match=reason):
        write(tmp_path / target, **{"samples": [0.5], "sample_rate_hz": RATE} | arguments)
    assert os.listdir(tmp_path) == []


def test_refuses_devices():
    with pytest.raises(PdrnError, match=os.devnull):
        write(os.devnull, [0.5], RATE, format="WAV", overwrite=True)


def test_refuses_no_samples_and_wrong_channels(tmp_path):
    with pytest.raises(AudioError, match=r"a\.wav"):
        write(tmp_path / "a.wav", [], RATE)

    def wrong():
        with writer(tmp_path / "a.wav", RATE, channels=2) as put:
            put(np.zeros((3, 10)))

    with pytest.raises(AudioError, match=r"\(3, 10\)"):
        wrong()
    assert os.listdir(tmp_path) == []


def test_refuses_wave_beyond_4_gb(tmp_path, monkeypatch):
    monkeypatch.setattr("pdrn.audio.files._LARGEST_FILE", 1000)
    with pytest.raises(AudioError, match="4 GB"):
        write(tmp_path / "a.wav", np.zeros(1000), RATE)
    write(tmp_path / "a.rf64", np.zeros(1000), RATE)
    assert os.listdir(tmp_path) == ["a.rf64"]


def test_expected_wave_beyond_4_gb_becomes_rf64(tmp_path, monkeypatch):
    monkeypatch.setattr("pdrn.audio.files._LARGEST_FILE", 1000)
    with writer(tmp_path / "a.wav", RATE, frames=1000) as put:
        put(np.arange(1000) / 1024)
    assert info(tmp_path / "a.wav").format == "RF64"
    np.testing.assert_array_equal(read(tmp_path / "a.wav").samples, np.arange(1000) / 1024)


@pytest.mark.parametrize(("name", "format"), [("a.aiff", None), ("a.wav", "WAV")])
def test_refuses_expected_length_before_first_sample(tmp_path, monkeypatch, name, format):
    monkeypatch.setattr("pdrn.audio.files._LARGEST_FILE", 1000)
    with (
        pytest.raises(AudioError, match="4 GB"),
        writer(tmp_path / name, RATE, frames=1000, format=format),
    ):
        pytest.fail("it was opened")


def test_file_permissions(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "a.wav", [0.5], RATE)
    assert (tmp_path / "a.wav").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "a.wav").chmod(0o640)
    write(tmp_path / "a.wav", [0.25], RATE, overwrite=True)
    assert (tmp_path / "a.wav").stat().st_mode & 0o7777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["a.wav", "plain"]


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE", "PCM_16"])
@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.rf64"])
def test_file_has_no_time_stamp(tmp_path, name, subtype):
    write(tmp_path / name, [0.5, -0.25], RATE, subtype=subtype)
    content = (tmp_path / name).read_bytes()
    assert (b"PEAK" in content) == (subtype != "PCM_16" and name != "a.rf64")
    if b"PEAK" in content:
        peak = content[content.index(b"PEAK") :]
        assert (sum(peak[8:12]), peak[12:16]) == (1, bytes(4))  # version and time
    assert read(tmp_path / name).samples.tolist() == [0.5, -0.25]


SAY_ERRORS = (
    "import sys, numpy\n"
    "from pdrn.errors import PdrnError\nfrom pdrn.audio.files import read\n"
    "from pdrn.audio.files import write, writer\n"
    "try:\n    {}\n"
    "except PdrnError as error: print(error, file=sys.stderr)\n"
)


def said(command, **options):
    script = SAY_ERRORS.format(command)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    options = {"capture_output": True, "text": True, "env": buffered} | options
    return subprocess.run([sys.executable, "-c", script], check=True, timeout=60, **options).stderr


def test_names_closed_standard_streams():
    script = SAY_ERRORS.format("{}")
    for command, stream in (("read('-')", "<&-"), ("write('-', [0.5], 16000)", ">&-")):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -c "$1" {stream}', sys.executable, script.format(command)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("input" if stream == "<&-" else "output") in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("frames", [9, 99999])
def test_names_full_output(frames):
    with open("/dev/full", "wb") as full:
        options = {"stdout": full, "stderr": subprocess.PIPE, "capture_output": False}
        error = said(f"write('-', numpy.zeros({frames}), 16000)", **options)
    assert "No space left on device" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("frames", [9, 99999])
def test_names_closed_pipe(frames):
    reading, writing = os.pipe()
    os.close(reading)
    options = {"stdout": writing, "stderr": subprocess.PIPE, "capture_output": False}
    error = said(f"write('-', numpy.zeros({frames}), 16000)", **options)
    os.close(writing)
    assert "Broken pipe" in error
    assert error.count("\n") == 1


def test_names_missing_and_full_temporary_space(tmp_path):
    write(tmp_path / "a.wav", np.zeros(50000), RATE)
    missing = "import tempfile; tempfile.tempdir = '/absent'; "
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); "
    for command in ("read('-')", "write('-', numpy.zeros(50000), 16000)"):
        for damage, reason in ((missing, "TMPDIR"), (full, "File too large|disk")):
            with open(tmp_path / "a.wav", "rb") as stream:
                fed = subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.PIPE)
            with fed, open(os.devnull, "wb") as nowhere:
                options = {"stdout": nowhere, "stderr": subprocess.PIPE, "capture_output": False}
                error = said(damage + command, stdin=fed.stdout, **options)
            assert re.search(reason, error)
            assert error.count("\n") == 1


def test_killed_process_leaves_no_file(tmp_path):
    command = f"""
    with writer({str(tmp_path / "a.wav")!r}, 16000) as put:
        put(numpy.zeros(99999)); print("written", flush=True); sys.stdin.read()
"""
    script = SAY_ERRORS.format(command)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.terminate()
    assert os.listdir(tmp_path) == []


def test_refuses_loop_of_links(tmp_path):
    (tmp_path / "a.wav").symlink_to("b.wav")
    (tmp_path / "b.wav").symlink_to("a.wav")
    with pytest.raises(PdrnError, match=r"a\.wav"):
        write(tmp_path / "a.wav", [0.5], RATE, overwrite=True)
    assert (tmp_path / "a.wav").is_symlink()


def test_follows_symbolic_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.wav").symlink_to("folder/b.wav")
    write(tmp_path / "a.wav", [0.5], RATE)
    assert (tmp_path / "a.wav").is_symlink()
    assert read(tmp_path / "folder" / "b.wav").samples.tolist() == [0.5]


@pytest.fixture(params=[True, False], ids=["unnamed", "named"])
def placing(request, monkeypatch):
    """With and without files that have no name."""
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE")


@pytest.mark.usefixtures("placing")
def test_writes_are_atomic(tmp_path):
    target = tmp_path / "a.wav"
    with writer(target, RATE) as put:
        put([0.5])
        assert not target.exists()
    with pytest.raises(PdrnError, match=r"a\.wav"):
        write(target, [0.25], RATE)
    write(target, [0.125], RATE, overwrite=True)
    assert read(target).samples.tolist() == [0.125]
    with pytest.raises(AudioError, match="NaN"):
        write(tmp_path / "b.wav", [np.nan], RATE)
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.usefixtures("placing")
def test_keeps_file_that_appears_at_the_last_moment(tmp_path, monkeypatch):
    target = tmp_path / "a.wav"
    link = os.link

    def late(*arguments, **options):
        target.write_text("mine")
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(PdrnError, match=r"a\.wav"):
        write(target, [0.5], RATE)
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.wav"]


def test_sound_round_trip(tmp_path):
    write(tmp_path / "a.wav", STEREO.T, 11025, subtype="PCM_16")
    write(tmp_path / "b.wav", read(tmp_path / "a.wav"))
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    with pytest.raises(AudioError, match="sample rate"):
        write(tmp_path / "c.wav", STEREO.T)


# --- Raw PCM ---

PLAIN = [name for name in ENCODINGS if name not in ("mulaw", "alaw")]


@pytest.mark.parametrize("encoding", PLAIN)
@given(channels=st.integers(1, 3), frames=st.integers(0, 20), seed=st.integers(0, 99))
def test_raw_decode_inverts_encode(encoding, channels, frames, seed):
    samples = np.random.default_rng(seed).uniform(-1, 1, (channels, frames))
    raw = RawFormat(encoding, channels)
    content = raw.encode(samples)
    assert len(content) == frames * raw.frame_bytes
    np.testing.assert_array_equal(raw.decode(content), round_to_subtype(samples, None, raw.subtype))


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
def test_raw_bytes_of_known_samples(encoding, content):
    assert RawFormat(encoding).decode(bytes(content)).tolist() == [[0.5, -1.0]]
    assert RawFormat(encoding).encode(np.array([[0.5, -1.0]])) == bytes(content)


def test_raw_samples_are_interleaved():
    assert RawFormat("s8", 2).decode(bytes([64, 192, 32, 224])).tolist() == [[0.5, 0.25], [-0.5, -0.25]]


@pytest.mark.parametrize(("encoding", "law"), [("mulaw", MuLaw()), ("alaw", ALaw())])
def test_raw_g711_is_decoded(encoding, law):
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(RawFormat(encoding).decode(codes.tobytes())[0], law.decode(codes))


def test_raw_encode_stays_in_cells():
    cells = Cells(np.array([[0.301]]), np.array([[0.4]]))
    written = RawFormat("u8").decode(RawFormat("u8").encode(np.array([[0.3]]), cells))
    assert cells.violation(written) == 0


def test_command_line_offers_all_encodings():
    assert get_args(Encoding) == ENCODINGS


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: RawFormat("mp3"), "mp3"),
        (lambda: RawFormat("s8", 0), "channel"),
        (lambda: RawFormat("alaw").encode(np.zeros((1, 1))), "alaw"),
        (lambda: RawFormat("f32le").decode(np.float32(np.inf).tobytes()), "inf"),
    ],
)
def test_refuses_impossible_raw_formats(call, reason):
    with pytest.raises(AudioError, match=reason):
        call()
