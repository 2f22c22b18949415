"""How tfimg-cluster finds the processes of a training: variables and files as each platform writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tfimg_cluster
from tfimg_cluster import CONTRADICTION, INVALID, Failure, Found, find_cluster

NOWHERE = "/nonexistent/resourceconfig.json"


def found_in(environ: Mapping[str, str], **options: Any) -> Found:
    found = find_cluster(environ, **{"resources": NOWHERE, **options})
    assert found is not None
    return found


def summary(found: Found) -> tuple[str, str]:
    """Return TF_CONFIG as `ROLE=ADDRESS,…;…` and `ROLE:INDEX`."""
    config = json.loads(found.text)
    roles = ";".join(f"{role}={','.join(addresses)}" for role, addresses in config["cluster"].items())
    return roles, f"{config['task']['type']}:{config['task']['index']}"


def refusal(environ: Mapping[str, str], **options: Any) -> Failure:
    with pytest.raises(Failure) as raised:
        find_cluster(environ, **{"resources": NOWHERE, **options})
    return raised.value


TRAINING = "chief=c;worker=w-0,w-1;ps=p:3333;evaluator=e"
MEMBERS = "chief=c:2222;worker=w-0:2222,w-1:2222;ps=p:3333"


@pytest.mark.parametrize(
    ("cluster", "task", "more", "expected"),
    [
        ("worker=a,b", "worker:1", {}, ("worker=a:2222,b:2222", "worker:1")),
        (TRAINING, "ps:0", {}, (MEMBERS, "ps:0")),
        (TRAINING, "chief", {}, (MEMBERS, "chief:0")),
        (TRAINING, "worker", {"JOB_COMPLETION_INDEX": "1"}, (MEMBERS, "worker:1")),
        (TRAINING, "evaluator", {}, (MEMBERS, "evaluator:0")),
        ("worker=a", "evaluator", {}, ("worker=a:2222", "evaluator:0")),
        (" Worker = a , b:1 ; ", " WORKER:0 ", {}, ("worker=a:2222,b:1", "worker:0")),
        ("master=a;worker=b", "master:0", {}, ("chief=a:2222;worker=b:2222", "chief:0")),
        ("worker=[fd00::1],[fd00::2]:99", "worker:0", {}, ("worker=[fd00::1]:2222,[fd00::2]:99", "worker:0")),
        ("worker=10.0.0.1,10.0.0.1:2223", "worker:1", {}, ("worker=10.0.0.1:2222,10.0.0.1:2223", "worker:1")),
        ("worker=t_w_1,a.b.svc.", "worker:0", {}, ("worker=t_w_1:2222,a.b.svc.:2222", "worker:0")),
    ],
)  # fmt: skip
def test_an_explicit_list_becomes_tf_config(
    cluster: str, task: str, more: dict[str, str], expected: tuple[str, str]
) -> None:
    assert summary(found_in({"TFIMG_CLUSTER": cluster, "TFIMG_TASK": task, **more})) == expected
    assert summary(found_in(more, cluster=cluster, task=task)) == expected


def test_options_count_before_variables_and_the_port_is_for_addresses_without_one() -> None:
    environ = {"TFIMG_CLUSTER": "worker=x", "TFIMG_TASK": "worker:0"}
    found = found_in(environ, cluster="worker=a,b:7", task="worker:1", port=9)
    assert (summary(found), found.source) == (("worker=a:9,b:7", "worker:1"), "--cluster")


@pytest.mark.parametrize(
    ("host", "task"), [("train-worker-1", "worker:1"), ("train-worker-0.train.ns.svc.cluster.local", "worker:0")]
)
def test_the_index_is_at_the_end_of_the_host_name(monkeypatch: pytest.MonkeyPatch, host: str, task: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert summary(found_in({"TFIMG_CLUSTER": "worker=a,b", "TFIMG_TASK": "worker"}))[1] == task


def test_a_host_name_without_a_number_gives_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "9f86d081884c")
    assert "9f86d081884c" in str(refusal({"TFIMG_CLUSTER": "worker=a,b", "TFIMG_TASK": "worker"}))


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ("worker=a,b", "", "only one is set"),
        ("", "worker:0", "only one is set"),
        ("worker=a,b", "worker:2", "this process is worker 2, but has 2"),
        ("worker=a,b", "ps:0", "this process is ps 0, but has 0"),
        ("worker=a,b", "worker:x", "index or number 'x'"),
        ("worker=a,b", "worker:-1", "index or number '-1'"),
        ("worker=a,b", "worker:", "index or number ''"),
        ("worker=a,b", "trainer:0", "role 'trainer'"),
        ("worker=a,a", "worker:0", "'a:2222' twice"),
        ("worker=a,A:2222", "worker:0", "'A:2222' twice"),
        ("worker=a;worker=b", "worker:0", "role worker twice"),
        ("chief=a,b", "chief:0", "2 processes as chief"),
        ("worker=a;ps=b", "worker:0", "has ps but no chief"),
        ("evaluator=a", "evaluator:0", "no chief and no worker"),
        ("worker=a;evaluator=b", "evaluator:1", "no evaluator 1"),
        ("worker", "worker:0", "address ''"),
        ("worker=a,", "worker:0", "address ''"),
        ("worker=a:0", "worker:0", "'a:0' without a valid port"),
        ("worker=a:65536", "worker:0", "without a valid port"),
        ("worker=a:٣", "worker:0", "without a valid port"),
        ("worker=fd00::1", "worker:0", "'fd00::1', which is not valid"),
        ("worker=[fd00::g]", "worker:0", "which is not valid"),
        ("worker=grpc://a:1", "worker:0", "which is not valid"),
        ("worker=a b", "worker:0", "which is not valid"),
        ("worker=a\x1b[31m", "worker:0", r"'a\x1b[31m'"),
        (f"worker={'a' * 64}", "worker:0", "which is not valid"),
        (f"worker={'.'.join(['a' * 50] * 6)}", "worker:0", "which is not valid"),
        ("worker=" + ",".join(f"h{number}" for number in range(4097)), "worker:0", "4097 processes, more than 4096"),
        ("worker=" + ",".join(f"{'h' * 50}{number}" for number in range(3000)), "worker:0", "allows 131072 bytes"),
    ],
)  # fmt: skip
def test_an_explicit_list_that_is_not_valid_is_refused(cluster: str, task: str, message: str) -> None:
    refused = refusal({"TFIMG_CLUSTER": cluster, "TFIMG_TASK": task})
    assert message in str(refused)
    assert refused.code == INVALID


TFJOB = (
    '{"cluster":{"ps":["job-ps-0.ns.svc:2222"],"worker":["job-worker-0.ns.svc:2222","job-worker-1.ns.svc:2222"]},'
    '"task":{"type":"worker","index":1},"environment":"cloud"}'
)
VERTEX = (
    '{"cluster": {"chief": ["cmle-training-workerpool0-9ab4-0:2222"],'
    ' "worker": ["cmle-training-workerpool1-9ab4-0:2222"]}, "environment": "cloud",'
    ' "task": {"type": "chief", "index": 0, "trial": "3"}, "job": "{\\"python_module\\": \\"\\"}"}'
)


@pytest.mark.parametrize(
    "text",
    [
        TFJOB, VERTEX,
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 0}}',
        '{"cluster": {"worker": ["[::1]:1", "[fd00::2]:1"]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["10.1.2.3:4000"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "grpc"}',
    ],
)  # fmt: skip
def test_a_valid_tf_config_is_kept_as_given(text: str) -> None:
    found = found_in({"TF_CONFIG": text})
    assert (found.text, found.source) == (text, "TF_CONFIG")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"cluster": {"master": ["a:1"], "worker": ["b:1"]}, "task": {"type": "master", "index": 0}}',
         ("chief=a:1;worker=b:1", "chief:0")),
        ('{"cluster": {"Chief": ["a:1"], "WORKER": ["b:1"], "PS": ["p:1"]}, "task": {"type": "PS", "index": 0}}',
         ("chief=a:1;worker=b:1;ps=p:1", "ps:0")),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "1"}}',
         ("worker=a:1,b:1", "worker:1")),
        ('{"cluster": {"worker": {"1": "b:1", "0": "a:1"}}, "task": {"type": "worker", "index": 0}}',
         ("worker=a:1,b:1", "worker:0")),
    ],
)  # fmt: skip
def test_old_forms_of_tf_config_are_translated(text: str, expected: tuple[str, str]) -> None:
    assert summary(found_in({"TF_CONFIG": text})) == expected


def test_other_fields_survive_a_translation() -> None:
    text = (
        '{"cluster": {"master": ["a:1"]}, "task": {"type": "master", "index": 0, "trial": "7"}, "environment": "cloud"}'
    )
    config = json.loads(found_in({"TF_CONFIG": text}).text)
    assert (config["environment"], config["task"]["trial"]) == ("cloud", "7")


@pytest.mark.parametrize(
    "text", ["", " \n", "{}", '{"cluster": {}}', '{"task": {"type": "master", "index": 0, "trial": "1"}}']
)
def test_a_tf_config_without_a_cluster_is_one_process(text: str) -> None:
    assert find_cluster({"TF_CONFIG": text}, resources=NOWHERE) is None


TASK = '"task": {"type": "worker", "index": 0}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker", "is not valid JSON: 'worker'"),
        ("[1]", "is '[1]', not an object"),
        ("{'cluster': {}}", "is not valid JSON"),
        (f'{{"cluster": {{"worker": ["a:1"]}}, "cluster": {{"worker": ["b:1"]}}, {TASK}}}', "a key is given twice"),
        (f'{{"cluster": {{"worker": ["a:1"], "worker": ["b:1"]}}, {TASK}}}', "a key is given twice"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"a":' * 20_000, "is not valid JSON"),
        ("9" * 200_000, "more than 131072 characters"),
        ('{"cluster": {"worker": ["a:1"]}}', "`task` with `type` and `index`"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}', "`task` with `type` and `index`"),
        (f'{{"cluster": ["a:1"], {TASK}}}', "needs `cluster` with roles"),
        (f'{{"cluster": {{"worker": "a:1"}}, {TASK}}}', "as the addresses of worker"),
        (f'{{"cluster": {{"worker": [1]}}, {TASK}}}', "as the addresses of worker"),
        (f'{{"cluster": {{"worker": ["a"]}}, {TASK}}}', "'a' without a valid port"),
        (f'{{"cluster": {{"worker": ["a:1"], "scheduler": ["b:1"]}}, {TASK}}}', "role 'scheduler'"),
        (f'{{"cluster": {{"worker": ["a:1"], "Worker": ["b:1"]}}, {TASK}}}', "role worker twice"),
        (f'{{"cluster": {{"worker": ["a:1", "a:1"]}}, {TASK}}}', "'a:1' twice"),
        (f'{{"cluster": {{"worker": {{"1": "a:1"}}}}, {TASK}}}', "names worker '[1]', and leaves others out"),
        (f'{{"sparseCluster": {{"worker": {{"0": "a:1"}}, "ps": []}}, {TASK}}}', "has a sparseCluster"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "is worker 1, but has 1"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}}', "'True'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0.0}}', "'0.0'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": ["worker"], "index": 0}}', "role \"['worker']\""),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}', "no chief and no worker"),
        (f'{{"cluster": {{"chief": ["a:1", "b:1"]}}, {TASK}}}', "2 processes as chief"),
        (f'{{"cluster": {{"worker": ["a:1"], "evaluator": ["b:1", "c:1"]}}, {TASK}}}', "2 processes as evaluator"),
    ],
)  # fmt: skip
def test_a_tf_config_that_tensorflow_cannot_use_is_refused(text: str, message: str) -> None:
    refused = refusal({"TF_CONFIG": text})
    assert message in str(refused)
    assert refused.code == INVALID
    assert len(str(refused)) < 500


def test_a_long_list_in_json_is_shown_shortened() -> None:
    hosts = [f"h{number}" for number in range(4000)]
    assert len(str(refusal({"TF_CONFIG": json.dumps({"cluster": {"worker": [hosts]}, "task": {}})}))) < 500


POOLS = {f"workerpool{number}": [f"cmle-training-workerpool{number}-9ab4-0:2222"] for number in range(4)}


@pytest.mark.parametrize(
    ("pool", "pools", "expected"),
    [
        ("workerpool0", 1, ("chief=P0", "chief:0")),
        ("workerpool1", 2, ("chief=P0;worker=P1", "worker:0")),
        ("workerpool2", 3, ("chief=P0;worker=P1;ps=P2", "ps:0")),
        ("workerpool3", 4, ("chief=P0;worker=P1;ps=P2", "evaluator:0")),
    ],
)
def test_vertex_worker_pools_are_roles(pool: str, pools: int, expected: tuple[str, str]) -> None:
    spec = {
        "cluster": dict(list(POOLS.items())[:pools]), "environment": "cloud",
        "task": {"type": pool, "index": 0, "trial": "2"}, "open_ports": [1234],
    }  # fmt: skip
    found = found_in({"CLUSTER_SPEC": json.dumps(spec)})
    roles, task = summary(found)
    for number, addresses in enumerate(POOLS.values()):
        roles = roles.replace(addresses[0], f"P{number}")
    assert ((roles, task), found.source) == (expected, "CLUSTER_SPEC")
    assert json.loads(found.text)["task"]["trial"] == "2"


def resources(folder: Path, **config: Any) -> str:
    file = folder / "resourceconfig.json"
    file.write_text(json.dumps(config))
    return str(file)


def test_the_hosts_of_sagemaker_are_workers(tmp_path: Path) -> None:
    path = resources(tmp_path, current_host="algo-2", hosts=["algo-2", "algo-1"], network_interface_name="eth0")
    found = found_in({}, resources=path)
    assert (summary(found), found.source) == (("worker=algo-1:2222,algo-2:2222", "worker:1"), path)
    environ = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-1"}
    assert summary(found_in(environ, port=8890)) == ("worker=algo-1:8890,algo-2:8890", "worker:0")


def test_an_instance_group_of_sagemaker_is_a_cluster(tmp_path: Path) -> None:
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "train", "instance_type": "ml.p3.2xlarge", "hosts": ["algo-3", "algo-2"]},
    ]
    path = resources(
        tmp_path, current_host="algo-3", current_group_name="train", hosts=["algo-1", "algo-2", "algo-3"],
        instance_groups=groups,
    )  # fmt: skip
    assert summary(found_in({}, resources=path)) == ("worker=algo-2:2222,algo-3:2222", "worker:1")
    environ = {
        "SM_HOSTS": '["algo-1","algo-2","algo-3"]', "SM_CURRENT_HOST": "algo-2",
        "SM_CURRENT_INSTANCE_GROUP_HOSTS": '["algo-2","algo-3"]',
    }  # fmt: skip
    assert summary(found_in(environ)) == ("worker=algo-2:2222,algo-3:2222", "worker:0")


@pytest.mark.parametrize(
    "config",
    [
        {"current_host": "algo-9", "hosts": ["algo-1"]}, {"hosts": ["algo-1"]}, {"current_host": [], "hosts": [[]]},
        {"current_host": "a/b", "hosts": ["a/b"]}, {"current_host": 1, "hosts": "algo-1"},
        {"current_host": "a", "hosts": ["a"], "current_group_name": "g",
         "instance_groups": [{"instance_group_name": "g"}]},
    ],
)  # fmt: skip
def test_a_resource_config_that_does_not_fit_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    assert refusal({}, resources=resources(tmp_path, **config)).code == INVALID


STEP = {
    "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_NODELIST": "n[1-4]", "SLURM_TASKS_PER_NODE": "1(x2)",
    "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
}  # fmt: skip
"""A step of two tasks in a job of four nodes, which `tests/engine/test_slurm.py` compares with Slurm 22.05's."""


