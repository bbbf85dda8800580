import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def ieee_folder():
    """The paper's corpus, which this project may use but not hand on."""
    beside = Path(__file__).parents[2].parent / "shared" / "data" / "ieee"
    folder = Path(os.environ.get("PDRN_IEEE", beside))
    if not folder.is_dir():
        pytest.skip("the IEEE corpus is not here; name its folder in PDRN_IEEE")
    return folder
