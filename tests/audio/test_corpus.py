import numpy as np
import pytest
import soundfile

from pdrn.audio import metrics
from pdrn.audio.corpus import SPLITS, Corpus, segments, speech
from pdrn.audio.frames import cut
from pdrn.audio.quantizers import MidRise
from pdrn.errors import AudioError

RATE = 8000


def fill(folder, names, frames=1000, sample_rate_hz=RATE, channels=1):
    generator = np.random.default_rng(0)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        samples = generator.uniform(-0.5, 0.5, (frames, channels))
        soundfile.write(folder / name, samples, sample_rate_hz, subtype="PCM_16")
    return folder


@pytest.fixture(scope="module")
def ieee(ieee_folder):
    return Corpus.scan(ieee_folder)


@pytest.mark.parametrize(
    ("split", "files", "frames"), [("train", 504, 20641), ("dev", 108, 4419), ("test", 108, 4486)]
)
def test_ieee_corpus_has_files_and_frames_of_paper(ieee, split, files, frames):
    assert len(ieee.split(split)) == files
    assert sum(len(cut(signal, 1024)) for signal in ieee.signals(split, np.float32)) == frames


def test_ieee_corpus_at_5_bits_has_snr_of_paper(ieee):
    quantizer = MidRise(bits=5)
    files = ieee.signals("test")
    whole_frames = [signal[: len(signal) // 1024 * 1024] for signal in files]
    assert round(metrics.snr(files, [quantizer.quantize(signal) for signal in files]), 2) == 15.06
    assert round(metrics.snr(whole_frames, [quantizer.quantize(s) for s in whole_frames]), 2) == 15.15
    frames = np.concatenate([cut(signal, 1024) for signal in files])
    assert metrics.mse(frames, quantizer.quantize(frames)) == pytest.approx(4.33e-4, abs=5e-7)


def test_uses_split_subfolders(tmp_path):
    fill(tmp_path, ["train/a.wav", "train/deep/b.flac", "dev/c.wav", "test/d.wav", "stray.wav"])
    corpus = Corpus.scan(tmp_path)
    assert [entry.path for entry in corpus.split("train")] == ["train/a.wav", "train/deep/b.flac"]
    assert [len(corpus.split(split)) for split in SPLITS] == [2, 1, 1]


def test_joined_is_independent_of_order_and_keeps_splits(tmp_path):
    names = ["train/a.wav", "dev/b.wav", "test/c.wav"]
    one, two = (Corpus.scan(fill(tmp_path / name, names)) for name in ("one", "two"))
    both = Corpus.joined([two, one])
    assert both == Corpus.joined([one, two])
    assert both.checksum not in (one.checksum, two.checksum)
    assert [entry.path for entry in both.split("dev")] == ["one/dev/b.wav", "two/dev/b.wav"]
    np.testing.assert_array_equal(both.signals("test")[1], two.signals("test")[0])
    assert Corpus.joined([one]) is one


def test_joined_refuses_shared_files_and_different_rates(tmp_path):
    names = ["train/a.wav", "dev/b.wav", "test/c.wav"]
    fill(tmp_path / "one", names)
    fill(tmp_path / "two", names, sample_rate_hz=2 * RATE)
    one, two = Corpus.scan(tmp_path / "one"), Corpus.scan(tmp_path / "two")
    with pytest.raises(AudioError, match=r"dev/b\.wav"):
        Corpus.joined([one, one])
    with pytest.raises(AudioError, match=r"8000.*16000"):
        Corpus.joined([one, two])
    resampled = Corpus.joined([Corpus.scan(tmp_path / name, RATE) for name in ("one", "two")])
    assert [len(signal) for signal in resampled.signals("dev")] == [1000, 500]


def test_random_split_is_70_15_15_by_seed(tmp_path):
    fill(tmp_path, [f"{index}.wav" for index in range(40)], frames=10)
    corpus = Corpus.scan(tmp_path)
    assert [len(corpus.split(split)) for split in SPLITS] == [28, 6, 6]
    assert corpus == Corpus.scan(tmp_path)
    assert corpus.split("test") != Corpus.scan(tmp_path, seed=1).split("test")


@pytest.mark.parametrize("pattern", ["{speaker}-7-{index}.wav", "p{speaker}_{index}.wav"])
def test_random_split_keeps_speakers_together(tmp_path, pattern):
    fill(tmp_path, [pattern.format(speaker=s, index=i) for s in range(10, 30) for i in range(3)], frames=10)
    corpus = Corpus.scan(tmp_path)
    speakers = [{entry.path.split("-")[0].split("_")[0] for entry in corpus.split(split)} for split in SPLITS]
    assert [len(group) for group in speakers] == [14, 3, 3]
    assert len(set.union(*speakers)) == 20


@pytest.mark.parametrize("name", ["dev", "val", "valid", "validation"])
def test_dev_split_has_several_names(tmp_path, name):
    fill(tmp_path, ["train/a.wav", f"{name}/b.wav", "test/c.wav"], frames=10)
    assert [entry.path for entry in Corpus.scan(tmp_path).split("dev")] == [f"{name}/b.wav"]


@pytest.mark.parametrize("missing", SPLITS)
def test_refuses_incomplete_split_subfolders(tmp_path, missing):
    fill(tmp_path, [f"{split}/{i}.wav" for split in SPLITS if split != missing for i in range(9)], frames=10)
    with pytest.raises(AudioError, match=rf"\b{missing}\b"):
        Corpus.scan(tmp_path)


def test_random_split_keeps_subfolders_together(tmp_path):
    fill(tmp_path, [f"{who}/{index}.wav" for who in "abcdefghij" for index in range(3)], frames=10)
    corpus = Corpus.scan(tmp_path)
    folders = [{entry.path.split("/")[0] for entry in corpus.split(split)} for split in SPLITS]
    assert [len(group) for group in folders] == [7, 2, 1]
    assert len(set.union(*folders)) == 10


def test_random_split_keeps_speakers_together_among_other_files(tmp_path):
    named = [f"p{speaker}_{index}.wav" for speaker in (1, 2, 3) for index in range(4)]
    fill(tmp_path, named + [f"noise{letter}.wav" for letter in "abcdefgh"], frames=10)
    for seed in range(5):
        corpus = Corpus.scan(tmp_path, seed=seed)
        splits = {(e.path.split("_")[0], e.split) for e in corpus.entries if e.path.startswith("p")}
        assert len(splits) == 3
        assert len({entry.split for entry in corpus.entries if entry.path.startswith("noise")}) > 1


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (50, 1, 1), (1, 50, 1), (20, 20, 1), (1, 1, 1, 1), (9, 1, 1, 9)]
)
@pytest.mark.parametrize("seed", range(4))
def test_three_groups_fill_every_split(tmp_path, sizes, seed):
    fill(tmp_path, [f"p{speaker}_{i}.wav" for speaker, n in enumerate(sizes) for i in range(n)], frames=2)
    corpus = Corpus.scan(tmp_path, seed=seed)
    assert all(corpus.split(split) for split in SPLITS)
    assert len({(entry.path.split("_")[0], entry.split) for entry in corpus.entries}) == len(sizes)


