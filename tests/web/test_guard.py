"""Pages of other origins are refused, by whatever name they come, and answers carry security headers."""

import pytest
import requests
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect


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
def test_others_are_refused(server, headers):
    answer = get(server, **headers)
    assert answer.status_code == 403
    assert answer.json()["detail"].endswith(".")


def test_this_server_by_its_own_names(server):
    port = server.url.rsplit(":", 1)[1]
    assert get(server, Origin=server.url).status_code == 200
    assert get(server, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status_code == 200
    assert get(server, Host="[::1]").status_code == 200
    assert get(server, "/", **{"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link leads here


def test_a_socket_of_another_origin_is_refused(server):
    address = server.url.replace("http", "ws") + "/api/live"
    with pytest.raises(InvalidStatus) as refusal:
        connect(address, origin="http://elsewhere.example")
    assert refusal.value.response.status_code == 403


@pytest.mark.parametrize("path", ["/", "/main.js", "/api/models", "/nothing", "/api/openapi.json"])
def test_security_headers_are_everywhere(server, path):
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
def test_nothing_but_the_page_is_handed_out(server, path):
    request = requests.Request("GET", server.url).prepare()
    request.url = server.url + path
    assert requests.Session().send(request, timeout=10).status_code in (400, 404)
