"""`tfimg-cluster [--port N] [--wait 10m] [--print] [--cluster TEXT] [--task ROLE[:INDEX]] -- PROGRAM…`.

Finds the processes of a distributed training from what the platform gives each of them, waits for them, and starts the
program with `TF_CONFIG`. It needs Python 3.7 and no package.

Sources, of which the first complete one counts: `--cluster` or `TFIMG_CLUSTER`, `TF_CONFIG`, Vertex AI's
`CLUSTER_SPEC`, SageMaker's resourceconfig.json or variables, Slurm, the variables that Kubeflow's TrainJob sets for
PyTorch and JAX. A complete source after it has to describe the same hosts.

While a process waits, it listens at its own port, which TensorFlow opens only later (SO_REUSEADDR, so that TensorFlow
can bind it directly afterwards). A process has *seen* a peer when the peer confirmed its greeting, and has *heard* a
peer when it confirmed the peer's. It gives its port to the program only when both hold for every peer. A peer that is
heard has therefore seen this process, and no longer needs the port: between the hand-over and the start of TensorFlow's
server no process finds the port closed, in whichever order they leave. The confirmation is in the kernel's buffer of
the connection before `heard` is set, so that it arrives also after the hand-over. A process that the platform started
again meets TensorFlow's gRPC server at the ports of its peers: such a peer is past the start, counts as seen and heard,
and the process starts at once. It waits where the peer's program has not opened the port yet. One that was started
again during the wait has another token, and its peers greet it again.
"""

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

Cluster = Dict[str, List[str]]
"""Role → addresses, as in `TF_CONFIG`."""

# Above sysexits.h (64 to 78) and below what timeout, Docker, shells and signals use (124 and more); no exit code of
# TensorFlow or Python.
USAGE, INVALID, CONTRADICTION, MISSING, PORT, FOREIGN = range(80, 86)
CODES = """\
exit codes:
  80 the arguments are not valid                   81 the description of the cluster is not valid
  82 two descriptions contradict each other        83 a peer did not come in time
  84 the own port cannot be opened                 85 a peer has another list of processes, or the same task
  126, 127 the program cannot be started           128 + N signal N ended the program, or the wait
  else the exit code of the program
"""
ROLES = ("chief", "worker", "ps", "evaluator")  # tensorflow/python/distribute/multi_worker_util.py
MASTER = {"master": "chief"}  # the chief's name in TensorFlow 1
POOLS = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}
DEFAULT_PORT = 2222  # what TFJob and TensorFlow's guides use
MAX_TASKS = 4096
MAX_BYTES = 1 << 17  # what Linux lets one variable have (MAX_ARG_STRLEN)
RESOURCES = "/opt/ml/input/config/resourceconfig.json"
FACTS = "/opt/tfimg/facts.json"
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
SIGNALS = {*range(1, 32), *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)}  # those between are glibc's own
NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")
NUMBER = re.compile(r"[0-9]{1,9}")


class Failure(Exception):
    """What failed and why, the next step, and the exit code."""

    def __init__(self, code: int, what: str, step: str) -> None:
        super().__init__("%s %s" % (what, step))
        self.code = code


class Interrupted(Exception):
    """A signal that arrived before the program was started."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Found(NamedTuple):
    """A training cluster, the task of this process in it, and the `TF_CONFIG` for that."""

    source: str
    cluster: Cluster
    role: str
    number: int
    text: str

    @property
    def own(self) -> str:
        """Address of this process; empty for an evaluator, which opens no port."""
        return "" if self.role == "evaluator" else self.cluster[self.role][self.number]

    @property
    def counts(self) -> str:
        """The roles with the number of their processes, evaluators left out."""
        return ",".join("%s=%d" % (role, len(self.cluster[role])) for role in ROLES[:3] if role in self.cluster)

    def peers(self) -> "List[Peer]":
        """Return the other processes of the training cluster; none for an evaluator."""
        found = [(role, index, text) for role in ROLES[:3] for index, text in enumerate(self.cluster.get(role, []))]
        return [Peer(*task) for task in found if self.own and task[2] != self.own]

    def describe(self) -> str:
        """Return task and processes for a message."""
        names = [address for role in ROLES[:3] for address in self.cluster.get(role, [])]
        more = " and %d more" % (len(names) - 4) if len(names) > 4 else ""
        return "%s %d of %s (%s%s)" % (self.role, self.number, self.counts, ", ".join(names[:4]), more)


def show(text: object) -> str:
    """Return text from outside as printable ASCII in quotes, at most 120 characters."""
    shown = ascii(str(text))
    return shown if len(shown) <= 120 else shown[:117] + "..."


def say(text: str) -> None:
    """Print a line to standard error; a closed one is no reason to end."""
    try:
        sys.stderr.write("tfimg-cluster: %s\n" % text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


# Addresses and clusters


def split_address(text: str, default: Optional[int], source: str) -> Tuple[str, int]:
    """Return host and port. Raises `Failure` for what is no HOST, HOST:PORT or [IPV6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default or "")
    brackets = host.startswith("[") and host.endswith("]")
    literal = host[1:-1] if brackets else host
    if not (_is_ipv6(literal) if brackets else NAME.fullmatch(host)):
        step = "Write HOST:PORT, with a host name, an IPv4 address or an IPv6 address in brackets."
        raise Failure(INVALID, "%s has the address %s, which is not valid." % (source, show(text)), step)
    if not (NUMBER.fullmatch(port) and 0 < int(port) < 65536):
        step = "Add a port from 1 to 65535 to the address, as in %s:%d." % (host, DEFAULT_PORT)
        raise Failure(INVALID, "%s has the address %s without a valid port." % (source, show(text)), step)
    return literal, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def with_port(host: str, port: int) -> str:
    """Return an address as TensorFlow reads it."""
    return "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)


