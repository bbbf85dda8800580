"""The command says what keeps it from serving."""

import sys
from unittest import mock
from urllib.parse import urlsplit

from tests.cli.running import pdrn


def test_a_port_that_is_taken_is_said(server):
    result = pdrn("serve", "--port", urlsplit(server.url).port)
    assert result.returncode == 1
    assert "Address already in use; choose another" in result.stderr


def test_a_missing_extra_is_named():
    with mock.patch.dict(sys.modules, {"uvicorn": None}):
        result = pdrn("serve", "--port", 0)
    assert result.returncode == 1
    assert result.stderr == "pdrn: the page needs uvicorn: pip install 'pdrn[serve]'\n"


def test_two_networks_of_one_name_are_refused(network, tmp_path):
    other = tmp_path / network.name
    other.write_bytes(network.read_bytes())
    result = pdrn("serve", "--port", 0, "--model", network, "--model", other)
    assert result.returncode == 1
    assert "two methods would be called tiny; rename the file" in result.stderr
