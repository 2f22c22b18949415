"""Kubernetes manifests: strict schemas, names, restarts, resources, security and queues of every kind."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
import yaml

from tfimg.core.errors import UsageError
from tfimg.deploy.kubernetes import TPU_SLICES, Kind, KubernetesWorkload, list_objects, render_kubernetes
from tfimg.deploy.workload import MAX_TASKS

IMAGE = f"registry.example:5000/team/tensorflow@sha256:{'a' * 64}"
KINDS: tuple[Kind, ...] = get_args(Kind)
WITH_SERVERS: tuple[Kind, ...] = ("jobset", "tfjob")
VERSIONS = ("1.28", "1.37")

SMALL = KubernetesWorkload(image=IMAGE, command=["python", "train.py"])
PAIR = replace(SMALL, workers=2)
ALL = replace(
    PAIR, gpus=2, checkpoints="claim", env={"A": "1"}, spot=True, queue="team-a", tensorboard=True, name="resnet"
)  # fmt: skip
CASES = {
    **{f"{kind}-one": replace(SMALL, kind=kind) for kind in KINDS},
    **{f"{kind}-pair": replace(PAIR, kind=kind) for kind in KINDS},
    **{f"{kind}-all": replace(ALL, kind=kind) for kind in KINDS},
    **{f"{kind}-servers": replace(ALL, kind=kind, ps=3) for kind in WITH_SERVERS},
    "tpu-one": replace(SMALL, tpu="v6e-1"),
    "tpu-slice": replace(SMALL, kind="jobset", tpu="v5litepod-16", workers=4),
}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every dictionary of a document."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(item)


def pods(workload: KubernetesWorkload) -> list[dict[str, Any]]:
    """Return the specification of each pod, without that of TensorBoard."""
    found = [one for one in walk(list_objects(workload)) if "containers" in one]
    return [one for one in found if one["containers"][0]["name"] != "tensorboard"]


def containers(workload: KubernetesWorkload) -> list[dict[str, Any]]:
    return [container for pod in pods(workload) for container in pod["containers"]]


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", ())}


def outermost(workload: KubernetesWorkload) -> dict[str, Any]:
    """Return the object that runs the pods."""
    kinds = {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "tfjob": "TFJob", "pod": "Pod"}
    return next(one for one in list_objects(workload) if one["kind"] == kinds[workload.kind])


def embedded(workload: KubernetesWorkload) -> Iterator[dict[str, Any]]:
    """Yield the objects that Kubernetes itself has a schema of, those inside of others included."""
    for one in list_objects(workload):
        if one["apiVersion"] in ("v1", "batch/v1"):
            yield one
    for one in walk(list_objects(workload)):
        if "completions" in one and "template" in one:
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": one}
        if "containers" in one:
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": one}


def check_schema(document: dict[str, Any], version: str) -> None:
    """Require that Kubernetes' own schema accepts an object. Raises ValidationError."""
    # Its import takes two seconds, which each worker would need to collect the tests; so does that of the models below.
    import kubernetes_validate

    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_the_schema_of_kubernetes_accepts_every_part(name: str, version: str) -> None:
    found = list(embedded(CASES[name]))
    assert found
    for one in found:
        check_schema(one, version)


