"""The command ``pdrn demo``."""

from __future__ import annotations


def demo() -> None:
    """Quantize the speech that comes with the package, restore it, and show the gain."""
    from rich.console import Console
    from rich.table import Table

    from pdrn.app.demonstration import restorations

    table = Table(title="32 s of speech, restored by Chambolle-Pock over a Gabor frame")
    for heading in ("bits", "quantized", "restored", "gain", "outside its cells", "speed"):
        table.add_column(heading, justify="right")
    for row in restorations():
        table.add_row(
            str(row.bits),
            f"{row.quantized_snr:.2f} dB",
            f"{row.restored_snr:.2f} dB",
            f"{row.restored_snr - row.quantized_snr:+.2f} dB",
            f"by {row.violation:g}",
            f"{row.times_real_time:.0f}x real time",
        )
    Console().print(table)