def step(nodes: str, tasks: str, rank: int, **more: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_PROCID": str(rank), **{f"SLURM_{name}": value for name, value in more.items()},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (STEP, ("worker=n1:2222,n2:2222", "worker:1")),
        ({**{name: value for name, value in STEP.items() if "_STEP_" not in name},
          "SLURM_TASKS_PER_NODE": "1(x4)", "SLURM_NTASKS": "4"},
         ("worker=n1:2222,n2:2222,n3:2222,n4:2222", "worker:1")),
        ({**STEP, "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "9"},
         ("worker=n1:2222,n2:2222", "worker:1")),
        (step("login,rack[1-2]n[08-10],x", "1(x8)", 7, LOCALID="0", NODEID="7"),
         ("worker=login:2222,rack1n08:2222,rack1n09:2222,rack1n10:2222,rack2n08:2222,rack2n09:2222,rack2n10:2222,x:2222",
          "worker:7")),
        (step("n[1,3-4]-ib", "1(x3)", 0), ("worker=n1-ib:2222,n3-ib:2222,n4-ib:2222", "worker:0")),
        (step("n[1-2]", "2,1", 2), ("worker=n1:2222,n1:2223,n2:2222", "worker:2")),
        (step("n[1-3]", "3,1(x2)", 1, DISTRIBUTION="cyclic", NODEID="1", LOCALID="0"),
         ("worker=n1:2222,n2:2222,n3:2222,n1:2223,n1:2224", "worker:1")),
        (step("n[1-2]", "2(x2)", 3, DISTRIBUTION="cyclic:block"),
         ("worker=n1:2222,n2:2222,n1:2223,n2:2223", "worker:3")),
        (step("n[1-2]", "3(x2)", 0, DISTRIBUTION="plane", DIST_PLANESIZE="2"),
         ("worker=n1:2222,n1:2223,n2:2222,n2:2223,n1:2224,n2:2224", "worker:0")),
        (step("n[1-2]", "2,1", 1, DISTRIBUTION="arbitrary", ARBITRARY_NODELIST="n1,n2,n1"),
         ("worker=n1:2222,n2:2222,n1:2223", "worker:1")),
        (step("c[1-2],g1", "1(x3)", 2, HET_SIZE="2", DISTRIBUTION="cyclic"),
         ("worker=c1:2222,c2:2222,g1:2222", "worker:2")),
    ],
)  # fmt: skip
def test_the_tasks_of_a_slurm_step_are_workers(environ: dict[str, str], expected: tuple[str, str]) -> None:
    found = found_in(environ)
    assert (summary(found), found.source) == (expected, "Slurm")


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)"},
        {**step("n1", "1", 0), "SLURM_STEP_ID": "4294967290", "SLURM_NTASKS": "2"},
        {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)",
         "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0", "ENVIRONMENT": "BATCH"},
    ],
    ids=["salloc", "interactive step", "batch script"],
)  # fmt: skip
def test_a_shell_in_an_allocation_is_one_process(environ: dict[str, str]) -> None:
    assert find_cluster(environ, resources=NOWHERE) is None
    assert "srun starts its tasks" in tfimg_cluster.explain_alone(environ)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**STEP, "SLURM_STEP_NUM_TASKS": "3"}, "2 nodes, but '1(x2)' tasks of '3' in all"),
        (step("n[1-3]", "1(x2)", 0, STEP_NUM_TASKS="\x1b[31m"), r"of '\x1b[31m' in all"),
        (step("n[1-3]", "1(x2)", 0), "3 nodes, but '1(x2)' tasks"),
        (step("n[1-2]", "1(x2)", 2), "is worker 2, but has 2"),
        (step("n[1-2]", "2,1", 1, LOCALID="0", NODEID="1"), "SLURM_LOCALID is '0', but task 1"),
        (step("n[1-2]", "2,1", 1, DISTRIBUTION="arbitrary"), "distribution 'arbitrary' of Slurm's tasks"),
        (step("n[1-2]", "1(x2)", 0, DISTRIBUTION="arbitrary", ARBITRARY_NODELIST="n1,n1"), "distribution 'arbitrary'"),
        (step("n[1-2]", "2(x2)", 0, HET_SIZE="2", DISTRIBUTION="cyclic"), "distribution 'cyclic'"),
        ({"SLURM_PROCID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1", "SLURM_HET_SIZE": "2"},
         "no list"),
        ({"SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}, "no list of its nodes"),
        (step("n[0-999999999]", "1", 0), "more than 4096 nodes"),
        (step("n[1-100]m[1-100]", "1(x10000)", 0), "more than 4096 nodes"),
        (step("[1-2]" * 3000, "1", 0), "more than 4096 nodes"),
        (step("n[2-1]", "1", 0), "is not valid"), (step("n[1-2", "1", 0), "is not valid"),
        (step("n]1[", "1", 0), "is not valid"), (step("n[a-b]", "1", 0), "is not valid"),
        (step("n[]", "1", 0), "is not valid"), (step("(null)", "1", 0), "is not valid"),
        (step("n1", "x", 0), "tasks per node 'x'"), (step("n1", "1(x)", 0), "tasks per node"),
        (step("n1", "999999(x999999)", 0), "more than 4096"), (step("n1", "0(x999999)", 0), "more than 4096"),
        ({**STEP, "SLURM_PROCID": "first"}, "index or number 'first'"),
    ],
)  # fmt: skip
def test_slurm_variables_that_do_not_fit_are_refused(environ: dict[str, str], message: str) -> None:
    refused = refusal(environ)
    assert message in str(refused)
    assert refused.code == INVALID


