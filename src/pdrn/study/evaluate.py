"""Evaluate: quantize the signals of a corpus, restore them by every method, and measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from pdrn.audio.cells import FloatArray
from pdrn.audio.corpus import Corpus
from pdrn.audio.metrics import check_pesq, mse, pesq, snr, snr_pooled, stoi
from pdrn.audio.quantizers import MidRise
from pdrn.study.data import without_a_frame
from pdrn.study.methods import Method, method_named, trained_depths
from pdrn.study.paper import FRAME_LENGTH

HEARING = {"pesq": "pesq", "stoi": "pystoi"}
"""Measures of hearing, which take longer than all else, and the packages that compute them."""


@dataclass(frozen=True)
class Row:
    """What one method reaches on one split of a corpus."""

    method: str
    mse: float
    """Mean squared error over all samples of all frames."""
    snr: float
    """Signal-to-noise ratio in dB of each file's whole frames, the mean over the files."""
    snr_pooled: float
    """Signal-to-noise ratio in dB of all frames together."""
    ratio: float
    """Mean squared error in units of the quantized signal's."""
    bits: int
    split: str
    files: int
    frames: int
    corpus_sha256: str
    pesq: float | None = None
    """Of the files' whole frames, their mean, where that was asked for; see `pdrn.audio.metrics.pesq`."""
    stoi: float | None = None


def check_hearing(hearing: Collection[str], sample_rate_hz: int) -> None:
    """Refuse measures of hearing that cannot be computed here."""
    for name in hearing:
        if name not in HEARING:
            raise ValueError(f"no measure is called {name!r}; there are {', '.join(HEARING)}")
        if find_spec(HEARING[name]) is None:
            raise ValueError(
                f"{name} needs {HEARING[name]}, which is not installed: pip install 'pdrn[metrics]'"
            )
    if "pesq" in hearing:
        check_pesq(sample_rate_hz)


def whole_frames(corpus: Corpus, split: str, frame_length: int) -> list[FloatArray]:
    """Return the signals of a split, each as far as it has whole frames, but for those that have none.

    A split in which nothing, or a signal in which silence is left, is refused: there is nothing to compare
    errors with.
    """
    signals = []
    for entry in corpus.split(split):
        signal = corpus.signal(entry)
        if len(whole := signal[: len(signal) // frame_length * frame_length]):
            if not whole.any():
                raise ValueError(
                    f"the whole frames of {corpus.folder / entry.path} are silent, and errors cannot be "
                    "compared with silence; leave it out"
                )
            signals.append(whole)
    if not signals:
        raise without_a_frame(corpus, split, frame_length)
    return signals


def evaluate(
    corpus: Corpus,
    split: str,
    bits: int,
    methods: Sequence[str] | Mapping[str, Method],
    frame_length: int = FRAME_LENGTH,
    hearing: Collection[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield a row for each method, on the whole frames of every file, as in the paper.

    Methods are given by name, or as a mapping from names of one's own. Files shorter than a frame do not
    count. Unknown methods and measures are refused before any work. ``note`` is told how many files are too
    short, and which networks were trained for another bit depth.
    """
    if not methods:
        raise ValueError("there is no method to measure; name some, for example qu,cp:25")
    sample_rate_hz = corpus.signal_rate_hz
    restorers = (
        methods
        if isinstance(methods, Mapping)
        else {name: method_named(name, frame_length, sample_rate_hz) for name in methods}
    )
    check_hearing(hearing, sample_rate_hz)
    quantizer = MidRise(bits, full_scale=True)
    signals = whole_frames(corpus, split, frame_length)
    if short := len(corpus.split(split)) - len(signals):
        note(f"files shorter than a frame of {frame_length} samples, which are left out: {short}")
    for name in () if isinstance(methods, Mapping) else restorers:
        depths = trained_depths(name)
        if depths and not depths[0] <= bits <= depths[-1]:
            trained = " to ".join(f"{depth:g}" for depth in depths)
            note(f"{name} was trained for {trained} bits, and this is {bits}")
    cells = [quantizer.cells(quantizer.encode(signal)) for signal in signals]
    quantized_mse = mse(signals, [each.centre for each in cells])
    for name, restore in restorers.items():
        restored = restore(cells)
        error = mse(signals, restored)
        yield Row(
            method=name,
            mse=error,
            snr=snr(signals, restored),
            snr_pooled=snr_pooled(signals, restored),
            ratio=error / quantized_mse,
            bits=bits,
            split=split,
            files=len(signals),
            frames=sum(len(signal) for signal in signals) // frame_length,
            corpus_sha256=corpus.checksum,
            pesq=pesq(signals, restored, sample_rate_hz) if "pesq" in hearing else None,
            stoi=stoi(signals, restored, sample_rate_hz) if "stoi" in hearing else None,
        )
