"""`tfimg audit` with the real pip-audit, against an advisory service on loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from support.http_server import AnyMethod, serving
from tfimg.cli import main

IMAGE = "2.21.0-cpu-py3.11"


class Service(AnyMethod):
    """Speaks OSV's API, and knows one vulnerability: of every Werkzeug before 99."""

    def answer(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = query["package"]["name"] == "werkzeug"
        body = json.dumps({"vulns": [VULNERABILITY]} if known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


VULNERABILITY = {
    "id": "PYSEC-2026-1",
    "summary": "invented",
    "published": "2026-01-01T00:00:00Z",
    "modified": "2026-01-01T00:00:00Z",
    "affected": [
        {
            "package": {"name": "werkzeug", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}],
        }
    ],
}


@pytest.fixture
def service() -> Iterator[str]:
    with serving(Service, None) as address:
        yield f"http://{address}/v1/query"


def test_an_advisory_is_reported_with_its_fix_and_its_images(service: str, capsys) -> None:
    assert main(["audit", IMAGE, "--osv-url", service, "--json"], os.environ) == 1
    told, error = map(json.loads, capsys.readouterr().out.splitlines())
    (advisory,) = told["advisories"]
    assert (advisory["name"], advisory["fixed"], advisory["images"]) == ("werkzeug", ["99"], [IMAGE])
    assert told["audited"] > 30
    assert error["error"] == "VulnerablePackage"


def test_a_service_out_of_reach_is_no_good_news(capsys) -> None:
    assert main(["audit", IMAGE, "--osv-url", "http://127.0.0.1:9/v1/query"], os.environ) == 11
    ended = capsys.readouterr()
    assert "No advisory was read, so nothing is known about vulnerabilities" in ended.err
    assert ended.out == ""
