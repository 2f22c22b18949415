"""Machines of clouds, as tests order them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from tfimg.attestations.keys import read_verifying_key
from tfimg.host.cloud import CLOUDS, CloudMachine
from tfimg.registry.reference import parse_reference

KEY = """\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnMcyfy7A94GVHlfQB75CnT1nA7IF
b3QxknmKEncA4Znn5vRfLbXZRQU91FzAPYyOBexhbvgTme8zjh4+mIqveg==
-----END PUBLIC KEY-----
"""
"""Of a key pair that was made for this and thrown away."""

WHEEL = f"https://wheels.example/tfimg-1.2-py3-none-any.whl#sha256={'0' * 64}"

AWKWARD = ("sh", "-c", "echo \"$HOME\" '{{ x }}' \\ %n `id` # : - é", "", "-- a")
"""A program whose words are hard to quote for a shell, YAML, jinja and systemd."""


IMAGE = parse_reference("registry.example:5000/team/tensorflow:2.15")
OWN_REGISTRIES = {
    "aws": parse_reference("123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml/tensorflow:2.15-gpu"),
    "gcp": parse_reference("europe-west4-docker.pkg.dev/acme/ml/tensorflow:2.15-gpu"),
    "azure": parse_reference("acme.azurecr.io/ml/tensorflow:2.15-gpu"),
}
"""Images in the registries of clouds."""


def machine(**changes: Any) -> CloudMachine:
    """One on AWS that trains on a processor, changed as a test wants it."""
    fields = {
        "cloud": CLOUDS["aws"], "image": IMAGE,
        "origin": None, "device": "cpu", "driver": None,
        "key": read_verifying_key(KEY.encode(), source="tfimg.pub"), "require": None, "wheel": WHEEL,
        "program": ("python", "train.py"), "idle_seconds": None, "limit_seconds": None, "install_driver": False,
    }  # fmt: skip
    return CloudMachine(**{**fields, **changes})


def every_machine() -> Iterator[CloudMachine]:
    """Each cloud with each of its devices, and each of these with every choice of options."""
    options = list(product((None, AWKWARD), (None, 1800), (None, 28800)))
    for cloud in CLOUDS.values():
        for device in cloud.commands:
            for (program, idle, limit), install in product(options, (False, True) if device == "gpu" else (False,)):
                yield machine(
                    cloud=cloud, device=device, program=program, idle_seconds=idle, limit_seconds=limit,
                    install_driver=install, require="validated,driver>=535" if idle else None,
                    driver="525.60.13" if device == "gpu" else None,
                    image=OWN_REGISTRIES.get(cloud.name if limit else "", IMAGE),
                )  # fmt: skip
