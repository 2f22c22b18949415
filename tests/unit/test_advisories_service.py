"""OSV's service, played on loopback: batches, pages, failures, and answers that lie."""

import json
from typing import Any

import pytest

from support.advisories import OsvServer, advisory, affected, below, osv_server
from tfimg.advisories.match import AuditedPackage, make_python_package
from tfimg.advisories.service import OsvService
from tfimg.core.errors import NetworkError, UsageError
from tfimg.core.retry import RetryPolicy

IDNA = make_python_package("idna", "3.4")
SSL = AuditedPackage(ecosystem="Debian:12", name="openssl", version="3.0.14-1", installed="libssl3")
ABOUT_IDNA = advisory("GHSA-1", affected("idna", *below("3.7")))
ABOUT_SSL = advisory("DSA-1", affected("openssl", *below("3.0.15-1"), ecosystem="Debian:12"))
AT_ONCE = RetryPolicy(sleep=lambda _seconds: None)


def make_service(server: OsvServer) -> OsvService:
    return OsvService(server.url, retries=AT_ONCE)


def test_packages_are_queried_in_one_batch_and_the_advisories_are_read() -> None:
    other = advisory("GHSA-2", affected("idna", *below("3.0")))
    local = make_python_package("a", "1+mine")
    progress: list[tuple[int, int]] = []
    with osv_server(ABOUT_IDNA, ABOUT_SSL, other) as server:
        found = OsvService(f"{server.url}/v1/").find([IDNA, SSL, IDNA, local], lambda *now: progress.append(now))
        assert {package: [one.identifier for one in some] for package, some in found.items()} == {
            IDNA: ["GHSA-1"], SSL: ["DSA-1"],
        }  # fmt: skip
        assert server.requested[0][1]["queries"] == [
            {"package": {"ecosystem": "PyPI", "name": "idna"}, "version": "3.4"},
            {"package": {"ecosystem": "Debian:12", "name": "openssl"}, "version": "3.0.14-1"},
        ]
        assert sorted(path for path, _ in server.requested) == ["/v1/querybatch", "/v1/vulns/DSA-1", "/v1/vulns/GHSA-1"]
        assert progress == [(1, 2), (2, 2)]


def test_the_other_names_of_tensorflow_are_queried_and_what_is_known_is_not() -> None:
    cpu = make_python_package("tensorflow-cpu", "2.15.1")
    with osv_server(advisory("PYSEC-1", affected("tensorflow", *below("2.16")))) as server:
        assert [one.identifier for one in make_service(server).find([cpu])[cpu]] == ["PYSEC-1"]
    with osv_server(ABOUT_IDNA) as server:
        service = make_service(server)
        before, requested = service.find([IDNA]), len(server.requested)
        assert service.find([IDNA]) == before
        assert len(server.requested) == requested
        newer = make_python_package("idna", "3.5")
        assert service.find([IDNA, newer])[newer][0].identifier == "GHSA-1"
        assert [path for path, _ in server.requested[requested:]] == ["/v1/querybatch"]
        assert len(server.requested[-1][1]["queries"]) == 1


def test_a_batch_has_at_most_a_thousand_queries() -> None:
    many = [make_python_package(f"p{number}", "1") for number in range(2001)]
    about = advisory("A-1", affected("p2000", *below("2")), affected("p1000", *below("2")))
    with osv_server(about) as server:
        found = make_service(server).find(many)
        assert [len(body["queries"]) for _, body in server.requested if body] == [1000, 1000, 1]
        assert [package.name for package, some in found.items() if some] == ["p1000", "p2000"]


def test_pages_of_an_answer_are_followed() -> None:
    many = [advisory(f"A-{number}", affected("idna", *below("9"))) for number in range(7)]
    with osv_server(*many, page=3) as server:
        assert len(make_service(server).find([IDNA, SSL])[IDNA]) == 7
        requested = [body["queries"] for _, body in server.requested if body]
        assert [len(queries) for queries in requested] == [2, 1, 1]
        assert requested[2] == [{**requested[0][0], "page_token": "6"}]


def test_an_answer_of_a_token_alone_is_not_the_end() -> None:
    """As the API's documentation says of a query that took too long."""
    with osv_server(ABOUT_IDNA, tokens=["0"]) as server:
        assert len(make_service(server).find([IDNA])[IDNA]) == 1