PET = {
    "PET_NNODES": "3", "PET_NPROC_PER_NODE": "auto", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29500",
}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (PET, ("worker=job-node-0-0.job:29500,job-node-0-1.job:29500,job-node-0-2.job:29500", "worker:2")),
        ({**PET, "PET_NODE_RANK": "", "JOB_COMPLETION_INDEX": "1", "PET_NNODES": "2"},
         ("worker=job-node-0-0.job:29500,job-node-0-1.job:29500", "worker:1")),
        ({**PET, "PET_MASTER_ADDR": "job-master-0"},
         ("worker=job-master-0:29500,job-worker-0:29500,job-worker-1:29500", "worker:2")),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1", "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job:6666"},
         ("worker=job-node-0-0.job:6666,job-node-0-1.job:6666", "worker:1")),
    ],
)  # fmt: skip
def test_the_variables_of_a_trainjob_are_a_cluster(environ: dict[str, str], expected: tuple[str, str]) -> None:
    assert summary(found_in(environ)) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {**PET, "PET_NNODES": "1:4"}, {**PET, "PET_MASTER_ADDR": "10.0.0.7"}, {**PET, "PET_NODE_RANK": ""},
        {**PET, "PET_NNODES": "999999999"}, {"MASTER_ADDR": "a", "WORLD_SIZE": "4"}, {"JOB_COMPLETION_INDEX": "1"}, {},
    ],
)  # fmt: skip
def test_without_a_complete_source_it_is_one_process(environ: dict[str, str]) -> None:
    assert find_cluster(environ, resources=NOWHERE) is None