@pytest.mark.parametrize("names", [["a.wav", "b.wav"], [f"{who}/{i}.wav" for who in "ab" for i in range(9)]])
def test_refuses_fewer_than_three_groups(tmp_path, names):
    fill(tmp_path, names, frames=10)
    with pytest.raises(AudioError, match=r"\b2\b"):
        Corpus.scan(tmp_path)


def test_ignores_hidden_files(tmp_path):
    fill(tmp_path, ["a.wav", "b.wav", "c.wav", ".trash/d.wav"], frames=10)
    (tmp_path / "._a.wav").write_bytes(b"not sound")
    assert len(Corpus.scan(tmp_path).entries) == 3


def test_signals_have_a_peak_of_one(tmp_path):
    fill(tmp_path, [f"{split}/a.wav" for split in SPLITS], frames=1000)
    corpus = Corpus.scan(tmp_path)
    (signal,) = corpus.signals("dev")
    assert np.abs(signal).max() == 1.0


def test_averages_channels_and_resamples(tmp_path):
    fill(tmp_path, [f"{split}/a.wav" for split in SPLITS], frames=4000, sample_rate_hz=48000, channels=2)
    corpus = Corpus.scan(tmp_path, sample_rate_hz=12000)
    (signal,) = corpus.signals("train", dtype=np.float32)
    assert signal.shape == (1000,)
    assert signal.dtype == np.float32


