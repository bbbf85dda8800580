"""The server does what its description says, whatever it is sent."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance  # no schema says what is a sound
from tests.web.serving import tone, wav

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


def test_all_addresses_are_described(description):
    found = {each.ok() for each in description.get_all_operations()}
    assert {(each.method.upper(), each.path) for each in found} == ADDRESSES


@pytest.mark.parametrize(("method", "path"), sorted(ADDRESSES))
def test_the_description_is_kept(description, method, path):
    """For any settings, with any body, and with one that is a sound."""

    @given(case=description[path][method].as_strategy())
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    def keeps_it(case):
        case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])
        if method == "POST":
            case.body = SOUND
            case.query.pop("method", None)
            case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])

    keeps_it()
