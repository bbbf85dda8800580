"""Links that leave docs/, and pages that are files of other folders.

Pages link to files of the repository by their paths, as whoever reads them there needs it. On the site a link
to a page goes to that page, one to another file hands it out, and of one to a folder the text is left.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
WHOLE_PAGE = re.compile(r"```\{include\} (\S+)\n```\s*")


def page_files(docs: Path) -> dict[Path, Path]:
    """Return the files elsewhere that are pages, and the page that each is."""
    found = {}
    for page in docs.glob("*.md"):
        if including := WHOLE_PAGE.fullmatch(page.read_text()):
            found[(docs / including[1]).resolve()] = page
    return found


def adapted(text: str, origin: Path, page: Path, docs: Path) -> str:
    """Return a text of one file with links that are right on a page."""
    pages = page_files(docs)

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        path = (origin.parent / target).resolve()
        if path.is_dir():
            return label
        path = pages.get(path, path)
        return f"[{label}]({os.path.relpath(path, page.parent)}{anchor})"

    return LINK.sub(link, text)


def read(app: Sphinx, page_name: str, source: list[str]) -> None:
    """Take the text of a page from where it is, and lead its links on."""
    docs = Path(app.srcdir)
    page = Path(app.env.doc2path(page_name))
    including = WHOLE_PAGE.fullmatch(source[0])
    origin = (docs / including[1]).resolve() if including else page
    text = origin.read_text() if including else source[0]
    if including:
        app.env.note_dependency(str(origin), docname=page_name)
    source[0] = adapted(text, origin, page, docs)


def setup(app: Sphinx) -> dict[str, Any]:
    """Read every page so."""
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
