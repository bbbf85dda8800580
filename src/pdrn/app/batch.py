"""Which files a command is about, and what becomes of each."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from pdrn.app.manifest import Proof
from pdrn.app.options import TEMPLATE
from pdrn.audio.files import SUFFIXES
from pdrn.audio.system import AudioError
from pdrn.audio.writing import FORMAT_OF_SUFFIX, format_of

_ONLY_INTEGERS = {".flac": ("PCM_S8", "PCM_16", "PCM_24")}


class Mistake(ValueError):
    """What a user asked for cannot be meant so."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to be made from another; "-" stands for a pipe."""

    source: str
    target: str
    makes_folder: bool = False
    """Whether the target's folder is to be made where there is none."""
    proof: Proof | None = None
    """What was noted when it was done before, if it was."""
    again: bool = False
    """Whether it was begun before, and nobody heard how it ended."""


def plan(
    inputs: Sequence[str], output: str | None, template: str, recursive: bool, subtype: str | None
) -> list[Job]:
    """Return the jobs for inputs that may be files, folders, globs or "-", and outputs of a subtype, if any.

    Folders are mirrored below the output. Files found there, or by a glob, that are outputs of others are
    not inputs too.
    """
    if "-" in inputs:
        if len(inputs) > 1:
            raise Mistake("standard input is one sound; give files apart from it")
        return [Job("-", _writable(output or "-", subtype))]
    found = [pair for given in inputs for pair in _found(given, recursive)]
    single = len(inputs) == 1 and [(Path(inputs[0]), Path())] == found
    if output == "-" and not single:
        raise Mistake("only one file can go to standard output; name a folder for the others")
    if single and output is not None and not (output.endswith(os.sep) or os.path.isdir(output)):
        if template != TEMPLATE:
            raise Mistake(f"{output} is the output's name; leave out how it is named, or name a folder")
        is_there = found[0][0].exists()  # if not, that is what is wrong, whatever the output is called
        return [Job(str(found[0][0]), _writable(output, subtype) if is_there else output)]
    if output is not None and not os.path.isdir(output) and _is_file_name(output):
        raise Mistake(f"{output} is a file; name a folder for several outputs")
    jobs = {}
    for path, place in found:
        folder = path.parent if output is None else Path(output) / place
        jobs[path] = folder / _named(template, path, subtype)
    sources: dict[Path, Path] = {}
    own_work = {os.path.realpath(target): source for source, target in jobs.items()}
    for source, target in jobs.items():
        origin = own_work.get(os.path.realpath(source), source)
        if origin != source:
            if source in map(Path, inputs):
                raise Mistake(
                    f"{source} is an input, and what {origin} would become; name a folder for outputs"
                )
            continue
        if target in sources:
            raise Mistake(f"{sources[target]} and {source} would both become {target}; name them apart")
        sources[target] = source
    makes_folder = output is not None
    return [Job(str(source), str(target), makes_folder) for target, source in sources.items()]


def _writable(output: str, subtype: str | None) -> str:
    """Return the name of an output, if it tells a format, and one that holds the subtype."""
    try:
        format_of(output)
    except AudioError as error:
        raise Mistake(str(error)) from error
    if not _holds(Path(output).suffix, subtype):
        raise Mistake(
            f"{output} would have to hold {subtype} and cannot; end it in .wav, or choose another --subtype"
        )
    return output


def _holds(ext: str, subtype: str | None) -> bool:
    return subtype is None or subtype in _ONLY_INTEGERS.get(ext.lower(), (subtype,))


def _is_file_name(output: str) -> bool:
    return os.path.isfile(output) or Path(output).suffix.lower() in FORMAT_OF_SUFFIX


def _found(given: str, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """Yield the sound files that an argument stands for, and each one's folder below it."""
    if os.path.isdir(given):
        pattern = "**/*" if recursive else "*"
        files = [path for path in sorted(Path(given).glob(pattern)) if _is_sound(path)]
        if not files:
            deeper = "" if recursive else "; --recursive looks into its folders too"
            raise Mistake(f"{given} holds no sound files{deeper}")
        yield from ((path, path.parent.relative_to(given)) for path in files)
    elif os.path.lexists(given) or not glob.has_magic(given):
        yield Path(given), Path()
    else:
        matches = sorted(glob.glob(given, recursive=recursive))
        if not matches:
            raise Mistake(f"{given} matches no file; check the pattern")
        yield from ((Path(match), Path()) for match in matches if not os.path.isdir(match))


def _is_sound(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _named(template: str, path: Path, subtype: str | None) -> str:
    ext = path.suffix if path.suffix.lower() in FORMAT_OF_SUFFIX else ".wav"
    if not _holds(ext, subtype):
        ext = ".wav"
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
        plain = all(field in ("stem", "ext") and not (spec or how) for _, field, spec, how in parts)
        name = template.format(stem=path.stem, ext=ext) if plain else ""
    except ValueError:
        name = ""
    if not name or os.sep in name:
        raise Mistake(f"a file name has the fields {{stem}} and {{ext}} and no folder, got {template}")
    return _writable(name, subtype)