def test_the_strict_schema_finds_a_field_that_kubernetes_lacks() -> None:
    from kubernetes_validate import ValidationError

    (job,) = list_objects(SMALL)
    job["spec"]["completionModus"] = "Indexed"
    with pytest.raises(ValidationError):
        check_schema(job, VERSIONS[-1])


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("jobset", "trainjob"))])
def test_the_models_of_kubeflow_keep_every_field(name: str) -> None:
    """They drop what they do not know."""
    from kubeflow_trainer_api import models

    kinds: dict[str, Any] = {
        "JobSet": models.JobsetV1alpha2JobSet,
        "TrainJob": models.TrainerV1alpha1TrainJob,
        "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    }
    found = [one for one in list_objects(CASES[name]) if one["kind"] in kinds]
    assert found
    for one in found:
        assert kinds[one["kind"]].from_dict(one).to_dict() == one


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_what_the_objects_are(name: str) -> None:
    assert list(yaml.safe_load_all(render_kubernetes(CASES[name]))) == list_objects(CASES[name])


def expand(text: str, values: dict[str, str]) -> str:
    """Replace references as a kubelet does: `$$` is `$`, `$(NAME)` a value, or itself for an unknown name."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[0] == "$$" else values.get(found[1] or "", found[0]), text
    )


WORDS = [
    "".join(word) for length in range(1, 5) for word in itertools.product(("$", "(A)", "A", "(", "\\"), repeat=length)
]


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_values_reach_the_program_as_they_are(kind: Kind) -> None:
    workload = replace(PAIR, kind=kind, command=WORDS, env={f"V{number}": word for number, word in enumerate(WORDS)})
    job = outermost(workload)
    container = job["spec"]["trainer"] if kind == "trainjob" else containers(workload)[0]
    known = {"A": "replaced"}
    assert [expand(word, known) for word in container["args"]] == ["tfimg-cluster", "--", *WORDS]
    assert {name: expand(value, known) for name, value in variables(container).items()}.items() >= workload.env.items()
    assert "command" not in container, "it would replace the image's entry point"


def test_a_variable_of_a_shell_stays_readable() -> None:
    assert containers(replace(SMALL, command=["sh", "-c", "echo $HOME"]))[0]["args"][-1] == "echo $HOME"


HOSTS = {
    "job": ("worker=train-0.train,train-1.train", "worker"),
    "jobset": ("worker=train-worker-0-0.train,train-worker-0-1.train", "worker"),
    "pod": ("worker=train-worker-0.train,train-worker-1.train", "worker:0"),
}


@pytest.mark.parametrize("kind", HOSTS)
def test_workers_know_their_cluster(kind: Kind) -> None:
    found = variables(containers(replace(PAIR, kind=kind))[0])
    assert (found["TFIMG_CLUSTER"], found["TFIMG_TASK"]) == HOSTS[kind]


def test_nodes_of_a_train_job_know_their_cluster() -> None:
    found = variables(outermost(replace(PAIR, kind="trainjob"))["spec"]["trainer"])
    assert found == {"TFIMG_CLUSTER": "worker=train-node-0-0.train,train-node-0-1.train", "TFIMG_TASK": "worker"}


def test_each_role_of_a_job_set_knows_its_own() -> None:
    found = [variables(one) for one in containers(replace(PAIR, kind="jobset", ps=1))]
    assert [one["TFIMG_TASK"] for one in found] == ["chief", "worker", "ps"]
    assert {one["TFIMG_CLUSTER"] for one in found} == {
        "chief=train-chief-0-0.train;worker=train-worker-0-0.train,train-worker-0-1.train;ps=train-ps-0-0.train"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_is_no_cluster(kind: Kind) -> None:
    objects = list_objects(replace(SMALL, kind=kind))
    assert "TFIMG_" not in str(objects)
    assert not [one for one in objects if one["kind"] == "Service"]


def test_a_tf_job_leaves_the_cluster_to_its_operator() -> None:
    job = outermost(replace(ALL, kind="tfjob", ps=1, env={}))
    assert set(job["spec"]["tfReplicaSpecs"]) == {"Chief", "Worker", "PS"}
    assert "TFIMG_" not in str(job)
    ports = [one["ports"] for one in walk(job) if "ports" in one]
    assert ports == [[{"name": "tfjob-port", "containerPort": 2222}]] * 3
    assert {one["name"] for one in containers(replace(PAIR, kind="tfjob"))} == {"tensorflow"}


def test_a_tf_job_without_chief_waits_for_all_workers() -> None:
    assert outermost(replace(PAIR, kind="tfjob"))["spec"]["successPolicy"] == "AllWorkers"
    assert "successPolicy" not in outermost(replace(PAIR, kind="tfjob", ps=1))["spec"]


@pytest.mark.parametrize("kind", ["job", "pod"])
def test_pods_find_each_other_before_they_are_ready(kind: Kind) -> None:
    service, *rest = list_objects(replace(PAIR, kind=kind))
    assert service["kind"] == "Service"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = [one["metadata"]["labels"] for one in walk(rest) if "labels" in one.get("metadata", {})]
    assert all(one.items() >= service["spec"]["selector"].items() for one in labels)
    for pod in pods(replace(PAIR, kind=kind)):
        assert pod["subdomain"] == service["metadata"]["name"]


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_job_set_names_pods_before_they_are_ready(kind: Kind) -> None:
    (network,) = (one["network"] for one in walk(list_objects(replace(PAIR, kind=kind))) if "network" in one)
    assert network == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


def test_pods_of_other_kinds_are_named_by_their_index() -> None:
    assert [pod["hostname"] for pod in pods(replace(PAIR, kind="pod"))] == ["train-worker-0", "train-worker-1"]


def test_a_train_job_refers_to_a_runtime_that_it_brings() -> None:
    runtime, job = list_objects(replace(PAIR, kind="trainjob"))
    assert job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime["metadata"]["name"],
    }  # fmt: skip
    assert job["spec"]["trainer"]["numNodes"] == runtime["spec"]["mlPolicy"]["numNodes"] == 2
    assert runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] == "tensorflow"
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert [one["name"] for one in containers(replace(PAIR, kind="trainjob"))] == ["node"]


# Security and resources


@pytest.mark.parametrize("name", CASES)
def test_a_container_has_no_privileges_and_writes_only_where_it_may(name: str) -> None:
    every = [one for one in walk(list_objects(CASES[name])) if "containers" in one]
    for pod in every:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert "hostNetwork" not in pod
        for container in pod["containers"]:
            assert container["image"] == IMAGE
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert set(mounts) >= {"/tmp", "/dev/shm"}  # noqa: S108
            assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}


def gibibytes(text: str) -> int:
    return int(text.removesuffix("Gi"))


@pytest.mark.parametrize("name", CASES)
def test_shared_memory_is_within_the_memory_and_accelerators_are_fixed(name: str) -> None:
    for pod in pods(CASES[name]):
        (shm,) = (volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "shm")
        for container in pod["containers"]:
            limits, requests = container["resources"]["limits"], container["resources"]["requests"]
            assert 0 < gibibytes(shm) <= gibibytes(limits["memory"]) // 2
            assert requests.items() >= limits.items()
            assert "cpu" in requests
            assert "cpu" not in limits


def test_only_workers_get_gpus() -> None:
    for kind in WITH_SERVERS:
        found = [one["resources"]["limits"].get("nvidia.com/gpu") for one in containers(replace(ALL, kind=kind, ps=1))]
        assert found == [None, "2", None]
        tolerated = [
            [one["key"] for one in pod["tolerations"] if one["key"] == "nvidia.com/gpu"]
            for pod in pods(replace(ALL, kind=kind, ps=1))
        ]
        assert tolerated == [[], ["nvidia.com/gpu"], []]


def test_a_volume_is_writable_for_the_image_s_group() -> None:
    for kind in KINDS:
        for pod in pods(replace(PAIR, kind=kind, checkpoints="claim")):
            assert pod["securityContext"]["fsGroup"] == 1000
            claims = [one["persistentVolumeClaim"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
            assert claims == [{"claimName": "claim"}]
        for pod in pods(replace(PAIR, kind=kind)):
            assert "fsGroup" not in pod["securityContext"], "OpenShift chooses it"


def test_tensorboard_reads_the_checkpoints_and_is_reached_from_nowhere() -> None:
    *_, pod = list_objects(replace(ALL, kind="jobset"))
    assert (pod["kind"], pod["metadata"]["name"]) == ("Pod", "resnet-tensorboard")
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["tensorboard", "--logdir", "/checkpoints", "--port", "6006"]
    assert "ports" not in container
    assert not {"affinity", "tolerations"} & set(pod["spec"])
    assert "nvidia" not in str(pod)
    with pytest.raises(UsageError, match="--checkpoints"):
        list_objects(replace(SMALL, tensorboard=True))


# Restarts


def test_something_restarts_and_never_always() -> None:
    policies = {
        kind: {one["restartPolicy"] for one in walk(list_objects(replace(PAIR, kind=kind))) if "restartPolicy" in one}
        for kind in KINDS
    }
    assert policies == {
        "job": {"Never"}, "jobset": {"Never"}, "trainjob": {"Never"}, "tfjob": {"OnFailure"}, "pod": {"OnFailure"},
    }  # fmt: skip
    job = outermost(replace(PAIR, kind="job"))["spec"]
    assert job["backoffLimit"] == 6, "each worker fails once when one does, three times"
    assert job["completions"] == job["parallelism"] == 2
    assert job["completionMode"] == "Indexed"
    for kind in ("jobset", "trainjob"):
        found = list(walk(list_objects(replace(PAIR, kind=kind))))
        assert [one["failurePolicy"]["maxRestarts"] for one in found if "failurePolicy" in one] == [3]
        assert [one["backoffLimit"] for one in found if "backoffLimit" in one] == [0]
    assert outermost(replace(PAIR, kind="tfjob"))["spec"]["runPolicy"]["backoffLimit"] == 6


def test_a_set_with_parameter_servers_ends_with_its_chief() -> None:
    job_set = outermost(replace(PAIR, kind="jobset", ps=2))["spec"]
    assert job_set["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["chief"]}
    counts = {one["name"]: one["template"]["spec"]["completions"] for one in job_set["replicatedJobs"]}
    assert counts == {"chief": 1, "worker": 2, "ps": 2}


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*WITH_SERVERS}))
def test_parameter_servers_need_a_kind_that_ends_them(kind: Kind) -> None:
    with pytest.raises(UsageError, match=f"--kind {kind}.*--kind jobset or tfjob"):
        list_objects(replace(PAIR, kind=kind, ps=1))


def test_preempted_pods_do_not_use_up_the_restarts() -> None:
    job = outermost(replace(PAIR, kind="job", spot=True))["spec"]
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert "podFailurePolicy" not in outermost(replace(PAIR, kind="job"))["spec"]
    job_set = outermost(replace(PAIR, kind="jobset", spot=True))["spec"]
    assert [rule["action"] for rule in job_set["failurePolicy"]["rules"]] == ["RestartJobSetAndIgnoreMaxRestarts"]
    (inner,) = (one["template"]["spec"] for one in job_set["replicatedJobs"])
    assert inner["podFailurePolicy"]["rules"][0]["action"] == "FailJob"


@pytest.mark.parametrize("kind", KINDS)
def test_spot_pods_tolerate_and_need_such_nodes(kind: Kind) -> None:
    for pod in pods(replace(PAIR, kind=kind, spot=True)):
        found = {one["key"]: one for one in pod["tolerations"]}
        assert found["cloud.google.com/gke-spot"] == {
            "key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule",
        }  # fmt: skip
        assert all(set(one) == {"key", "operator", "value", "effect"} for one in pod["tolerations"])
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = [term["matchExpressions"] for term in required["nodeSelectorTerms"]]
        assert [[one["key"] for one in term] for term in terms] == [[key] for key in found], "one of them is enough"


# Queues


@pytest.mark.parametrize("name", CASES)
def test_only_the_outermost_object_belongs_to_the_queue(name: str) -> None:
    workload = CASES[name]
    labelled = [
        one for one in walk(list_objects(workload)) if "kueue.x-k8s.io/queue-name" in one.get("labels", {})
    ]  # fmt: skip
    expected = (workload.workers if workload.kind == "pod" else 1) if workload.queue else 0
    assert len(labelled) == expected
    if workload.queue:
        assert "kueue.x-k8s.io/queue-name" in outermost(workload)["metadata"]["labels"]


def test_what_is_queued_waits_until_it_is_started() -> None:
    queued = {kind: outermost(replace(ALL, kind=kind))["spec"] for kind in KINDS}
    assert [queued[kind]["suspend"] for kind in ("job", "jobset", "trainjob")] == [True, True, True]
    assert queued["tfjob"]["runPolicy"]["suspend"] is True
    assert "suspend" not in str(list_objects(replace(PAIR, kind="jobset")))


def test_queued_pods_start_as_a_group() -> None:
    metadata = outermost(replace(ALL, kind="pod"))["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/pod-group-name"] == "resnet"
    assert metadata["annotations"] == {"kueue.x-k8s.io/pod-group-total-count": "2"}


# TPUs


def test_a_slice_has_the_chips_that_its_name_says() -> None:
    for name, one in TPU_SLICES.items():
        family, number = name.split("-")
        chips = int(number) // (2 if family in ("v4", "v5p") else 1)
        product = 1
        for side in one.topology.split("x"):
            product *= int(side)
        assert one.chips * one.hosts == product == chips, name


def test_tpus_are_requested_and_selected() -> None:
    workload = replace(SMALL, kind="jobset", tpu="v5litepod-16", workers=4)
    (pod,) = pods(workload)
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["google.com/tpu"] == "4"
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    assert "TFIMG_" not in str(container)
    assert list_objects(replace(workload, kind="job"))[0]["kind"] == "Service"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tpu": "v9-8"}, r"v9-8.*v5litepod-8"),
        ({"tpu": "v5litepod-16"}, "--workers 4"),
        ({"tpu": "v6e-8", "workers": 2}, "--workers 1"),
        ({"tpu": "v6e-8", "ps": 1, "kind": "jobset"}, "no parameter servers"),
        ({"tpu": "v6e-8", "kind": "pod"}, "--kind job or jobset"),
    ],
)
def test_tpus_that_cannot_be_had_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list_objects(replace(SMALL, **change))


# Names


LIMITS = {"job": 61, "jobset": 46, "trainjob": 48, "tfjob": 54, "pod": 54}
"""Characters with up to ten workers; webhooks count `NAME-worker-0-9-abcde` of a JobSet."""


@pytest.mark.parametrize("kind", LIMITS)
def test_a_name_may_be_as_long_as_what_is_made_of_it(kind: Kind) -> None:
    limit = LIMITS[kind]
    workload = replace(PAIR, kind=kind, workers=10, name="a" * limit)
    for one in walk(list_objects(workload)):
        for text in (one.get("hostname", ""), one.get("subdomain", ""), *one.get("labels", {}).values()):
            assert len(text) <= 63
    for hosts in re.findall(r"worker=([^;']*)", str(list_objects(workload))):
        assert max(len(label) for host in hosts.split(",") for label in host.split(".")) <= 63
    with pytest.raises(UsageError, match=f"has {limit + 1} characters, and at most {limit} are possible"):
        list_objects(replace(workload, name="a" * (limit + 1)))
    with pytest.raises(UsageError, match=f"at most {limit - 1} "):
        list_objects(replace(workload, name="a" * limit, workers=11))


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "-a", "a_b", "a.b", "a\n", "ä", "a b", "$(a)"])
def test_a_name_that_no_service_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        list_objects(replace(SMALL, name=name))


@pytest.mark.parametrize("value", ["", "A", "a/b", "a:b", "a..b", ".a", "a" * 254, "a b", "a\n", "$(a)", "../a"])
def test_a_claim_or_a_queue_that_is_no_object_is_refused(value: str) -> None:
    for field in ("checkpoints", "queue"):
        with pytest.raises(UsageError, match=f"--{field} .* is not the name of an object"):
            list_objects(replace(SMALL, **{field: value}))


def test_the_largest_cluster_fits_into_a_variable_and_an_object() -> None:
    workload = replace(PAIR, kind="jobset", workers=MAX_TASKS - 2, ps=1, name="a" * 44)
    (cluster, *_) = (variables(one)["TFIMG_CLUSTER"] for one in containers(workload))
    assert len(cluster) < 128 << 10
    assert len(render_kubernetes(workload)) < 3 << 19
    with pytest.raises(UsageError, match=f"at most {MAX_TASKS}"):
        list_objects(replace(workload, workers=MAX_TASKS - 1))
