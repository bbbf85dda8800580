"""Read damaged sound files: each has to give sound or one clear error, never a crash, hang or partial output.

    python tests/fuzz/fuzz_files.py 10000

Small files of every format are damaged at random, read, copied block by block, turned into cells, asked for
their quantizer, and a tenth of them read from standard input as well. Batches run in processes
of their own, so that a crash, over ten seconds of processor time, a hang of two minutes or a use of over 2 GB
ends the batch and is reported with the number of the input, which is enough to make it again.
"""

import argparse
import collections
import faulthandler
import functools
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile

from pdrn.audio.detection import choose_quantizer
from pdrn.audio.files import blocks, read, writer
from pdrn.audio.quantizers import Observer
from pdrn.errors import AudioError, InputError

BATCH = 500
CPU_SECONDS = 10
HANG_SECONDS = 120
MEMORY_BYTES = 2 << 30

ORIGINALS = [
    ("WAV", "PCM_U8", 1),
    ("WAV", "PCM_16", 1),
    ("WAV", "PCM_24", 2),
    ("WAV", "PCM_32", 1),
    ("WAV", "FLOAT", 1),
    ("WAV", "DOUBLE", 3),
    ("WAV", "ULAW", 1),
    ("WAV", "ALAW", 2),
    ("WAVEX", "PCM_16", 5),
    ("RF64", "PCM_16", 1),
    ("AIFF", "PCM_16", 2),
    ("AIFF", "FLOAT", 1),
    ("AU", "PCM_16", 1),
    ("AU", "ULAW", 1),
    ("FLAC", "PCM_16", 2),
    ("FLAC", "PCM_24", 1),
    ("OGG", "VORBIS", 1),
    ("OGG", "OPUS", 2),
]
HEADER_BYTES = 96
EXTREMES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]


@functools.cache
def originals():
    """Return the bytes of the undamaged files."""
    generator = np.random.default_rng(0)
    files = []
    for format, subtype, channels in ORIGINALS:
        stream = io.BytesIO()
        samples = generator.uniform(-0.9, 0.9, (400, channels))
        soundfile.write(stream, samples, 16000, format=format, subtype=subtype)
        files.append(stream.getvalue())
    return files


def flip_bytes(content, generator):
    for _ in range(generator.integers(1, 9)):
        content[generator.integers(len(content))] = generator.integers(256)


def flip_bit(content, generator):
    content[generator.integers(len(content))] ^= 1 << int(generator.integers(8))


def zero_block(content, generator):
    at = int(generator.integers(len(content)))
    length = min(int(generator.integers(1, 513)), len(content) - at)
    content[at : at + length] = bytes(length)


def repeat_block(content, generator):
    at = int(generator.integers(len(content)))
    content[at:at] = content[at : at + int(generator.integers(1, 513))]


def damage_header(content, generator):
    for _ in range(generator.integers(1, 4)):
        content[generator.integers(min(HEADER_BYTES, len(content)))] = generator.integers(256)


def put_extreme_number(content, generator):
    size = int(generator.choice([1, 2, 4, 8]))
    number = int(generator.choice(EXTREMES)) % 256**size
    at = int(generator.integers(min(HEADER_BYTES, len(content))))
    content[at : at + size] = number.to_bytes(size, str(generator.choice(["little", "big"])))


def cut_off(content, generator):
    del content[generator.integers(len(content)) :]


def remove_piece(content, generator):
    at = generator.integers(len(content))
    del content[at : at + generator.integers(1, 64)]


def insert_piece(content, generator):
    at = generator.integers(len(content))
    content[at:at] = generator.bytes(generator.integers(1, 64))


def insert_zeros(content, generator):
    at = int(generator.choice([12, 36, generator.integers(len(content))]))
    content[at:at] = bytes(int(generator.integers(1, 100_000)))


def put_no_number(content, generator):
    at = int(generator.integers(40, max(len(content), 41)))
    number = np.array(
        [generator.choice([np.nan, np.inf, -np.inf])], dtype=str(generator.choice(["<f4", ">f4", "<f8"]))
    )
    content[at : at + number.nbytes] = number.tobytes()


