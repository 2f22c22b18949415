"""The Docker engine, through its API and buildx."""

import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import docker
import requests
from docker.credentials import StoreError
from docker.errors import APIError, DockerException, ImageNotFound, NotFound, StreamParseError
from docker.models.images import Image
from docker.types import DeviceRequest, LogConfig
from docker.utils.socket import frames_iter
from packaging.version import Version
from tenacity import wait_random_exponential

from tfimg.core import errors
from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.core.cancellation import map_in_threads, on_cancel, raise_if_cancelled
from tfimg.core.events import BuildEvent, LogEvent, ProgressEvent, StepEvent
from tfimg.core.failures import (
    CREATE_FIRST,
    EXEMPT_TAGS,
    FULL_DISK,
    IMMUTABLE_TAG,
    RAISE_LIMIT,
    disk_error,
    read_failure,
    read_output,
)
from tfimg.core.files import digest_of, find_free_bytes
from tfimg.core.process import CommandFailed, clean_up, run, stream_stderr
from tfimg.core.retry import RetryPolicy, TransientError
from tfimg.core.tar import make_archive
from tfimg.core.text import MAX_QUOTED, list_first, quote_argument, truncate
from tfimg.engine import interface
from tfimg.engine.buildx import RawJsonDecoder, find_builder
from tfimg.engine.machine import INSTALL_ENGINE, describe_access, find_platform, make_probe
from tfimg.matrix.schema import PLATFORMS, Platform

SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 35_000),
)
"""A TCP connection ends 35 s after the other machine was last heard of (Linux, tcp(7)): a long check is silent for
minutes, and so is an engine behind a broken network."""

REQUEST_SECONDS = 600  # exports of large images take minutes
PING_SECONDS = 20  # limit for a busy engine's answer. It took under 1 s when tried
PODMAN = "Podman Engine"  # what Podman's service calls itself in its answer to /version


class _ApiClient(docker.APIClient):
    def mount(self, prefix: Any, adapter: Any) -> None:
        """Set socket options on every connection."""
        adapter.poolmanager.connection_pool_kw["socket_options"] = SOCKET_OPTIONS
        super().mount(prefix, adapter)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Prefer the engine's certificate authority to REQUESTS_CA_BUNDLE (psf/requests issue 3829)."""
        chosen = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, chosen, cert)


class _Client(docker.DockerClient):
    def __init__(self, **options: Any) -> None:
        self.api = _ApiClient(**options)


OWN_BUILDER = "default"
"""Buildx's name for the BuildKit of the engine at DOCKER_HOST."""

OLDEST_ENGINE = Version("23.0")
"""First release whose default builder is BuildKit and that can hold zstd layers (moby 23.0 release notes)."""

OLDEST_BUILDX = Version("0.12.0")  # first release that knows `--progress=rawjson`

DEVICE_OPTIONS: Mapping[interface.DeviceAccess, Mapping[str, Any]] = {
    "none": {},
    "nvidia": {"device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])], "shm_size": "1g"},
    "cdi": {"device_requests": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])], "shm_size": "1g"},
    "privileged": {"privileged": True, "network_mode": "host", "shm_size": "16g"},
}
"""API arguments for all accelerators, as of `docker run --gpus all`, of `--device nvidia.com/gpu=all`, and of Google's
page on containers of TPU VMs."""

OLDEST_CDI_PODMAN = 5
"""Podman 5.4 gives devices of CDI to containers of its Docker-compatible API; 4.3 ignores the request."""

MAX_LINE = 8 << 20  # bytes of a line; a longer one is split

MAX_OUTPUT, LINE_BYTES = 256 << 20, 256
"""Bytes that the program of a container may print, where each line counts for so many more: a million empty lines take
seconds to read. The suite prints less than 1 MB, TensorFlow's warnings included."""

CONCURRENT_REQUESTS = 8  # on two busy cores, 105 images took 2.3 s one after the other, 1.6 s so

BEING_REMOVED = re.compile(
    r"\bblob sha256:[0-9a-f]{64} expected at .*not found|\bcontent digest sha256:[0-9a-f]{64}: not found"
)
"""Answers of the containerd store (Docker 26.1), about an image that is being removed: the name is still
there, and its manifest or configuration is gone."""

DANGLING = ("<none>", "moby-dangling")  # what the stores name images that lost their tags

LISTING = RetryPolicy(attempts=10, backoff=wait_random_exponential(multiplier=0.02, max=0.5))
"""Docker 26.1 refuses the whole list while one image of it is being removed: 14 of 180 lists beside three loops that
each built and removed an image."""

NOT_UNPACKED = re.compile(r"\bsnapshot sha256:[0-9a-f]{64} does not exist")
"""Answer of the containerd store (Docker 26.1) about an image that it has packed only."""

RUNTIME_FIELDS = (
    *("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Shell"),
    *("ExposedPorts", "Volumes", "StopSignal", "Healthcheck"),
)
"""Fields of the configuration that decide how a container starts (OCI image specification, config.md). Labels decide
nothing, and engines disagree about which empty fields they report."""

NETWORK_LABEL = "tfimg.network"
"""Label of the networks that this program makes and of the containers in them; its value is the network's name."""

PLUGIN = "cli-plugins/docker-buildx"
PLUGIN_PARENTS = ("/usr/local/lib/docker", "/usr/local/libexec/docker", "/usr/lib/docker", "/usr/libexec/docker")
"""Where docker looks for the plugin (docker/cli, cli-plugins/manager), beside the user's own folder."""

PROBE_SECONDS = 60.0  # limit of the probe, which takes a second on a busy machine

Action = Literal["push", "pull"]
COMPLETE = frozenset({"Pushed", "Layer already exists", "Already exists", "Pull complete", "Download complete"})
"""States of a layer that is complete."""

