"""The command ``pdrn restore``."""

from __future__ import annotations

from typing import Annotated

import typer

from pdrn.cli.options import (
    LEVELS,
    MANY_FILES,
    RAW,
    TEMPLATE,
    WORKERS,
    Address,
    Converter,
    Encoding,
    EngineName,
    EngineOption,
    Law,
    Method,
    Overwrite,
    Subtype,
    described,
    usage_errors,
)
from pdrn.errors import UsageError

EXAMPLES = """\b
For example:
  pdrn restore speech.wav
  pdrn restore old/ -o new/ --recursive --subtype PCM_24 --jobs 2
  pdrn restore old/ -o new/ --manifest new.jsonl --engine ray --address auto
  pdrn restore speech.wav --method cp -o sparse.wav
  pdrn restore call.wav -o - --law mulaw | play -
  arecord -t raw -f U8 -r 16000 |
    pdrn restore --raw --rate 16000 --encoding u8 --bits 8 - - > restored.f32"""


def restore(
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
        int | None,
        typer.Option(min=1, max=24, help="Bit depth: the step is 2/2^N; default: detected."),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="A network, Chambolle-Pock (cp), their mean (both); auto is both where a network fits, "
            "else cp."
        ),
    ] = Method.auto,
    model: Annotated[
        str | None,
        typer.Option(
            help="The network: a name of `pdrn models list`, or a file; default: by sample rate.",
            metavar="NAME|PATH",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10000,
            help="Iterations of Chambolle-Pock, alone or in the mean; default: tuned.",
        ),
    ] = None,
    mix: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="From 0, the centres of the cells, to 1, the restoration."),
    ] = 1.0,
    subtype: Annotated[
        Subtype | None, typer.Option(help="Type of output samples; default: deeper than the input.")
    ] = None,
    overwrite: Overwrite = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the output back and prove every sample in its cell.")
    ] = False,
    step: Annotated[
        float | None,
        typer.Option(help="Distance of two levels, instead of --bits.", rich_help_panel=LEVELS),
    ] = None,
    law: Annotated[
        Law | None, typer.Option(help="Law of G.711, instead of --bits.", rich_help_panel=LEVELS)
    ] = None,
    clip_at: Annotated[
        float | None,
        typer.Option(
            help="Samples are clipped at this magnitude (full scale is 1); default: they are not.",
            rich_help_panel=LEVELS,
        ),
    ] = None,
    converter: Annotated[
        Converter,
        typer.Option(
            help="Samples were rounded to the nearest level, or truncated to the one below.",
            rich_help_panel=LEVELS,
        ),
    ] = Converter.rounds,
    gaps: Annotated[
        bool,
        typer.Option(
            "--gaps", help="Fill in missing samples, NaN in files of floats.", rich_help_panel=LEVELS
        ),
    ] = False,
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Search folders in folders.", rich_help_panel=MANY_FILES)
    ] = False,
    filename: Annotated[
        str, typer.Option(help="Names of the outputs.", rich_help_panel=MANY_FILES)
    ] = TEMPLATE,
    skip_existing: Annotated[
        bool,
        typer.Option("--skip-existing", help="Skip inputs whose output exists.", rich_help_panel=MANY_FILES),
    ] = False,
    manifest: Annotated[
        str | None,
        typer.Option(
            help="Record finished files in this file, and skip those that it proves to be done.",
            metavar="FILE",
            rich_help_panel=MANY_FILES,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per file.", rich_help_panel=MANY_FILES)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print errors only.", rich_help_panel=MANY_FILES)
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Files at once, each in its own process; default: 1, on a cluster one per CPU.",
            rich_help_panel=WORKERS,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads per file.", rich_help_panel=WORKERS)] = 1,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="INPUT and a second argument, OUTPUT, carry samples without a header.",
            rich_help_panel=RAW,
        ),
    ] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Sample rate in Hz.", rich_help_panel=RAW)] = None,
    channels: Annotated[
        int | None, typer.Option(min=1, help="Interleaved channels; default: 1.", rich_help_panel=RAW)
    ] = None,
    encoding: Annotated[
        Encoding | None, typer.Option(help="Encoding of the input; default: s16le.", rich_help_panel=RAW)
    ] = None,
    output_encoding: Annotated[
        Encoding | None,
        typer.Option(help="Encoding of the output, not G.711; default: f32le.", rich_help_panel=RAW),
    ] = None,
) -> None:
    """Restore quantized sound: every sample stays in its cell.

    The quantizer is detected, unless --bits, --step, --law or --clip-at describe it. Exit codes: 1 if a file
    failed (the others are restored), 2 if the command was wrong, 130 if it was interrupted.
    """
    options = described(bits, step, law, clip_at, converter)
    for_files = {
        "--engine": engine is not EngineName.local,
        "--filename": filename != TEMPLATE,
        "--jobs": jobs is not None,
        "--json": json,
        "--manifest": manifest is not None,
        "--output": output is not None,
        "--recursive": recursive,
        "--skip-existing": skip_existing,
        "--subtype": subtype is not None,
        "--verify": verify,
    }
    for_raw = {
        "--rate": rate is not None,
        "--channels": channels is not None,
        "--encoding": encoding is not None,
        "--output-encoding": output_encoding is not None,
    }
    for name, given in (for_files if raw else for_raw).items():
        if given:
            advice = "is for files; leave it or --raw out" if raw else "is for raw samples; add --raw"
            raise UsageError(f"{name} {advice}")
    if address is not None and engine is not EngineName.ray:
        raise UsageError("--address is of a Ray cluster; add --engine ray")
    from pdrn.restoration.restorer import Restorer

    with usage_errors():
        restorer = Restorer(model, iterations, mix, threads, method.value)
    if raw:
        from pdrn.audio.detection import choose_quantizer
        from pdrn.audio.files import RawFormat
        from pdrn.cli.batch import restore_raw

        if rate is None:
            raise UsageError("raw samples do not tell their rate; pass --rate")
        if output_encoding in (Encoding.mulaw, Encoding.alaw):
            raise UsageError("G.711 is too coarse to stay in the cells; choose another --output-encoding")
        if len(inputs) > 2:
            raise UsageError("--raw takes INPUT and OUTPUT; restore one after the other")
        read_as = RawFormat(str(encoding or Encoding.s16le), channels or 1)
        write_as = RawFormat(str(output_encoding or Encoding.f32le), channels or 1)
        with usage_errors():
            quantizer = choose_quantizer(None, options, read_as.subtype)
        places = inputs[0], inputs[1] if len(inputs) == 2 else "-"
        restore_raw(restorer, quantizer, rate, (read_as, write_as), places, gaps, overwrite, quiet)
        return
    from pdrn.cli.batch import Engine, Settings, plan, restore_all

    if overwrite and skip_existing:
        raise UsageError("--overwrite and --skip-existing contradict each other; leave one out")
    # Restored peaks of clipped sound rise beyond full scale, which not every format can hold.
    stored = str(subtype) if subtype else None
    planned = plan(inputs, output, filename, recursive, stored or ("FLOAT" if clip_at is not None else None))
    if json and any(job.target == "-" for job in planned):
        raise UsageError("standard output carries the sound; leave --json out, or name a file")
    if any("-" in (job.source, job.target) for job in planned):
        if verify:
            raise UsageError("what goes through a pipe cannot be read again; leave --verify out")
        for name, given in {"--manifest": manifest is not None, "--engine": engine is EngineName.ray}.items():
            if given:
                raise UsageError(f"{name} is for files, and not for pipes; leave it out")
    settings = Settings(restorer, options, stored, overwrite, skip_existing, verify, gaps)
    workers = Engine(jobs, engine is EngineName.ray, address)
    if not restore_all(planned, settings, workers, manifest, json=json, quiet=quiet):
        raise typer.Exit(1)
