"""Pages: sections of tables and pictures, as Markdown or as one HTML file that needs no other."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

TITLE = "Primal-dual networks: tables and figures"
"""What a report is called."""


@dataclass(frozen=True)
class Compared:
    """A figure, and the paper's; either may be missing."""

    here: float | None
    paper: float | None = None
    relative: bool = True
    """Whether the difference is in per cent, and less is better; else it is as it is, and more is better."""
    is_learned: bool = True
    """Whether it can be better or worse: what learns nothing differs by its data alone."""

    @property
    def value(self) -> str:
        """The figure itself."""
        return "" if self.here is None else f"{self.here:.2f}"

    @property
    def comparison(self) -> str:
        """The paper's figure and the difference."""
        if self.paper is None:
            return ""
        if self.here is None:
            return f"{self.paper:.2f}"
        if self.relative:
            return f"{self.paper:.2f}, {round(100 * (self.here / self.paper - 1)):+} %"
        return f"{self.paper:.2f}, {self.here - self.paper:+.2f}"

    @property
    def is_better(self) -> bool | None:
        """Whether it is better than the paper's by more than rounding; None where that cannot be said."""
        if self.here is None or self.paper is None or not self.is_learned:
            return None
        if abs(self.here - self.paper) < 0.005:
            return None
        return (self.here < self.paper) is self.relative


@dataclass(frozen=True)
class Grid:
    """A table."""

    caption: str
    header: list[str]
    rows: list[list[str | Compared]]


@dataclass(frozen=True)
class Picture:
    """A figure: its file beside a Markdown page, and its SVG in base64 for a page of its own."""

    caption: str
    file: str
    svg: str


@dataclass(frozen=True)
class Section:
    """A heading, a sentence, and what follows."""

    title: str
    text: str
    parts: Sequence[Grid | Picture]


def as_markdown(sections: Sequence[Section]) -> str:
    """Return sections as Markdown."""
    lines: list[str] = []
    for section in sections:
        lines += [f"## {section.title}", "", section.text, ""]
        for part in section.parts:
            if isinstance(part, Picture):
                lines += [f"![{part.caption}]({part.file})", "", part.caption, ""]
                continue
            lines += [part.caption, ""]
            lines += [_row(part.header), _row(["---"] * len(part.header))]
            lines += [_row([_plain(cell) for cell in row]) for row in part.rows]
            lines.append("")
    return "\n".join(lines)


def as_html(sections: Sequence[Section]) -> str:
    """Return sections as one page."""
    body: list[str] = []
    for section in sections:
        body.append(f"<section><h2>{html.escape(section.title)}</h2><p>{html.escape(section.text)}</p>")
        for part in section.parts:
            caption = html.escape(part.caption)
            if isinstance(part, Picture):
                source = f"data:image/svg+xml;base64,{part.svg}"
                body.append(
                    f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
                )
                continue
            head = "".join(f"<th>{html.escape(cell)}</th>" for cell in part.header)
            rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in part.rows)
            body.append(
                f'<div class="wide"><table><caption>{caption}</caption>'
                f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
            )
        body.append("</section>")
    grids = [part for section in sections for part in section.parts if isinstance(part, Grid)]
    figures = [cell for grid in grids for row in grid.rows for cell in row if isinstance(cell, Compared)]
    if any(figure.paper is not None for figure in figures):
        body.insert(0, _BESIDE_THE_PAPERS)
    return _PAGE.replace("TITLE", TITLE).replace("BODY", "\n".join(body))


def duration(seconds: float) -> str:
    """Return a time in words."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(cell: str | Compared) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.value} ({cell.comparison})".strip() if cell.comparison else cell.value


def _cell(cell: str | Compared) -> str:
    if isinstance(cell, str):
        return f"<td>{html.escape(cell)}</td>"
    how = {None: "", True: ' class="better"', False: ' class="worse"'}[cell.is_better]
    return f"<td{how}><b>{cell.value}</b><small>{html.escape(cell.comparison)}</small></td>"


_BESIDE_THE_PAPERS = """<p>Under a figure stand the paper's and the difference to it: green where a network is
better, red where it is worse.</p>"""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; --line: #d5d9df; --faint: #68707c; --better: #11703c; --worse: #a8321f }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a404a; --faint: #9aa3b0; --better: #5fc88c; --worse: #ee8b78 }
  figure img { background: #fff; border-radius: 6px; padding: 6px }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 3rem }
.wide { overflow-x: auto; margin: 1.5rem 0 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem }
caption, figcaption { text-align: left; color: var(--faint); font-size: .85rem; padding: .4rem 0 }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
td small { display: block; color: var(--faint) }
td.better small { color: var(--better) } td.worse small { color: var(--worse) }
figure { margin: 2rem 0 } figure img { width: 100%; box-sizing: border-box }
</style>
<h1>TITLE</h1>
BODY
</html>
"""