def tf_config(*hosts: str, index: int = 0) -> dict[str, str]:
    cluster = {"worker": [f"{host}:2222" for host in hosts]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})}


LIST = {"TFIMG_CLUSTER": "chief=n1;worker=n2", "TFIMG_TASK": "worker:0"}


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({**LIST, **tf_config("n1", "n2", index=1)}, "TFIMG_CLUSTER"),
        ({**tf_config("n1.c.local", "N2.c.local", index=1), **STEP}, "TF_CONFIG"),
        ({**LIST, "TFIMG_CLUSTER": "chief=n1;worker=n2;ps=other", **STEP}, "TFIMG_CLUSTER"),
        ({**LIST, "TF_CONFIG": "no JSON"}, "TFIMG_CLUSTER"),
        ({**STEP, **PET, "PET_MASTER_ADDR": "n1"}, "Slurm"),
        ({**STEP, "TF_CONFIG": ""}, "Slurm"),
    ],
)
def test_the_first_source_counts_where_others_agree(environ: dict[str, str], source: str) -> None:
    assert found_in(environ).source == source


@pytest.mark.parametrize(
    ("environ", "sources"),
    [
        ({**LIST, **tf_config("n1", "n3", index=1)}, ("TFIMG_CLUSTER", "TF_CONFIG")),
        ({**LIST, **tf_config("n1", "n2", index=0)}, ("TFIMG_CLUSTER", "TF_CONFIG")),
        ({**tf_config("n1", "n2", "n3", index=1), **STEP}, ("TF_CONFIG", "Slurm")),
        ({**tf_config("n1", index=0), **STEP}, ("TF_CONFIG", "Slurm")),
        ({**tf_config("10.0.0.1", "10.0.1.1"), **tf_config("10.0.0.1"), "CLUSTER_SPEC": '{"cluster": {"workerpool0": '
          '["10.0.0.2:1"]}, "task": {"type": "workerpool0", "index": 0}}'}, ("TF_CONFIG", "CLUSTER_SPEC")),
        ({**STEP, **PET}, ("Slurm", "TrainJob's PET_* variables")),
    ],
)  # fmt: skip
def test_sources_that_contradict_each_other_are_refused_with_both(
    environ: dict[str, str], sources: tuple[str, str]
) -> None:
    refused = refusal(environ)
    assert f"{sources[0]} and {sources[1]} contradict each other" in str(refused)
    assert refused.code == CONTRADICTION