MALFORMED = (
    *(AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError),
    StreamParseError,
)
"""What reading an answer of another form raises. The docker package raises `Exception` itself for a wrong image."""

DIGEST = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b", re.IGNORECASE)
"""In the last line of a push, `TAG: digest: sha256:… size: 527`, and of a pull, `Digest: sha256:…`."""

ADDRESS = re.compile(r" (?:to|for) https?://\S+(?=: )")
"""In messages of the containerd store, which quotes the status of an answer after it, and not the answer."""

LOG_IN = "Log in with `docker login {host}`, and run it again."
RETRY = "Run it again: layers that are there are not sent twice."
TRUST = (
    "Put its authority where the engine looks: /etc/docker/certs.d/{host}/ca.crt, of Podman "
    "/etc/containers/certs.d/{host}/ca.crt; or name a registry without TLS in Docker's insecure-registries, or with "
    "`insecure = true` in Podman's registries.conf."
)
REFUSED_PUSHES: tuple[tuple[str, type[errors.TfimgError], str, str], ...] = (
    (IMMUTABLE_TAG.pattern, errors.TagImmutable,
     "The registry {host} does not let the tag of {name} move", EXEMPT_TAGS),
    (r"(?:status:?|HTTP) 413\b|\b413 (?:Request|Payload|Content)|body too large", errors.RegistryError,
     "The registry {host}, or a proxy before it, takes no layer of this size", RAISE_LIMIT),
    (r"name[ _]unknown|does not exist in the registry|(?:repository|project) \S+ not found|from POST .*: 404\b",
     errors.RegistryError,
     "The registry {host} has no repository for {name}", CREATE_FIRST),
)  # fmt: skip
"""As `ERRORS`, of a push alone, and first: engines quote the status of a proxy in the middle of other words."""

ERRORS: tuple[tuple[str, type[errors.TfimgError], str, str], ...] = (
    (r"no space left", errors.DiskSpaceError, "No space left during the {action} of {name}",
     "Free some space on the engine's disk; for a push, also in the registry."),
    (r"does not exist locally|tag does not exist|No such image|reference does not exist",
     errors.ImageMissing, "The engine has no image {name}", "Give it that name first."),
    (r"content digest \S+: not found",
     errors.EngineError, "The engine has only a part of {name}", "Build it again, or pull it for every platform."),
    (r"x509|certificate|HTTP response to HTTPS client|tls: ",
     errors.NetworkError, "The engine does not trust the registry {host}", TRUST),
    (r"no basic auth credentials|unauthorized|authentication required|incorrect username|\b401\b",
     errors.RegistryError, "The registry {host} does not accept the engine's credentials", LOG_IN),
    (r"toomanyrequests|\b429\b",
     errors.NetworkError, "The registry {host} limits the rate of requests", "Run it again later."),
    (r"quota|insufficient storage|\b507\b",
     errors.RegistryError, "The registry {host} is full", "Ask its owner for space, and run it again."),
    (r"denied|forbidden|insufficient_scope|\b403\b",
     errors.RegistryError, "The registry {host} does not let the engine {action} {name}", LOG_IN),
    # Another client is uploading the same blob.
    (r"manifest[ _]blob[ _]unknown",
     errors.NetworkError, "The registry {host} does not have all of {name} yet", RETRY),
    (r"manifest unknown|name unknown|(resolve reference|repository) .*not found|not found: not found|\b404\b",
     errors.NotInRegistry, "The registry {host} does not have {name}", "Check the name."),
    (r"\b405\b|unsupported|method not allowed",
     errors.RegistryError, "The registry {host} is read-only", "Wait until its owner opens it again."),
    (r"\b5\d\d\b|dial |lookup |EOF|reset by peer|broken pipe|timed? ?out|deadline|unreachable|refused|proxyconnect"
     r"|failed to do request|closed network connection|unknown error|failed to copy",
     errors.NetworkError, "The {action} of {name} failed in the network", RETRY),
)  # fmt: skip
"""Pattern of an engine's message → error, its text, its next step. The first match counts: an engine quotes the
registry's own message beside its status."""

LOG_LINES = 12  # last lines of the failed step that an error quotes
SILENCE_SECONDS = 30.0  # after this time without output from buildx, its engine is asked whether it still answers

HALF_TRANSFERRED = "unsupported offset"
"""BuildKit's message about a layer of which it has half; see `tfimg.engine.handover`."""

LOST_SESSION = "no active session for"
"""BuildKit's message where a step that builds share waits for the client of one that was killed (docker/buildx issue
456, moby/buildkit issue 6422; seen with 0.13). The next build takes over."""

SESSION_ATTEMPTS = 3


CLOSED_FOLDER = re.compile(
    r"ERROR: (?:mkdir|open) (\S+): (read-only file system|permission denied|no such file or directory|not a directory)"
)
"""Message of buildx about its own folder, before it builds anything."""

DEBIAN_STEP = "sh /build/debian "  # of images/templates/Dockerfile.j2, which installs --apt
NOT_IN_DEBIAN = re.compile(
    r"^E: (?:Unable to locate package (?P<name>\S+)|Package '(?P<virtual>\S+)' has no installation candidate"
    r"|Version '(?P<version>\S+)' for '(?P<pinned>\S+)' was not found)$",
    re.MULTILINE,
)
DEBIAN_SUITE = re.compile(r"^(?:Get|Hit):\d+ \S+ ([a-z]+) InRelease\b", re.MULTILINE)
"""Messages of APT 2.6 about packages that its lists do not have, and about the lists that it reads."""

CONNECTING = "[internal] waiting for connection"
"""The step in which buildx 0.13 looks for a builder of the driver `remote`, and gives up after 20 s."""

CONNECTION_LOST = re.compile(
    "rpc error: code = Unavailable|error reading from server|Cannot connect to the Docker daemon|"
    "failed to list workers|error during connect"
)
"""Messages of buildx about a BuildKit that does not answer, or not any more."""


