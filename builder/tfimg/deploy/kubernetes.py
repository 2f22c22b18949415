"""Kubernetes manifests: Pods, an Indexed Job, a JobSet, a TrainJob of Kubeflow Trainer 2, or a TFJob."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tfimg.core.errors import UsageError
from tfimg.core.text import quote_value
from tfimg.deploy.documents import dump_documents
from tfimg.deploy.workload import (
    CHECKPOINTS,
    CLUSTER,
    MAX_LABEL,
    PORT,
    RESTARTS,
    TASK,
    TENSORBOARD_PORT,
    Resources,
    Role,
    Workload,
    format_cluster,
    require_name,
    require_workload,
)
from tfimg.host.run import IMAGE_USER

Kind = Literal["job", "jobset", "trainjob", "tfjob", "pod"]

INSTANCE = "app.kubernetes.io/instance"  # Kubernetes' recommended label
COMPONENT = "app.kubernetes.io/component"
QUEUE = "kueue.x-k8s.io/queue-name"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK = "trainer.kubeflow.org/framework"  # without it, Kubeflow's SDK 0.5 leaves the runtime out

OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
MAX_OBJECT = 253  # characters of an object's name: a DNS subdomain (RFC 1123)

POD_SUFFIX = "-abcde"  # what the Job controller appends to the names of pods, and JobSet's webhook counts

SPOT: tuple[tuple[str, str], ...] = (
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
)
"""Labels of the nodes that a cloud may take back, of which a node has one. GKE and AKS taint them alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TpuSlice:
    """A slice of TPUs in GKE: values of its nodes' labels, the chips of each node, and the number of nodes."""

    accelerator: str
    topology: str
    chips: int
    hosts: int = 1


