"""Arrays and files in, restored arrays and files out."""

import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

import pdrn
from pdrn.audio.files import info, read, write
from pdrn.audio.quantizers import ALaw, MidRise, MidTread, MuLaw, Truncation
from pdrn.errors import AudioError, PdrnError
from pdrn.restoration import restorer as restorer_module
from pdrn.restoration.restorer import Restorer

RATE = 16000
SIGNAL = 0.4 * np.sin(np.arange(5000) / 9)
QUANTIZED = MidRise(4).quantize(SIGNAL)


def test_restore_equals_restorer():
    restored = pdrn.restore(QUANTIZED, RATE, bits=4)
    np.testing.assert_array_equal(restored, Restorer().restore(QUANTIZED, RATE, bits=4))
    assert pdrn.Restorer is Restorer


@pytest.mark.parametrize("shape", [(5000,), (1, 5000), (5, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_shape(shape, dtype):
    restored = pdrn.restore(QUANTIZED.reshape(shape).astype(dtype), RATE, bits=4)
    assert (restored.shape, restored.dtype) == (shape, np.float64)


def test_detects_levels():
    restored = pdrn.restore(QUANTIZED, RATE, method="cp")
    assert np.abs(restored - QUANTIZED).max() <= 1 / 16 + 1e-9
    assert ((restored - SIGNAL) ** 2).mean() < 0.3 * ((QUANTIZED - SIGNAL) ** 2).mean()


@pytest.mark.parametrize("said", [{"bits": 8}, {"law": "alaw"}, {}])
def test_full_scale_is_not_clipping_by_default(said):
    loud = np.clip(3 * SIGNAL, -1, 1)
    quantized = ALaw().quantize(loud) if "law" in said else MidTread(8).quantize(loud)
    restored = pdrn.restore(quantized, RATE, **said)
    assert ((restored - loud) ** 2).mean() < ((quantized - loud) ** 2).mean()


def test_channels_are_independent():
    both = np.stack([QUANTIZED, QUANTIZED[::-1]])
    restored = pdrn.restore(both, RATE, bits=4)
    np.testing.assert_array_equal(restored[1], pdrn.restore(both[1], RATE, bits=4))


def test_threads_do_not_change_result():
    long = np.tile(QUANTIZED, 10)
    np.testing.assert_array_equal(
        Restorer(threads=2).restore(long, RATE, bits=4), Restorer().restore(long, RATE, bits=4)
    )


def test_more_iterations_move_further():
    few, many = (
        Restorer(method="cp", iterations=count).restore(QUANTIZED, RATE, bits=4) for count in (1, 50)
    )
    assert np.abs(few - QUANTIZED).mean() < np.abs(many - QUANTIZED).mean()


def test_fills_gaps():
    holes = QUANTIZED.copy()
    holes[1000:1016] = np.nan
    restored = pdrn.restore(holes, RATE, bits=4)
    assert np.isfinite(restored).all()
    assert np.abs(restored - SIGNAL)[1000:1016].max() < 0.3


def test_progress_reaches_the_end():
    calls = []
    pdrn.restore(np.zeros(200_000), RATE, bits=4, progress=lambda *call: calls.append(call))
    assert calls[-1] == (200_000, 200_000)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_accepts_no_samples():
    assert pdrn.restore(np.zeros((2, 0)), RATE, bits=4).shape == (2, 0)


@pytest.mark.parametrize(
    ("samples", "rate", "reason"),
    [
        (np.zeros((5000, 2)), RATE, r"\(5000, 2\)"),
        (np.zeros((2, 2, 2)), RATE, r"\(2, 2, 2\)"),
        (np.zeros(5, np.int64), RATE, "int64"),
        (np.array([np.inf]), RATE, "inf"),
        (np.zeros(5), 0, "sample rate"),
        (np.zeros(5), 16000.5, r"16000\.5"),
    ],
)
def test_refuses_bad_samples_and_rates(samples, rate, reason):
    with pytest.raises(ValueError, match=reason):
        pdrn.restore(samples, rate, bits=5)


@pytest.mark.parametrize(
    ("dtype", "middle", "bits"), [(np.uint8, 128, 8), (np.int8, 0, 8), (np.int16, 0, 16), (np.int32, 0, 32)]
)
def test_integers_are_pcm(tiny_models, dtype, middle, bits):
    codes = np.round(100 * np.sin(np.arange(3000) / 30) * np.sin(np.arange(3000) / 700))
    coarse = 2.0 ** (bits - 8)  # all of them hold 8 bits
    restored = pdrn.restore((codes * coarse + middle).astype(dtype), RATE)
    assert np.abs(restored - codes / 128).max() <= 1 / 256
    assert not np.array_equal(restored, codes / 128)
    np.testing.assert_allclose(restored, pdrn.restore(codes / 128, RATE, bits=8), atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"mix": 1.1}, {"mix": -0.1}, {"mix": np.nan}, {"threads": 0}, {"iterations": 0}]
)
def test_refuses_impossible_settings(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Restorer(**options)


@pytest.mark.parametrize("method", ["cp", "both"])
@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_restored_samples_keep_their_codes(kind, method):
    quantizer = kind(4)
    codes = quantizer.encode(SIGNAL)
    restored = pdrn.restore(quantizer.decode(codes), RATE, bits=4, method=method)
    np.testing.assert_array_equal(quantizer.encode(restored), codes)
    np.testing.assert_array_equal(quantizer.encode(restored.astype(np.float32)), codes)


# --- Files ---

SOUND = 0.7 * np.sin(np.arange(4000) / 9) + 0.2 * np.sin(np.arange(4000) / 2.3)
SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]


@pytest.fixture
def quantized(tmp_path):
    write(tmp_path / "a.wav", MidRise(5).quantize(SOUND), RATE, subtype="PCM_16")
    return tmp_path / "a.wav"


@settings(max_examples=8)
@pytest.mark.parametrize("subtype", SUBTYPES)
@given(
    quantizer=st.one_of(
        st.builds(MidRise, st.integers(2, 7)),
        st.builds(MidTread, st.integers(2, 7)),
        st.builds(Truncation, st.integers(2, 7)),
    ),
    channels=st.integers(1, 2),
    mix=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_every_subtype_stays_in_cells(quantizer, channels, mix, subtype, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    truth = np.stack([SOUND[:900], -SOUND[100:1000]])[:channels]
    codes = quantizer.encode(truth)
    write(folder / "in.wav", quantizer.decode(codes), RATE, subtype="PCM_16", overwrite=True)
    report = Restorer(mix=mix).restore_file(
        folder / "in.wav",
        folder / "out.wav",
        bits=quantizer.bits,
        truncated=isinstance(quantizer, Truncation),
        subtype=subtype,
        overwrite=True,
        verify=True,
    )
    written = np.atleast_2d(read(folder / "out.wav").samples)
    assert quantizer.cells(codes).violation(written) == 0
    assert (report.verified, report.frames, report.channels) == (True, 900, channels)


@pytest.mark.parametrize("subtype", SUBTYPES[1:])
@pytest.mark.parametrize(("name", "law"), [("ULAW", MuLaw()), ("ALAW", ALaw())])
def test_g711_files_stay_in_cells(tmp_path, subtype, name, law):
    soundfile.write(tmp_path / "in.wav", law.quantize(0.3 * SOUND), RATE, subtype=name)
    Restorer().restore_file(tmp_path / "in.wav", tmp_path / "out.wav", subtype=subtype, verify=True)
    assert law.cells(law.encode(0.3 * SOUND)).violation(read(tmp_path / "out.wav").samples) == 0


def test_file_equals_array(quantized, tmp_path):
    Restorer().restore_file(quantized, tmp_path / "b.wav", bits=5, subtype="DOUBLE")
    expected = Restorer().restore(MidRise(5).quantize(SOUND), RATE, bits=5)
    np.testing.assert_array_equal(read(tmp_path / "b.wav").samples, expected)


@pytest.mark.parametrize("signal", [np.zeros(999), np.full(999, 0.4), np.sign(SOUND[:999]), [0.03]])
def test_odd_files_keep_their_length(signal, tmp_path):
    write(tmp_path / "a.wav", MidRise(5).quantize(signal), RATE, subtype="PCM_16")
    Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav", bits=5, verify=True)
    assert len(read(tmp_path / "b.wav").samples) == len(signal)


@pytest.mark.parametrize(
    ("name", "stored", "restored"),
    [
        ("a.wav", "PCM_U8", "FLOAT"),
        ("a.wav", "PCM_16", "FLOAT"),
        ("a.wav", "PCM_24", "DOUBLE"),
        ("a.aiff", "PCM_16", "FLOAT"),
        ("a.flac", "PCM_16", "PCM_24"),
    ],
)
def test_output_is_deeper_than_input(tmp_path, name, stored, restored):
    write(tmp_path / name, SOUND, RATE, subtype=stored)
    target = tmp_path / f"b_{name}"
    bits = restorer_module.PCM_BITS[stored]
    assert Restorer().restore_file(tmp_path / name, target, bits=bits, verify=True).subtype == restored
    assert read(target).subtype == restored


def test_clipped_peaks_may_exceed_full_scale(tmp_path):
    write(tmp_path / "a.wav", np.clip(3 * SOUND, -1, 1), RATE, subtype="PCM_16")
    Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav", clip_at=0.999)
    assert np.abs(read(tmp_path / "b.wav").samples).max() > 1.1
    with pytest.raises(AudioError):
        Restorer().restore_file(tmp_path / "a.wav", tmp_path / "c.wav", clip_at=0.999, subtype="PCM_24")
    assert sorted(os.listdir(tmp_path)) == ["a.wav", "b.wav"]


def test_counts_clipped_and_missing_samples(tmp_path):
    damaged = np.clip(SOUND, -0.6, 0.6)
    cut_off = int((np.abs(damaged) == 0.6).sum())
    lost = np.flatnonzero(np.abs(damaged) < 0.6)[100:140]
    damaged[lost] = np.nan
    soundfile.write(tmp_path / "a.wav", damaged, RATE, subtype="DOUBLE")
    restore = Restorer(method="cp", iterations=2).restore_file
    report = restore(tmp_path / "a.wav", tmp_path / "b.wav", gaps=True, clip_at=0.6)
    assert (report.clipped, report.missing) == (cut_off, 40)
    report = restore(tmp_path / "a.wav", tmp_path / "c.wav", gaps=True, verify=True)
    assert "exact" in report.levels
    assert (report.clipped, report.missing) == (None, 40)
    restored = read(tmp_path / "c.wav").samples
    np.testing.assert_array_equal(np.delete(restored, lost), np.delete(damaged, lost))


def test_keeps_length_and_rate(tmp_path):
    write(tmp_path / "a.flac", MidTread(8).quantize(np.stack([SOUND, SOUND / 2])), 44100, subtype="PCM_16")
    report = Restorer().restore_file(tmp_path / "a.flac", tmp_path / "b.flac")
    sound = read(tmp_path / "b.flac")
    assert (sound.samples.shape, sound.sample_rate_hz) == ((2, 4000), 44100)
    assert "0.0078125" in report.levels


def test_refuses_samples_off_levels_later_in_file(tmp_path, monkeypatch):
    monkeypatch.setattr(restorer_module, "DETECTION_SAMPLES", 1)
    monkeypatch.setattr(restorer_module, "BLOCK_LENGTH", 3000)
    write(tmp_path / "a.wav", np.concatenate([MidRise(5).quantize(SOUND), SOUND]), RATE, subtype="PCM_16")
    with pytest.raises(AudioError, match=r"a\.wav"):
        Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav", bits=5)
    assert os.listdir(tmp_path) == ["a.wav"]


def test_long_wave_becomes_rf64(quantized, tmp_path, monkeypatch):
    monkeypatch.setattr("pdrn.audio.files._LARGEST_FILE", 1000)
    Restorer().restore_file(quantized, tmp_path / "b.wav", bits=5, verify=True)
    assert info(tmp_path / "b.wav").format == "RF64"


def test_refuses_input_as_output(quantized):
    with pytest.raises(PdrnError, match=r"a\.wav"):
        Restorer().restore_file(quantized, quantized, bits=5, overwrite=True)


def test_refuses_to_verify_pipes(quantized):
    with pytest.raises(AudioError, match="verify"):
        Restorer().restore_file(quantized, "-", bits=5, verify=True)


def test_verify_notices_wrong_output(quantized, tmp_path, monkeypatch):
    def wrong(path, *arguments, **options):
        for sound in blocks(path, *arguments, **options):
            yield sound if path == quantized else type(sound)(-sound.samples, RATE, "FLOAT")

    blocks = restorer_module.blocks
    monkeypatch.setattr(restorer_module, "blocks", wrong)
    with pytest.raises(AudioError, match=r"b\.wav"):
        Restorer().restore_file(quantized, tmp_path / "b.wav", bits=5, verify=True)
    assert os.listdir(tmp_path) == ["a.wav"]


def test_file_progress_reaches_the_end(quantized, tmp_path):
    calls = []
    Restorer().restore_file(quantized, tmp_path / "b.wav", bits=5, progress=lambda *call: calls.append(call))
    assert calls[-1] == (4000, 4000)


MEMORY = """
import re, sys
from pdrn.restoration import restorer as recording
from pdrn.restoration.restorer import Restorer
recording.DETECTION_SAMPLES = 1 << 16
Restorer(method='cp', iterations=1).restore_file(sys.argv[1], sys.argv[2], bits=5)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def test_memory_is_independent_of_file_length(tmp_path):
    peaks = []
    for seconds in (30, 120):
        source = tmp_path / f"{seconds}.wav"
        samples = MidRise(5).quantize(np.tile(SOUND, seconds * 8000 // len(SOUND)))
        write(source, samples, 8000, subtype="PCM_16")
        command = [sys.executable, "-c", MEMORY, source, tmp_path / f"{seconds}_out.wav"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.25 * peaks[0]
    assert max(peaks) < 500_000  # kilobytes


@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_detects_levels_after_silence(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(restorer_module, "DETECTION_SAMPLES", 4000)
    monkeypatch.setattr(restorer_module, "BLOCK_LENGTH", 500)
    observed = np.concatenate([np.zeros(6000), kind(5).quantize(SOUND)])
    write(tmp_path / "a.wav", np.stack([observed, observed]), RATE, subtype="PCM_16")
    report = Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav", verify=True)
    assert "0.0625" in report.levels
    restored = read(tmp_path / "b.wav").samples[0]
    assert restored.shape == observed.shape
    whole = Restorer().restore(observed, RATE, bits=5)
    np.testing.assert_allclose(restored, whole, atol=1e-6)


@pytest.mark.parametrize("quiet", [0, 40_000])
def test_refuses_other_kind_later_in_file(tmp_path, monkeypatch, quiet):
    monkeypatch.setattr(restorer_module, "DETECTION_SAMPLES", 1000)
    rise, tread = MidRise(5).quantize(SOUND), MidTread(5).quantize(SOUND)
    samples = np.concatenate([np.tile(rise, 3), np.zeros(quiet), np.tile(tread, 3)])
    write(tmp_path / "a.wav", samples, RATE, subtype="PCM_16")
    for restore in (
        lambda: Restorer(method="cp").restore(samples, RATE, bits=5),
        lambda: Restorer(method="cp").restore_file(tmp_path / "a.wav", tmp_path / "b.wav", bits=5),
    ):
        with pytest.raises(ValueError, match=r"0\.1875"):
            restore()
    assert not (tmp_path / "b.wav").exists()


def test_silence_takes_no_memory():
    pieces = (np.zeros((2, 1 << 15)) for _ in range(1000))
    taken, telling = restorer_module.read_beginning(pieces)
    assert len(taken) == 1000
    assert all(piece.strides == (8, 0) for piece in taken)
    assert telling.shape == (2, 1 << 15)


def test_refuses_undetected_levels_later_in_file(tmp_path, monkeypatch):
    monkeypatch.setattr(restorer_module, "DETECTION_SAMPLES", 1)
    monkeypatch.setattr(restorer_module, "BLOCK_LENGTH", 3000)
    write(tmp_path / "a.wav", np.concatenate([MidRise(5).quantize(SOUND), SOUND]), RATE, subtype="PCM_16")
    with pytest.raises(AudioError, match=r"a\.wav"):
        Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav")


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE", "PCM_24"])
@pytest.mark.parametrize("kind", [MidRise, MidTread])
def test_written_samples_keep_their_codes(tmp_path, kind, subtype):
    codes = kind(5).encode(SOUND)
    write(tmp_path / "a.wav", kind(5).decode(codes), RATE, subtype="PCM_16")
    Restorer().restore_file(tmp_path / "a.wav", tmp_path / "b.wav", subtype=subtype, bits=5)
    np.testing.assert_array_equal(kind(5).encode(read(tmp_path / "b.wav").samples), codes)
