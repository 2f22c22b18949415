"""Locks turned over, and put into lists that pip-audit accepts."""

from __future__ import annotations

import os

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from tfimg.core.errors import NetworkError, TfimgError
from tfimg.recipe.audit import collect_pins, query_advisories, split_pins
from tfimg.recipe.lockfile import LockedPackage


def package(name: str, version: str) -> LockedPackage:
    return LockedPackage(name=name, version=version, sha256="0" * 64, appeared=None)


def test_a_pin_knows_the_images_that_install_it() -> None:
    locks = {
        "a": [package("six", "1.16.0"), package("idna", "3.4")],
        "b": [package("six", "1.17.0"), package("idna", "3.4")],
    }
    assert collect_pins(locks) == {
        ("six", "1.16.0"): frozenset({"a"}),
        ("six", "1.17.0"): frozenset({"b"}),
        ("idna", "3.4"): frozenset({"a", "b"}),
    }


def test_no_list_holds_a_package_twice_and_none_is_needless() -> None:
    pins = [("six", "1.16.0"), ("six", "1.17.0"), ("idna", "3.4"), ("idna", "3.5"), ("idna", "3.6")]
    assert split_pins(pins) == [["idna==3.4", "six==1.16.0"], ["idna==3.5", "six==1.17.0"], ["idna==3.6"]]


PROGRAM = """
import sys, pathlib
out = next(one for one in sys.argv if one.startswith("--output=")).removeprefix("--output=")
{action}
"""


def ask(action: str) -> None:
    """Audit one pin with a program that does this instead of asking anybody."""
    program = ["python3", "-c", PROGRAM.format(action=action)]
    query_advisories({("six", "1.16.0"): frozenset({"a"})}, program=program, service=[], env=os.environ)


def test_packages_that_were_all_skipped_are_not_audited() -> None:
    """pip-audit itself ends well here."""
    answer = '{"dependencies": [{"name": "six", "skip_reason": "not found"}]}'
    with pytest.raises(NetworkError) as caught:
        ask(f"pathlib.Path(out).write_text({answer!r})")
    assert str(caught.value) == (
        "No advisory was read, so nothing is known about vulnerabilities: the service knows none of the packages, so "
        "it was not the service that answered. Check the proxy and the CA bundle, or name another service: "
        "--service pypi, --service osv, or --osv-url of a mirror."
    )


def test_an_unreachable_service_differs_from_a_failing_program() -> None:
    with pytest.raises(NetworkError, match="nothing is known about vulnerabilities"):
        ask("sys.exit('requests.exceptions.ConnectionError: refused')")
    with pytest.raises(TfimgError, match="pip-audit failed: no such option") as caught:
        ask("sys.exit('no such option')")
    assert not isinstance(caught.value, NetworkError)


SERVICES = {
    "": ["--vulnerability-service=pypi"],
    "--service osv": ["--vulnerability-service=osv"],
    "--osv-url http://osv.test": ["--vulnerability-service=osv", "--osv-url=http://osv.test"],
}


@pytest.mark.parametrize("options", SERVICES)
def test_the_service_is_pypi_unless_another_is_named(
    tfimg: CliRunner, environment: TestEnvironment, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ["python3", "-c", PROGRAM.format(action="sys.exit(' '.join(sys.argv[1:3]))")]
    monkeypatch.setattr(environment, "pip_audit", lambda: program)
    message = tfimg("audit", "2.15.1-cpu-py3.11", "-q", *options.split()).refusal(1)
    assert message.removeprefix("pip-audit failed: ").startswith(" ".join(SERVICES[options]))