class DockerEngine:
    """Implements `Engine`: builds through `docker buildx`, everything else through Docker's API.

    `host` is such as `unix:///run/docker.sock`; `builder` is the buildx builder that builds for the engine; `context`
    the docker context that named it; `cache` the folder of what takes long to find out.
    """

    def __init__(
        self,
        *,
        host: str,
        environ: Mapping[str, str],
        builder: str | None = None,
        context: str | None = None,
        cache: Path | None = None,
    ) -> None:
        self.host, self.builder, self.context, self.cache = host, builder, context, cache
        self.is_local = host.startswith("unix://")  # the engine runs on this machine
        # By name: `docker buildx use` may have made another the default, and the image would stay in there.
        self.environ = {**environ, "DOCKER_HOST": host, "BUILDX_BUILDER": builder or OWN_BUILDER}

    @cached_property
    def client(self) -> docker.DockerClient:
        """The API client. It reads DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, as buildx does."""
        return self._connect(REQUEST_SECONDS)

    @cached_property
    def podman(self) -> str | None:
        """Podman's version; None if the engine is Docker."""
        with self.translate_errors():
            components = self.client.version().get("Components") or ()
            return next((str(part["Version"]) for part in components if part.get("Name") == PODMAN), None)

    def ping(self) -> None:
        """Raise `EngineUnavailable` unless the engine answers soon."""
        self._connect(PING_SECONDS).close()

    def _connect(self, timeout: int) -> docker.DockerClient:
        with self.translate_errors():
            try:
                return _Client.from_env(timeout=timeout, version="auto", environment=self.environ)
            except (DockerException, ValueError) as error:  # the latter for an address with a bad port or brackets
                raise self.unavailable(error) from None

    def info(self) -> dict[str, Any]:
        """Return what the engine says of itself (`docker info`)."""
        with self.translate_errors():
            return self.client.info()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Map a lost connection to `EngineUnavailable`, a refusal and an answer of another form to `EngineError`."""
        try:
            yield
        except APIError as error:
            kind = errors.ImageMissing if isinstance(error, ImageNotFound) else errors.EngineError
            raise kind(
                f"The engine at {self.host} refused: {error.explanation or error}",
                next_step="Its own log may say more; `tfimg engine status` says where it runs.",
            ) from None
        except requests.exceptions.RequestException as error:
            raise self.unavailable(error) from None
        except Exception as error:
            if not isinstance(error, MALFORMED) and type(error) is not Exception:
                raise
            raise errors.EngineError(
                f"The engine at {self.host} sent an answer that is not Docker's: "
                f"{type(error).__name__}: {truncate(str(error))}",
                next_step="Check what runs at this address.",
            ) from None

    def unavailable(self, error: Exception) -> errors.EngineUnavailable:
        next_step = describe_access(self.host)
        if self.context:
            next_step = f"Start it; or correct the docker context {self.context}, or name another --builder, or none."
        cause = error.__cause__  # the docker package quotes it with its representation
        if isinstance(cause or error, ValueError) or "bind address" in str(error):
            next_step = "Correct the address: unix:///PATH or tcp://HOST:PORT."
        reason = read_failure(cause if isinstance(cause, Exception) else error).reason or "no answer in time"
        if "SSHHTTPAdapter" in reason:  # the docker package lacks the library for it
            reason = "tfimg does not speak SSH"
            next_step = (
                "Forward its socket with `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock USER@HOST &`, and set "
                "DOCKER_HOST=unix:///tmp/engine.sock."
            )
        return errors.EngineUnavailable(
            f"No container engine answers at {truncate(self.host)}: {reason}.", next_step=next_step
        )

    @cached_property
    def _description(self) -> dict[str, Any]:
        """What the engine said first, of what does not change while it runs."""
        return self.info()

    def get_capabilities(self) -> interface.Capabilities:
        with self.translate_errors():
            info = self._description
            engine = str(info["ServerVersion"])
            if self.podman:
                raise errors.EngineCannotBuild(
                    f"The engine at {self.host} is Podman {engine}, which has no BuildKit to build with.",
                    next_step="`tfimg run`, `validate`, `publish --renew`, `pull` and `load` use it; for builds, start "
                    f"Docker, or {INSTALL_ENGINE} sets up an engine of tfimg's own beside it.",
                )
            require_version(f"The engine at {self.host} is Docker", engine, OLDEST_ENGINE)
            driver = str(dict(info.get("DriverStatus") or ()).get("driver-type"))
            return interface.Capabilities(
                host=self.host,
                engine=engine,
                buildx=self.buildx_version(),
                store="containerd" if driver.startswith("io.containerd.snapshotter") else "classic",
                data_root=str(info["DockerRootDir"]),
                free_bytes=self._free_bytes(info),
                memory_bytes=int(info["MemTotal"]),
                builder=self.builder,
                platform=_platform(info),
            )

    def get_device_support(self) -> interface.DeviceSupport:
        """See `Engine`. It needs no buildx."""
        with self.translate_errors():
            info = self._description
            devices: Sequence[Mapping[str, str]] = info.get("DiscoveredDevices") or ()
            return interface.DeviceSupport(
                host=self.host,
                runtimes=tuple(sorted(map(str, info.get("Runtimes") or ()))),
                # Podman always reads the default folders, and does not report them.
                cdi_folders=(
                    *map(str, info.get("CDISpecDirs") or (interface.DEFAULT_CDI_FOLDERS if self.podman else ())),
                ),
                cdi_devices=tuple(str(device["ID"]) for device in devices if device.get("Source") == "cdi"),
                engine="Podman" if self.podman else "Docker",
                version=str(info.get("ServerVersion") or ""),
                rootless=bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or ()),
                # A forwarded socket and that of a virtual machine are local too.
                shares_files=self.is_local
                and info.get("Name") == os.uname().nodename
                and os.path.lexists(info["DockerRootDir"]),
                platform=_platform(info),
            )

    def find_free_bytes(self) -> int | None:
        with self.translate_errors():
            return self._free_bytes(self.info())

    def buildx_version(self) -> str:
        """Return the version of buildx. Raises `EngineTooOld` when it is absent or too old."""
        return self._buildx_version

    @cached_property
    def _buildx_version(self) -> str:
        # Also by later runs, while the programs are the same files: to ask takes as long as five interpreters.
        programs = _list_buildx_programs(self.environ) if self.cache else []
        file, key = Path(self.cache or "", "buildx.json"), make_cache_key(self.environ["BUILDX_BUILDER"], *programs)
        version = read_cache(file, key) if programs else None
        if version is None:
            version = self._ask_buildx_version()
            if programs:
                write_cache(file, key, version)
        require_version("docker buildx is", version, OLDEST_BUILDX)
        return str(version)

    def _ask_buildx_version(self) -> str:
        try:
            words = run(["docker", "buildx", "version"], env=self.environ).split()
            version = words[1].removeprefix("v").partition("+")[0]
        except (CommandFailed, FileNotFoundError, IndexError):  # the latter of another program with this name
            raise errors.EngineTooOld(
                "`docker buildx` is not installed, and builds go through it.",
                next_step="Install your distribution's docker-buildx or docker-buildx-plugin package, or let "
                f"{INSTALL_ENGINE} do it.",
            ) from None
        return version

    def _free_bytes(self, info: Mapping[str, Any]) -> int | None:
        if not self.is_local:
            return None
        return find_free_bytes(Path(info["DockerRootDir"]))

    @contextmanager
    def _describe_disk(self) -> Iterator[None]:
        """Add the place and the free space of the engine's disk to what says that it is full."""
        try:
            yield
        except errors.DiskSpaceError as error:
            free = None
            with suppress(errors.TfimgError), self.translate_errors():
                info = self.info()
                folder, free = Path(info["DockerRootDir"]), self._free_bytes(info)
            if free is None:
                raise
            raise disk_error(error.what.rstrip("."), folder, free=free, next_step=error.next_step) from None

    def run(
        self, request: interface.RunRequest, *, timeout: float
    ) -> Generator[interface.Line | interface.Exit, None, None]:
        """See `ContainerRunner`. Raises `EngineTooOld` where a Podman would ignore the request for a GPU."""
        with self.translate_errors():
            if request.access == "cdi" and self.podman and int(self.podman.partition(".")[0]) < OLDEST_CDI_PODMAN:
                raise errors.EngineTooOld(
                    f"Podman {self.podman} at {self.host} gives no GPU to containers that are started through its "
                    "socket.",
                    next_step="Run the suite with its command, or upgrade it: "
                    f"`tfimg run {quote_argument(request.image)} -- tfimg-selftest`.",
                )
            container = self.client.containers.create(
                request.image,
                list(request.command),
                entrypoint=list(request.entrypoint) if request.entrypoint else None,
                environment=dict(request.environment),
                # The output is read as it comes: a log of it would fill the engine's disk.
                log_config=LogConfig(type="none"),
                **{**self._network_options(request.place), **DEVICE_OPTIONS[request.access]},
            )
            expired = threading.Event()

            def kill() -> None:
                expired.set()
                with suppress(requests.exceptions.RequestException):
                    container.kill()

            # A silent program sends no events: a timer kills it, which ends the stream.
            timer = threading.Timer(timeout, kill)
            timer.daemon = True
            try:
                container.put_archive("/", make_archive(request.files))
                # Before the start, so that no line is lost.
                stream: Any = self.client.api.attach_socket(str(container.id), {"stdout": 1, "stderr": 1, "stream": 1})
                with closing(stream), closing(stream._response):
                    container.start()
                    timer.start()
                    with on_cancel(container.kill):
                        try:
                            yield from split_lines(frames_iter(stream, tty=False))  # type: ignore[no-untyped-call]
                        except OSError as error:
                            raise self.unavailable(error) from None
                status = container.wait()["StatusCode"]
                container.reload()
                if expired.is_set():
                    raise TimeoutError(f"no end after {timeout:.0f} s")
                yield interface.Exit(status=int(status), out_of_memory=bool(container.attrs["State"]["OOMKilled"]))
            finally:
                timer.cancel()
                with suppress(requests.exceptions.RequestException):
                    clean_up(partial(container.remove, force=True, v=True))

    def _network_options(self, place: interface.NetworkPlace | None) -> dict[str, Any]:
        if place is None:
            return {"network_mode": "none"}
        return {
            "network": place.network,
            "hostname": place.host,
            "networking_config": {place.network: self.client.api.create_endpoint_config(aliases=[place.host])},
            "labels": {NETWORK_LABEL: place.network},
            "mem_limit": place.memory_bytes,
            "pids_limit": place.processes,
        }

    @contextmanager
    def open_network(self, name: str) -> Iterator[None]:
        """See `Engine`. The block may run its containers in other threads."""
        with self.translate_errors():
            self.client.networks.create(name, internal=True, labels={NETWORK_LABEL: name})
        try:
            yield
        finally:
            with suppress(requests.exceptions.RequestException):
                clean_up(partial(self.remove_network, name))

    def list_networks(self) -> Mapping[str, datetime]:
        with self.translate_errors():
            found = self.client.networks.list(filters={"label": NETWORK_LABEL})
            return {str(one.name): datetime.fromisoformat(one.attrs["Created"]) for one in found}

    def remove_network(self, name: str) -> None:
        """See `Engine`. Containers carry the network's label: a network does not list those that have stopped."""
        label = f"{NETWORK_LABEL}={name}"
        with self.translate_errors():
            for container in self.client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
                with suppress(NotFound):
                    container.remove(force=True, v=True)
            for network in self.client.networks.list(filters={"label": label}):
                with suppress(NotFound):
                    network.remove()

    def list_images(
        self, known: Mapping[str, interface.LocalImage] = interface.NO_IMAGES, names: Sequence[str] = ()
    ) -> Sequence[interface.LocalImage]:
        """See `Engine`. The list has no layers, so each image is inspected, several at once."""
        listed = LISTING.retry_transient(partial(self._listed_images, names))
        with self.translate_errors():
            found = map_in_threads(partial(self._local_image, known), listed, CONCURRENT_REQUESTS)
            return [image for image in found if image]

    def _listed_images(self, names: Sequence[str]) -> list[dict[str, Any]]:
        try:
            with self.translate_errors():
                filters = {"reference": list(names)} if names else None
                listed: list[dict[str, Any]] = self.client.api.images(filters=filters)
        except errors.EngineError as error:
            if BEING_REMOVED.search(str(error)):
                raise TransientError(error) from None
            raise
        return listed

    def _local_image(
        self, known: Mapping[str, interface.LocalImage], listed: Mapping[str, Any]
    ) -> interface.LocalImage | None:
        names = tuple(str(name) for name in listed["RepoTags"] or () if name != "<none>:<none>")
        by_digest = tuple(name for name in listed.get("RepoDigests") or () if name.partition("@")[0] not in DANGLING)
        if listed["Id"] in known:
            return replace(known[listed["Id"]], names=names, by_digest=by_digest)
        image = self._find(listed["Id"])
        if image is None:  # removed after it was listed
            return None
        # The containerd store lists an image with its compressed and its unpacked layers; an inspection reports the
        # compressed ones alone. The classic store reports the same number twice.
        total, inspected = int(listed["Size"]), int(image.attrs["Size"])
        compressed = total > inspected
        return interface.LocalImage(
            digest=str(listed["Id"]),
            names=names,
            labels=_read_labels(listed["Labels"]),
            content=content_digest(image.attrs),
            unpacked_bytes=total - inspected if compressed else total,
            compressed_bytes=inspected if compressed else None,
            created=int(listed.get("Created") or 0),
            by_digest=by_digest,
        )

    def read_image(self, name: str) -> interface.StoredImage:
        # pydantic: to describe an engine takes half the time without it.
        from tfimg.engine.export import classic_layers, containerd_layers, exported_layers

        with self.translate_errors():
            image = self.client.images.get(name)
            # The containerd store unpacks an image of another platform only for a container: no sizes are known before.
            try:
                steps: list[dict[str, Any]] = self.client.api.history(name)  # type: ignore[no-untyped-call]
            except APIError as error:
                if not NOT_UNPACKED.search(str(error.explanation)):
                    raise
                self.client.containers.create(name, ["true"]).remove(v=True)
                steps = self.client.api.history(name)  # type: ignore[no-untyped-call]
            layers = None
            if self.is_local:  # from the engine's files, where they are readable
                info = self.info()
                root = Path(info["DockerRootDir"])
                # containerd's root is the engine's own, or the system's.
                layers = containerd_layers(str(image.id), (root / "containerd/daemon", Path("/var/lib/containerd")))
                store = root / "image" / info["Driver"] / "layerdb"
                layers = layers or classic_layers(image.attrs["RootFS"]["Layers"], store)
            config = dict(image.attrs.get("Config") or {})
            return interface.StoredImage(
                digest=self._digest(image),
                layers=layers or exported_layers(self.client.api.get_image(name)),
                unpacked_bytes=sum(int(step["Size"]) for step in steps),
                labels=_read_labels(image.labels),
                content=content_digest(image.attrs),
                config={**config, "Env": [*map(str, config.get("Env") or ())]},
            )

    def find_digest(self, name: str) -> str | None:
        with self.translate_errors():
            image = self._find(name)
            return self._digest(image) if image else None

    def _digest(self, image: Image) -> str:
        """Return the digest by which the engine identifies an image; of Podman's, that of the manifest."""
        digests = {name.partition("@")[2] for name in image.attrs.get("RepoDigests") or ()}
        # Podman keeps the manifest of each image, and identifies it by its configuration. Pulled with two
        # compressions, an image has two manifests.
        return digests.pop() if len(digests) == 1 and self.podman else str(image.id)

    def find_labels(self, name: str) -> Mapping[str, str] | None:
        with self.translate_errors():
            image = self._find(name)
            return _read_labels(image.labels) if image else None

    def _find(self, name: str) -> Image | None:
        with self.translate_errors():
            try:
                return self.client.images.get(name)
            except APIError as error:
                if isinstance(error, ImageNotFound) or BEING_REMOVED.search(str(error.explanation)):
                    return None
                raise

    def export(self, name: str) -> Iterator[bytes]:
        with self.translate_errors():
            return cast("Iterator[bytes]", self.client.api.get_image(name))

    def load(self, pieces: Iterator[bytes]) -> None:
        """See `Engine`. The engine answers 200 before it fails."""
        with self._describe_disk(), self.translate_errors():
            for line in self.client.api.load_image(pieces, quiet=True):  # type: ignore[no-untyped-call]
                error = find_error(line)
                if error and FULL_DISK.search(error):
                    raise errors.DiskSpaceError(
                        f"The disk of the engine at {self.host} is full: {error}.",
                        next_step="Free some space there, or `docker image prune`; then run it again.",
                    )
                if error:
                    raise errors.EngineError(
                        f"The engine at {self.host} did not load the image: {error}.",
                        next_step="Its own log may say more; an engine before Docker 23 does not support zstd layers.",
                    )

    def tag(self, name: str, references: Sequence[str]) -> None:
        with self.translate_errors():
            image = self.client.images.get(name)
            for reference in references:
                repository, _, tag = reference.rpartition(":")
                image.tag(repository, tag)

    def remove(self, name: str) -> None:
        with self.translate_errors(), suppress(ImageNotFound):
            self.client.images.remove(name)

    def remove_with_containers(self, name: str) -> None:
        """See `Engine`. The engine's own filter would find containers of other names of the same image too."""
        with self.translate_errors():
            for container in self.client.containers.list(all=True, ignore_removed=True):
                if container.attrs["Config"]["Image"] == name:
                    with suppress(NotFound):
                        container.remove(force=True, v=True)
        self.remove(name)

    def find_cache_bytes(self) -> int | None:
        with self.translate_errors():
            steps = self.client.df().get("BuildCache")
            return None if steps is None else sum(int(step["Size"]) for step in steps if not step.get("Shared"))

    def prune_cache(self) -> None:
        with self.translate_errors():
            self.client.api.prune_builds(all=True)

    def can_run(self, platform: Platform) -> bool:
        """See `Engine`. An image of one tiny program proves it: an engine does not know what its kernel emulates."""
        if platform == self.get_device_support().platform:
            return True
        name = f"tfimg/probe:{platform.partition('/')[2]}-{secrets.token_hex(4)}"
        repository, _, tag = name.partition(":")
        archive = make_archive({"/probe": (make_probe(platform), 0o755)})
        with self.translate_errors():
            self.client.api.import_image_from_data(archive, repository=repository, tag=tag)
        try:
            with closing(
                self.run(interface.RunRequest(image=name, command=["/probe"], files={}), timeout=PROBE_SECONDS)
            ) as items:
                return any(isinstance(item, interface.Exit) and item.status == 0 for item in items)
        finally:
            self.remove(name)

    def resolve_digest(self, reference: str) -> str:
        with self.translate_errors():
            try:
                return str(self.client.images.get_registry_data(reference).id)
            except APIError as error:
                message = str(error.explanation or error).rstrip(".")
                failure = read_output(message)
                raise errors.NetworkError(
                    f"The engine cannot resolve {reference}: {failure.describe() if failure else message}.",
                    next_step="Check its name, and the engine's own proxy and DNS; or name a mirror with --mirror.",
                ) from None

    def push(self, name: str, on_event: interface.OnProgress) -> str:
        repository, _, tag = name.rpartition(":")
        return self._transfer("push", name, on_event, {"repository": repository, "tag": tag})

    def pull(self, name: str, on_event: interface.OnProgress) -> str:
        return self._transfer("pull", name, on_event, {"repository": name})

    def _transfer(self, action: Action, name: str, on_event: interface.OnProgress, arguments: Mapping[str, str]) -> str:
        with self._describe_disk(), self.translate_errors():
            api = self.client.api
            # The user may have logged in since the client read it.
            folder = self.environ.get("DOCKER_CONFIG") or Path(self.environ.get("HOME", "/"), ".docker")
            api.reload_config(dockercfg_path=str(Path(folder, "config.json")))
            try:
                with closing(getattr(api, action)(**arguments, stream=True, decode=True)) as lines:
                    return follow_transfer(action, name, lines, on_event, find_digest=self._find_pulled)
            except APIError as error:
                raise transfer_error(action, name, str(error.explanation or error)) from None
            except StoreError as error:
                raise errors.RegistryError(
                    f"A credential helper returned no credentials for the registry of {name}: {error}.",
                    next_step="Repair it, or remove it from docker's config.json and log in with `docker login`.",
                ) from None

    def _find_pulled(self, name: str, image_id: str) -> str | None:
        """Return the digest that a pulled name has; None unless it names the image of the stream's last line."""
        image = self._find(name)
        if image is None or not image_id or not str(image.id).removeprefix("sha256:").startswith(image_id):
            return None
        digests = [one.partition("@")[2] for one in image.attrs.get("RepoDigests") or ()]
        expected = name.partition("@")[2]
        return expected if expected in digests else next(iter(digests), None)

    def build(self, request: interface.BuildRequest) -> Generator[BuildEvent, None, None]:
        if self.builder is not None:
            yield from self._build_on(self.builder, request)
            return
        with self._describe_disk():
            yield from build(request, env=self.environ, check_alive=self.ping)

    def _build_on(self, builder: str, request: interface.BuildRequest) -> Generator[BuildEvent, None, None]:
        """Build on another builder, and load the image into the engine."""

        from tfimg.engine.export import extract_layout
        from tfimg.engine.handover import list_salts, salt_contexts

        def check_alive() -> None:
            self.ping()
            find_builder(builder, self.environ)

        with tempfile.TemporaryDirectory(prefix="tfimg-base-") as folder:
            # `type=docker` is what buildx loads into the engine; it takes the same options.
            output = request.output.replace("type=image", "type=docker", 1)
            contexts = whole = dict(request.contexts)
            for name in ("TOOLS", "BASE"):
                base = request.build_args.get(name, "@")
                if base not in whole and "@" not in base and self.find_digest(base) is not None:  # it is in no registry
                    layout = Path(folder, name)
                    with self.translate_errors():
                        whole[base] = f"oci-layout://{layout}@{extract_layout(self.export(base), layout)}"
            request, salts = replace(request, output=output), list_salts()
            while True:
                try:
                    yield from build(replace(request, contexts=contexts), env=self.environ, check_alive=check_alive)
                    return
                except errors.HalfTransferred:
                    salt = next(salts, None)
                    if salt is None:
                        raise
                    contexts = salt_contexts(whole, salt)


