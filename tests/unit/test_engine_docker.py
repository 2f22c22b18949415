"""The Docker engine's answers: inspections, digests of contents, pushes and pulls."""

import json
import re
from copy import deepcopy
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings

from support.cases import cases
from support.http_server import AnyMethod, serving
from support.mutated_documents import cases as case_count
from support.mutated_documents import mutations
from support.oci_images import export_layers
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import (
    DiskSpaceError,
    EngineError,
    EngineTooOld,
    Interrupted,
    NetworkError,
    RegistryError,
    TamperedError,
    TfimgError,
)
from tfimg.core.events import Event, ProgressEvent, ignore
from tfimg.engine.docker import (
    OLDEST_BUILDX,
    OLDEST_ENGINE,
    Action,
    DockerEngine,
    content_digest,
    follow_transfer,
    require_version,
    transfer_error,
)
from tfimg.engine.interface import LocalImage, RunRequest

BLOB = f"blob sha256:{'7' * 64}"
REMOVED = (
    f"failed to get config descriptor: rpc error: code = NotFound desc = {BLOB} expected at "
    f"/engine/data/blobs/sha256/{'7' * 64}: blob not found: not found",
    f"content digest sha256:{'7' * 64}: not found",
)
"""Docker 26.1.5's answers to an inspection while another program removes the image."""


