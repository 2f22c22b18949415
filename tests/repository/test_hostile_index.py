"""A package index that attacks: every attack ends in one error of ours, in bounded time and memory."""

from __future__ import annotations

import resource
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.hostile_index import (
    BESIDE,
    BUILD_INFO,
    FILES,
    HTML,
    INSIDE,
    JSON,
    METADATA,
    PAGES,
    WHEEL,
    Attack,
    HostileIndex,
    a_file,
    archive,
    file_page,
    hostile_index,
    link,
    page,
    ranged,
    redirects,
    reply_of,
)  # fmt: skip
from support.hostile_wheels import ATTACKS, write_hostile_wheel
from support.mutated_documents import cases
from support.wheels import lock_line
from tfimg.core.errors import InternalError, InvalidWheel, NetworkError, TfimgError
from tfimg.index.client import Index
from tfimg.layers.layers import LayerStore, WheelSource, make_layers

MAX_KILOBYTES = 300_000
LINKED = "linked-1.0-py3-none-any.whl"
SECRET = "aGFuczpodW50ZXIy"
"""`hans:hunter2` in a header."""

pytestmark = pytest.mark.timeout(20)


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for less, and let no attack take more memory than this."""
    monkeypatch.setattr("tfimg.index.client.GRACE_SECONDS", 0.3)
    monkeypatch.setattr("tfimg.index.client.TIMEOUT_SECONDS", 1)
    monkeypatch.setattr("tfimg.index.client.MAX_WHEEL", 10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_KILOBYTES


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_hostile_wheel(tmp_path)


def build(url: str, wheel: Path) -> None:
    """Make the layer of a lock that pins a wheel."""
    store = LayerStore(folder=wheel.parent / "store")
    source = WheelSource(indexes=[Index(url, attempts=1)])
    make_layers({"packages": lock_line(wheel)}, store, source=source, compression="fast", on_event=lambda *_: None)


def assert_refused(error: str, act: Callable[[], object]) -> None:
    with pytest.raises(TfimgError, match=error) as caught:
        act()
    message = str(caught.value)
    assert not isinstance(caught.value, InternalError)
    assert message.isprintable(), "nothing of the index reaches the terminal that could change it"
    assert len(message) < 1500


def rows(attacks: Mapping[str, Attack]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("attack", attacks.values(), ids=list(attacks))


@rows(
    {
        **{f"page: {name}": one for name, one in PAGES.items()},
        **{f"file: {name}": one for name, one in FILES.items()},
    }
)
def test_a_build_refuses_it(attack: Attack, wheel: Path) -> None:
    with hostile_index(attack.replies) as served:
        assert_refused(attack.error, lambda: build(f"{served.url}/simple", wheel))
    assert [file.name for file in wheel.parent.rglob("*.whl")] == [wheel.name], "nothing is kept or escapes"


@rows(
    {
        **{f"beside: {name}": one for name, one in BESIDE.items()},
        **{f"inside: {name}": one for name, one in INSIDE.items()},
    }
)
def test_a_survey_refuses_it(attack: Attack) -> None:
    with hostile_index(attack.replies) as served:
        index = Index(f"{served.url}/simple", attempts=1)
        (wheel,) = index.wheels("thing")
        assert_refused(attack.error, lambda: index.read_metadata(wheel, build=not wheel.has_metadata))


@pytest.mark.parametrize("attack", ["parent", "more than declared", "no RECORD", "script above", "data is a file"])
def test_a_wheel_of_the_locked_hash_is_still_checked(attack: str, tmp_path: Path) -> None:
    wheel = ATTACKS[attack](tmp_path)
    replies = {"/simple/": file_page(), "/files/": reply_of(wheel.read_bytes(), "application/octet-stream")}
    with (
        hostile_index(replies) as served,
        pytest.raises(InvalidWheel, match=f"^{WHEEL} is not a valid wheel: "),
    ):
        build(f"{served.url}/simple", wheel)
    assert not list((tmp_path / "store").rglob("*.whl"))


def test_an_honest_index_is_built_from(wheel: Path) -> None:
    replies = {
        "/simple/": file_page(size=wheel.stat().st_size),
        "/files/": reply_of(wheel.read_bytes(), "binary"),
    }
    with hostile_index(replies) as served:
        build(f"{served.url}/simple", wheel)


# Credentials.


@pytest.mark.parametrize("source", ["address", "netrc"])
@pytest.mark.parametrize("way", ["redirect of the page", "redirect of a file", "address of a file", "base of a page"])
def test_credentials_stay_at_the_origin_of_the_index(
    way: str, source: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = reply_of(wheel.read_bytes(), "application/octet-stream")
    if source == "netrc":
        (wheel.parent / "netrc").write_text("machine 127.0.0.1 login hans password hunter2\n")
        monkeypatch.setenv("NETRC", str(wheel.parent / "netrc"))
    with hostile_index({"/simple/": file_page(), "/files/": content}) as other:
        there = f"{other.url}/files/{WHEEL}"
        replies = {
            "redirect of the page": {"/simple/": redirects(f"{other.url}/simple/thing/")},
            "redirect of a file": {"/simple/": file_page(), "/files/": redirects(there)},
            "address of a file": {"/simple/": file_page(url=there)},
            "base of a page": {
                "/simple/": reply_of(
                    f'<base href="{other.url}"><a href="/files/{WHEEL}">{WHEEL}</a>'.encode(), "text/html"
                )
            },
        }[way]
        with hostile_index(replies) as served:
            url = served.url.replace("//", "//hans:hunter2@") if source == "address" else served.url
            build(f"{url}/simple", wheel)
    assert {authorization for _, authorization in served.asked} == {f"Basic {SECRET}"}
    assert other.asked
    assert {authorization for _, authorization in other.asked} == {None}


def test_credentials_are_sent_for_absolute_addresses_of_the_index_itself(wheel: Path) -> None:
    content = reply_of(wheel.read_bytes(), "application/octet-stream")
    with hostile_index({"/files/": content}) as served:
        served.replies["/simple/"] = file_page(url=f"{served.url}/files/{WHEEL}")
        build(f"{served.url.replace('//', '//hans:hunter2@')}/simple", wheel)
    assert [authorization for _, authorization in served.asked] == [f"Basic {SECRET}"] * 2


@pytest.mark.parametrize("named", ["hans", "hans:", "hans:p%40ss"])
def test_credentials_of_an_address_are_sent_as_they_are_meant(named: str) -> None:
    with hostile_index({"/simple/": reply_of(page())}) as served:
        Index(f"{served.url.replace('//', f'//{named}@')}/simple", attempts=1).wheels("thing")
    sent = f"{named if ':' in named else f'{named}:'}".replace("%40", "@")
    assert served.asked == [("/simple/thing/", f"Basic {b64encode(sent.encode()).decode()}")]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[HostileIndex, str]]:
    """An index with TLS, and the file of its certificate authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with hostile_index({"/simple/": reply_of(page([a_file()]))}, context) as index:
        yield index, str(tmp_path / "ca.pem")