def test_a_service_that_names_too_many_advisories_gets_no_more_requests() -> None:
    results = [
        {"vulns": [{"id": f"{name}-{number}"} for number in range(15_000)], "next_page_token": "next"}
        for name in ("A", "B")
    ]
    answer = json.dumps({"results": results}).encode()
    with osv_server(answers={"/v1/querybatch": (200, answer)}) as server:
        with pytest.raises(NetworkError, match="it names more than 20000 advisories"):
            make_service(server).find([IDNA, SSL])
        assert len(server.requested) == 1


def test_a_request_to_a_busy_service_is_repeated() -> None:
    with osv_server(ABOUT_IDNA, failures=4) as server:
        assert make_service(server).find([IDNA])[IDNA]
        assert [path for path, _ in server.requested] == ["/v1/querybatch"] * 5 + ["/v1/vulns/GHSA-1"]


def test_a_service_that_stays_busy_is_out_of_reach_or_refuses_is_an_error() -> None:
    for status, failures, message in ((503, 5, "HTTP status 503 Service Unavailable"), (400, 1, "with status 400")):
        with osv_server(ABOUT_IDNA, failures=failures, status=status) as server:
            with pytest.raises(NetworkError, match=message):
                make_service(server).find([IDNA])
            assert len(server.requested) == failures, "a refusal is not repeated"
    with pytest.raises(NetworkError, match="Cannot read advisories from"):
        OsvService("http://127.0.0.1:9", retries=AT_ONCE).find([IDNA])


QUERY, ADVISORY = "/v1/querybatch", "/v1/vulns/GHSA-1"


def affecting(**fields: Any) -> dict[str, Any]:
    return {"id": "GHSA-1", "affected": [fields]}


LIES: dict[str, tuple[str, int, Any]] = {
    "an error": (QUERY, 400, {}),
    "a redirect": (QUERY, 302, {}),
    "no answer": (QUERY, 200, {}),
    "fewer results": (QUERY, 200, {"results": []}),
    "an address as identifier": (QUERY, 200, {"results": [{"vulns": [{"id": "../../admin"}]}]}),
    "a long identifier": (QUERY, 200, {"results": [{"vulns": [{"id": "A" * 101}]}]}),
    "endless pages": (QUERY, 200, {"results": [{"next_page_token": "again"}]}),
    "a long token": (QUERY, 200, {"results": [{"next_page_token": "a" * 10_001}]}),
    "another advisory": (ADVISORY, 200, {"id": "GHSA-2"}),
    "an advisory that is not there": (ADVISORY, 404, {}),
    "no object": (ADVISORY, 200, []),
    "no identifier": (ADVISORY, 200, {}),
    "a terminal sequence as alias": (ADVISORY, 200, {"id": "GHSA-1", "aliases": ["\x1b[2J"]}),
    "many aliases": (ADVISORY, 200, {"id": "GHSA-1", "aliases": [f"B-{number}" for number in range(201)]}),
    "many packages": (ADVISORY, 200, {"id": "GHSA-1", "affected": [{}] * 2001}),
    "many ranges": (ADVISORY, 200, affecting(ranges=[{"type": "GIT"}] * 201)),
    "many events": (ADVISORY, 200, affecting(ranges=[{"type": "GIT", "events": [{}] * 2001}])),
    "many versions": (ADVISORY, 200, affecting(versions=["1"] * 20_001)),
    "a long version": (ADVISORY, 200, affecting(versions=["1" * 301])),
    "a number as version": (ADVISORY, 200, affecting(versions=[1])),
    "a huge advisory": (ADVISORY, 200, {"id": "GHSA-1", "details": "a" * (5 << 20)}),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_service_that_lies_is_refused(lie: tuple[str, int, Any]) -> None:
    path, status, document = lie
    with osv_server(ABOUT_IDNA, answers={path: (status, json.dumps(document).encode())}) as server:
        with pytest.raises(NetworkError) as caught:
            make_service(server).find([IDNA])
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 1000
        assert all(requested.startswith("/v1/") for requested, _ in server.requested)


@pytest.mark.parametrize("url", ["ftp://a", "https://", "https://user:word@host", "host", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an advisory service"):
        OsvService(url)
