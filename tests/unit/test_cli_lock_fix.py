"""The options of `tfimg matrix lock --fix`; what it does is in test_planted_advisories.py."""

from collections.abc import Iterator

import pytest

from support.advisories import OsvServer, osv_server
from support.cli import CliRunner
from support.extra_packages import RealUv
from support.package_index import PackageIndex, package_index
from tfimg.index.client import Index


class Services(RealUv):
    """Reads the package index of the environment."""

    def index(self) -> Index:
        return self.open_index(self.environ["UV_DEFAULT_INDEX"])


@pytest.fixture
def osv() -> Iterator[OsvServer]:
    with osv_server() as server:
        yield server


@pytest.fixture
def index(tfimg: CliRunner) -> Iterator[PackageIndex]:
    """An index that `tfimg` uses."""
    tfimg.services = Services()
    with package_index() as index:
        tfimg.environ = {"UV_DEFAULT_INDEX": f"{index.url}/simple"}
        yield index


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fix", "--check"), "--fix and --check cannot be combined."),
        (("--dry-run",), "--dry-run needs --fix."),
        (("--osv", "https://osv.example"), "--osv needs --fix."),
        (("--fix", "--osv", "absent"), "absent is not the address of an advisory service."),
    ],
)
def test_options_that_mean_nothing_are_refused(options: tuple[str, ...], message: str, tfimg: CliRunner) -> None:
    assert message in tfimg("matrix", "lock", "2.15.1-cpu-py3.10", *options).refusal(2)


def test_comments_of_lines_that_fixes_write_are_read_and_others_refused() -> None:
    from tfimg.core.errors import LockError
    from tfimg.recipe.lock import read_packages

    line = f"idna==3.21 --hash=sha256:{'0' * 64}"
    for comment, reason in (
        ("  # 2026-11-20, fixes CVE-2026-1, GHSA-a-b-c", "fixes CVE-2026-1, GHSA-a-b-c"),
        ("  # fixes CVE-2026-1", "fixes CVE-2026-1"),
        ("  # 2026-11-20, goes with rsa", "goes with rsa"),
        ("  # 2026-11-20", None),
        ("", None),
    ):
        (package,) = read_packages({"packages": line + comment})
        assert package.reason == reason
    for comment in (
        "  # 2026-11-20, ",
        "  # 2026-11-20, because",
        "  # fixes \x1b[2J",
        f"  # fixes {'a' * 121}",
        "  # ",
    ):
        with pytest.raises(LockError):
            read_packages({"packages": line + comment})


@pytest.mark.parametrize(
    ("named", "locks"),
    [
        ("2.15.1-cpu-py3.10", ["2.15.1-cpu-py3.10"]),
        ("2.15.1-cpu-py3.10-slim", ["2.15.1-cpu-py3.10"]),
        ("2.15.1-cpu-py3.11-dev", ["2.15.1-cpu-py3.11-jupyter"]),
        (
            "2.15.1-cpu-py3.11-slim",
            [
                f"2.15.1-cpu-py3.11{one}"
                for one in (
                    "",
                    "-jupyter",
                    "-export-litert",
                    "-export-onnx",
                    "-export-tfjs",
                    "-export-openvino",
                    "-serve",
                )
            ],
        ),
    ],
)
def test_an_image_without_a_lock_of_its_own_stands_for_the_one_that_it_has(
    named: str, locks: list[str], tfimg: CliRunner, osv: OsvServer, index: PackageIndex
) -> None:
    ended = tfimg("matrix", "lock", "--fix", "--dry-run", named, "--osv", osv.url).succeeded()
    assert [line.split()[1].rstrip(":") for line in ended.stderr.splitlines() if line.startswith("[")] == locks


def test_nothing_to_fix_needs_no_index_page_of_anything(tfimg: CliRunner, osv: OsvServer, index: PackageIndex) -> None:
    ended = tfimg("matrix", "lock", "--fix", "2.15.1-cpu-py3.10", "--osv", osv.url).succeeded()
    assert ended.lines == ["0 files changed; 0 fixes, 0 blocked"]
    assert "tfimg build" not in ended.stderr
    assert index.requested == []
