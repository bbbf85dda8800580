"""Routes keep their OpenAPI description, and serve only their own pages and programs."""

import sys
from unittest import mock
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance  # no schema describes sound
from tests.cli.running import pdrn
from tests.web.serving import RATE, samples_of, tone, wav
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from pdrn.restoration import registry

SOUND = wav(tone(0.05))

ADDRESSES = {
    ("GET", "/api/models"),
    ("GET", "/api/sample"),
    ("POST", "/api/restore"),
    ("POST", "/api/explore"),
    ("POST", "/api/layers"),
}


@pytest.fixture(scope="module")
def description(server):
    return schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")


def test_openapi_describes_all_routes(description):
    found = {each.ok() for each in description.get_all_operations()}
    assert {(each.method.upper(), each.path) for each in found} == ADDRESSES


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), sorted(ADDRESSES))
def test_routes_keep_their_openapi_description(description, method, path):
    """For any settings, with any body and with a sound."""

    @given(case=description[path][method].as_strategy())
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    def keeps_it(case):
        case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])
        if method == "POST":
            case.body = SOUND
            case.query.pop("method", None)
            case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])

    keeps_it()


def test_offer_lists_methods_without_paths(server):
    offer = requests.get(f"{server.url}/api/models", timeout=10).json()
    kinds = {each["name"]: each["kind"] for each in offer["methods"]}
    networks = dict.fromkeys([*registry.names(), "tiny"], "network")
    assert kinds == {"auto": "automatic", **networks, "cp": "solver"}
    assert str(server.folder) not in str(offer)
    assert set(offer["methods"][0]) == {"name", "title", "kind", "sample_rate_hz"}


def test_the_sample_is_speech(server):
    content = requests.get(f"{server.url}/api/sample", timeout=10).content
    assert samples_of(content).shape == (6 * RATE,)


def get(server, path="/api/models", **headers):
    return requests.get(f"{server.url}{path}", headers=headers, timeout=10)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "rebound.example"},
        {"Host": "rebound.example:8000", "Origin": "http://rebound.example:8000"},
        {"Host": "localhost.rebound.example"},
        {"Host": "[127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_refuses_other_hosts_and_origins(server, headers):
    answer = get(server, **headers)
    assert answer.status_code == 403
    assert answer.json()["detail"].endswith(".")


def test_accepts_its_own_names(server):
    port = server.url.rsplit(":", 1)[1]
    assert get(server, Origin=server.url).status_code == 200
    assert get(server, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status_code == 200
    assert get(server, Host="[::1]").status_code == 200
    assert get(server, "/", **{"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link leads here


def test_refuses_sockets_of_other_origins(server):
    address = server.url.replace("http", "ws") + "/api/live"
    with pytest.raises(InvalidStatus) as refusal:
        connect(address, origin="http://elsewhere.example")
    assert refusal.value.response.status_code == 403


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/models", "/nothing", "/api/openapi.json"])
def test_all_answers_have_security_headers(server, path):
    headers = get(server, path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "//etc/passwd", "/%00"]
)
def test_serves_no_files_outside_the_page(server, path):
    request = requests.Request("GET", server.url).prepare()
    request.url = server.url + path
    assert requests.Session().send(request, timeout=10).status_code in (400, 404)


def test_taken_port_is_named(server):
    result = pdrn("serve", "--port", urlsplit(server.url).port)
    assert result.returncode == 1
    assert "Address already in use" in result.stderr


def test_missing_extra_is_named():
    with mock.patch.dict(sys.modules, {"uvicorn": None}):
        result = pdrn("serve", "--port", 0)
    assert result.returncode == 1
    assert result.stderr == "pdrn: the page needs uvicorn: pip install 'pdrn[serve]'\n"


def test_refuses_two_networks_of_one_name(network, tmp_path):
    other = tmp_path / network.name
    other.write_bytes(network.read_bytes())
    result = pdrn("serve", "--port", 0, "--model", network, "--model", other)
    assert result.returncode == 1
    assert "tiny" in result.stderr
