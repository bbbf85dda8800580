"""What a package index shows: the README without pictures and links that lead into the repository.

An index has no other file of it, so that they would be broken there. Hatch calls this while it builds.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")
COMMENT = re.compile(r"<!--.*?-->\n")


def package_page(readme: str) -> str:
    """Return the README as it can stand alone."""
    for unwanted in (COMMENT, PICTURE):
        readme = unwanted.sub("", readme)
    return LINK.sub(r"\1", readme)


class PackagePage(MetadataHookInterface):
    """Gives the project its long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme``."""
        text = package_page((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
