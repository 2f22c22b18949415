"""Manifests of model servers: Kubernetes' schema, confinement, and what each platform cannot run."""

from dataclasses import replace

import kubernetes_validate
import pytest
import yaml

from tfimg.core.errors import UsageError
from tfimg.deploy.serving import Manifest, ModelServer, render_serving

OURS = ModelServer(
    image=f"registry.example/team/tensorflow@sha256:{'a' * 64}", name="My.Model_1", source="pvc://claim/team/scale",
    place="My.Model_1", words=("--batch", "32"), gpus=("0", "1"),
)  # fmt: skip
TENSORFLOW = replace(OURS, image="docker.io/tensorflow/serving:2.15.1", words=(), is_tensorflow_serving=True)


@pytest.mark.parametrize("version", ["1.28", "1.37"])
@pytest.mark.parametrize("server", [OURS, TENSORFLOW, replace(OURS, source="pvc://claim", gpus=())])
def test_the_schema_of_kubernetes_accepts_the_objects(server: ModelServer, version: str) -> None:
    deployment, service = yaml.safe_load_all(render_serving(server, "kubernetes"))
    for document in (deployment, service):
        kubernetes_validate.validate(document, version, strict=True)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert deployment["metadata"]["name"] == "my-model-1"


@pytest.mark.parametrize("manifest", ["kubernetes", "kserve"])
@pytest.mark.parametrize("server", [OURS, TENSORFLOW])
def test_a_container_of_a_cluster_has_no_privileges(server: ModelServer, manifest: Manifest) -> None:
    first = next(yaml.safe_load_all(render_serving(server, manifest)))
    pod = first["spec"] if manifest == "kserve" else first["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security.get("runAsUser") == (1000 if server is TENSORFLOW else None), "its image has no user"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_the_model_is_where_the_server_looks_for_it() -> None:
    deployment = next(yaml.safe_load_all(render_serving(OURS, "kubernetes")))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["tfimg-serve", "--model=My.Model_1=/models/My.Model_1", "--batch", "32"]
    mount = {"name": "models", "mountPath": "/models/My.Model_1", "readOnly": True, "subPath": "team/scale"}
    assert mount in container["volumeMounts"]
    (service,) = yaml.safe_load(render_serving(replace(TENSORFLOW, source="/m$x", place="a/1"), "compose"))[
        "services"
    ].values()
    assert service["volumes"] == [{"type": "bind", "source": "/m$$x", "target": "/models/a/1", "read_only": True}]
    assert (service["user"], service["environment"]) == ("1000:1000", {"MODEL_NAME": "My.Model_1"})
    assert service["ports"] == ["127.0.0.1:8501:8501", "127.0.0.1:8500:8500"]


@pytest.mark.parametrize(
    ("change", "manifest", "says"),
    [
        ({"source": "/models/scale"}, "kubernetes", "folder of this machine.*pvc://"),
        ({"source": "/models/scale"}, "kserve", "folder of this machine"),
        ({"source": "s3://bucket/scale"}, "kubernetes", "does not download.*kserve"),
        ({"source": "pvc://Claim_1/scale"}, "kubernetes", "no claim"),
        ({"source": "pvc://claim/../other"}, "kubernetes", "no claim"),
        ({"gpus": ("all",)}, "kubernetes", "counts GPUs"),
    ],
)
def test_what_a_cluster_cannot_run_is_refused(change: dict[str, str], manifest: Manifest, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        render_serving(replace(OURS, **change), manifest)  # type: ignore[arg-type]
