"""Manifests of a model server, KServe's or TensorFlow Serving's: Compose, Kubernetes, and KServe."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfimg.core.errors import UsageError
from tfimg.deploy.compose import escape_interpolation
from tfimg.deploy.documents import dump_documents
from tfimg.deploy.image import pin_image, pin_local_image
from tfimg.deploy.kubernetes import INSTANCE, MAX_OBJECT, OBJECT
from tfimg.deploy.workload import PER_GPU, SMALL
from tfimg.engine.interface import DeviceSupport, Engine
from tfimg.host.jupyter import choose_port
from tfimg.host.run import IMAGE_USER, parse_gpus
from tfimg.host.serving import (
    GRPC_PORT,
    MODELS,
    NAME,
    REST_PORT,
    START_SECONDS,
    TENSORFLOW_GRPC,
    TENSORFLOW_REST,
    choose_reader,
    find_image,
    find_model,
    format_conversion,
    name_serving_image,
    require_server,
)
from tfimg.matrix.schema import ServingImage
from tfimg.matrix.spec import ImageSpec
from tfimg.registry.documents import Reader
from tfimg.registry.reference import Reference, parse_reference

Manifest = Literal["compose", "kubernetes", "kserve"]

ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'$]+")
CLAIM = re.compile(r"pvc://([^/]+)/?(.*)")
STOP_SECONDS = 40  # the server lets running requests finish for 30 s
PROBE_SECONDS = 5  # between two probes
MAX_NAME = 40  # characters of the objects' names; what is appended to them stays within 63


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingRequest:
    """What the user wants of a manifest; what is None is chosen.

    `source` is a folder of this machine or an address, `image` is of variant serve, `ports` are those of loopback.
    `serving` is TensorFlow Serving's image of the release, if that is to serve.
    """

    source: str
    name: str | None
    image: str | None
    tensorflow: str | None
    serving: ServingImage | None
    gpus: str | None
    ports: tuple[int | None, int | None]
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelServer:
    """What a manifest runs.

    `source` is the model: a folder of this machine in Compose, else an address, `pvc://CLAIM/FOLDER` or another that
    KServe's storage initializer reads. `place` is where the server has it below its folder of models. `gpus` are
    numbers or identities of GPUs, or `all`; clusters count them. `ports` are those of loopback in Compose. `words` are
    further ones of the server's program; `user` runs it in Compose where the image's may not read the folder.
    """

    image: str
    name: str
    source: str
    place: str
    is_tensorflow_serving: bool = False
    gpus: tuple[str, ...] = ()
    ports: tuple[int, int] | None = None
    words: Sequence[str] = ()
    user: str | None = None

    @property
    def object_name(self) -> str:
        """The name of objects: of a-z, 0-9 and dashes, with a letter first."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:MAX_NAME].strip("-")
        return slug if slug[:1].isalpha() else f"model-{slug}".strip("-")

    @property
    def container_ports(self) -> tuple[int, int]:
        """The ports of REST and gRPC in the container."""
        return (TENSORFLOW_REST, TENSORFLOW_GRPC) if self.is_tensorflow_serving else (REST_PORT, GRPC_PORT)

    @property
    def program(self) -> tuple[str, ...]:
        """The words after the image."""
        own = () if self.is_tensorflow_serving else ("tfimg-serve", f"--model={self.name}={MODELS}/{self.name}")
        return (*own, *self.words)

    @property
    def ready(self) -> str:
        """The path that answers when the model is loaded."""
        return f"/v1/models/{self.name}" if self.is_tensorflow_serving else "/v2/health/ready"


