"""The command ``pdrn restore``."""

from __future__ import annotations

from typing import Annotated

import typer

from pdrn.cli.options import (
    TEMPLATE,
    Address,
    Bits,
    ClipAt,
    Converter,
    ConverterOption,
    Encoding,
    EngineName,
    EngineOption,
    LawOption,
    Method,
    Overwrite,
    Step,
    SubtypeOption,
    described,
)

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
            "-o", "--output", help="File or folder; - for standard output. Beside the input unless given."
        ),
    ] = None,
    bits: Bits = None,
    step: Step = None,
    law: LawOption = None,
    clip_at: ClipAt = None,
    converter: ConverterOption = Converter.rounds,
    method: Annotated[
        Method,
        typer.Option(
            help="A network, Chambolle-Pock (cp), their mean (both), or that where a network fits (auto)."
        ),
    ] = Method.auto,
    model: Annotated[
        str | None,
        typer.Option(help="Which network: a name of `pdrn models list`, or a file.", metavar="NAME|PATH"),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10000,
            help="Iterations of Chambolle-Pock, instead of what is tuned; no network, unless --method both.",
        ),
    ] = None,
    mix: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="From 0, the centres of the cells, to 1, all of it.")
    ] = 1.0,
    subtype: SubtypeOption = None,
    filename: Annotated[
        str, typer.Option(help="Names of output files, from those of the inputs.")
    ] = TEMPLATE,
    recursive: Annotated[bool, typer.Option("--recursive", help="Look into folders in folders.")] = False,
    overwrite: Overwrite = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave out inputs whose output is there already.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read what was written and prove every sample in its cell.")
    ] = False,
    gaps: Annotated[bool, typer.Option("--gaps", help="Fill in missing samples, NaN among floats.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Files at once, each in a process of its own; 1 unless given, on a cluster one per CPU.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads per file.")] = 1,
    manifest: Annotated[
        str | None,
        typer.Option(
            help="Note what is done in this file; what it proves to be done is left out.", metavar="FILE"
        ),
    ] = None,
    engine: EngineOption = EngineName.local,
    address: Address = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="INPUT and a second argument, OUTPUT, carry samples without a header."),
    ] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Sample rate of raw samples in hertz.")] = None,
    channels: Annotated[
        int | None, typer.Option(min=1, help="Interleaved channels of raw samples; one unless given.")
    ] = None,
    encoding: Annotated[
        Encoding | None, typer.Option(help="How raw input is stored; s16le unless given.")
    ] = None,
    output_encoding: Annotated[
        Encoding | None, typer.Option(help="How raw output is stored; f32le unless given, not in G.711.")
    ] = None,
) -> None:
    """Restore quantized sound: every sample stays in its cell.

    The levels are detected unless given by --bits, --step, --law or --clip-at. Exit code 1 says that some
    file failed, the others are done; 2 that the command was wrong; 130 that it was interrupted.
    """
    description = described(bits, step, law, clip_at, converter)
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
            raise typer.BadParameter(f"{name} {advice}")
    if address is not None and engine is not EngineName.ray:
        raise typer.BadParameter("--address is of a Ray cluster; add --engine ray")
    from pdrn.restoration.restorer import Restorer

    try:
        restorer = Restorer(model, iterations, mix, threads, method.value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if raw:
        from pdrn.audio.files import RawFormat
        from pdrn.cli.batch import restore_raw

        if rate is None:
            raise typer.BadParameter("raw samples do not tell their rate; pass --rate")
        if output_encoding in (Encoding.mulaw, Encoding.alaw):
            raise typer.BadParameter(
                "G.711 is too coarse to stay in the cells; choose another --output-encoding"
            )
        if len(inputs) > 2:
            raise typer.BadParameter("--raw takes INPUT and OUTPUT; restore one after the other")
        read_as = RawFormat(str(encoding or Encoding.s16le), channels or 1)
        write_as = RawFormat(str(output_encoding or Encoding.f32le), channels or 1)
        try:
            levels = description.levels(read_as.subtype)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        places = inputs[0], inputs[1] if len(inputs) == 2 else "-"
        restore_raw(restorer, levels, rate, (read_as, write_as), places, gaps, overwrite, quiet)
        return
    from pdrn.cli.batch import Engine, Mistake, Settings, plan, run_all
    from pdrn.errors import printable

    if overwrite and skip_existing:
        raise typer.BadParameter("--overwrite and --skip-existing contradict each other; leave one out")
    try:
        # Peaks that were cut off rise beyond full scale, which not every format can hold.
        holds = str(subtype) if subtype else "FLOAT" if clip_at is not None else None
        tasks = plan(inputs, output, filename, recursive, holds)
    except Mistake as mistake:
        raise typer.BadParameter(printable(mistake)) from mistake
    if json and any(task.target == "-" for task in tasks):
        raise typer.BadParameter("standard output carries the sound; leave --json out, or name a file")
    if verify and any("-" in (task.source, task.target) for task in tasks):
        raise typer.BadParameter("what goes through a pipe cannot be read again; leave --verify out")
    if any("-" in (task.source, task.target) for task in tasks):
        for name, given in {"--manifest": manifest is not None, "--engine": engine is EngineName.ray}.items():
            if given:
                raise typer.BadParameter(f"{name} is for files, and not for pipes; leave it out")
    settings = Settings(
        restorer,
        description,
        subtype and str(subtype),
        overwrite,
        skip_existing,
        verify,
        gaps,
        proves=manifest is not None,
    )
    worker = Engine(jobs, engine is EngineName.ray, address)
    if not run_all(tasks, settings, worker, manifest, json=json, quiet=quiet):
        raise typer.Exit(1)
