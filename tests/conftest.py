"""What all tests share: steady random examples, and the paper's corpus where it is at hand."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def ieee_folder():
    """The paper's corpus, which this project may use but not hand on."""
    beside = Path(__file__).parents[2] / "shared" / "data" / "ieee"
    folder = Path(os.environ.get("PDRN_IEEE", beside))
    if not folder.is_dir():
        pytest.skip("the IEEE corpus is not here; name its folder in PDRN_IEEE")
    return folder
