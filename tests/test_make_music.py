"""The music that networks are trained on beside speech."""

import numpy as np
import soundfile
from tools.make_music import RATE, SECONDS, main


def test_it_writes_the_same_music_every_time(tmp_path):
    for folder in ("one", "two"):
        main([str(tmp_path / folder), "2"])
    first, second = sorted((tmp_path / "one").iterdir())
    assert [file.name for file in (first, second)] == ["music-0000.wav", "music-0001.wav"]
    assert first.read_bytes() == (tmp_path / "two" / first.name).read_bytes()
    assert first.read_bytes() != second.read_bytes()


def test_it_is_loud_enough_and_not_clipped(tmp_path):
    main([str(tmp_path), "3"])
    for file in tmp_path.iterdir():
        samples, rate = soundfile.read(file)
        assert (len(samples), rate) == (SECONDS * RATE, RATE)
        assert 0.25 < np.abs(samples).max() < 1