def _list_buildx_programs(environ: Mapping[str, str]) -> list[str]:
    """Return the files of docker and its plugin buildx, each with size and mtime; none if docker looks elsewhere."""
    docker = shutil.which("docker", path=environ.get("PATH", ""))
    own = environ.get("DOCKER_CONFIG") or f"{environ.get('HOME', '')}/.docker"
    plugins = [plugin for folder in (own, *PLUGIN_PARENTS) if (plugin := Path(folder, PLUGIN)).is_file()]
    files = [Path(docker), *plugins] if docker and plugins else []
    return [f"{file} {(found := file.stat()).st_size} {found.st_mtime_ns}" for file in files]


def find_error(line: Mapping[str, Any]) -> str | None:
    """Return the error in a line of an engine's stream: the engine answers 200 before it begins."""
    return line.get("error") or (line.get("errorDetail") or {}).get("message")


def _read_labels(labels: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (labels or {}).items()}


def _platform(info: Mapping[str, Any]) -> Platform:
    return find_platform(str(info.get("Architecture"))) or PLATFORMS[0]


def require_version(subject: str, version: str, oldest: Version) -> None:
    """Raise `EngineTooOld` for a version below `oldest`. A build from a commit has none, and counts as new."""
    with suppress(ValueError):
        if Version(version.partition("+")[0]) < oldest:
            raise errors.EngineTooOld(
                f"{subject} {version}, and builds need {oldest} or newer.",
                next_step=f"Upgrade it, or {INSTALL_ENGINE} sets up one of tfimg's own beside it.",
            )