PEERS = {"TFIMG_CLUSTER": "worker=a,[fd00::2];ps=p;chief=c", "TFIMG_TASK": "worker:0"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, {}),
        ({"no_proxy": "x"}, {"no_proxy": "x"}),
        ({"http_proxy": "http://p:1"}, {"no_proxy": "c,a,fd00::2,p", "NO_PROXY": "c,a,fd00::2,p"}),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x,a"},
         {"no_proxy": "x,a,c,fd00::2,p", "NO_PROXY": "x,a,c,fd00::2,p"}),
        ({"grpc_proxy": "http://p:1", "no_grpc_proxy": "y", "no_proxy": "z", "NO_PROXY": "w"},
         {"no_proxy": "z,c,a,fd00::2,p", "NO_PROXY": "w,c,a,fd00::2,p", "no_grpc_proxy": "y,c,a,fd00::2,p"}),
    ],
)  # fmt: skip
def test_peers_are_reached_without_the_proxy(environ: dict[str, str], expected: dict[str, str]) -> None:
    made = tfimg_cluster.make_environment(found_in(PEERS), environ)
    assert {name: value for name, value in made.items() if name.lower().startswith("no_")} == expected


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200)])
def test_a_time_is_seconds_minutes_or_hours(text: str, seconds: int) -> None:
    assert tfimg_cluster.read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["0", "", "-1", "1d", "m", "1.5m", "٣", "9999999h", "inf"])
def test_a_time_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        tfimg_cluster.read_seconds(text)