def test_a_certificate_is_verified_with_the_authority_that_is_named(secure: tuple[HostileIndex, str]) -> None:
    served, ca = secure
    assert len(Index(f"{served.url}/simple", ca=ca, attempts=1).wheels("thing")) == 1
    with pytest.raises(NetworkError, match="unable to get local issuer certificate"):
        Index(f"{served.url}/simple", attempts=1).wheels("thing")


def test_an_index_with_tls_leads_to_no_address_without(secure: tuple[HostileIndex, str]) -> None:
    served, ca = secure
    with hostile_index({"/": reply_of(page([a_file()]))}) as other:
        served.replies["/simple/"] = redirects(f"{other.url}/simple/thing/")
        served.replies["/simple/linked/"] = reply_of(page([a_file(url=f"{other.url}/{WHEEL}", filename=LINKED)]))
        index = Index(f"{served.url}/simple", ca=ca, attempts=1)
        with pytest.raises(NetworkError, match="which is not reached by https"):
            index.wheels("thing")
        (wheel,) = index.wheels("linked")
        with pytest.raises(NetworkError, match="which is not reached by https"):
            list(index.download(wheel))
        assert other.asked == []


def test_the_port_of_a_scheme_is_the_same_origin() -> None:
    with hostile_index({"http://index.test:80/files/": reply_of(b"")}) as proxy:
        proxy.replies["http://index.test/simple/"] = file_page(url=f"http://index.test:80/files/{WHEEL}")
        index = Index("http://hans:hunter2@index.test/simple", proxies={"http": proxy.url}, attempts=1)
        assert list(index.download(*index.wheels("thing"))) == []
    assert [authorization for _, authorization in proxy.asked] == [f"Basic {SECRET}"] * 2


def test_an_error_shows_no_credentials_of_a_page(wheel: Path) -> None:
    replies = {"/simple/": file_page(url="ftp://hans:hunter2@127.0.0.1/x")}
    with hostile_index(replies) as served, pytest.raises(NetworkError) as caught:
        build(f"{served.url}/simple", wheel)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("reply", [link(WHEEL), reply_of(page([a_file()]))], ids=["HTML", "JSON"])
def test_both_forms_of_an_honest_page_are_read(wheel: Path, reply: Callable[..., None]) -> None:
    with hostile_index({"/simple/": reply, "/files/": reply_of(wheel.read_bytes(), "binary")}) as served:
        build(f"{served.url}/simple", wheel)


# Whatever else an index sends.


def altered(content: bytes, data: st.DataObject) -> bytes:
    """Return content with a few bytes changed, added or taken out."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed)))
        changed[position : position + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    return bytes(changed)


HONEST = {
    "JSON": (
        JSON,
        page([a_file(**{"upload-time": "2024-03-08T23:59:59Z", "core-metadata": True, "size": 7})]),
    ),
    "HTML": (HTML, f'<base href="/x/"><a href="{WHEEL}#sha256=0" data-yanked="">{WHEEL}</a>'.encode()),
}


@pytest.fixture
def hostile_server() -> Iterator[HostileIndex]:
    with hostile_index({}) as index:
        yield index


ALTERED = settings(max_examples=cases(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("form", HONEST)
@ALTERED
@given(data=st.data())
def test_an_altered_page_is_read_or_refused(form: str, hostile_server: HostileIndex, data: st.DataObject) -> None:
    kind, content = HONEST[form]
    hostile_server.replies["/simple/"] = reply_of(altered(content, data), kind)
    with suppress(NetworkError):
        Index(f"{hostile_server.url}/simple", attempts=1).wheels("thing")


@ALTERED
@given(data=st.data())
def test_an_altered_wheel_is_read_in_ranges_or_refused(hostile_server: HostileIndex, data: st.DataObject) -> None:
    members = {BUILD_INFO: "build_info = {'cuda_version': '12'}", "thing-1.0.dist-info/METADATA": METADATA}
    hostile_server.replies.update({"/simple/": file_page(), "/files/": ranged(altered(archive(members), data))})
    index = Index(f"{hostile_server.url}/simple", attempts=1)
    with suppress(NetworkError):
        index.read_metadata(index.wheels("thing")[0], build=True)