def split_lines(frames: Iterator[tuple[int, bytes]]) -> Iterator[interface.Line]:
    """Yield whole lines from a stream of frames; a frame's number is that of the file descriptor.

    Raises `ValidationAborted` for more than `MAX_OUTPUT` bytes.
    """
    rests = {1: bytearray(), 2: bytearray()}
    size = 0
    for number, piece in chain(frames, ((number, b"\n") for number in (1, 2) if rests[number])):
        *whole, rest = piece.split(b"\n")
        size += len(piece) + LINE_BYTES * len(whole)
        if size > MAX_OUTPUT:
            raise errors.ValidationAborted(
                f"The container was stopped, as its program printed more than {MAX_OUTPUT >> 20} MiB or "
                f"{MAX_OUTPUT // LINE_BYTES:,} lines.",
                next_step="Look inside with `docker run --rm -it --entrypoint sh IMAGE`.",
            )
        if whole:
            whole[0] = bytes(rests[number]) + whole[0]
            rests[number] = bytearray()
        rests[number] += rest
        if len(rests[number]) > MAX_LINE:
            whole.append(bytes(rests[number]))
            rests[number] = bytearray()
        for line in whole:
            yield interface.Line(stream="stdout" if number == 1 else "stderr", text=line.decode(errors="replace"))