TPU_SLICES: Mapping[str, TpuSlice] = {
    **{
        f"{name}-{chips}": TpuSlice(accelerator=accelerator, topology=topology, chips=min(chips, 8), hosts=1)
        for name, accelerator in {"v5litepod": "tpu-v5-lite-podslice", "v6e": "tpu-v6e-slice"}.items()
        for chips, topology in {1: "1x1", 4: "2x2", 8: "2x4"}.items()
    },
    **{
        f"{name}-{chips}": TpuSlice(accelerator=accelerator, topology=topology, chips=4, hosts=chips // 4)
        for name, accelerator in {"v5litepod": "tpu-v5-lite-podslice", "v6e": "tpu-v6e-slice"}.items()
        for chips, topology in {16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}.items()
    },
    **{
        f"{name}-{cores}": TpuSlice(accelerator=accelerator, topology=topology, chips=4, hosts=cores // 8)
        for name, accelerator in {"v4": "tpu-v4-podslice", "v5p": "tpu-v5p-slice"}.items()
        for cores, topology in {8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4"}.items()
    },
}
"""Types of TPUs by Google Cloud's names, which count chips (v5e, v6e) or cores, two to a chip (v4, v5p). From Google's
table in xpk (`system_characteristics.py`)."""

TPU_RESOURCES = Resources(cpu=8, memory=40, shm=16)
"""Of a worker with TPUs: the smallest machine, ct5lp-hightpu-1t, has 24 processors and 48 GB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesWorkload(Workload):
    """A workload in a Kubernetes cluster; `tpu` is of `TPU_SLICES`; `spot`: on nodes that the cloud takes back."""

    kind: Kind = "job"
    tpu: str | None = None
    spot: bool = False

    @property
    def tpu_slice(self) -> TpuSlice | None:
        return TPU_SLICES[self.tpu] if self.tpu else None


def render_kubernetes(workload: KubernetesWorkload) -> str:
    """Return the manifest of a workload. Raises `UsageError` for what the kind cannot run, and for too long names."""
    return dump_documents(list_objects(workload))


def list_objects(workload: KubernetesWorkload) -> list[dict[str, Any]]:
    """Return the objects of a workload, in the order in which they are to be made. Raises as `render_kubernetes`."""
    require_workload(workload)
    _require_kind(workload)
    _require_tpu(workload)
    longest = LONGEST[workload.kind].format(max(workload.roles.values()) - 1)
    suffixes = [longest, "-tensorboard"] if workload.tensorboard else [longest]
    require_name(workload.name, max(suffixes, key=len), where=TITLES[workload.kind])
    for option, value, limit in (
        ("--checkpoints", workload.checkpoints, MAX_OBJECT), ("--queue", workload.queue, MAX_LABEL)
    ):  # fmt: skip
        if value is not None and (len(value) > limit or not OBJECT.fullmatch(value)):
            raise UsageError(
                f"{option} {quote_value(value)} is not the name of an object in Kubernetes.",
                next_step=f"It has up to {limit} characters of a-z, 0-9, dashes and dots.",
            )
    objects = list(KINDS[workload.kind](workload))
    if workload.tensorboard:
        objects.append(_tensorboard(workload))
    return objects


TITLES: Mapping[Kind, str] = {
    "job": "a Job",
    "jobset": "a JobSet",
    "trainjob": "a TrainJob",
    "tfjob": "a TFJob",
    "pod": "a Pod",
}

LONGEST: Mapping[Kind, str] = {
    "job": "-{}",
    "jobset": f"-worker-0-{{}}{POD_SUFFIX}",
    "trainjob": f"-node-0-{{}}{POD_SUFFIX}",
    "tfjob": "-worker-{}",
    "pod": "-worker-{}",
}
"""What is appended to the workload's name at most; the number is that of the last container. Kubernetes cuts longer
names of a Job's pods, but not their host names."""


def _require_kind(workload: KubernetesWorkload) -> None:
    if workload.ps and workload.kind not in ("jobset", "tfjob"):
        raise UsageError(
            f"--ps does not work with --kind {workload.kind}: parameter servers never end by themselves, and "
            f"{TITLES[workload.kind]} would wait for them.",
            next_step="Use --kind jobset or tfjob, which end when the chief does.",
        )


def _require_tpu(workload: KubernetesWorkload) -> None:
    if workload.tpu is None:
        return
    if workload.tpu not in TPU_SLICES:
        raise UsageError(
            f"--tpu {quote_value(workload.tpu)} is not a known type.",
            next_step=f"Known are {', '.join(TPU_SLICES)}.",
        )
    hosts = TPU_SLICES[workload.tpu].hosts
    if workload.workers != hosts or workload.ps:
        raise UsageError(
            f"--tpu {workload.tpu} is a slice of {hosts} machine{'s' if hosts > 1 else ''}: it needs as many workers, "
            "and no parameter servers.",
            next_step=f"Write --workers {hosts}, without --ps.",
        )
    if workload.kind not in ("job", "jobset"):
        raise UsageError(
            f"--tpu does not work with --kind {workload.kind}: GKE numbers a slice's workers by the index of a Job.",
            next_step="Use --kind job or jobset.",
        )


# Parts of pods


def escape_references(text: str) -> str:
    """Write a text so that Kubernetes, which replaces `$(NAME)` and reads `$$` as `$`, reads it as it is."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _labels(workload: KubernetesWorkload, role: Role | None = None) -> dict[str, str]:
    return {INSTANCE: workload.name, **({COMPONENT: role} if role else {})}


def _metadata(workload: KubernetesWorkload, *, queued: bool = True) -> dict[str, Any]:
    """Return the metadata of the outermost object, which alone belongs to the queue."""
    queue = {QUEUE: workload.queue} if workload.queue and queued else {}
    return {"name": workload.name, "labels": {**_labels(workload), **queue}}


def _suspended(workload: KubernetesWorkload) -> dict[str, bool]:
    """Return the field with which an object waits until Kueue starts it."""
    return {"suspend": True} if workload.queue else {}


def _variables(variables: Mapping[str, str]) -> dict[str, Any]:
    listed = [{"name": name, "value": escape_references(value)} for name, value in variables.items()]
    return {"env": listed} if listed else {}


def _resources(workload: KubernetesWorkload, role: Role) -> tuple[Resources, dict[str, str]]:
    """Return the resources of a role, and its accelerators."""
    if workload.tpu_slice:
        return TPU_RESOURCES, {"google.com/tpu": str(workload.tpu_slice.chips)}
    gpus = workload.gpus_of(role)
    return workload.resources_of(role), {"nvidia.com/gpu": str(gpus)} if gpus else {}


def _requests(workload: KubernetesWorkload, role: Role) -> dict[str, Any]:
    resources, accelerators = _resources(workload, role)
    fixed = {"memory": f"{resources.memory}Gi", **accelerators}
    # No limit of processors: it would slow down bursts of the input pipeline.
    return {"requests": {"cpu": str(resources.cpu), **fixed}, "limits": fixed}


def _container(
    workload: KubernetesWorkload, role: Role, variables: Mapping[str, str], *, name: str = "train"
) -> dict[str, Any]:
    mounts = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    if workload.checkpoints:
        mounts.append({"name": "checkpoints", "mountPath": CHECKPOINTS})
    return {
        "name": name,
        "image": workload.image,
        # Not `command`, which would replace the image's entry point.
        "args": [escape_references(word) for word in workload.program],
        **_variables({**workload.variables_of(role), **variables}),
        "resources": _requests(workload, role),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _pod_spec(workload: KubernetesWorkload, role: Role, container: dict[str, Any], *, restart: str) -> dict[str, Any]:
    """Return the pod of a role. Its shared memory counts as memory of the container."""
    shm = _resources(workload, role)[0].shm
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm}Gi"}},
    ]
    security: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if workload.checkpoints:
        volumes.append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": workload.checkpoints}})
        security |= {"fsGroup": IMAGE_USER, "fsGroupChangePolicy": "OnRootMismatch"}
    return {
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security,
        **_placement(workload, role),
        "containers": [container],
        "volumes": volumes,
    }


def _placement(workload: KubernetesWorkload, role: Role) -> dict[str, Any]:
    """Return on which nodes a pod may run: those with its accelerator, and with --spot only those of that kind."""
    tolerations: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for resource in _resources(workload, role)[1]:
        tolerations.append({"key": resource, "operator": "Exists", "effect": "NoSchedule"})
    if workload.tpu_slice:
        found["nodeSelector"] = {
            "cloud.google.com/gke-tpu-accelerator": workload.tpu_slice.accelerator,
            "cloud.google.com/gke-tpu-topology": workload.tpu_slice.topology,
        }
    if workload.spot:
        tolerations += [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"} for key, value in SPOT
        ]
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in SPOT]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        found["affinity"] = {"nodeAffinity": required}
    return {**found, "tolerations": tolerations} if tolerations else found


def _cluster_variables(workload: KubernetesWorkload, role: Role, host: str, task: str = "") -> dict[str, str]:
    """Return the variables of a container, whose index the platform gives; `host` has {role} and {index}."""
    if not workload.is_cluster or workload.tpu_slice:  # GKE describes a slice to its workers
        return {}
    hosts: dict[Role, list[str]] = {
        one: [host.format(role=one, index=index) for index in range(count)] for one, count in workload.roles.items()
    }
    return {CLUSTER: format_cluster(hosts), TASK: task or role}


def _headless_service(workload: KubernetesWorkload) -> dict[str, Any]:
    """Return the Service that gives pods their names, also before they are ready: they wait for each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(workload, queued=False),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(workload),
            "ports": [{"name": "tfimg-cluster", "port": PORT}],
        },
    }


def _is_connected(workload: KubernetesWorkload) -> bool:
    return workload.is_cluster or workload.tpu_slice is not None


def _tensorboard(workload: KubernetesWorkload) -> dict[str, Any]:
    """Return a Pod that only `kubectl port-forward` reaches; it needs no accelerator and no queue."""
    name, memory = f"{workload.name}-tensorboard", {"memory": "2Gi"}
    plain = replace(workload, gpus=0, tpu=None, spot=False, env={})
    container = _container(plain, "worker", {}, name="tensorboard") | {
        "args": ["tensorboard", "--logdir", CHECKPOINTS, "--port", str(TENSORBOARD_PORT)],
        "resources": {"requests": {"cpu": "1", **memory}, "limits": memory},
    }
    pod = _pod_spec(plain, "worker", container, restart="OnFailure")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {INSTANCE: name}}, "spec": pod}


