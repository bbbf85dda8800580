"""Measure a network alone and averaged with Chambolle-Pock, beside Chambolle-Pock alone, on unheard sound.

    python -m benchmarks.models MODEL FOLDER [COUNT] [--metrics] [--voices]

MODEL is the name of a bundled model, or a file. The folder's recordings (or COUNT of them, evenly chosen) are
taken at the network's rate with a peak at full scale, quantized mid-rise, and restored by four methods:

- plain Chambolle-Pock, step and stop tuned for each bit depth (`benchmarks.plain`);
- Chambolle-Pock as in `pdrn restore --method cp`;
- the network;
- the mean of the last two, the default of `pdrn restore`.

SNRs are means over the recordings. Gains are per recording, with a 95 % interval of their mean. "ratio" is
the MSE over that of the quantized signal, over all samples; "worst" is the mean's largest ratio of a
recording. --metrics adds PESQ (of the band for the rate) and STOI; --voices lists low and high voices apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks import plain
from benchmarks.tuning import RATE, signals
from pdrn.audio.cells import FloatArray
from pdrn.audio.frames import cut
from pdrn.audio.metrics import pesq, snr, stoi
from pdrn.audio.quantizers import MidRise
from pdrn.reproduction.studies import confidence_interval
from pdrn.restoration.methods import NETWORK_SHARE
from pdrn.restoration.registry import read_model
from pdrn.restoration.restorer import Restorer

BITS = plain.BITS
HEADINGS = (
    "bits",
    "SNR in dB: quantized / plain CP / CP / network / both",
    "gain over CP: network",
    "both",
    "both over plain CP",
    "ratio: plain CP / CP / network / both",
    "worst",
    "times real time: CP / network",
)
GAINS = {"network": ("network", "cp"), "both": ("both", "cp"), "both_over_plain": ("both", "plain")}

VOICES_PARTED_AT_HZ = 160.0
"""Most men's median pitch is lower, most women's higher."""

_PITCHES_HZ = (60.0, 400.0)
_PERIODIC, _AS_GOOD = 0.5, 0.9


def main(model: str, folder: str, count: int, metrics: bool, voices: bool) -> None:
    """Print the tables and one JSON line."""
    rate = read_model(model).provenance.sample_rate_hz or RATE
    recordings = list(signals([folder], count, seconds=np.inf, rate=rate))
    headings = [*HEADINGS, *(("PESQ", "STOI") if metrics else ())]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    rows = []
    for bits in BITS:
        rows.append(_row(model, recordings, rate, bits, metrics))
        print(_printed(rows[-1]), flush=True)
    if voices:
        _print_voices(rows, np.array([_pitch(signal, rate) for signal in recordings]))
    print(json.dumps({"benchmark": "models", "model": model, "recordings": len(recordings), "rows": rows}))


def _row(model: str, recordings: list[FloatArray], rate: int, bits: int, metrics: bool) -> dict[str, Any]:
    quantizer = MidRise(bits, full_scale=True)
    cells = [quantizer.cells(quantizer.encode(signal)) for signal in recordings]
    seconds_of_sound = sum(map(len, recordings)) / rate
    estimates = {"quantized": [each.centre for each in cells]}
    estimates["plain"] = [plain.tuned(each, rate, bits) for each in cells]
    speeds = {}
    for name, restorer in {"cp": Restorer(method="cp"), "network": Restorer(model, method="network")}.items():
        began = time.perf_counter()
        estimates[name] = [restorer.restore_cells(each, rate, quantizer.step) for each in cells]
        speeds[name] = seconds_of_sound / (time.perf_counter() - began)
    estimates["both"] = [
        NETWORK_SHARE * network + (1 - NETWORK_SHARE) * solver
        for network, solver in zip(estimates["network"], estimates["cp"], strict=True)
    ]
    outside = max(each.violation(x) for each, x in zip(cells, estimates["network"], strict=True))
    if outside:
        raise RuntimeError(f"a sample is outside of its cell, by {outside}")
    pairs = {name: list(zip(recordings, those, strict=True)) for name, those in estimates.items()}
    snrs = {name: np.array([snr(*pair) for pair in those]) for name, those in pairs.items()}
    errors = {name: np.array([((s - e) ** 2).sum() for s, e in those]) for name, those in pairs.items()}
    row: dict[str, Any] = {
        "bits": bits,
        "snr_db": {name: those.mean() for name, those in snrs.items()},
        "gains_db": {name: (snrs[ours] - snrs[theirs]).tolist() for name, (ours, theirs) in GAINS.items()},
        "ratio": {name: those.sum() / errors["quantized"].sum() for name, those in errors.items()},
        "worst": (errors["both"] / errors["quantized"]).max(),
        "times_real_time": speeds,
    }
    if metrics:
        row["pesq"] = {name: pesq(recordings, those, rate) for name, those in estimates.items()}
        row["stoi"] = {name: stoi(recordings, those, rate) for name, those in estimates.items()}
    return row


def _printed(row: dict[str, Any]) -> str:
    figures = [str(row["bits"]), _several(row["snr_db"].values(), 2)]
    figures += [_with_interval(gains) for gains in row["gains_db"].values()]
    figures.append(_several((row["ratio"][name] for name in ("plain", "cp", "network", "both")), 3))
    figures += [f"{row['worst']:.3f}", _several(row["times_real_time"].values(), 0)]
    if "pesq" in row:
        figures += [_several(row["pesq"].values(), 2), _several(row["stoi"].values(), 3)]
    return f"| {' | '.join(figures)} |"


def _print_voices(rows: list[dict[str, Any]], pitches: FloatArray) -> None:
    groups = {"low": pitches < VOICES_PARTED_AT_HZ, "high": pitches >= VOICES_PARTED_AT_HZ}
    headings = [
        f"{name} voices ({mask.sum()}): both over {theirs}"
        for name, mask in groups.items()
        for theirs in ("CP", "plain CP")
    ]
    print(f"\n| bits | {' | '.join(headings)} |\n|{'---|' * (1 + len(headings))}")
    for row in rows:
        gains = [
            _with_interval(np.array(row["gains_db"][name])[mask])
            for mask in groups.values()
            for name in ("both", "both_over_plain")
        ]
        print(f"| {row['bits']} | {' | '.join(gains)} |")


def _pitch(signal: FloatArray, rate: int) -> float:
    """Return the median pitch of the loud and periodic frames, in Hz, by autocorrelation."""
    length = rate // 20
    frames = cut(signal, length, length // 2)
    frames = frames[frames.std(-1) > frames.std(-1).max() / 4]
    spectra = np.fft.rfft(frames - frames.mean(-1, keepdims=True), 2 * length)
    alike = np.fft.irfft(np.abs(spectra) ** 2)[:, :length] / (1 - np.arange(length) / length)
    shortest, longest = (round(rate / pitch) for pitch in reversed(_PITCHES_HZ))
    candidates = alike[:, shortest:longest]
    most_alike = candidates.max(-1)
    # Twice a period is as good a period, but for the noise: the shortest is meant.
    lags = shortest + (candidates >= _AS_GOOD * most_alike[:, None]).argmax(-1)
    return float(rate / np.median(lags[most_alike > _PERIODIC * alike[:, 0]]))


def _several(values: Iterable[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def _with_interval(gains: Sequence[float] | FloatArray) -> str:
    return "{:.2f} ± {:.2f}".format(*confidence_interval(gains))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("count", type=int, nargs="?", default=sys.maxsize)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--voices", action="store_true")
    main(**vars(parser.parse_args()))
