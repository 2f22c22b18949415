"""Docker behind the Engine protocol: builds through `docker buildx`, everything else through its API."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import docker
import requests
from docker.credentials import StoreError
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.models.images import Image
from docker.types import DeviceRequest
from docker.utils.socket import frames_iter
from packaging.version import InvalidVersion, Version

from tfimg.core.cancellation import on_cancel
from tfimg.core.errors import (
    DiskSpaceError,
    EngineError,
    EngineTooOld,
    EngineUnavailable,
    ImageMissing,
    NetworkError,
    RegistryError,
    TfimgError,
)
from tfimg.core.process import CommandFailed, run
from tfimg.engine.docker import buildx
from tfimg.engine.docker.bridge import daemon_pid, interfaces, missing_bridge
from tfimg.engine.docker.builders import find_builder
from tfimg.engine.docker.containers import Alarm, archive, lines
from tfimg.engine.docker.content import content_digest
from tfimg.engine.docker.export import lay_out, read_layers, stored_layers, unpacked_layers
from tfimg.engine.docker.transfer import Deed, Told, failure, transferred
from tfimg.engine.protocol import (
    NO_IMAGES,
    BuildEvent,
    BuildRequest,
    Capabilities,
    DeviceAccess,
    DeviceSupport,
    Exit,
    Line,
    LocalImage,
    Resources,
    RunRequest,
    StoredImage,
    StoredLayer,
)

OLDEST_ENGINE = Version("23.0")
"""First release whose default builder is BuildKit and that can hold zstd layers (moby 23.0 release notes)."""

OLDEST_BUILDX = Version("0.12.0")
"""First release that knows `--progress=rawjson`."""

ANSWER_SECONDS = 20
"""How long an engine that builds may take to say that it is there. A busy one took under 1 s when tried."""

HOW_TO_GET_ONE = "`tfimg engine up --install` sets up one of tfimg's own beside it."

AT_ONCE = 8
"""Questions about images at once. On two busy cores, 105 images took 2.3 s one after the other, 1.6 s so."""

ACCESS: Mapping[DeviceAccess, Mapping[str, Any]] = {
    "none": {},
    "nvidia": {"device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])], "shm_size": "1g"},
    "cdi": {
        "device_requests": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
        "shm_size": "1g",
    },
    "tpu": {"privileged": True, "network_mode": "host", "shm_size": "16g"},
}
"""What the API is asked for, so that a container gets all accelerators: what `docker run` makes of `--gpus all` and
`--device nvidia.com/gpu=all`, and what Google's page on containers of TPU VMs passes."""

BEING_REMOVED = re.compile(r"\bblob sha256:[0-9a-f]{64} expected at .*not found")
"""How the containerd store says that an image which it is asked for lost its manifest or configuration meanwhile."""

P = ParamSpec("P")
R = TypeVar("R")


def _reachable(
    method: Callable[Concatenate[DockerEngine, P], R],
) -> Callable[Concatenate[DockerEngine, P], R]:
    """Turn a lost connection into `EngineUnavailable` and a refusal into `EngineError`, wherever they happen."""

    @wraps(method)
    def guarded(self: DockerEngine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except APIError as error:
            raise self._refused(error) from None
        except requests.exceptions.RequestException as error:
            raise self._gone(error) from None

    return guarded


ALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 35_000),
)
"""A connection to another machine ends 35 s after that machine was last heard of (Linux, tcp(7)): a long check says
nothing for minutes, and an engine behind a broken network says nothing for ever."""


class _Api(docker.APIClient):
    """Docker's client, which notices that the network is gone and that the engine has an authority of its own."""

    def mount(self, prefix: Any, adapter: Any) -> None:
        """See `requests.Session`."""
        adapter.poolmanager.connection_pool_kw["socket_options"] = ALIVE
        super().mount(prefix, adapter)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """See `requests.Session`: it takes REQUESTS_CA_BUNDLE over what it was told (psf/requests issue 3829)."""
        chosen = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, chosen, cert)


