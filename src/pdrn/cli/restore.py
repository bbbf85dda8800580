"""The command ``pdrn restore``."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Literal

import typer

from pdrn.cli.options import (
    TEMPLATE,
    Address,
    Encoding,
    EngineOption,
    Law,
    Method,
    Overwrite,
    Subtype,
    WorkerOption,
    refuse_given,
    usage_errors,
)
from pdrn.errors import UsageError

LevelOption = partial(typer.Option, rich_help_panel="Levels")
BatchOption = partial(typer.Option, rich_help_panel="Many files")
RawOption = partial(typer.Option, rich_help_panel="Raw samples")

EXAMPLES = """\b
For example:
  pdrn restore speech.wav
  pdrn restore old/ -o new/ --recursive --subtype PCM_24 --jobs 2
  pdrn restore old/ -o new/ --manifest new.jsonl --engine ray --address auto
  pdrn restore speech.wav --method cp -o sparse.wav
  pdrn restore call.wav -o - --law mulaw | play -
  arecord -t raw -f U8 -r 16000 |
    pdrn restore --raw --rate 16000 --encoding u8 --bits 8 - - > restored.f32"""

BATCH = ("filename", "jobs", "json", "manifest", "recursive", "skip-existing")
ONLY_FILES = (*BATCH, "engine", "output", "subtype", "verify")
ONLY_RAW = ("rate", "channels", "encoding", "output-encoding")
NOT_PIPES = ("verify", "manifest", "engine")
"""Pipes cannot be read twice, and are open on this machine only."""


def restore(
    context: typer.Context,
    inputs: Annotated[
        list[str], typer.Argument(help="Files, folders or globs; - for standard input.", metavar="INPUT...")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="File or folder; - for standard output; default: beside the input."
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, max=24, help="Bit depth: the step is 2/2^N; default: detected.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="A model (network), Chambolle-Pock (cp), their mean (both); auto: both to 9 bits, else cp."
        ),
    ] = "auto",
    model: Annotated[
        str | None,
        typer.Option(
            help="The model: a name of `pdrn models list`, or a file; default: by sample rate.",
            metavar="NAME|PATH",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1, max=10000, help="Iterations of Chambolle-Pock, alone or in the mean; default: tuned."
        ),
    ] = None,
    mix: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="From 0, the centres of the cells, to 1, the restoration.")
    ] = 1.0,
    subtype: Annotated[
        Subtype | None, typer.Option(help="Type of output samples; default: deeper than the input.")
    ] = None,
    overwrite: Overwrite = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the output back and prove every sample in its cell.")
    ] = False,
    step: Annotated[float | None, LevelOption(help="Distance of two levels, instead of --bits.")] = None,
    law: Annotated[Law | None, LevelOption(help="Law of G.711, instead of --bits.")] = None,
    clip_at: Annotated[
        float | None,
        LevelOption(help="Magnitude at which samples are clipped (full scale is 1); default: nowhere."),
    ] = None,
    converter: Annotated[
        Literal["rounds", "truncates"],
        LevelOption(help="Whether samples were rounded to the nearest level or truncated to the one below."),
    ] = "rounds",
    gaps: Annotated[
        bool, LevelOption("--gaps", help="Fill in missing samples, NaN in files of floats.")
    ] = False,
    recursive: Annotated[bool, BatchOption("--recursive", help="Search folders in folders.")] = False,
    filename: Annotated[str, BatchOption(help="Names of the outputs.")] = TEMPLATE,
    skip_existing: Annotated[
        bool, BatchOption("--skip-existing", help="Skip inputs whose output exists.")
    ] = False,
    manifest: Annotated[
        str | None,
        BatchOption(
            help="Record finished files in this file, and skip those that it proves to be done.",
            metavar="FILE",
        ),
    ] = None,
    json: Annotated[bool, BatchOption("--json", help="Print one JSON object per file.")] = False,
    quiet: Annotated[bool, BatchOption("--quiet", help="Print errors only.")] = False,
    jobs: Annotated[
        int | None,
        WorkerOption(
            min=1, help="Files at a time, each in its own process; default: 1, on a cluster one per CPU."
        ),
    ] = None,
    threads: Annotated[int, WorkerOption(min=1, help="Threads per file.")] = 1,
    engine: EngineOption = "local",
    address: Address = None,
    raw: Annotated[
        bool, RawOption("--raw", help="INPUT and a second argument, OUTPUT, carry samples without a header.")
    ] = False,
    rate: Annotated[int | None, RawOption(min=1, help="Sample rate in Hz.")] = None,
    channels: Annotated[int, RawOption(min=1, help="Interleaved channels.")] = 1,
    encoding: Annotated[Encoding, RawOption(help="Encoding of the input.")] = "s16le",
    output_encoding: Annotated[Encoding, RawOption(help="Encoding of the output, not G.711.")] = "f32le",
) -> None:
    """Restore quantized sound: every sample stays in its cell.

    The quantizer is detected, or described by --bits, --step, --law and --clip-at. Exit codes: 1 if a file
    failed (the others are restored), 2 if the command was wrong, 130 if it was interrupted.
    """
    if raw:
        refuse_given(context, ONLY_FILES, "is for files; leave it or --raw out")
    else:
        refuse_given(context, ONLY_RAW, "is for raw samples; add --raw")
    if engine != "ray":
        refuse_given(context, ["address"], "is for a Ray cluster; add --engine ray")
    if skip_existing:
        refuse_given(context, ["overwrite"], "contradicts --skip-existing; leave one out")
    from pdrn.audio.detection import QuantizerOptions
    from pdrn.restoration.restorer import Restorer

    with usage_errors():
        options = QuantizerOptions(bits, step, law, clip_at, truncated=converter == "truncates")
        restorer = Restorer(model, iterations, mix, threads, method)
    if raw:
        from pdrn.audio.detection import choose_quantizer
        from pdrn.audio.files import RawFormat
        from pdrn.cli.batch import restore_raw
        from pdrn.restoration.methods import describe_method
        from pdrn.restoration.restorer import fit_output

        if rate is None:
            raise UsageError("raw samples have no header with a sample rate; pass --rate")
        if output_encoding in ("mulaw", "alaw"):
            raise UsageError("G.711 is too coarse to stay in the cells; choose another --output-encoding")
        if len(inputs) > 2:
            raise UsageError("--raw takes INPUT and OUTPUT; restore one after the other")
        read_as, write_as = RawFormat(encoding, channels), RawFormat(output_encoding, channels)
        with usage_errors():
            quantizer = choose_quantizer(None, options, read_as.subtype)
        quantizer = fit_output(quantizer, write_as.subtype, gaps=gaps, remedy="another --output-encoding")
        stream = restorer.stream_for(rate, quantizer)
        if not quiet:
            how, milliseconds = describe_method(stream.method, stream.model), 1000 * stream.latency_seconds
            print(f"restoring by {how}, at most {milliseconds:.0f} ms behind the input", file=sys.stderr)
        source, target = inputs if len(inputs) == 2 else (inputs[0], "-")
        restore_raw(stream, source, read_as, target, write_as, overwrite)
        return
    from pdrn.cli.batch import Settings, plan, restore_all
    from pdrn.workers import connect_ray

    # Restored peaks of clipped sound rise beyond full scale, which not every format can hold.
    planned = plan(inputs, output, filename, recursive, subtype or ("FLOAT" if clip_at is not None else None))
    if json and any(job.target == "-" for job in planned):
        raise UsageError("standard output carries the sound; leave --json out, or name a file")
    if any("-" in (job.source, job.target) for job in planned):
        refuse_given(context, NOT_PIPES, "is for files, and not for pipes; leave it out")
    settings = Settings(restorer, options, subtype, overwrite, skip_existing, verify, gaps)
    workers = min(jobs or 1, len(planned))
    with connect_ray(address, threads * workers) if engine == "ray" else nullcontext() as ray:
        if ray is not None and address is not None and jobs is None:
            workers = min(max(1, int(ray.cluster_resources().get("CPU", 1)) // threads), len(planned))
        succeeded = restore_all(planned, settings, workers, ray, manifest, json=json, quiet=quiet)
    if not succeeded:
        raise typer.Exit(1)
