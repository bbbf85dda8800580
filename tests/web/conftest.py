"""One server for all tests of the page, with a tiny network on offer."""

import numpy as np
import pytest
from tests.cli.running import wait_until
from tests.nets.plans import disturbed
from tests.web.serving import RATE, serving, tone, wav

from pdrn.nets import ConvolutionalMap, PrimalDual
from pdrn.nets.files import Provenance, save


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    plan = PrimalDual(ConvolutionalMap(channels=20, window=24, hop=8), 3, "mix")
    save(path, disturbed(plan, 1, scale=0.02, dtype=np.float32), Provenance(unit="cell", sample_rate_hz=RATE))
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory, network):
    with serving(tmp_path_factory.mktemp("server"), "--model", network) as each:
        yield each


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server with tight limits: one request at a time, none waiting."""
    options = {"jobs": 1, "waiting": 0, "max-megabytes": 1, "max-seconds": 2, "time-limit": 3}
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    with serving(tmp_path_factory.mktemp("small"), *given) as server:
        wait_until(lambda: server.post("restore", wav(tone()), quantize_bits=4).status_code == 200)  # awake
        yield server