class _Client(docker.DockerClient):
    def __init__(self, **options: Any) -> None:
        self.api = _Api(**options)


class DockerEngine:
    """The engine that answers at `host`, such as `unix:///run/docker.sock`.

    With a `builder`, that one of buildx builds for it, and it loads what was built. `context` is the docker context by
    which it was found.
    """

    def __init__(
        self, *, host: str, environ: Mapping[str, str], builder: str | None = None, context: str | None = None
    ) -> None:
        self.host = host
        self.builder = builder
        self.context = context
        # By name: `docker buildx use` may have made another the default, and the image would stay in there.
        self._environ = {**environ, "DOCKER_HOST": host, "BUILDX_BUILDER": builder or "default"}

    @cached_property
    def _client(self) -> docker.DockerClient:
        try:
            # Reads DOCKER_HOST and, for TLS, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, as buildx does.
            return _Client.from_env(timeout=600, version="auto", environment=self._environ)
        except DockerException as error:
            raise self._gone(error) from None

    def _gone(self, error: Exception) -> EngineUnavailable:
        other = f"or correct the docker context {self.context}, or name another --builder, or none."
        return EngineUnavailable(
            f"No container engine answers at {self.host}: {error}.",
            next_step=f"Start it; {other}"
            if self.context
            else "Start it; or unset DOCKER_HOST and let `tfimg engine up --install` set one up.",
        )

    def _refused(self, error: APIError) -> EngineError:
        kind = ImageMissing if isinstance(error, ImageNotFound) else EngineError
        return kind(
            f"The engine at {self.host} refused: {error.explanation or error}",
            next_step="Its own log may say more; `tfimg engine status` says where it runs.",
        )

    @_reachable
    def get_capabilities(self) -> Capabilities:
        """See `Engine`."""
        info: dict[str, Any] = self._client.info()
        engine = str(info["ServerVersion"])
        if older(engine, OLDEST_ENGINE):
            raise EngineTooOld(
                f"The engine at {self.host} is Docker {engine}, and builds need {OLDEST_ENGINE} or newer.",
                next_step=f"Upgrade it, or {HOW_TO_GET_ONE}",
            )
        drivers = dict(info.get("DriverStatus") or ())
        containerd = str(drivers.get("driver-type", "")).startswith("io.containerd.snapshotter")
        return Capabilities(
            host=self.host,
            engine=engine,
            buildx=self.buildx_version(),
            buildkit=self._buildkit_version(),
            store="containerd" if containerd else "classic",
            data_root=info["DockerRootDir"],
            free_bytes=self._free_bytes(Path(info["DockerRootDir"])),
            builder=self.builder,
            missing_bridge=self._missing_bridge(),
        )

    def _missing_bridge(self) -> str | None:
        pid = daemon_pid(self.host)
        if pid is None:
            return None
        try:
            network: dict[str, Any] = self._client.api.inspect_network("bridge")
        except NotFound:  # the engine was started with --bridge=none
            return None
        name = (network.get("Options") or {}).get("com.docker.network.bridge.name")
        return missing_bridge(name, interfaces(pid))

    @_reachable
    def get_device_support(self) -> DeviceSupport:
        """See `Engine`. Asks for no buildx: a machine that only runs images needs none."""
        info: dict[str, Any] = self._client.info()
        found: Sequence[Mapping[str, str]] = info.get("DiscoveredDevices") or ()
        return DeviceSupport(
            host=self.host,
            runtimes=tuple(sorted(info.get("Runtimes") or ())),
            cdi_folders=tuple(info.get("CDISpecDirs") or ()),
            cdi_devices=tuple(device["ID"] for device in found if device.get("Source") == "cdi"),
        )

    @_reachable
    def get_resources(self) -> Resources:
        """See `Engine`."""
        info: dict[str, Any] = self._client.info()
        whole = int(info["MemTotal"])
        return Resources(
            cpus=int(info["NCPU"]),
            memory_bytes=min(whole, _available_memory() or whole) if self._local else whole,
            disk_bytes=self._free_bytes(Path(info["DockerRootDir"])),
        )

    @property
    def _local(self) -> bool:
        return self.host.startswith("unix://")

    def buildx_version(self) -> str:
        """Version of the buildx that builds go through. Raises `EngineTooOld` when there is none or it is too old."""
        try:
            words = run(["docker", "buildx", "version"], env=self._environ).stdout.split()
        except (CommandFailed, FileNotFoundError):
            raise EngineTooOld(
                "`docker buildx` is not installed, and builds go through it.",
                next_step="Install your distribution's docker-buildx or docker-buildx-plugin package, or let "
                "`tfimg engine up --install` do it.",
            ) from None
        version = words[1].removeprefix("v").partition("+")[0]
        if older(version, OLDEST_BUILDX):
            raise EngineTooOld(
                f"docker buildx is {version}, and builds need {OLDEST_BUILDX} or newer.",
                next_step=f"Upgrade it, or {HOW_TO_GET_ONE}",
            )
        return version

    def _buildkit_version(self) -> str | None:
        try:
            described = run(["docker", "buildx", "inspect"], env=self._environ).stdout
        except CommandFailed:
            return None
        found = re.search(r"^BuildKit(?: version)?:\s+v?(\S+)", described, re.MULTILINE | re.IGNORECASE)
        return found[1] if found and not found[1].startswith("0.0.0") else None

    def _free_bytes(self, data_root: Path) -> int | None:
        if not self._local:
            return None
        # A root that we may not look into lies on the file system of the nearest folder that we may.
        while not os.access(data_root, os.X_OK) and data_root != data_root.parent:
            data_root = data_root.parent
        return shutil.disk_usage(data_root).free

    def build(self, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        """See `Engine`."""
        if self.builder is None:
            return buildx.build(request, env=self._environ, still_there=self._still_there)
        return self._build_elsewhere(request, self.builder)

    def _build_elsewhere(self, request: BuildRequest, builder: str) -> Generator[BuildEvent, None, None]:
        def still_there() -> None:
            self._still_there()
            find_builder(builder, self._environ)

        with tempfile.TemporaryDirectory(prefix="tfimg-base-") as folder:
            # `type=docker` is what buildx loads into the engine; it takes the same options.
            there = replace(
                request,
                output=request.output.replace("type=image", "type=docker", 1),
                contexts={**request.contexts, **self._own_base(request, Path(folder))},
            )
            with closing(buildx.build(there, env=self._environ, still_there=still_there)) as events:
                yield from events

    @_reachable
    def _own_base(self, request: BuildRequest, folder: Path) -> dict[str, str]:
        """A base that no registry has, for a builder elsewhere: sent along with the build."""
        base = request.build_args.get("BASE")
        if base is None or "@" in base or self.find_digest(base) is None:
            return {}
        digest = lay_out(self._client.api.get_image(base), folder)
        return {base: f"oci-layout://{folder}@{digest}"}

    @_reachable
    def _still_there(self) -> None:
        """Raises `EngineUnavailable` unless the engine answers soon; the client's own patience is for long exports."""
        try:
            _Client.from_env(timeout=ANSWER_SECONDS, environment=self._environ).close()
        except DockerException as error:
            raise self._gone(error) from None

    @_reachable
    def find_digest(self, name: str) -> str | None:
        """See `Engine`."""
        image = self._find(name)
        return str(image.id) if image else None

    @_reachable
    def find_labels(self, name: str) -> Mapping[str, str] | None:
        """See `Engine`."""
        image = self._find(name)
        return dict(image.labels) if image else None

    def _find(self, name: str) -> Image | None:
        """Return the image, or None if the engine has none of that name or is removing it.

        While another program removes an image, the containerd store answers 500 instead of 404: it has the name still,
        and its manifest no more (Docker 26.1).
        """
        try:
            return self._client.images.get(name)
        except ImageNotFound:
            return None
        except APIError as error:
            if BEING_REMOVED.search(str(error.explanation)):
                return None
            raise

    @_reachable
    def resolve_digest(self, reference: str) -> str:
        """See `Engine`."""
        try:
            return str(self._client.images.get_registry_data(reference).id)
        except APIError as error:
            raise NetworkError(
                f"The registry did not give {reference}: {error.explanation or error}.",
                next_step="Check its name and the network, or name a mirror with --mirror.",
            ) from None

    @_reachable
    def read_image(self, name: str) -> StoredImage:
        """See `Engine`."""
        image = self._client.images.get(name)
        layers = self._layers_on_disk(image) or read_layers(self._client.api.get_image(name))
        steps: list[dict[str, Any]] = self._client.api.history(name)  # type: ignore[no-untyped-call]
        unpacked = sum(int(step["Size"]) for step in steps)
        return StoredImage(
            digest=str(image.id),
            layers=layers,
            unpacked_bytes=unpacked,
            labels=dict(image.labels),
            content=content_digest(image.attrs),
            config=image.attrs.get("Config") or {},
        )

    @_reachable
    def export(self, name: str) -> Iterator[bytes]:
        """See `Engine`."""
        return cast("Iterator[bytes]", self._client.api.get_image(name))

    def push(self, name: str, on_event: Told) -> str:
        """See `Engine`."""
        repository, _, tag = name.rpartition(":")
        return self._transfer("push", name, on_event, {"repository": repository, "tag": tag})

    def pull(self, name: str, on_event: Told) -> str:
        """See `Engine`."""
        return self._transfer("pull", name, on_event, {"repository": name})

    @_reachable
    def _transfer(self, deed: Deed, name: str, on_event: Told, what: Mapping[str, str]) -> str:
        api = self._client.api
        # Who logged in since, and with whose configuration.
        folder = self._environ.get("DOCKER_CONFIG") or Path(self._environ.get("HOME", "/"), ".docker")
        api.reload_config(dockercfg_path=str(Path(folder, "config.json")))
        try:
            with closing(getattr(api, deed)(**what, stream=True, decode=True)) as lines:
                return transferred(deed, name, lines, on_event)
        except APIError as error:
            raise failure(deed, name, str(error.explanation or error)) from None
        except StoreError as error:
            raise RegistryError(
                f"A credential helper did not tell who we are to the registry of {name}: {error}.",
                next_step="Put it right, or take it out of docker's config.json and log in with `docker login`.",
            ) from None

    @_reachable
    def load(self, pieces: Iterator[bytes]) -> None:
        """See `Engine`. The engine has answered 200 before it fails."""
        for line in self._client.api.load_image(pieces, quiet=True):  # type: ignore[no-untyped-call]
            if said := line.get("error") or (line.get("errorDetail") or {}).get("message"):
                raise self._not_loaded(str(said))

    def _not_loaded(self, said: str) -> TfimgError:
        if "no space left on device" in said:
            return DiskSpaceError(
                f"The disk of the engine at {self.host} is full: {said}.",
                next_step="Free some space there, or `docker image prune`; then run it again.",
            )
        return EngineError(
            f"The engine at {self.host} did not take the image: {said}.",
            next_step="Its own log may say more; an engine before Docker 23 knows no layers of zstd.",
        )

    @_reachable
    def list_images(self, known: Mapping[str, LocalImage] = NO_IMAGES) -> Sequence[LocalImage]:
        """See `Engine`. The list has no layers, so each image is asked for them, several at once."""
        listed: list[dict[str, Any]] = self._client.api.images()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [image for image in pool.map(partial(self._local_image, known), listed) if image]

    def _local_image(self, known: Mapping[str, LocalImage], listed: Mapping[str, Any]) -> LocalImage | None:
        names = tuple(name for name in listed["RepoTags"] or () if name != "<none>:<none>")
        if listed["Id"] in known:
            return replace(known[listed["Id"]], names=names)
        image = self._find(listed["Id"])
        if image is None:  # removed after it was listed
            return None
        attrs: dict[str, Any] = image.attrs
        # The containerd store lists an image with its compressed layers and its unpacked ones; inspected, it tells the
        # compressed ones alone. The classic store has but one number.
        whole, inspected = int(listed["Size"]), int(attrs["Size"])
        both = whole > inspected
        return LocalImage(
            digest=listed["Id"],
            names=names,
            labels=dict(listed["Labels"] or {}),
            content=content_digest(attrs),
            unpacked_bytes=whole - inspected if both else whole,
            compressed_bytes=inspected if both else None,
        )

    def _layers_on_disk(self, image: Image) -> tuple[StoredLayer, ...] | None:
        """An image's layers as the store of an engine on this machine has them, if we may look into it."""
        if not self._local:
            return None
        info: dict[str, Any] = self._client.info()
        root = Path(info["DockerRootDir"])
        # containerd's root is the engine's own, or the system's.
        found = stored_layers(str(image.id), (root / "containerd/daemon", Path("/var/lib/containerd")))
        layers = root / "image" / info["Driver"] / "layerdb"
        return found or unpacked_layers(image.attrs["RootFS"]["Layers"], layers)

    def run(self, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
        """See `Engine`."""
        try:
            container = self._client.containers.create(
                request.image,
                list(request.command),
                entrypoint=list(request.entrypoint) if request.entrypoint else None,
                **{"network_mode": request.network, "user": request.user, **ACCESS[request.access]},
            )
            yield from self._run(container, request, timeout)
        except APIError as error:
            raise self._refused(error) from None
        except requests.exceptions.RequestException as error:
            raise self._gone(error) from None

    def _run(self, container: Container, request: RunRequest, timeout: float) -> Generator[Line | Exit, None, None]:
        # A silent program wakes nobody up: the engine is told to end it, and that ends the stream.
        alarm = Alarm(timeout, container.kill)
        try:
            container.put_archive("/", archive(request.files))
            # Before the start, so that no line is lost.
            stream = self._client.api.attach_socket(str(container.id), {"stdout": 1, "stderr": 1, "stream": 1})
            with closing(stream), closing(stream._response):
                container.start()
                alarm.start()
                with on_cancel(container.kill):
                    yield from self._told(stream)
            status = container.wait()["StatusCode"]
            container.reload()
            if alarm.rang:
                raise TimeoutError(f"no end after {timeout:.0f} s")
            yield Exit(status=int(status), out_of_memory=bool(container.attrs["State"]["OOMKilled"]))
        finally:
            alarm.cancel()
            with suppress(requests.exceptions.RequestException):
                container.remove(force=True, v=True)

    def _told(self, stream: Any) -> Iterator[Line]:
        try:
            yield from lines(frames_iter(stream, tty=False))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise self._gone(error) from None

    @_reachable
    def tag(self, name: str, references: Sequence[str]) -> None:
        """See `Engine`."""
        image = self._client.images.get(name)
        for reference in references:
            repository, _, tag = reference.rpartition(":")
            image.tag(repository, tag)

    @_reachable
    def remove(self, name: str) -> None:
        """See `Engine`."""
        with suppress(ImageNotFound):
            self._client.images.remove(name)

    @_reachable
    def remove_with_containers(self, name: str) -> None:
        """See `Engine`. The engine's own filter would find containers of other names of the same image too."""
        for container in self._client.containers.list(all=True, ignore_removed=True):
            if container.attrs["Config"]["Image"] == name:
                with suppress(NotFound):
                    container.remove(force=True, v=True)
        self.remove(name)

    @_reachable
    def prune_cache(self) -> None:
        """See `Engine`."""
        self._client.api.prune_builds()


def _available_memory() -> int | None:
    """Bytes that programs may still take on this machine, or None where the kernel does not say."""
    with suppress(OSError):
        text = Path("/proc/meminfo").read_text()
        if found := re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE):
            return int(found[1]) * 1024
    return None


def older(text: str, oldest: Version) -> bool:
    """Whether a program's version is older; one built from a commit tells none, and is taken to be new."""
    try:
        return Version(text.partition("+")[0]) < oldest
    except InvalidVersion:
        return False