def content_digest(attrs: Mapping[str, Any]) -> str:
    """Return `sha256:…` of the uncompressed layers and the runtime configuration, from an inspection."""
    config = attrs.get("Config") or {}
    content = {
        "layers": attrs["RootFS"].get("Layers") or [],
        "platform": [attrs.get("Os"), attrs.get("Architecture")],
        **{name: config[name] for name in RUNTIME_FIELDS if config.get(name)},
    }
    return digest_of(json.dumps(content, sort_keys=True).encode())


def follow_transfer(
    action: Action,
    name: str,
    lines: Iterable[Mapping[str, Any]],
    on_event: interface.OnProgress,
    *,
    find_digest: Callable[[str, str], str | None] = lambda *_: None,
) -> str:
    """Read an engine's stream about a push or pull to its end, and return the digest.

    A failure is a line of the stream, and the docker package raises nothing (docker/docker-py issue 3161). A stream
    without a digest was interrupted, or is Podman's, whose last line has the image's id: `find_digest` returns the
    digest of a name with that id.
    """
    digest, last = None, ""
    totals: dict[str, int] = {}
    for line in lines:
        raise_if_cancelled()
        if error := find_error(line):
            raise transfer_error(action, name, error)
        # An engine reports no bytes of a complete layer.
        layer, detail = str(line.get("id") or ""), line.get("progressDetail") or {}
        if layer and detail.get("total"):
            totals[layer] = int(detail["total"])
            current = int(detail.get("current", 0))
            on_event(ProgressEvent(step=action, what=layer, current=current, total=totals[layer]))
        elif layer in totals and line.get("status") in COMPLETE:
            on_event(ProgressEvent(step=action, what=layer, current=totals[layer], total=totals[layer]))
        in_status = DIGEST.search(str(line.get("status", "")))
        digest = (line.get("aux") or {}).get("Digest") or (in_status and in_status[1]) or digest
        last = layer if line.get("status") == "Download complete" else ""
    if digest is None and last:
        digest = find_digest(name, last)
    if digest is None:
        raise errors.NetworkError(
            f"The engine's answer ended before it reported the digest of the {action} of {name}.", next_step=RETRY
        )
    expected = name.partition("@")[2]
    if expected and digest != expected:
        raise errors.TamperedError(
            f"The pull of {name} returned another digest: {digest}.",
            next_step="Do not run it, and report it to the registry's owner.",
        )
    return str(digest)