def name_role(text: object, source: str, aliases: Mapping[str, str] = MASTER) -> str:
    """Return the role that TensorFlow knows. Raises `Failure` for another word."""
    role = str(text).strip().lower()
    role = aliases.get(role, role)
    if role not in ROLES:
        step = "The roles are %s." % ", ".join(ROLES)
        raise Failure(INVALID, "%s has the role %s, which TensorFlow does not know." % (source, show(text)), step)
    return role


def check_cluster(found: Found) -> Found:
    """Return the description, or raise `Failure` for one that TensorFlow refuses or would wait for permanently."""
    source, cluster = found.source, found.cluster
    step = "Correct %s: one chief at most, at least one chief or worker, and each process once." % source
    for role in ("chief", "evaluator"):
        if len(cluster.get(role, [])) > 1:
            raise Failure(INVALID, "%s has %d processes as %s." % (source, len(cluster[role]), role), step)
    if not cluster.get("chief") and not cluster.get("worker"):
        raise Failure(INVALID, "%s has no chief and no worker." % source, step)
    members = [address for role in ROLES[:3] for address in cluster.get(role, [])]
    if len(members) > MAX_TASKS:
        raise Failure(INVALID, "%s has %d processes, more than %d." % (source, len(members), MAX_TASKS), step)
    seen: Set[Tuple[str, int]] = set()
    for address in members + cluster.get("evaluator", []):
        place = split_address(address, None, source)
        if address in members and (place[0].lower(), place[1]) in seen:
            raise Failure(INVALID, "%s has the address %s twice." % (source, show(address)), step)
        seen.add((place[0].lower(), place[1]))
    count = len(cluster.get(found.role, []))
    if found.number >= count and (count or found.role != "evaluator"):
        reason = "%s says that this process is %s %d, but has %d of this role." % (
            source, found.role, found.number, count,
        )  # fmt: skip
        raise Failure(INVALID, reason, "Indexes begin with 0; correct the index, or the list of processes.")
    if len(found.text) >= MAX_BYTES - len("TF_CONFIG="):
        reason = "TF_CONFIG has %d bytes with the cluster of %s." % (len(found.text), source)
        raise Failure(INVALID, reason, "Use shorter host names: Linux allows %d bytes a variable." % MAX_BYTES)
    return found


def make_found(source: str, cluster: Cluster, role: str, index: int) -> Found:
    """Return a checked description with the `TF_CONFIG` for it; evaluators are left out of the training cluster."""
    members = {name: cluster[name] for name in ROLES[:3] if cluster.get(name)}
    text = json.dumps({"cluster": members, "task": {"type": role, "index": index}})
    return check_cluster(Found(source, members, role, index, text))