# Kinds


def _list_pods(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield Pods, which a kubelet restarts; Kueue starts them together as a group."""
    if _is_connected(workload):
        yield _headless_service(workload)
    host = f"{workload.name}-{{role}}-{{index}}.{workload.name}"
    for role, count in workload.roles.items():
        for index in range(count):
            variables = _cluster_variables(workload, role, host, f"{role}:{index}")
            pod = _pod_spec(workload, role, _container(workload, role, variables), restart="OnFailure")
            name = f"{workload.name}-{role}-{index}"
            metadata: dict[str, Any] = {"name": name, "labels": _labels(workload, role)}
            if workload.queue:
                metadata["labels"] |= {QUEUE: workload.queue, "kueue.x-k8s.io/pod-group-name": workload.name}
                total = str(sum(workload.roles.values()))
                metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": total}
            if _is_connected(workload):
                pod = {"hostname": name, "subdomain": workload.name, **pod}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def _job_spec(
    workload: KubernetesWorkload, role: Role, container: dict[str, Any], *, backoff: int, on_eviction: str
) -> dict[str, Any]:
    """Return an Indexed Job of a role. `on_eviction` says what a node that the cloud takes back does to it."""
    count = workload.roles[role]
    eviction = {"action": on_eviction, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": backoff,
        **({"podFailurePolicy": {"rules": [eviction]}} if workload.spot else {}),
        "template": {
            "metadata": {"labels": _labels(workload, role)},
            # A pod that fails is replaced, by one on another node if need be, under the same name.
            "spec": _pod_spec(workload, role, container, restart="Never"),
        },
    }


def _list_job(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield an Indexed Job: it replaces pods, all of which fail when one does."""
    if _is_connected(workload):
        yield _headless_service(workload)
    host = f"{workload.name}-{{index}}.{workload.name}"
    container = _container(workload, "worker", _cluster_variables(workload, "worker", host))
    backoff = RESTARTS * workload.workers
    job = _job_spec(workload, "worker", container, backoff=backoff, on_eviction="Ignore")
    if _is_connected(workload):
        job["template"]["spec"] = {"subdomain": workload.name, **job["template"]["spec"]}
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(workload),
        "spec": {**_suspended(workload), **job},
    }


