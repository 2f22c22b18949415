"""What the suite says of a processor."""

from __future__ import annotations

import pytest
from checks.processor import instructions, judge
from contract import CheckFailed, CheckSkipped

GOOD = "fpu sse2 pni ssse3 sse4_1 sse4_2 popcnt avx"


def cpuinfo(*flags: str, key: str = "flags\t\t") -> str:
    return "\n".join(f"processor\t: {number}\nmodel name\t: A CPU\n{key}: {one}\n" for number, one in enumerate(flags))


def test_a_processor_that_has_what_wheels_need_passes() -> None:
    assert judge("x86_64", cpuinfo(f"{GOOD} avx2", f"{GOOD} avx2"))["faster"] == ["avx2"]
    assert judge("aarch64", cpuinfo("fp asimd sve", key="Features\t"))["faster"] == ["sve"]


@pytest.mark.parametrize("missing", GOOD.split()[1:])
def test_what_is_missing_is_named_and_the_host_is_at_fault(missing: str) -> None:
    less = " ".join(name for name in GOOD.split() if name != missing)
    with pytest.raises(CheckFailed, match="the host is at fault, not the image") as caught:
        judge("x86_64", cpuinfo(less))
    assert caught.value.measured["missing"] == [missing]


def test_one_processor_without_is_enough_to_fail() -> None:
    assert instructions(cpuinfo("sse2 avx", "sse2")) == {"sse2"}
    with pytest.raises(CheckFailed):
        judge("x86_64", cpuinfo(GOOD, GOOD.replace(" avx", "")))


@pytest.mark.parametrize(("machine", "text"), [("riscv64", cpuinfo(GOOD)), ("x86_64", "processor\t: 0\n")])
def test_an_unknown_processor_is_skipped(machine: str, text: str) -> None:
    with pytest.raises(CheckSkipped):
        judge(machine, text)


def test_an_emulated_arm_processor_is_judged_by_what_its_kernel_would_say_and_not_by_its_host_s_cpuinfo() -> None:
    host = "model name\t: AMD EPYC\nflags\t\t: fpu sse2 avx\n"
    measured = judge("aarch64", host, 0b11)
    assert (measured["model"], measured["needed"], measured["faster"]) == ("an emulated processor", ["fp", "asimd"], [])
    assert judge("aarch64", host, 0b11 | 1 << 22)["faster"] == ["sve"]
    with pytest.raises(CheckFailed, match="expected a processor with asimd"):
        judge("aarch64", host, 0b01)
    with pytest.raises(CheckSkipped):
        judge("aarch64", host, 0)
    assert judge("aarch64", "Features\t: fp asimd\n", 0)["model"] == "a processor without a name"
