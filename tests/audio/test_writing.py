import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdrn.audio.cells import Cells
from pdrn.audio.files import AudioError, read
from pdrn.audio.g711 import ALaw, MuLaw
from pdrn.audio.quantizers import MidRise, MidTread, Truncation
from pdrn.audio.writing import settle, write, writer

RATE = 16000
SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]

quantizers = st.one_of(
    st.builds(
        lambda kind, bits, full_scale: kind(bits, full_scale=full_scale),
        st.sampled_from([MidRise, MidTread, Truncation]),
        st.integers(1, 24),
        st.booleans(),
    ),
    st.builds(MidRise, st.integers(2, 16), st.floats(1e-7, 1e-4), st.floats(-0.1, 0.1)),
    st.builds(MuLaw, st.booleans()),
    st.builds(ALaw, st.booleans()),
)


@pytest.mark.parametrize("subtype", SUBTYPES)
@given(quantizer=quantizers, seed=st.integers(0, 999))
def test_what_is_written_stays_in_the_cells_or_is_refused(quantizer, seed, subtype, tmp_path_factory):
    generator = np.random.default_rng(seed)
    truth = generator.uniform(-1, 1, 200)
    cells = quantizer.cells(quantizer.encode(truth))
    target = tmp_path_factory.getbasetemp() / "settled.wav"
    restored = cells.project(truth + generator.normal(0, 0.1, 200))
    try:
        write(target, restored, RATE, cells, subtype=subtype, overwrite=True)
    except AudioError as refusal:
        assert "cells hold no" in str(refusal)  # noqa: PT017 (either is right)
        return
    assert cells.violation(read(target).samples) == 0.0


def test_16_bit_output_of_16_bit_cells_is_what_was_observed():
    quantizer = MidTread(16)
    observed = quantizer.quantize(np.linspace(-1, 1, 999))
    cells = quantizer.cells(quantizer.codes_of(observed))
    np.testing.assert_array_equal(settle(cells.hi - 1e-9, cells, "PCM_16"), observed)


def test_an_output_too_coarse_for_the_cells_is_refused():
    with pytest.raises(AudioError, match=r"1 of 2 cells hold no PCM_16 value; write a deeper subtype"):
        settle([0.0, 0.5], Cells([0.0, 0.500001], [0.1, 0.50002]), "PCM_16")
    with pytest.raises(AudioError, match=r"1 of 1 cells hold no float32; .* write DOUBLE"):
        settle([0.1], Cells([0.1], [0.1 + 1e-12]), "FLOAT")


def test_a_sample_goes_to_the_nearest_value_inside():
    assert (settle([0.3, 0.9], Cells([0.0, 0.0], [0.5, 0.51]), "PCM_U8") * 128).tolist() == [38, 65]


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_full_scale_is_kept_but_nothing_beyond_is_cut_off_silently(subtype):
    assert settle([1.0, -1.0], None, subtype)[1] == -1.0
    with pytest.raises(AudioError, match=r"a sample of 1\.001 is beyond full scale; write FLOAT"):
        settle([1.001], None, subtype)
    assert settle([1.001], None, "DOUBLE") == [1.001]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_not_written(value, tmp_path):
    with pytest.raises(AudioError, match="NaN or infinite"):
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
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_every_output_holds_exactly_the_settled_samples(tmp_path, name, subtype, channels):
    samples = np.random.default_rng(0).uniform(-1, 1, (channels, 300))
    write(tmp_path / name, samples, RATE, subtype=subtype)
    sound = read(tmp_path / name)
    np.testing.assert_array_equal(np.atleast_2d(sound.samples), settle(samples, None, subtype))
    assert (sound.sample_rate_hz, sound.subtype) == (RATE, subtype)


def test_blocks_make_the_same_file(tmp_path):
    samples = np.random.default_rng(0).uniform(-1, 1, (2, 1000))
    with writer(tmp_path / "blocks.flac", RATE, 2) as put:
        for start in range(0, 1000, 300):
            put(samples[:, start : start + 300])
    write(tmp_path / "whole.flac", samples, RATE)
    assert (tmp_path / "blocks.flac").read_bytes() == (tmp_path / "whole.flac").read_bytes()