def transfer_error(action: Action, name: str, message: str) -> errors.TfimgError:
    """Map an engine's message to an error."""
    host, slash, _ = name.partition("/")
    host = host if slash and re.search("[.:]|^localhost$", host) else "docker.io"
    quoted = truncate(ADDRESS.sub("", message) if len(message) > MAX_QUOTED else message).rstrip(".")
    for pattern, error, text, next_step in (*(REFUSED_PUSHES if action == "push" else ()), *ERRORS):
        if re.search(pattern, message, re.IGNORECASE):
            text = text.format(action=action, name=name, host=host)
            return error(f"{text}: {quoted}.", next_step=next_step.format(host=host))
    return errors.RegistryError(
        f"The {action} of {name} failed: {quoted}.", next_step="The registry's own log may say more."
    )


def build(
    request: interface.BuildRequest, *, env: Mapping[str, str], check_alive: Callable[[], object] = lambda: None
) -> Generator[BuildEvent, None, None]:
    """Run buildx, again if it loses a session, and yield its events.

    `check_alive` is called while buildx writes nothing, and raises where its engine does not answer. Raises
    `BuildError` or a more precise error when it fails.
    """
    for left in reversed(range(SESSION_ATTEMPTS)):
        try:
            return (yield from _run_buildx(request, env, check_alive))
        except errors.LostSession:
            if not left:
                raise