def _job_set_spec(workload: KubernetesWorkload, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a set of jobs that starts again as a whole, names its pods, and ends with the chief if it has one."""
    preempted = {
        "name": "preempted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        **({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["chief"]}} if workload.ps else {}),
        "failurePolicy": {"maxRestarts": RESTARTS, **({"rules": [preempted]} if workload.spot else {})},
        "replicatedJobs": list(jobs),
    }


def _list_job_set(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield a JobSet of one Job for each role."""
    host = f"{workload.name}-{{role}}-0-{{index}}.{workload.name}"
    jobs = []
    for role in workload.roles:
        container = _container(workload, role, _cluster_variables(workload, role, host))
        job = _job_spec(workload, role, container, backoff=0, on_eviction="FailJob")
        jobs.append({"name": role, "replicas": 1, "template": {"spec": job}})
    yield {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(workload),
        "spec": {**_suspended(workload), **_job_set_spec(workload, jobs)},
    }


def _list_train_job(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield a TrainJob, and the runtime that it refers to: Trainer has none for TensorFlow."""
    group, version = "trainer.kubeflow.org", "v1alpha1"
    host = f"{workload.name}-node-0-{{index}}.{workload.name}"
    container = _container(workload, "worker", _cluster_variables(workload, "worker", host), name="node")
    given = {name: container.pop(name) for name in ("args", "env") if name in container}
    job = _job_spec(workload, "worker", container, backoff=0, on_eviction="FailJob")
    node = {
        "name": "node",
        "replicas": 1,
        "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": job},
    }
    metadata = _metadata(workload, queued=False)
    metadata["labels"][FRAMEWORK] = "tensorflow"
    yield {
        "apiVersion": f"{group}/{version}",
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            "mlPolicy": {"numNodes": workload.workers},
            "template": {"spec": _job_set_spec(workload, [node])},
        },
    }
    yield {
        "apiVersion": f"{group}/{version}",
        "kind": "TrainJob",
        "metadata": _metadata(workload),
        "spec": {
            **_suspended(workload),
            "runtimeRef": {"apiGroup": group, "kind": "TrainingRuntime", "name": workload.name},
            "trainer": {
                "numNodes": workload.workers,
                "image": workload.image,
                **given,
                "resourcesPerNode": container["resources"],
            },
        },
    }


TFJOB_ROLES: Mapping[Role, str] = {"chief": "Chief", "worker": "Worker", "ps": "PS"}


def _list_tf_job(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield a TFJob, whose operator writes TF_CONFIG and makes the Services."""
    replicas = {}
    for role, count in workload.roles.items():
        container = _container(workload, role, {}, name="tensorflow")
        container["ports"] = [{"name": "tfjob-port", "containerPort": PORT}]
        pod = _pod_spec(workload, role, container, restart="OnFailure")
        replicas[TFJOB_ROLES[role]] = {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": {"metadata": {"labels": _labels(workload, role)}, "spec": pod},
        }
    yield {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": _metadata(workload),
        "spec": {
            "runPolicy": {
                **_suspended(workload),
                "backoffLimit": RESTARTS * sum(workload.roles.values()),
                "cleanPodPolicy": "Running",
            },
            **({} if workload.ps else {"successPolicy": "AllWorkers"}),
            "tfReplicaSpecs": replicas,
        },
    }


KINDS: Mapping[Kind, Callable[[KubernetesWorkload], Iterator[dict[str, Any]]]] = {
    "job": _list_job,
    "jobset": _list_job_set,
    "trainjob": _list_train_job,
    "tfjob": _list_tf_job,
    "pod": _list_pods,
}