class _Answers(AnyMethod):
    """An engine with one image in its list, whose inspection fails with `server.subject`."""

    def answer(self) -> None:
        if self.path.endswith("/version"):
            self._json(200, {"ApiVersion": "1.45"})
        elif self.path.partition("?")[0].endswith("/images/json"):
            listed = {"Id": f"sha256:{'1' * 64}", "RepoTags": ["a:b"], "Labels": {}, "Size": 1}
            self._json(200, [listed])
        else:
            self._json(500, {"message": self.server.subject})  # type: ignore[attr-defined]

    def _json(self, status: int, content: object) -> None:
        self.reply(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


@pytest.mark.parametrize("message", REMOVED)
def test_an_image_that_another_program_is_removing_is_not_there(message: str) -> None:
    with serving(_Answers, message) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        assert engine.find_digest("a:b") is None
        assert engine.find_labels("a:b") is None
        assert engine.list_images() == []


class _Untagged(_Answers):
    """An engine that lists images with the names by digest in `server.subject`, and no tag."""

    def answer(self) -> None:
        if "/images/json" in self.path:
            names: list[list[str]] = self.server.subject  # type: ignore[attr-defined]
            self._json(200, [{"Id": f"sha256:{n}", "RepoTags": ["<none>:<none>"], "RepoDigests": one, "Labels": {},
                              "Size": 1} for n, one in enumerate(names)])  # fmt: skip
        elif self.path.endswith("/json"):
            self._json(200, {"Id": "sha256:1", "Size": 1, "RootFS": {"Layers": []}})
        else:
            super().answer()


def test_an_image_that_lost_its_tags_differs_from_one_that_was_pulled_by_its_digest() -> None:
    digest = f"sha256:{'1' * 64}"
    pulled = f"registry.example/tf@{digest}"
    with serving(_Untagged, [[pulled], [f"<none>@{digest}"], [f"moby-dangling@{digest}"], []]) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        found = engine.list_images()
        assert [(image.names, image.by_digest) for image in found] == [((), (pulled,)), *[((), ())] * 3]
        assert engine.list_images({image.digest: replace(image, by_digest=()) for image in found}) == found


class _Named(_Answers):
    """An engine that keeps the names in each request for images."""

    def answer(self) -> None:
        if "/images/json" in self.path:
            self.server.subject.append(parse_qs(urlsplit(self.path).query))  # type: ignore[attr-defined]
        super().answer()


def test_only_images_of_some_names_are_requested() -> None:
    requests: list[dict[str, list[str]]] = []
    with serving(_Named, requests) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        digest = f"sha256:{'1' * 64}"
        image = LocalImage(digest=digest, names=(), labels={}, content=digest, unpacked_bytes=1, compressed_bytes=None)
        known = {digest: image}
        assert [image.names for image in engine.list_images(known, ["a:b", "a:c"])] == [("a:b",)]
        engine.list_images(known)
    assert [json.loads(query.get("filters", ["{}"])[0]) for query in requests] == [{"reference": ["a:b", "a:c"]}, {}]


class _Listing(_Answers):
    """An engine that refuses its list with each of `server.subject` in turn, before it gives it."""

    def answer(self) -> None:
        refusals: list[str] = self.server.subject  # type: ignore[attr-defined]
        if "/images/json" in self.path and refusals:
            self._json(500, {"message": refusals.pop(0)})
        elif self.path.endswith(f"/sha256:{'1' * 64}/json"):
            self._json(404, {"message": "No such image"})
        else:
            super().answer()


@pytest.mark.parametrize("before", ["", "failed to get rootfs of image a/b:1: ", "failed to calculate size of image: "])
def test_a_list_is_requested_again_while_an_image_is_being_removed(before: str) -> None:
    """Docker 26.1 refuses the whole list."""
    refusal = f"{before}rpc error: code = NotFound desc = content digest sha256:{'7' * 64}: not found"
    with serving(_Listing, [refusal] * 3) as address:
        assert DockerEngine(host=f"tcp://{address}", environ={}).list_images() == []
    with serving(_Listing, [refusal] * 100) as address, pytest.raises(EngineError, match="content digest"):
        DockerEngine(host=f"tcp://{address}", environ={}).list_images()


def test_every_other_failure_of_an_inspection_is_an_error() -> None:
    with serving(_Answers, f"content store: {BLOB}: permission denied") as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        for ask in (lambda: engine.find_digest("a:b"), lambda: engine.find_labels("a:b"), engine.list_images):
            with pytest.raises(EngineError, match="permission denied"):
                ask()


class _Containers(_Answers):
    """An engine that keeps what containers are made of, and starts none."""

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/version"):
            super().answer()
        elif path.endswith("/containers/create"):
            made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.server.subject.append(made)  # type: ignore[attr-defined]
            self._json(201, {"Id": "1" * 64, "Warnings": []})
        elif path.endswith(f"/containers/{'1' * 64}/json"):
            self._json(200, {"Id": "1" * 64})
        else:
            self._json(409, {"message": "no start"})


def test_the_engine_keeps_no_log_of_what_a_container_prints() -> None:
    made: list[dict[str, Any]] = []
    request = RunRequest(image="a:b", command=["x"], files={})
    with serving(_Containers, made) as address, pytest.raises(EngineError, match="no start"):
        list(DockerEngine(host=f"tcp://{address}", environ={}).run(request, timeout=9))
    assert [one["HostConfig"]["LogConfig"]["Type"] for one in made] == ["none"]


class _Cache(_Answers):
    """An engine with a build cache of the steps in `server.subject`, until it is pruned; None: it has no such part."""

    def answer(self) -> None:
        steps: list[dict[str, Any]] | None = self.server.subject  # type: ignore[attr-defined]
        if "/system/df" in self.path:
            self._json(200, {} if steps is None else {"BuildCache": steps})
        elif "/build/prune" in self.path and "all=True" in self.path and steps:
            steps.clear()
            self._json(200, {"SpaceReclaimed": 7})
        else:
            super().answer()


def test_the_build_cache_is_measured_without_what_images_have_and_pruned() -> None:
    with serving(_Cache, [{"Size": 7, "Shared": False}, {"Size": 9, "Shared": True}]) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        assert engine.find_cache_bytes() == 7
        engine.prune_cache()
        assert engine.find_cache_bytes() == 0
    with serving(_Cache, None) as address:  # as Podman answers
        assert DockerEngine(host=f"tcp://{address}", environ={}).find_cache_bytes() is None


class _Full(_Answers):
    """An engine on a full disk, which says `server.subject` of itself."""

    def answer(self) -> None:
        if self.path.endswith("/info"):
            self._json(200, self.server.subject)  # type: ignore[attr-defined]
        elif "/images/load" in self.path:
            while self.rfile.readline() != b"0\r\n":  # the end of the archive, which another request follows
                pass
            self.rfile.readline()
            self._json(200, {"error": "write /x: no space left on device"})
        else:
            super().answer()


DIGEST = f"sha256:{'1' * 64}"
ANSWERS: dict[str, Any] = {
    "/version": {"ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5"}]},
    "/info": {
        "ServerVersion": "26.1.5", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]], "Runtimes": {},
        "Driver": "overlayfs", "DockerRootDir": "/", "MemTotal": 8000000000, "Architecture": "x86_64", "Name": "host",
        "CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}],
    },
    "/images/json": [{"Id": DIGEST, "RepoTags": ["a:b"], "RepoDigests": ["a@x"], "Labels": {"c": "d"}, "Size": 9}],
    "/history": [{"Id": DIGEST, "Size": 7}],
    "/df": {"BuildCache": [{"Size": 7, "Shared": False}]},
    "/json": {"Id": DIGEST, "Size": 7, "RootFS": {"Layers": [DIGEST]}, "Config": {"Labels": {"c": "d"}}},
}  # fmt: skip
"""Ends of paths and an engine's answers; the first that fits counts."""