def splice(content, generator):
    other = originals()[generator.integers(len(ORIGINALS))]
    content[generator.integers(len(content)) :] = other[generator.integers(len(other)) :]


DAMAGES = [
    flip_bit,
    flip_bytes,
    zero_block,
    repeat_block,
    damage_header,
    damage_header,
    put_extreme_number,
    put_extreme_number,
    cut_off,
    remove_piece,
    insert_piece,
    insert_zeros,
    put_no_number,
    splice,
]


def damaged(index, files):
    """Return the damaged file of this number."""
    generator = np.random.default_rng([index, 20641])
    content = bytearray(files[index % len(files)])
    for _ in range(generator.integers(1, 4)):
        if content:
            DAMAGES[generator.integers(len(DAMAGES))](content, generator)
    return bytes(content)


def outcome(file, folder):
    """Read and copy one file; return "read" or the error, having checked that both ways agree."""
    target = folder / "copy.wav"
    sound = None
    try:
        sound = read(file)
        assert sound.samples.size, "no samples"
        assert np.isfinite(sound.samples).all(), "samples that are no numbers"
        message = str(file)
    except AudioError as error:
        message = str(error)
    assert "\n" not in message, f"an error of several lines: {message}"
    assert str(file) in message, f"an error without the file's name: {message}"
    try:
        with writer(
            target, 16000, np.atleast_2d(sound.samples).shape[0] if sound else 1, subtype="DOUBLE"
        ) as put:
            for block in blocks(file, 100):
                put(block.samples)
    except AudioError:
        assert sound is None, "read as a whole, but not in blocks"
    else:
        assert sound is not None, "read in blocks, but not as a whole"
        np.testing.assert_array_equal(read(target).samples, sound.samples)
        target.unlink()
    assert os.listdir(folder) == [], f"a partial output: {os.listdir(folder)}"
    return sound


def check_cells(sound):
    """Check that the sound lies in its cells, those of the file and those that are detected."""
    samples = np.atleast_2d(sound.samples)
    try:
        found = choose_quantizer(samples, subtype=sound.subtype)
        cells = Observer(found).observe(samples)
    except InputError:  # undetected, or off the levels that a damaged header declares
        return "undetected"
    assert cells.violation(samples) == 0.0, f"outside of what is detected: {found}"
    return "detected"


def check_standard_input(content, sound):
    """Check that the same bytes on standard input are read, or refused, as the file was."""
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(content))
    try:
        np.testing.assert_array_equal(read("-").samples, sound.samples if sound else None)
    except AudioError:
        assert sound is None, "read as a file, but not from standard input"
    finally:
        sys.stdin = before
    return "on standard input"


def run_batch(first, count):
    """Try one batch; print the outcomes as JSON, or the number of the input that failed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.register(signal.SIGPROF, chain=True)
    files = originals()
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "damaged", Path(folder) / "out"
        out.mkdir()
        for index in range(first, first + count):
            content = damaged(index, files)
            file.write_bytes(content)
            print(f"input {index}", file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            sound = outcome(file, out)
            counts["read" if sound else "refused"] += 1
            if sound:
                counts[check_cells(sound)] += 1
            if index % 10 == 0:
                counts[check_standard_input(content, sound)] += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
    print(json.dumps(counts))


def main():
    """Try as many inputs as asked for, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        run_batch(arguments.first, arguments.count)
        return
    counts = collections.Counter()
    failures = 0
    for first in range(arguments.first, arguments.first + arguments.count, BATCH):
        size = min(BATCH, arguments.first + arguments.count - first)
        command = [sys.executable, __file__, str(size), "--first", str(first), "--batch"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0:
            counts.update(json.loads(done.stdout))
        else:
            failures += 1
            print(f"a batch ended with {done.returncode}:\n" + "\n".join(done.stderr.splitlines()[-30:]))
    tried = counts["read"] + counts["refused"]
    print(f"{tried} damaged files: {counts['read']} read, {counts['refused']} refused")
    print(f"{counts['on standard input']} also on standard input, {counts['detected']} quantizers detected")
    print(f"{failures} batches failed")
    sys.exit(1 if failures or tried != arguments.count else 0)


if __name__ == "__main__":
    main()