def load_json(text: str, source: str) -> Any:
    """Return a JSON value. Raises `Failure` for other text, duplicate keys and values that are too deep."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is given twice")
        return dict(pairs)

    try:
        if len(text) > MAX_BYTES:
            raise ValueError("it has more than %d characters" % MAX_BYTES)
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = "%s is not valid JSON: %s: %s." % (source, show(text), str(error).partition("\n")[0])
        raise Failure(INVALID, reason, "Correct or unset it.") from None


# Sources


def read_list(cluster: Optional[str], task: Optional[str], environ: Mapping[str, str], port: int) -> Optional[Found]:
    """Read `ROLE=HOST[:PORT],…;ROLE=…` and `ROLE[:INDEX]`, of the options or the variables."""
    source = "--cluster" if cluster else "TFIMG_CLUSTER"
    cluster, task = cluster or environ.get(source), task or environ.get("TFIMG_TASK")
    if not (cluster and cluster.strip()) and not (task and task.strip()):
        return None
    if not (cluster and cluster.strip() and task and task.strip()):
        reason = "TFIMG_CLUSTER and TFIMG_TASK are needed together, and only one is set."
        raise Failure(INVALID, reason, "Set both, as in TFIMG_CLUSTER='worker=a,b' TFIMG_TASK=worker:0.")
    found: Cluster = {}
    for part in filter(None, (part.strip() for part in cluster.split(";"))):
        word, _, hosts = part.partition("=")
        role = name_role(word, source)
        if role in found:
            raise Failure(INVALID, "%s has the role %s twice." % (source, role), "Write each role once.")
        words = [host.strip() for host in hosts.split(",")]
        found[role] = [with_port(*split_address(word, port, source)) for word in words]
    if found.get("ps") and not found.get("chief"):
        step = "Add chief=HOST: ParameterServerStrategy runs the training loop there."
        raise Failure(INVALID, "%s has ps but no chief." % source, step)
    word, colon, number = task.strip().partition(":")
    role = name_role(word, "TFIMG_TASK")
    index = _read_number(number, "TFIMG_TASK") if colon else _find_index(role, len(found.get(role, [])), environ)
    if role == "evaluator" and index >= max(1, len(found.get(role, []))):
        raise Failure(INVALID, "%s has no evaluator %d." % (source, index), "Correct TFIMG_TASK or the list.")
    return make_found(source, found, role, index)


def _read_number(text: object, source: str) -> int:
    if not NUMBER.fullmatch(str(text)):
        reason = "%s has the index or number %s, which is not valid." % (source, show(text))
        raise Failure(INVALID, reason, "Write a number from 0.")
    return int(str(text))


def _find_index(role: str, count: int, environ: Mapping[str, str]) -> int:
    """Return the index that the platform gives: of an indexed Job, or at the end of the host name."""
    if environ.get("JOB_COMPLETION_INDEX"):
        return _read_number(environ["JOB_COMPLETION_INDEX"], "JOB_COMPLETION_INDEX")
    if count <= 1:
        return 0
    ordinal = re.search(r"-([0-9]{1,9})$", socket.gethostname().partition(".")[0])
    if not ordinal:
        reason = "TFIMG_TASK=%s has no index, JOB_COMPLETION_INDEX is not set, and the host name %s has no number." % (
            role, show(socket.gethostname()),
        )  # fmt: skip
        raise Failure(INVALID, reason, "Write the index, as in TFIMG_TASK=%s:0." % role)
    return int(ordinal.group(1))


def read_config(source: str, text: Optional[str], aliases: Mapping[str, str]) -> Optional[Found]:
    """Read `TF_CONFIG`, or Vertex AI's `CLUSTER_SPEC`, which has the same form with worker pools for roles.

    A valid `TF_CONFIG` is kept as it is. Names of TensorFlow 1, upper case, an index as text and a list as a mapping
    from index to address are translated; the other fields stay.
    """
    if not text or text.isspace():
        return None
    config = load_json(text, source)
    if not isinstance(config, dict):
        raise Failure(INVALID, "%s is %s, not an object." % (source, show(text)), "Correct or unset it.")
    if config.get("sparseCluster"):
        step = "Set enableDynamicWorker of the TFJob to false: TensorFlow reads `cluster`."
        raise Failure(INVALID, "%s has a sparseCluster." % source, step)
    if config.get("cluster") in (None, {}):
        return None
    roles, task = config["cluster"], config.get("task")
    if not isinstance(roles, dict) or not isinstance(task, dict) or not {"type", "index"} <= set(task):
        reason = "%s needs `cluster` with roles, and `task` with `type` and `index`: %s." % (source, show(text))
        raise Failure(INVALID, reason, "Correct it; see TensorFlow's guide of distributed training.")
    cluster: Cluster = {}
    for word, addresses in roles.items():
        role = name_role(word, source, aliases)
        if role in cluster:
            raise Failure(INVALID, "%s has the role %s twice." % (source, role), "Write each role once.")
        cluster[role] = _list_addresses(addresses, role, source)
    if aliases is POOLS:  # which has evaluators among the others
        cluster.pop("evaluator", None)
    role, index = name_role(task["type"], source, aliases), _read_number(task["index"], source)
    changed = dict(config, cluster=cluster, task=dict(task, type=role, index=index))
    return check_cluster(Found(source, cluster, role, index, text if changed == config else json.dumps(changed)))


def _list_addresses(addresses: Any, role: str, source: str) -> List[str]:
    if isinstance(addresses, dict):
        indexes = sorted(_read_number(key, source) for key in addresses)
        if indexes != list(range(len(indexes))):
            reason = "%s names %s %s, and leaves others out." % (source, role, show(indexes))
            raise Failure(INVALID, reason, "Name every process of a role: TensorFlow waits for all.")
        addresses = [address for _, address in sorted(addresses.items(), key=lambda item: int(item[0]))]
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        reason = "%s has %s as the addresses of %s." % (source, show(addresses), role)
        raise Failure(INVALID, reason, 'Write a list, as in ["a:2222", "b:2222"].')
    return addresses


def read_sagemaker(environ: Mapping[str, str], port: int, path: str = RESOURCES) -> Optional[Found]:
    """Read the hosts of a SageMaker training job; in a heterogeneous cluster, those of this host's instance group."""
    try:
        source: str = path
        with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
            config: Any = load_json(file.read(MAX_BYTES + 1), path)
    except OSError:
        source, config = "SageMaker's SM_HOSTS and SM_CURRENT_HOST", {}
        if environ.get("SM_HOSTS") and environ.get("SM_CURRENT_HOST"):
            text = environ.get("SM_CURRENT_INSTANCE_GROUP_HOSTS") or environ["SM_HOSTS"]
            config = {"hosts": load_json(text, source), "current_host": environ["SM_CURRENT_HOST"]}
    if not isinstance(config, dict) or not config.get("hosts"):
        return None
    hosts, current = config["hosts"], config.get("current_host")
    groups = config.get("instance_groups")
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, dict) and group.get("instance_group_name") == config.get("current_group_name"):
            hosts = group.get("hosts")
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts) or current not in hosts:
        reason = "%s has %s as current host, which is not one of its hosts %s." % (source, show(current), show(hosts))
        raise Failure(INVALID, reason, "Start the job again.")
    hosts = sorted(hosts)
    addresses = [with_port(*split_address(host, port, source)) for host in hosts]
    return make_found(source, {"worker": addresses}, "worker", hosts.index(current))