class _Stranger(_Answers):
    """An engine whose answer to one path is another program's: `server.subject` is the end of the path and the answer.

    Everything else is as an engine says it.
    """

    def answer(self) -> None:
        named, answer = self.server.subject  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        found = next((end for end in ANSWERS if path.endswith(end)), "")
        if path.endswith("/get"):
            self.reply(200, {}, b"".join(export_layers()))
        else:
            content = answer if named in (found, path[-len(named) :]) else json.dumps(ANSWERS[found]).encode()
            self.reply(200, {"Content-Type": "application/json"}, content)


def refusals(address: str) -> list[str]:
    """Return the errors of every request to an engine; any other exception is a defect."""
    found = []
    engine = DockerEngine(host=f"tcp://{address}", environ={"PATH": ""})
    for ask in (
        engine.get_device_support, engine.get_capabilities, engine.list_images, engine.find_cache_bytes,
        lambda: engine.read_image("a:b"), lambda: engine.find_labels("a:b"), lambda: engine.find_digest("a:b"),
    ):  # fmt: skip
        try:
            ask()
        except TfimgError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("named", ANSWERS)
def test_a_changed_answer_of_an_engine_is_read_or_refused(named: str) -> None:
    @settings(max_examples=case_count(10), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(content=mutations(json.dumps(ANSWERS[named]).encode()))
    def read(content: bytes) -> None:
        with serving(_Stranger, (named, content)) as address:
            refusals(address)

    read()


@pytest.mark.parametrize(
    ("named", "answer"),
    [
        ("/version", b'{"ApiVersion": "1.45", "Components": [7]}'), ("/info", b"[" * 9000),
        ("/info", b"[]"), ("/info", b"{}"), ("/info", b'{"ServerVersion": "26.1.5", "DriverStatus": [7]}'),
        ("/info", b'{"DiscoveredDevices": [7]}'),
        ("/images/json", b"[{}]"), ("/images/json", b"[7]"),
        ("/a:b/json", b"7"), ("/a:b/json", b"{}"), ("/a:b/json", b'{"Id": "x", "Config": {"Labels": 7}}'),
        ("/a:b/json", b'{"Id": "x", "RootFS": {"Layers": []}, "Config": {"Labels": {}, "Env": 7}}'),
        ("/history", b'[{"Size": "some"}]'), ("/df", b"7"), ("/df", b'{"BuildCache": [7]}'),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_engine_s_is_an_error(named: str, answer: bytes) -> None:
    """Whatever listens at the address in DOCKER_HOST: a wrong port, a proxy, a stand-in for Docker."""
    with serving(_Stranger, (named, answer)) as address:
        says = f"The engine at tcp://{address} sent an answer that is not Docker's: "
        assert any(one.startswith(says) for one in refusals(address))


@pytest.mark.parametrize(("root", "place"), [("/", ": the disk of / has "), (7, ": no space left on device")])
def test_a_full_disk_of_an_engine_on_this_machine_is_described(root: object, place: str) -> None:
    info = {"ServerVersion": "26.1.5", "DockerRootDir": root}
    with serving(_Full, info) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        engine.is_local = True
        with pytest.raises(DiskSpaceError, match=f"^The disk of the engine at .* is full: .*{place}"):
            engine.load(iter([b""]))


class _Cut(_Answers):
    """An engine whose streams end within a line, as behind a proxy that gives up."""

    def answer(self) -> None:
        if self.path.endswith("/version"):
            super().answer()
        else:
            line = b'{"status": "Pul'
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(line), line))


def test_a_stream_that_ends_within_a_line_is_an_error() -> None:
    with serving(_Cut, None) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        for act in (lambda: engine.pull("a:b", ignore), lambda: engine.push("a:b", ignore)):
            with pytest.raises(EngineError, match="sent an answer that is not Docker's: StreamParseError: "):
                act()


def test_engines_and_buildx_that_are_too_old_are_refused() -> None:
    for text in ("23.0.0", "26.1.5+dfsg1", "28.0.0-rc.1", "library-import"):
        require_version("it is", text, OLDEST_ENGINE)
    for text in ("0.12.0", "5f5ba5f9"):
        require_version("it is", text, OLDEST_BUILDX)
    too_old = (("20.10.24+dfsg1", OLDEST_ENGINE), ("22.06.0-beta.0", OLDEST_ENGINE), ("0.11.2", OLDEST_BUILDX))
    for text, oldest in too_old:
        with pytest.raises(EngineTooOld, match=f"^it is {re.escape(text)}, and builds need {oldest} or newer"):
            require_version("it is", text, oldest)


ATTRS: dict[str, Any] = {
    "Id": "sha256:1", "Created": "2026-01-01T00:00:00Z", "RepoTags": ["tf:1"], "Os": "linux", "Architecture": "amd64",
    "Metadata": {"LastTagTime": "2026-01-01T00:00:00Z"},
    "RootFS": {"Type": "layers", "Layers": ["sha256:a", "sha256:b"]},
    "Config": {
        "User": "1000:1000", "Env": ["PATH=/bin"], "Cmd": ["python"], "Entrypoint": ["tini", "--"], "Hostname": "",
        "WorkingDir": "/home", "Labels": {"a": "b"}, "Volumes": None,
    },
}  # fmt: skip


def changed(*path: str, value: object) -> str:
    attrs = deepcopy(ATTRS)
    place = attrs
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return content_digest(attrs)


def test_what_a_container_is_made_of_counts_and_names_times_and_labels_do_not() -> None:
    """Changes by path: those that change how containers behave, and others."""
    behaviour: dict[str, object] = {
        "Config.User": "", "Config.Env": ["PATH=/usr/bin"], "Config.Cmd": None, "Config.Entrypoint": ["sh"],
        "Config.WorkingDir": "/", "Config.Volumes": {"/data": {}}, "RootFS.Layers": ["sha256:b", "sha256:a"],
        "Architecture": "arm64",
    }  # fmt: skip
    others: dict[str, object] = {
        "Config.Labels": {"org.opencontainers.image.revision": "c0ffee"}, "Config.Hostname": "x", "Config.Volumes": {},
        "Config.Healthcheck": None, "Created": "2026-02-02T00:00:00Z", "Id": "sha256:2", "RepoTags": [], "Metadata": {},
    }  # fmt: skip
    for changes, counts in ((behaviour, True), (others, False)):
        for path, value in changes.items():
            assert (changed(*path.split("."), value=value) != content_digest(ATTRS)) is counts, path


NAME = "registry.example:5000/team/tf:1"
DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
PUSHING: list[dict[str, Any]] = [
    {"status": "The push refers to repository [registry.example:5000/team/tf]"},
    {"status": "Preparing", "progressDetail": {}, "id": "5f70bf18a086"},
    {"status": "Pushing", "progressDetail": {"current": 1024, "total": 3072}, "id": "5f70bf18a086"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "d8d715783b80"},
    {"status": "Pushed", "progressDetail": {}, "id": "5f70bf18a086"},
]
SAID = {"status": f"1: digest: {DIGEST} size: 527"}
AUX = {"progressDetail": {}, "aux": {"Tag": "1", "Digest": DIGEST, "Size": 527}}


def test_a_push_and_a_pull_end_with_their_digest() -> None:
    for last in ([SAID], [AUX], [SAID, AUX], [AUX, {"status": "Done", "progressDetail": {}}]):
        assert follow_transfer("push", NAME, [*PUSHING, *last], ignore) == DIGEST
    lines = [{"status": f"Digest: {DIGEST}"}, {"status": f"Status: Downloaded newer image for {NAME}"}]
    assert follow_transfer("pull", NAME, lines, ignore) == DIGEST
    with pytest.raises(TamperedError, match=rf"tf@{DIGEST} returned another digest: {OTHER}"):
        follow_transfer("pull", f"registry.example/tf@{DIGEST}", [{"status": f"Digest: {OTHER}"}], ignore)


def test_bytes_are_reported_by_layer() -> None:
    events: list[Event] = []
    follow_transfer("push", NAME, [*PUSHING, SAID], events.append)
    assert events == [
        ProgressEvent(step="push", what="5f70bf18a086", current=1024, total=3072),
        ProgressEvent(step="push", what="5f70bf18a086", current=3072, total=3072),
    ]


def test_a_stream_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(NetworkError, match=rf"answer ended before it reported the digest of the push of {NAME}"):
        follow_transfer("push", NAME, PUSHING, ignore)


@pytest.mark.parametrize("line", [{"error": "denied: no"}, {"errorDetail": {"message": "denied: no"}}])
def test_an_error_in_the_stream_is_raised(line: dict[str, Any]) -> None:
    with pytest.raises(RegistryError, match=r"does not let the engine push .*: denied: no"):
        follow_transfer("push", NAME, [*PUSHING, line, SAID], ignore)


def test_what_is_to_end_ends_between_two_lines() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        follow_transfer("push", NAME, [*PUSHING, SAID], ignore)


@cases("engine_docker", "what_an_engine_says_becomes_a_sentence")
def test_what_an_engine_says_becomes_a_sentence(action: Action, said: str, error: type[TfimgError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        raise transfer_error(action, NAME, said)
    assert type(caught.value) is error
    assert said.rstrip(".") in str(caught.value)


def test_of_a_long_message_of_an_engine_the_status_is_left() -> None:
    address = f"http://{'r' * 60}.test/v2/{'team/' * 30}tf/manifests/{'1' * 60}"
    said = f'failed commit on ref "manifest-{DIGEST}": unexpected status from PUT request to {address}: 400 Bad Request'
    short = said.replace(f" to {address}", "")
    assert str(transfer_error("push", NAME, said)) == str(transfer_error("push", NAME, short))


def test_what_a_proxy_says_through_an_engine_is_cut() -> None:
    page = "<html>\\r\\n<title>413 Request Entity Too Large</title>\x1b[31m" + "x" * 5000
    said = (
        f"error parsing HTTP 413 response body: invalid character '<' looking for beginning of value: {page!r}\x1b[31m"
    )
    message = str(transfer_error("push", NAME, said))
    assert "takes no layer of this size" in message
    assert len(message) < 800