def test_nothing_is_overwritten_unless_told(tmp_path):
    target = tmp_path / "a.wav"
    write(target, [0.5], RATE)
    with pytest.raises(
        AudioError, match=r"a\.wav is there already; choose another name, or allow overwriting"
    ):
        write(target, [0.25], RATE)
    assert read(target).samples.tolist() == [0.5]
    write(target, [0.25], RATE, overwrite=True)
    assert read(target).samples.tolist() == [0.25]


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path):
    target = tmp_path / "a.wav"

    def race():
        with writer(target, RATE) as put:
            put([0.5])
            target.write_text("mine")

    with pytest.raises(AudioError, match="is there already"):
        race()
    assert target.read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
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
def test_a_full_disk_leaves_nothing(tmp_path, name, frames):
    script = (
        "import resource, sys, numpy, pdrn.audio.writing as w\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "noise = numpy.random.default_rng(0).uniform(-1, 1, int(sys.argv[2]))\n"
        "try: w.write(sys.argv[1], noise, 16000)\n"
        "except w.AudioError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, tmp_path / name, str(frames)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("cannot be written; is the disk full?\n")
    assert done.stdout.count("\n") == 1
    assert os.listdir(tmp_path) == []


def test_standard_input_and_output_are_pipes(tmp_path):
    samples = settle(np.random.default_rng(0).uniform(-1, 1, 5000))
    write(tmp_path / "a.flac", samples, RATE)
    script = (
        "from pdrn.audio.files import blocks\n"
        "from pdrn.audio.writing import writer\n"
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
        ("a.mp3", {}, "does not tell a format that can be written"),
        ("a.flac", {"subtype": "FLOAT"}, "no FLAC files of subtype FLOAT"),
        ("a.wav", {"subtype": "ULAW"}, "ULAW output may leave the cells"),
        ("a.wav", {"sample_rate_hz": 0}, "1 channels at 0 Hz cannot be written"),
        ("absent/a.wav", {}, "cannot be written: No such file"),
        (".", {"format": "WAV"}, "is not a file; name one, or - for standard output"),
    ],
)
def test_impossible_outputs_are_refused(tmp_path, target, arguments, reason):
    with pytest.raises(AudioError, match=reason):
        write(tmp_path / target, **{"samples": [0.5], "sample_rate_hz": RATE} | arguments)
    assert os.listdir(tmp_path) == []


def test_devices_are_not_replaced():
    with pytest.raises(AudioError, match="is not a file"):
        write(os.devnull, [0.5], RATE, format="WAV", overwrite=True)


def test_no_samples_and_wrong_channels_are_refused(tmp_path):
    with pytest.raises(AudioError, match="no samples to write"):
        write(tmp_path / "a.wav", [], RATE)

    def wrong():
        with writer(tmp_path / "a.wav", RATE, channels=2) as put:
            put(np.zeros((3, 10)))

    with pytest.raises(AudioError, match=r"need 2 channels, got samples of shape \(3, 10\)"):
        wrong()
    assert os.listdir(tmp_path) == []


def test_more_than_4_gb_do_not_fit_into_a_wave(tmp_path, monkeypatch):
    monkeypatch.setattr("pdrn.audio.writing._LARGEST_FILE", 1000)
    with pytest.raises(AudioError, match="4 GB do not fit into WAV; write RF64 or FLAC"):
        write(tmp_path / "a.wav", np.zeros(1000), RATE)
    write(tmp_path / "a.rf64", np.zeros(1000), RATE)
    assert os.listdir(tmp_path) == ["a.rf64"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    write(tmp_path / "a.wav", [0.5], RATE)
    assert (tmp_path / "a.wav").stat().st_mode == (tmp_path / "plain").stat().st_mode