def plan_server(
    request: ServingRequest, manifest: Manifest, engine: Engine, *, read_spec: Callable[[str], ImageSpec],
    find_toolkit: Callable[[], DeviceSupport], open_registry: Callable[[Reference], Reader],
) -> ModelServer:  # fmt: skip
    """Return what a manifest runs: the model, the image, its user and its ports.

    `read_spec` returns what an image of the engine is, `find_toolkit` what the engine's machine supports.

    Raises `UsageError`, what the model or the image lacks, and as `pin_image`.
    """

    def find() -> str:
        return request.image or find_image(engine.list_images(), request.tensorflow)

    model = None
    if "://" in request.source:
        name = _choose_name(request, manifest)
    else:
        path = Path(request.source)
        model = find_model(path, request.name, format_conversion(path, find))
        name = model.name
    user = None
    if request.serving:
        image = name_serving_image(request.serving, request.gpus)
    elif manifest == "compose" and model:
        named = find()
        require_server(named, read_spec(named))
        reader = choose_reader(model, find_toolkit())
        user = reader[1] if reader[:1] == ("--user",) else None
        image = pin_local_image(parse_reference(named), engine.find_digest) or named
    else:
        if request.image is None:
            raise UsageError(
                "A cluster pulls the image from a registry.",
                next_step="Publish one of variant serve, and name it with --image REGISTRY/NAME:TAG.",
            )
        image = pin_image(parse_reference(request.image), open_registry)
    rest, grpc = request.ports
    return ModelServer(
        image=image, name=name, source=request.source, place=model.place if model else "", user=user,
        is_tensorflow_serving=request.serving is not None, gpus=parse_gpus(request.gpus) if request.gpus else (),
        words=request.words, ports=(choose_port(rest), choose_port(grpc)) if rest or grpc else None,
    )  # fmt: skip


def _choose_name(request: ServingRequest, manifest: Manifest) -> str:
    """Return the name of a model at an address: its last folder that is no number. Raises `UsageError`."""
    parts = [one for one in request.source.partition("://")[2].split("/") if one and not one.isdigit()]
    name = request.name or (parts[-1] if parts and NAME.fullmatch(parts[-1]) else "model")
    if manifest == "compose":
        raise UsageError(f"{request.source} is no folder of this machine.", next_step="Name a folder for Compose.")
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name.", next_step="Choose one with --name.")
    return name


def render_serving(server: ModelServer, manifest: Manifest) -> str:
    """Return a manifest of a model server. Raises `UsageError` for what the platform cannot run."""
    if manifest == "compose":
        return dump_documents([_compose(server)])
    if not ADDRESS.fullmatch(server.source):
        raise UsageError(
            f"{server.source} is a folder of this machine, which a cluster does not see.",
            next_step="Name the model by its address: pvc://CLAIM/FOLDER, or for KServe also s3://, gs:// or https://.",
        )
    if server.gpus == ("all",):
        raise UsageError("A cluster counts GPUs.", next_step="Name as many as the server needs: --gpus 0 is one.")
    return dump_documents(_kubernetes(server) if manifest == "kubernetes" else _kserve(server))


def _compose(server: ModelServer) -> dict[str, Any]:
    outer = server.ports or server.container_ports
    service: dict[str, Any] = {"image": server.image}
    if server.image.startswith("sha256:"):
        service["pull_policy"] = "never"  # a digest alone, which only this engine knows
    if server.program:
        service["command"] = [escape_interpolation(word) for word in server.program]
    if server.is_tensorflow_serving:
        service["environment"] = {"MODEL_NAME": server.name}
    user = server.user or (f"{IMAGE_USER}:{IMAGE_USER}" if server.is_tensorflow_serving else None)
    if user:  # TensorFlow Serving's image would run as root
        service |= {"user": user, "group_add": ["0"]}
    if server.gpus:
        which: dict[str, Any] = {"count": "all"} if server.gpus == ("all",) else {"device_ids": list(server.gpus)}
        device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    volume = {
        "type": "bind", "source": escape_interpolation(str(Path(server.source).absolute())),
        "target": f"{MODELS}/{server.place}", "read_only": True,
    }  # fmt: skip
    service |= {
        "ports": [f"127.0.0.1:{port}:{inner}" for port, inner in zip(outer, server.container_ports, strict=True)],
        "volumes": [volume],
        "read_only": True,
        "tmpfs": ["/tmp:mode=1777"],  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_SECONDS}s",
    }
    return {"name": server.object_name, "services": {"server": service}}


