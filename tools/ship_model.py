"""Bundle a trained model with the package, in 16 bits, with its model card.

For example:
  python tools/ship_model.py runs/NAME/best.safetensors speech-large --card card.md --most-bytes 12000000 \
    --data "LibriSpeech, CC BY 4.0 (Panayotov et al. 2015)" \
    --data "festvox-ru, BSD-like licence (N. V. Shmyrev 2005)" --licence "CC BY 4.0"
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pdrn.nets import SpectralPrimalDual
from pdrn.nets.files import load, save
from pdrn.restoration import registry
from pdrn.restoration.registry import read_model


def ship(
    checkpoint: Path, name: str, card: str, data: Sequence[str], licence: str, most_bytes: int, folder: Path
) -> Path:
    """Write NAME.safetensors and NAME.md into a folder; refuse a model that cannot be bundled."""
    network, provenance = load(checkpoint)
    if provenance.sample_rate_hz is None and not isinstance(network.architecture, SpectralPrimalDual):
        raise ValueError(f"{checkpoint} does not say what sample rate it is for; train it again")
    provenance = replace(provenance, data="; ".join(data) or provenance.data, licence=licence)
    if not provenance.data:
        raise ValueError("whoever made the data has to be named; pass --data")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (name + registry.SUFFIX)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        file = Path(temporary) / target.name
        save(file, network, provenance, half=True)
        read_model(file)  # refuses one that does not restore sound of any length, in any depth
        size = file.stat().st_size
        if size > most_bytes:
            raise ValueError(f"{name} has {size} bytes, {most_bytes} are allowed; train a smaller network")
        os.replace(file, target)
    target.with_suffix(".md").write_text(card)
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and ship."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="best.safetensors of a run")
    parser.add_argument("name")
    parser.add_argument("--card", type=Path, required=True, help="Markdown: data, recipe, figures, limits")
    parser.add_argument("--data", action="append", default=[], help="attribution; may be repeated")
    parser.add_argument("--licence", required=True, help="of the weights")
    parser.add_argument("--most-bytes", type=int, default=12_000_000)
    parser.add_argument("--folder", type=Path, default=registry.FOLDER)
    given = parser.parse_args(arguments)
    try:
        card = given.card.read_text()
        print(
            ship(
                given.checkpoint, given.name, card, given.data, given.licence, given.most_bytes, given.folder
            )
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