def test_refuses_different_rates_without_resampling(tmp_path):
    fill(tmp_path, ["a.wav", "b.wav"], sample_rate_hz=8000)
    fill(tmp_path, ["c.wav"], sample_rate_hz=16000)
    with pytest.raises(AudioError, match=r"8000.*16000"):
        Corpus.scan(tmp_path)
    assert len(Corpus.scan(tmp_path, sample_rate_hz=8000).entries) == 3


def test_progress_counts_the_files(tmp_path):
    fill(tmp_path, ["a.wav", "b.wav", "c.wav"], frames=10)
    seen = []
    Corpus.scan(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_checksum_depends_on_content_and_changed_file_is_refused(tmp_path):
    fill(tmp_path, ["a.wav", "b.wav", "c.wav"], frames=10)
    before = Corpus.scan(tmp_path)
    soundfile.write(tmp_path / "a.wav", np.ones(10) / 4, RATE)
    assert Corpus.scan(tmp_path).checksum != before.checksum
    (changed,) = [entry for entry in before.entries if entry.path == "a.wav"]
    with pytest.raises(AudioError, match=r"a\.wav"):
        before.signal(changed)


def test_refuses_silent_file(tmp_path):
    fill(tmp_path, ["i.wav", "j.wav"], frames=10)
    soundfile.write(tmp_path / "hush.wav", np.zeros(10), RATE)
    corpus = Corpus.scan(tmp_path)
    with pytest.raises(AudioError, match=r"hush\.wav"):
        corpus.signal(corpus.entries[0])


def test_refuses_empty_folder_and_unknown_split(tmp_path):
    with pytest.raises(AudioError, match=tmp_path.name):
        Corpus.scan(tmp_path)
    with pytest.raises(AudioError, match="absent"):
        Corpus.scan(tmp_path / "absent")
    fill(tmp_path, ["a.wav", "b.wav", "c.wav"])
    with pytest.raises(ValueError, match="valid"):
        Corpus.scan(tmp_path).split("valid")


def test_segments_are_drawn_uniformly_from_signals():
    signals = [np.arange(100.0, 104.0), np.arange(200.0, 201.0), np.arange(300.0, 303.0)]
    drawn = segments(signals, 2, 5000, np.random.default_rng(0))
    np.testing.assert_array_equal(np.diff(drawn, axis=1), 1.0)
    starts, counts = np.unique(drawn[:, 0], return_counts=True)
    assert starts.tolist() == [100, 101, 102, 300, 301]
    assert counts.min() > 900
    np.testing.assert_array_equal(drawn, segments(signals, 2, 5000, np.random.default_rng(0)))


def test_refuses_segments_longer_than_every_signal():
    with pytest.raises(ValueError, match=r"\b9\b"):
        segments([np.ones(8)], 9, 1, np.random.default_rng(0))


def test_bundled_speech_is_32_s_of_16_bits():
    samples, sample_rate_hz = speech()
    assert sample_rate_hz == 16000
    assert 25 < len(samples) / sample_rate_hz < 35
    assert 0.9 < np.abs(samples).max() < 1.0
    assert 0.05 < np.sqrt(np.mean(samples**2)) < 0.3
    np.testing.assert_array_equal(samples * 32768, np.rint(samples * 32768))


def test_bundled_speech_has_snr_of_speech():
    samples, _ = speech()
    assert 8 < metrics.snr(samples, MidRise(bits=5).quantize(samples)) < 20
