"""What a study found, as files beside its runs: tables as JSON, an example as tensors."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from pdrn.audio.placing import whole_or_gone
from pdrn.audio.system import printable
from pdrn.nets.tensors import digest, opened, require_undamaged
from pdrn.study.runs import runs_in
from pdrn.study.tables import Setting

Arrays = dict[str, np.ndarray[Any, Any]]

FACTS_KEY = "pdrn example"


def save_study(out: str | os.PathLike[str], setting: Setting, found: dict[str, Any]) -> None:
    """Keep what was measured about a setting, beside what is there already."""
    path = Path(out) / f"study-{setting.name}.json"
    _save_table(path, load_study(path) | {"setting": dataclasses.asdict(setting)} | found)


def with_known_hearing(
    table2: dict[str, Any], out: str | os.PathLike[str], setting: Setting
) -> dict[str, Any]:
    """Return a Table 2 with PESQ and STOI that are known of the same methods: they take long to measure.

    A method with the same error to the last bit is taken for the same.
    """
    known = load_study(Path(out) / f"study-{setting.name}.json").get("table2", {"rows": []})["rows"]
    heard = {(row["method"], row["mse"]): {name: row.get(name) for name in ("pesq", "stoi")} for row in known}
    rows = [
        row
        | {
            name: value
            for name, value in heard.get((row["method"], row["mse"]), {}).items()
            if row[name] is None
        }
        for row in table2["rows"]
    ]
    return table2 | {"rows": rows}


def load_study(path: Path) -> dict[str, Any]:
    """Return what was measured about a setting, nothing if that was not done yet."""
    return _load_table(path) if path.exists() else {}


def save_comparison(out: str | os.PathLike[str], kind: str, found: dict[str, Any]) -> str:
    """Keep what is known of a comparison, beside those in which something else was asked; return its name."""
    Path(out).mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{digest(found['asked'])[:8]}"
    _save_table(Path(out) / f"comparison-{name}.json", found)
    return name


def known_steps(
    out: str | os.PathLike[str], asked: dict[str, Any], measure: Callable[[], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return how long each network of a comparison is trained: measured once, so that it can go on."""
    path = Path(out) / f"steps-{digest(asked)[:16]}.json"
    if not path.exists():
        Path(out).mkdir(parents=True, exist_ok=True)
        _save_table(path, {"asked": asked, "steps": measure()})
    return tuple(_load_table(path)["steps"])


def load_comparisons(out: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return what is known of the comparisons in a folder, by name: that of their kind comes first."""
    paths = sorted(Path(out).glob("comparison-*.json"))
    return {path.stem.removeprefix("comparison-"): _load_table(path) for path in paths}


def publish(runs: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write what was found to another folder, without networks and sound: these may be large, or not be free.

    Of every run that is done its record and its log, and all tables: what a report is made of, but for its
    example.
    """
    out = Path(out)
    for run in runs_in(runs):
        if run.has_figures:
            run.publish(out / run.folder.name)
    for path in (*Path(runs).glob("study-*.json"), *Path(runs).glob("comparison-*.json")):
        _save_table(out / path.name, _load_table(path))


def _save_table(path: Path, contents: dict[str, Any]) -> None:
    contents = json.loads(json.dumps(contents))  # as it is read again
    contents["sha256"] = digest(contents)
    with whole_or_gone(path, overwrite=True) as stream:
        stream.write(json.dumps(contents, indent=1).encode())


def _load_table(path: Path) -> dict[str, Any]:
    try:
        contents: dict[str, Any] = json.loads(path.read_bytes())
        if not isinstance(contents, dict):
            raise ValueError("it is no table")
        require_undamaged(contents, always=True)
        return contents
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error


def save_example(
    out: str | os.PathLike[str], setting: Setting, arrays: Arrays, chosen: Mapping[str, str]
) -> None:
    """Keep an example, for the figures, and by which runs it was restored."""
    facts: dict[str, Any] = {"chosen": dict(chosen)}
    facts["sha256"] = digest(facts, arrays)
    with whole_or_gone(Path(out) / f"study-{setting.name}.safetensors", overwrite=True) as stream:
        stream.write(safetensors.numpy.save(arrays, {FACTS_KEY: json.dumps(facts)}))


def load_example(path: Path) -> tuple[Arrays, dict[str, str]] | None:
    """Return the example and by which runs it was restored, None if there is none yet."""
    if not path.exists():
        return None
    try:
        with opened(path) as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            facts = json.loads((file.metadata() or {}).get(FACTS_KEY, "{}"))
            require_undamaged(facts, arrays, always=True)
        return arrays, dict(facts.get("chosen", {}))
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read ({printable(error)}); remove it and make it again")