def _container(server: ModelServer, name: str, mounts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the container of a cluster, without what starts it."""
    rest, grpc = server.container_ports
    gpus = len(server.gpus)
    fixed = {"memory": f"{PER_GPU.memory * gpus or SMALL.memory}Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    probe = {"httpGet": {"path": server.ready, "port": rest}, "periodSeconds": PROBE_SECONDS, "timeoutSeconds": 5}
    return {
        "name": name,
        "image": server.image,
        "ports": [{"name": "http1", "containerPort": rest}, {"name": "h2c", "containerPort": grpc}],
        "resources": {"requests": {"cpu": str(PER_GPU.cpu * gpus or SMALL.cpu), **fixed}, "limits": fixed},
        "startupProbe": {**probe, "failureThreshold": START_SECONDS // PROBE_SECONDS},
        "readinessProbe": probe,
        "livenessProbe": {"tcpSocket": {"port": rest}, "periodSeconds": 30, "timeoutSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            # TensorFlow Serving's image would run as root.
            **({"runAsUser": IMAGE_USER} if server.is_tensorflow_serving else {}),
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],  # noqa: S108
    }


def _kubernetes(server: ModelServer) -> list[dict[str, Any]]:
    """Return a Deployment with one pod, and its Service."""
    claim = CLAIM.fullmatch(server.source)
    if claim is None:
        raise UsageError(
            f"Kubernetes itself does not download {server.source}.",
            next_step="Name a folder of a PersistentVolumeClaim, pvc://CLAIM/FOLDER, or use --manifest kserve.",
        )
    if len(claim[1]) > MAX_OBJECT or not OBJECT.fullmatch(claim[1]) or ".." in claim[2].split("/"):
        raise UsageError(f"{server.source} names no claim and folder.", next_step="Name them as pvc://CLAIM/FOLDER.")
    labels, folder = {INSTANCE: server.object_name}, claim[2].strip("/")
    mount = {"name": "models", "mountPath": f"{MODELS}/{server.name}", "readOnly": True}
    container = _container(server, "server", [mount | ({"subPath": folder} if folder else {})])
    if server.program:
        container["args"] = [word.replace("$(", "$$(") for word in server.program]
    if server.is_tensorflow_serving:
        container["env"] = [{"name": "MODEL_NAME", "value": server.name}]
    gpus = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        **(gpus if server.gpus else {}),
        "containers": [container],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "models", "persistentVolumeClaim": {"claimName": claim[1], "readOnly": True}},
        ],
    }
    metadata = {"name": server.object_name, "labels": labels}
    ports = zip(("http", "grpc"), server.container_ports, strict=True)
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": name, "port": port} for name, port in ports]},
        },
    ]


def _kserve(server: ModelServer) -> list[dict[str, Any]]:
    """Return a ServingRuntime, and an InferenceService of it; KServe puts the model into /mnt/models."""
    name, template, folder = server.object_name, "{{.Name}}", "/mnt/models"
    container = _container(server, "kserve-container", [])
    container["ports"] = container["ports"][:1]  # Knative takes one
    if server.is_tensorflow_serving:
        rest, grpc = server.container_ports
        ports = (f"--rest_api_port={rest}", f"--port={grpc}")
        container["command"] = ["/usr/bin/tensorflow_model_server"]  # the entry point reads no placeholders
        container["args"] = [f"--model_name={template}", f"--model_base_path={folder}", *ports, *server.words]
        # It has no address without the model's name.
        container["readinessProbe"] = {"tcpSocket": {"port": rest}, "periodSeconds": PROBE_SECONDS}
        del container["startupProbe"]
    else:
        container["args"] = ["tfimg-serve", f"--model={template}={folder}", *server.words]
    model_format = {"name": "tensorflow", "version": "2"}
    return [
        {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": "ServingRuntime",
            "metadata": {"name": name},
            "spec": {
                "supportedModelFormats": [model_format],
                "protocolVersions": ["v1", "grpc-v1"] if server.is_tensorflow_serving else ["v1", "v2", "grpc-v2"],
                "containers": [container],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        },
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {
                "predictor": {"model": {"modelFormat": model_format, "runtime": name, "storageUri": server.source}}
            },
        },
    ]