def expand_hosts(text: str) -> List[str]:
    """Return the hosts of a list of Slurm, as `rack[1-2]node[01-03,7],login`. Raises `Failure`."""
    found: List[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        names = [""]
        for literal, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
            ends = [literal] if literal else _expand_ranges(ranges)
            if len(names) * len(ends) + len(found) > MAX_TASKS:
                break
            names = [name + end for name in names for end in ends]
        else:
            found += names
            continue
        break
    bare = re.sub(r"\[[^\[\]]*\]", "", text)
    if not found or "[" in bare or "]" in bare or not all(map(NAME.fullmatch, found)):
        reason = "Slurm's node list %s is not valid, or has more than %d nodes." % (show(text), MAX_TASKS)
        raise Failure(INVALID, reason, "Compare it with `scontrol show hostnames`.")
    return found


def _expand_ranges(text: str) -> List[str]:
    ends: List[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not NUMBER.fullmatch(first) or not NUMBER.fullmatch(last) or int(last) - int(first) >= MAX_TASKS:
            return [""] * (MAX_TASKS + 1)  # too many or no range: the caller refuses both
        ends += ["%0*d" % (len(first), number) for number in range(int(first), int(last) + 1)]
    return ends


def read_slurm(environ: Mapping[str, str], port: int) -> Optional[Found]:
    """Read the tasks of a Slurm step, all of them workers; None outside of one.

    Tasks of one node get consecutive ports. Variables: srun(1) of Slurm 22.05, OUTPUT ENVIRONMENT VARIABLES.
    """
    if not is_slurm_step(environ):
        return None
    nodes_text = _first(environ, "STEP_NODELIST", "JOB_NODELIST", "NODELIST")
    tasks_text = _first(environ, "STEP_TASKS_PER_NODE", "TASKS_PER_NODE")
    total = _first(environ, "STEP_NUM_TASKS", "NTASKS", "NPROCS")
    # The variables of a heterogeneous job are those of its first component; the step's are complete.
    mixed = _is_heterogeneous(environ)
    if not nodes_text or not tasks_text or (mixed and not _first(environ, "STEP_NODELIST")):
        reason = "Slurm's step has no list of its nodes or tasks."
        raise Failure(INVALID, reason, "Pass all variables SLURM_* to the program.")
    nodes, counts = expand_hosts(nodes_text), expand_counts(tasks_text)
    rank = _read_number(environ["SLURM_PROCID"], "SLURM_PROCID")
    if len(counts) != len(nodes) or (total and _read_number(total, "SLURM_STEP_NUM_TASKS") != sum(counts)):
        reason = "Slurm has %d nodes, but %s tasks of %s in all." % (len(nodes), show(tasks_text), show(total))
        raise Failure(INVALID, reason, "Start the program with srun in this allocation, with all SLURM_* variables.")
    places = distribute(nodes, counts, environ)
    addresses = [with_port(nodes[node], port + local) for node, local in places]
    if rank < len(places):
        node, local = map(str, places[rank])
        for name, expected in (("SLURM_LOCALID", local), ("SLURM_NODEID", node))[: 1 if mixed else 2]:
            if environ.get(name, expected) != expected:
                reason = "%s is %s, but task %d of this distribution (%s) has %s." % (
                    name, show(environ[name]), rank, show(environ.get("SLURM_DISTRIBUTION", "block")), expected,
                )  # fmt: skip
                raise Failure(INVALID, reason, "Use srun --distribution=block, or name the processes by --cluster.")
    return make_found("Slurm", {"worker": addresses}, "worker", rank)


def is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Tell a task of srun from a shell of salloc and a script of sbatch, which are one process.

    A step with the number 0xfffffffa is salloc's shell on a node (slurm.h, SLURM_INTERACTIVE_STEP).
    """
    if not environ.get("SLURM_PROCID") or _first(environ, "STEP_ID", "STEPID") == str(0xFFFFFFFA):
        return False
    return environ["SLURM_PROCID"] != "0" or bool(
        _first(environ, "STEP_ID", "STEPID", "STEP_NODELIST", "STEP_NUM_TASKS", "STEP_TASKS_PER_NODE")
    )


def _is_heterogeneous(environ: Mapping[str, str]) -> bool:
    return (_first(environ, "HET_SIZE", "PACK_SIZE") or "1") != "1"


def _first(environ: Mapping[str, str], *names: str) -> Optional[str]:
    return next((environ["SLURM_" + name] for name in names if environ.get("SLURM_" + name)), None)


def expand_counts(text: str) -> List[int]:
    """Return the tasks of each node, from `2(x3),1`. Raises `Failure`."""
    counts: List[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part)
        repeated = int(match.group(2) or 1) if match else 0
        if not match or len(counts) + repeated > MAX_TASKS or sum(counts) + int(match.group(1)) * repeated > MAX_TASKS:
            reason = "Slurm's tasks per node %s are not valid, or more than %d." % (show(text), MAX_TASKS)
            raise Failure(INVALID, reason, "Compare with `scontrol show step`.")
        counts += [int(match.group(1))] * repeated
    return counts


def distribute(nodes: Sequence[str], counts: Sequence[int], environ: Mapping[str, str]) -> List[Tuple[int, int]]:
    """Return node and index on the node of each task, in the order of their ranks. Raises `Failure`."""
    kind = re.split("[:,]", environ.get("SLURM_DISTRIBUTION", "block").lower())[0]
    if kind == "arbitrary":
        text = _first(environ, "ARBITRARY_NODELIST")  # of a job; srun with a file of hosts (SLURM_HOSTFILE) sets none
        names = expand_hosts(text) if text else []
        order = [nodes.index(name) for name in names if name in nodes]
    else:
        size = {"cyclic": 1, "plane": _read_number(environ.get("SLURM_DIST_PLANESIZE", "1"), "SLURM_DIST_PLANESIZE")}
        order, left = [], list(counts)
        while sum(left):
            for node, rest in enumerate(left):
                taken = min(rest, size.get(kind, rest) or 1)
                order += [node] * taken
                left[node] -= taken
    used = [0] * len(nodes)
    places = []
    for node in order:
        places.append((node, used[node]))
        used[node] += 1
    mixed = _is_heterogeneous(environ) and kind != "block" and max(counts) > 1
    if used != list(counts) or mixed:
        reason = "The distribution %s of Slurm's tasks over the nodes is not known." % show(kind)
        raise Failure(INVALID, reason, "Use srun --distribution=block, or name the processes by --cluster.")
    return places


def read_trainjob(environ: Mapping[str, str], port: Optional[int]) -> Optional[Found]:
    """Read what Kubeflow's TrainJob sets for PyTorch (`PET_*`) or JAX: number, rank and the address of the first.

    The other pods have the first one's name with another ordinal (JobSet); those of a PyTorchJob are workers.
    """
    number, rank, master = (environ.get("PET_" + name, "") for name in ("NNODES", "NODE_RANK", "MASTER_ADDR"))
    master_port, source = environ.get("PET_MASTER_PORT", ""), "TrainJob's PET_* variables"
    if not master and environ.get("JAX_COORDINATOR_ADDRESS"):
        source = "TrainJob's JAX_* variables"
        number, rank = environ.get("JAX_NUM_PROCESSES", ""), environ.get("JAX_PROCESS_ID", "")
        master, _, master_port = environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")
    rank = rank or environ.get("JOB_COMPLETION_INDEX", "")
    first = re.fullmatch(r"(?P<start>[^.]*-)0(?P<end>(\..*)?)", master)
    if not first or not NUMBER.fullmatch(number) or not NUMBER.fullmatch(rank) or not 0 < int(number) <= MAX_TASKS:
        return None
    start, end = first.group("start"), first.group("end")
    names = [master] + ["%s%d%s" % (start, index, end) for index in range(1, int(number))]
    if start.endswith("-master-"):
        names[1:] = ["%sworker-%d%s" % (start[: -len("master-")], index, end) for index in range(int(number) - 1)]
    chosen = port or int(master_port if NUMBER.fullmatch(master_port) else DEFAULT_PORT)
    return make_found(
        source, {"worker": [with_port(*split_address(name, chosen, source)) for name in names]}, "worker", int(rank)
    )


def find_cluster(
    environ: Mapping[str, str],
    *,
    cluster: Optional[str] = None,
    task: Optional[str] = None,
    port: Optional[int] = None,
    resources: str = RESOURCES,
) -> Optional[Found]:
    """Return the first complete description; None for one process alone.

    Raises `Failure` for a description that is not valid, and for two that name different hosts.
    """
    number = port or DEFAULT_PORT
    readers: Sequence[Callable[[], Optional[Found]]] = (
        lambda: read_list(cluster, task, environ, number),
        lambda: read_config("TF_CONFIG", environ.get("TF_CONFIG"), MASTER),
        lambda: read_config("CLUSTER_SPEC", environ.get("CLUSTER_SPEC"), POOLS),
        lambda: read_sagemaker(environ, number, resources),
        lambda: read_slurm(environ, number),
        lambda: read_trainjob(environ, port),
    )
    first: Optional[Found] = None
    for reader in readers:
        try:
            found = reader()
        except Failure:
            if first:  # a source that does not count
                continue
            raise
        if first and found:
            compare(first, found)
        first = first or found
    return first


def compare(first: Found, other: Found) -> None:
    """Raise `Failure` if two sources name other hosts, or give this process another one.

    Ports and roles may differ, and short and full names are the same. A list of the user may name more processes.
    """
    (names, own), (other_names, other_own) = _hosts(first), _hosts(other)
    listed = first.source in ("--cluster", "TFIMG_CLUSTER")
    same = names >= other_names if listed else names == other_names
    if not same or (own and other_own and own != other_own):
        reason = "%s and %s contradict each other: %s; %s." % (
            first.source, other.source, first.describe(), other.describe(),
        )  # fmt: skip
        raise Failure(CONTRADICTION, reason, "Unset or correct one of them.")


def _hosts(found: Found) -> Tuple[Set[str], str]:
    def short(address: str) -> str:
        host = split_address(address, None, found.source)[0].lower()
        return host if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.partition(".")[0]

    names = {short(address) for role in ROLES[:3] for address in found.cluster.get(role, [])}
    return names, short(found.own) if found.own else ""


# Waiting


class Peer:
    """Another process of the cluster, and what is known of it."""

    def __init__(self, role: str, number: int, address: str) -> None:
        self.role, self.number = role, number
        self.host, self.port = split_address(address, None, address)
        self.name = "%s %d (%s)" % (role, number, address)
        self.seen = self.heard = self.compared = False
        self.token: Optional[str] = None
        self.state = "not reached yet"

    def describe(self) -> str:
        """Return the name, and why the peer is missing."""
        return "%s: %s" % (self.name, "it has not reached this process yet" if self.state == READY else self.state)


GREETING = re.compile(
    rb"tfimg-cluster/1 ([a-z]{1,9}):([0-9]{1,5}) ([0-9a-f]{16}) ([a-z0-9=,]{1,64}) (\S{1,64}) (\S{1,64})\n"
)
"""Role and index, a random token of the process, counts of roles, TensorFlow's version, image."""
SETTINGS = b"\x04\0\0\0\0\0"  # type, flags and stream of the frame with which gRPC's servers begin (RFC 9113, 6.5)
READY = "ready"
PATIENCE = 5.0  # seconds for one connection
PROGRESS = 10.0  # seconds between two lines


class Meeting:
    """The processes of a cluster find each other before TensorFlow starts; the module says how."""

    def __init__(self, found: Found, identity: Tuple[str, str]) -> None:
        self.found, self.peers, self.identity = found, found.peers(), identity
        self.token = os.urandom(8).hex()
        words = "%s:%d %s %s %s %s" % (found.role, found.number, self.token, found.counts, *identity)
        self.greeting = ("tfimg-cluster/1 %s\n" % words).encode("ascii", "replace")
        self.change = threading.Condition()
        self.failure: Optional[Failure] = None
        self.over = False
        self.places = threading.BoundedSemaphore(64)
        self.strangers: Set[str] = set()

    def wait(self, seconds: float) -> None:
        """Return when every peer is ready. Raises `Failure` when one is missing after that time, or does not fit."""
        listener = self.listen(split_address(self.found.own, None, "")[1])
        # Signals are for the main thread alone; a thread inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        server = threading.Thread(target=self.serve, args=(listener,), daemon=True)
        server.start()
        count = min(len(self.peers), 32)
        for first in range(count):
            threading.Thread(target=self.visit, args=(self.peers[first::count],), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._follow(seconds)
        with self.change:
            self.over = True
            self.change.notify_all()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept(), which would keep the port open
        server.join()
        listener.close()

    def _follow(self, seconds: float) -> None:
        now = time.monotonic()
        end, line = now + seconds, now + PROGRESS
        while True:
            with self.change:
                if self.failure:
                    raise self.failure
                missing = [peer.describe() for peer in self.peers if not (peer.seen and peer.heard)]
                now = time.monotonic()
                if missing and now < min(end, line):
                    self.change.wait(min(end, line) - now)
                    continue
            names = "; ".join(missing[:5]) + ("; and %d more" % (len(missing) - 5) if len(missing) > 5 else "")
            if not missing:
                return
            if now >= end:
                step = "Look at the log of that process, and at the name and port, which every process must reach."
                raise Failure(MISSING, "After %.0f s, a peer is missing: %s." % (seconds, names), step)
            say("waits, %.0f s more at most, for %s" % (end - now, names))
            line += PROGRESS

    @staticmethod
    def listen(port: int) -> socket.socket:
        """Return a socket that listens at all addresses of this machine. Raises `Failure`."""
        for family in (socket.AF_INET6, socket.AF_INET):
            try:
                listener = socket.socket(family, socket.SOCK_STREAM)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                listener.bind(("", port))
                listener.listen(1024)
                listener.settimeout(PATIENCE)
                return listener
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in (
                    errno.EAFNOSUPPORT,
                    errno.EADDRNOTAVAIL,
                    errno.EPROTONOSUPPORT,
                ):
                    continue  # a machine without IPv6
                reason = "Port %d of this process cannot be opened: %s." % (port, error.strerror)
                step = "End the program that has it (`ss -ltnp`), or choose another with --port in every process."
                raise Failure(PORT, reason, step) from None
        raise AssertionError("the last family returns or raises")

    def serve(self, listener: socket.socket) -> None:
        """Confirm the greetings of peers until the wait is over."""
        while not self.over:
            try:
                connection = listener.accept()[0]
            except socket.timeout:
                continue
            except OSError:
                if not self.over:
                    time.sleep(0.1)  # no file descriptors left, for example
                continue
            self.places.acquire()
            try:
                threading.Thread(target=self._confirm, args=(connection,), daemon=True).start()
            except RuntimeError:  # the limit of processes
                connection.close()
                self.places.release()

    def _confirm(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(PATIENCE)
                connection.sendall(self.greeting)
                match = GREETING.fullmatch(_read_line(connection))
                peer = self._find(match) if match else None
                if match and peer:
                    connection.sendall(b"ok\n")
                    self._mark(peer, match.group(3).decode(), heard=True)
        except OSError:
            pass  # it tries again
        finally:
            self.places.release()

    def _find(self, match: "re.Match[bytes]") -> Optional[Peer]:
        """Return the peer that greets, or None for a process that does not fit, which ends by itself, and is named."""
        role, number, token, counts = (group.decode() for group in match.groups()[:4])
        for peer in self.peers:
            if (peer.role, peer.number, self.found.counts) == (role, int(number), counts):
                return peer
        if token not in self.strangers and token != self.token and len(self.strangers) < 16:
            self.strangers.add(token)
            say(
                "warning: a process that says it is %s %s of %s greeted this one; it does not fit"
                % (role, number, counts)
            )
        return None

    def _mark(self, peer: Peer, token: str, *, seen: bool = False, heard: bool = False) -> None:
        """Note what is known of a peer; a process with another token took its place, and knows nothing of this one."""
        with self.change:
            same = token == peer.token
            peer.token, peer.seen, peer.heard = token, seen or (same and peer.seen), heard or (same and peer.heard)
            self.change.notify_all()

    def visit(self, peers: Sequence[Peer]) -> None:
        """Greet peers until the wait is over: all at growing intervals, one that was heard and is not seen at once."""
        delay, due = 0.05, 0.0
        while not self.over:
            missing = [peer for peer in peers if not (peer.seen and peer.heard)]
            if time.monotonic() >= due:
                due = time.monotonic() + delay
                delay = min(delay * 2, 1.0)
            else:
                missing = [peer for peer in missing if peer.heard]
            for peer in missing:
                try:
                    peer.state = self._greet(peer)
                except Failure as failure:
                    with self.change:
                        self.failure = failure
                        self.change.notify_all()
                    return
            if any(peer.heard and not peer.seen for peer in missing):
                time.sleep(0.05)
            with self.change:
                rest = max(due - time.monotonic(), 0)
                self.change.wait_for(lambda: self.over or any(peer.heard and not peer.seen for peer in peers), rest)

    def _greet(self, peer: Peer) -> str:
        """Greet a peer once; return why that failed."""
        try:
            with socket.create_connection((peer.host, peer.port), PATIENCE) as connection:
                connection.settimeout(PATIENCE)
                line = _read_line(connection)
                if line[3:9] == SETTINGS:
                    self._mark(peer, "", seen=True, heard=True)
                    return READY
                match = GREETING.fullmatch(line)
                if not match:
                    return "its port is closed again" if not line else "another program answers at its port"
                connection.sendall(self.greeting)
                self._judge(peer, match)
                if _read_line(connection) != b"ok\n":
                    return "it did not confirm"
        except socket.gaierror as error:
            return "its name does not resolve (%s)" % error.strerror
        except socket.timeout:
            return "it does not answer"
        except OSError as error:
            return "its port is not reached (%s)" % error.strerror
        self._mark(peer, match.group(3).decode(), seen=True)
        return READY

    def _judge(self, peer: Peer, match: "re.Match[bytes]") -> None:
        """Raise `Failure` if the process at a peer's address does not fit; warn of another image."""
        role, number, token, counts, tensorflow, image = (group.decode("ascii", "replace") for group in match.groups())
        own = "%s %d" % (self.found.role, self.found.number)
        if token == self.token or (role, int(number)) != (peer.role, peer.number):
            what = "this process, which is %s" % own if token == self.token else "%s %s" % (role, number)
            reason = "At the address of %s answers %s." % (peer.name, what)
            raise Failure(FOREIGN, reason, "Give each process an index of its own, and the list in the same order.")
        if counts != self.found.counts:
            reason = "%s has a cluster of %s, this process one of %s." % (peer.name, counts, self.found.counts)
            raise Failure(FOREIGN, reason, "Give all processes the same list.")
        if (tensorflow, image) != self.identity and not peer.compared and "-" not in (image, self.identity[1]):
            say(
                "warning: %s has TensorFlow %s in the image %s, this process TensorFlow %s in %s"
                % (peer.name, show(tensorflow), show(image), *self.identity)
            )
        peer.compared = True


def _read_line(connection: socket.socket) -> bytes:
    """Return the first line of a connection, or its beginning if that is no text; 512 bytes and `PATIENCE` at most."""
    end = time.monotonic() + PATIENCE
    data = b""
    while not data.endswith(b"\n") and len(data) < 512 and data[3:9] != SETTINGS:
        if time.monotonic() > end:
            raise socket.timeout
        received = connection.recv(512 - len(data))
        if not received:
            break
        data += received
    return data


def read_identity(path: str = FACTS) -> Tuple[str, str]:
    """Return TensorFlow's version and the image's identifier with a digest of its facts; dashes outside of an image."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(1 << 20)
        facts = json.loads(data.decode())
        words = facts["tensorflow"], "%s@%s" % (facts["identifier"], hashlib.sha256(data).hexdigest()[:12])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "-", "-"
    return ("-", "-") if any(re.search(r"[^!-~]", word) or len(word) > 64 for word in words) else words


# Starting


def make_environment(found: Optional[Found], environ: Mapping[str, str]) -> Dict[str, str]:
    """Return the program's variables: `TF_CONFIG`, and peers in no_proxy where a proxy is set, which gRPC would use."""
    made = dict(environ)
    if not found:
        if not made.get("TF_CONFIG", "").strip():
            made.pop("TF_CONFIG", None)
        return made
    made["TF_CONFIG"] = found.text
    if any(environ.get(name) or environ.get(name.upper()) for name in PROXIES):
        hosts = [split_address(address, None, "")[0] for role in ROLES[:3] for address in found.cluster.get(role, [])]
        both = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        names = ["no_proxy", "NO_PROXY"] + (["no_grpc_proxy"] if environ.get("no_grpc_proxy") else [])
        for name in names:
            present = [word for word in (environ.get(name) or both).split(",") if word.strip()]
            made[name] = ",".join(present + [host for host in dict.fromkeys(hosts) if host not in present])
    return made


def run(program: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the program, pass signals on, and return its exit code, or 128 + the signal that ended it."""
    kept = {"KILL", "STOP", "TSTP", "TTIN", "TTOU", "CONT", "SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "PIPE", "XFSZ"}
    waited = SIGNALS - {getattr(signal, "SIG" + name) for name in kept}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        child = subprocess.Popen(
            program, env=environ, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)
        )
    except (OSError, ValueError) as error:
        say("the program %s cannot be started: %s" % (show(program[0]), getattr(error, "strerror", None) or error))
        return 127 if isinstance(error, FileNotFoundError) else 126
    while True:
        info = signal.sigwaitinfo(waited)
        if info.si_signo == signal.SIGCHLD:
            code = _reap(child.pid)
            if code is not None:
                child.returncode = code
                return code
        elif info.si_code != 128 or info.si_signo not in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH):
            # SI_KERNEL (128): from the terminal, which gave it to the program too.
            os.kill(child.pid, info.si_signo)


def _reap(child: int) -> Optional[int]:
    """Collect processes that ended, as the first one of a container has to; return the program's code if it ended."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if not ended:
            return None
        if ended == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def read_seconds(text: str) -> float:
    """Return the seconds of `90`, `90s`, `10m` or `2h`. Raises `ValueError`."""
    match = re.fullmatch(r"([0-9]{1,6})([smh]?)", text)
    seconds = int(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[match.group(2)] if match else 0
    if not 0 < seconds <= 7 * 86400:
        raise ValueError(text)
    return float(seconds)


class Parser(argparse.ArgumentParser):
    """A parser whose errors have this program's form and code."""

    def error(self, message: str) -> NoReturn:  # noqa: D102 - argparse's
        raise Failure(USAGE, "%s." % show(message)[1:-1], "See tfimg-cluster --help.")


def parse(words: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """Return options and program. Raises `Failure`."""
    parser = Parser(
        prog="tfimg-cluster", usage="tfimg-cluster [options] -- PROGRAM...", allow_abbrev=False, epilog=CODES,
        description="Find the processes of a distributed training, wait for them, and start PROGRAM with TF_CONFIG.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--port", type=int, help="port of addresses that have none (default: %d)" % DEFAULT_PORT)
    parser.add_argument("--wait", type=read_seconds, default=600.0, metavar="TIME", help="90, 90s, 10m or 2h (10m)")
    parser.add_argument("--print", action="store_true", dest="show", help="print TF_CONFIG to standard output, and end")
    parser.add_argument("--cluster", help="ROLE=HOST[:PORT],HOST...;ROLE=... (default: TFIMG_CLUSTER)")
    parser.add_argument("--task", metavar="ROLE[:INDEX]", help="this process (default: TFIMG_TASK)")
    middle = list(words).index("--") if "--" in words else len(words)
    options, program = parser.parse_args(words[:middle]), list(words[middle + 1 :])
    if options.port is not None and not 0 < options.port < 65536:
        parser.error("--port %d is not from 1 to 65535" % options.port)
    if not program and not options.show:
        parser.error("there is no program after --")
    return options, program


def explain_alone(environ: Mapping[str, str]) -> str:
    """Return why this process is alone, with what a platform would need to say for a cluster."""
    if environ.get("SLURM_JOB_ID") and _first(environ, "NTASKS", "NNODES", "JOB_NUM_NODES") not in (None, "1"):
        return "one process alone: this is Slurm's allocation, and srun starts its tasks"
    if environ.get("JOB_COMPLETION_INDEX"):
        return "one process alone: Kubernetes gives an index but no list; TFIMG_CLUSTER has to name the processes"
    return "no cluster found: one process alone"


def stop(number: int, _frame: object) -> NoReturn:
    """Raise `Interrupted` for a signal."""
    raise Interrupted(number)


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command line and return the exit code."""
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, stop)
        options, program = parse(words)
        found = find_cluster(environ, cluster=options.cluster, task=options.task, port=options.port)
        if options.show:
            print(found.text if found else (environ.get("TF_CONFIG") or "").strip() or "{}", flush=True)
            return 0
        say("%s, from %s" % (found.describe(), found.source) if found else explain_alone(environ))
        if found and found.peers():
            Meeting(found, read_identity()).wait(options.wait)
        return run(program, make_environment(found, environ))
    except Failure as failure:
        say(str(failure))
        return failure.code
    except Interrupted as interrupted:
        say("ended by %s before the program was started" % interrupted)
        return 128 + interrupted.number


if __name__ == "__main__":
    status = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    os._exit(status)  # a thread may be in a look-up of a name