def _run_buildx(
    request: interface.BuildRequest, env: Mapping[str, str], check_alive: Callable[[], object]
) -> Generator[BuildEvent, None, None]:
    decoder, log, failed = RawJsonDecoder(), dict[str, list[str]](), None
    environ = {**env, **request.secret_env}
    try:
        for text in stream_stderr(build_command(request), env=environ, on_silence=check_alive, silence=SILENCE_SECONDS):
            for event in decoder.feed(text):
                if isinstance(event, LogEvent):
                    log.setdefault(event.step, []).append(event.line)
                elif isinstance(event, StepEvent) and event.state in ("failed", "interrupted"):
                    failed = event if event.state == "failed" else failed or event
                yield event
    except CommandFailed:
        decoder.close()
        proxy = env.get("https_proxy") or env.get("HTTPS_PROXY") or ""
        builder = env.get("BUILDX_BUILDER", OWN_BUILDER)
        raise build_error(failed, log, decoder.rest, proxy, builder) from None


def build_command(request: interface.BuildRequest) -> list[str]:
    """Return the command line of a build."""
    return [
        *("docker", "buildx", "build", "--progress=rawjson", "--provenance=false", f"--output={request.output}"),
        *(f"--tag={request.name}", f"--file={request.dockerfile}"),
        *(f"--build-arg={name}={value}" for name, value in request.build_args.items()),
        *(f"--label={name}={value}" for name, value in request.labels.items()),
        *(f"--secret={secret}" for secret in request.secrets),
        *(f"--build-context={name}={place}" for name, place in request.contexts.items()),
        *(f"--cache-from={source}" for source in request.cache_from),
        *(f"--cache-to={target}" for target in request.cache_to),
        *([f"--platform={request.platform}"] if request.platform else []),
        *([f"--target={request.target}"] if request.target else []),
        *(["--no-cache"] if request.no_cache else []),
        str(request.context),
    ]


def build_error(
    failed: StepEvent | None, log: Mapping[str, list[str]], rest: str, proxy: str = "", builder: str = OWN_BUILDER
) -> errors.TfimgError:
    """Map the failed step, its log and buildx's own messages (`rest`) to an error.

    Steps use the `proxy`, if any; `builder` is a name of buildx.
    """
    lines = log.get(failed.step, []) if failed else []
    reason = failed.error if failed and failed.error else rest.strip()
    output = "\n".join([*lines, reason or "", rest])
    step = re.sub(r"\s+", " ", failed.step)[:160] if failed else "the build"
    excerpt = " ".join(line.strip() for line in lines[-LOG_LINES:]) or (reason or "nothing")
    if failed is None and (closed := CLOSED_FOLDER.match(rest.strip())):
        return errors.FileError(
            f"docker buildx cannot write to its folder: {closed[1]}: {closed[2]}.",
            next_step="Name a folder that you may write to in BUILDX_CONFIG; by default it is in ~/.docker.",
        )
    if CONNECTION_LOST.search(f"{reason}\n{rest}") or (failed and failed.step == CONNECTING):
        lost, check = "engine", "tfimg engine status"
        if builder != OWN_BUILDER:
            lost, check = f"builder {builder}", f"docker buildx inspect --bootstrap {quote_argument(builder)}"
        return errors.EngineUnavailable(
            f"The {lost} was lost during {step}: {reason or rest.strip()}",
            next_step=f"Check that it runs and answers (`{check}`), then build again: finished steps are kept where "
            "its disk is.",
        )
    if FULL_DISK.search(output):
        return errors.DiskSpaceError(
            f"The engine's disk filled up during {step}.",
            next_step="Free some space (`docker builder prune` removes build cache), then build again: "
            "finished steps are kept.",
        )
    if "ash mismatch" in output or "DO NOT MATCH THE HASHES" in output:
        return errors.HashMismatchError(f"The hash of a wheel from the package index differs from the lock: {excerpt}")
    if failure := read_output(output, proxy):
        return errors.NetworkError(
            f"The build could not reach the network during {step}: {failure.describe()}.",
            next_step="Check proxy, CA bundle (SSL_CERT_FILE) and index settings on this machine; the build uses "
            "the same. A proxy on 127.0.0.1 cannot be reached from a build.",
        )
    if HALF_TRANSFERRED in f"{reason}\n{rest}":
        return errors.HalfTransferred(
            f"The builder has half of a layer that {step} needs, from a build that was interrupted, and cannot take "
            "the rest.",
            next_step="Restart the engine or builder, which forgets it, and build again: finished steps are kept.",
        )
    if failed and DEBIAN_STEP in failed.step and (unknown := _find_unknown_packages(log_text := "\n".join(lines))):
        suite = DEBIAN_SUITE.search(log_text)
        return errors.BuildError(
            f"Debian{f' {suite[1]}' if suite else ''} has no package {list_first(unknown, LOG_LINES)}.",
            next_step="Correct the name in --apt; packages.debian.org lists those of each release.",
        )
    kind = errors.LostSession if LOST_SESSION in f"{reason}\n{rest}" else errors.BuildError
    return kind(
        f"The build failed during {step}: {reason} Last output of the step: {excerpt}",
        next_step="Correct the cause and build again: finished steps are kept.",
    )


def _find_unknown_packages(log: str) -> list[str]:
    """Return the names that APT does not find, with `=VERSION` where it is only the version that it does not have."""
    found = (one.groupdict() for one in NOT_IN_DEBIAN.finditer(log))
    return [one["name"] or one["virtual"] or f"{one['pinned']}={one['version']}" for one in found]
