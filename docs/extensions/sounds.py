"""The directive ``sounds``: the package's own speech, quantized and restored while the site is built."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from pdrn.audio.corpus import speech
from pdrn.audio.files import write
from pdrn.audio.metrics import snr
from pdrn.audio.quantizers import MidRise
from pdrn.restoration.restorer import Restorer

BITS = 4
HEARD_SECONDS = slice(6, 12)
FOLDER = "sounds"


@dataclass(frozen=True)
class Heard:
    """A sound in a file, what it is, and its distance from the original."""

    file: str
    name: str
    snr: float | None


def made(folder: Path) -> Iterator[Heard]:
    """Quantize some seconds of speech, restore them, and leave the sounds in a folder."""
    samples, rate = speech()
    samples = samples[HEARD_SECONDS.start * rate : HEARD_SECONDS.stop * rate]
    quantizer = MidRise(BITS, full_scale=True)
    cells = quantizer.cells(quantizer.encode(samples))
    restorers = {
        "cp": ("restored by Chambolle-Pock", Restorer(method="cp")),
        "network": ("restored by the network <code>speech-large</code>", Restorer(method="network")),
        "both": ("restored by both, as <code>pdrn restore</code> does", Restorer()),
    }
    write(folder / "original.wav", samples, rate, subtype="PCM_16", overwrite=True)
    yield Heard("original.wav", "original", None)
    write(folder / "quantized.wav", cells.centre, rate, cells, subtype="PCM_16", overwrite=True)
    yield Heard("quantized.wav", f"quantized to {BITS} bits", snr(samples, cells.centre))
    for name, (words, restorer) in restorers.items():
        restored = restorer.restore_cells(cells, rate, quantizer.step)
        write(folder / f"{name}.wav", restored, rate, cells, subtype="PCM_16", overwrite=True)
        yield Heard(f"{name}.wav", words, snr(samples, restored))


class Sounds(Directive):
    """A table of sounds that can be played."""

    def run(self) -> list[nodes.Node]:
        """Make the sounds and return the table."""
        environment = self.state.document.settings.env
        folder = Path(environment.app.doctreedir) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        environment.note_dependency(__file__)
        rows = "".join(
            f'<tr><td>{heard.name}</td><td class="figure">{f"{heard.snr:.1f} dB" if heard.snr else ""}</td>'
            f'<td><audio controls preload="none" src="{FOLDER}/{heard.file}"></audio></td></tr>\n'
            for heard in made(folder)
        )
        head = "<tr><th>sound</th><th>SNR</th><th></th></tr>"
        table = (
            f'<table class="sounds docutils align-default"><thead>{head}</thead><tbody>{rows}</tbody></table>'
        )
        return [nodes.raw("", f'<div class="table-wrapper">{table}</div>', format="html")]


def hand_out(app: Sphinx, failure: Exception | None) -> None:
    """Put the sounds beside the page that plays them."""
    made_folder = Path(app.doctreedir) / FOLDER
    target = Path(app.outdir) / FOLDER
    if failure is None and made_folder.is_dir():
        target.mkdir(exist_ok=True)
        for sound in made_folder.glob("*.wav"):
            (target / sound.name).write_bytes(sound.read_bytes())


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer the directive."""
    app.add_directive("sounds", Sounds)
    app.connect("build-finished", hand_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
