"""Make the speech sample that the package carries: our own sentences, spoken by flite.

    apt-get install flite
    python tools/make_sample.py src/pdrn/audio/data/speech.flac

flite (Debian package, version 2.2-5 at the time of making) has the diphone voice kal16 built in. The
sentences are joined with short pauses, freed of what lies below the voice (which also fills the gaps
between the synthesiser's own 16-bit codes), scaled so that the largest sample has 95 % of full scale, and
rounded to 16 bit with triangular dither. The same seed gives the same bytes.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from scipy.signal import butter, sosfilt

VOICE = "kal16"
PAUSE_SECONDS = 0.35
PEAK = 0.95
LOWEST_HZ = 60

SENTENCES = """
The ferry leaves at a quarter past seven, whether or not the fog has lifted.
She measured the old bridge twice, and both times the answer came out short.
Every sample of this recording was rounded to the nearest of thirty two levels.
A thin layer of ice covered the pond, and nobody dared to walk across.
Which of these five keys opens the workshop door?
The baker hums while he kneads, and the dough seems to rise in time.
Quiet voices suffer most, because the grid does not shrink with them.
""".strip().splitlines()


def spoken(sentence: str) -> np.ndarray:
    """Return one sentence as 16 kHz samples."""
    with tempfile.TemporaryDirectory() as folder:
        wave = Path(folder) / "sentence.wav"
        subprocess.run(["flite", "-voice", VOICE, "-t", sentence, "-o", str(wave)], check=True)
        samples, sample_rate_hz = soundfile.read(wave)
    if sample_rate_hz != 16000:
        raise SystemExit(f"flite spoke at {sample_rate_hz} Hz, not 16000; is {VOICE} its 16 kHz voice?")
    return samples


def main() -> None:
    """Speak, join, scale and write."""
    pause = np.zeros(round(PAUSE_SECONDS * 16000))
    speech = np.concatenate([part for sentence in SENTENCES for part in (spoken(sentence), pause)])
    speech = sosfilt(butter(2, LOWEST_HZ, "highpass", fs=16000, output="sos"), speech)
    dither = np.random.default_rng(0).uniform(-0.5, 0.5, (2, len(speech))).sum(axis=0)
    codes = np.rint(speech / np.abs(speech).max() * PEAK * 32767 + dither).astype(np.int16)
    soundfile.write(sys.argv[1], codes, 16000, subtype="PCM_16", compression_level=1.0)
    print(f"{len(codes) / 16000:.1f} s, {Path(sys.argv[1]).stat().st_size} bytes")


if __name__ == "__main__":
    main()
