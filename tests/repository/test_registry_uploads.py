"""Manifests over a bad line, on loopback: what a cut request and a slow answer cost."""

from __future__ import annotations

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback
from support.manifests import Open, Slept, manifest
from tfimg.registry.client import HttpRegistry


@pytest.mark.parametrize("times", [1, 4])
def test_a_manifest_whose_request_is_cut_is_sent_again(
    times: int, client: HttpRegistry, here: Loopback, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(method="PUT", path="/manifests/", cut_request=10, times=times))
    client.put("1", manifest())
    assert (here.tags["1"], slept) == (manifest().digest, [1, 2, 4, 8][:times])


def test_a_manifest_that_comes_slowly_is_waited_for(
    here: Loopback, open_registry: Open, proxy: Faulty, slept: Slept
) -> None:
    open_registry(here.address).put("1", manifest())
    proxy.faults.append(Fault(method="GET", path="/manifests/", delay=0.1, rate=400))
    assert open_registry(proxy.address).find("1") == manifest()
    assert slept == []
