"""Failures of ports and of training on several machines."""

from __future__ import annotations

from known_issues.issue import KnownIssue

CLUSTER = (
    KnownIssue(
        name="port-in-use",
        fault="host",
        patterns=(
            r"(?:^|: |\] )(?:Address|address) already in use",
            r"(?:rror: |listen |bind |code )(?:listen )?EADDRINUSE",
            r"port is already allocated|failed to bind host port",
            r"Ports are not available: ",
            r"could not bind to port \d{1,5}, it was already in use",
            r"Only one usage of each socket address",
            r"Could not start gRPC server|No address added out of total \d{1,3} resolved",
        ),
        cause="Another process or container listens on the port: often an earlier start of the same program that has "
        "not ended.",
        fix="`docker ps` and `ss -ltnp` show who has it; end that, or publish another port: `tfimg run -p 8889:8888 "
        "…`. For workers, change the port in TF_CONFIG.",
        source="tensorflow/tensorboard#3019",
        leads_to=("peer-unreachable",),
    ),
    KnownIssue(
        name="worker-restarted",
        fault="host",
        patterns=(
            r"current incarnation doesn't match with one in the group",
            r"tried to connect with a different incarnation",
            r"This usually means this worker has restarted",
        ),
        cause="A worker was restarted, and the others still wait for its earlier process: collective training does "
        "not continue with a new one.",
        fix="Restart all workers together, from the last checkpoint (`keras.callbacks.BackupAndRestore`): in "
        "Kubernetes `restartPolicy: Never` with a restart of the whole set. The restarted worker's own log has why it "
        "ended.",
        source="tensorflow/tensorflow#42643",
        leads_to=("peer-unreachable",),
    ),
    KnownIssue(
        name="address-not-local",
        fault="request",
        patterns=(r"[Cc]annot assign requested address",),
        cause="A program is to listen on an address that its machine or container does not have, such as that of the "
        "machine from within a container with a network of its own.",
        fix="Let it listen on 0.0.0.0, or on a name that the container has (Compose: the service's; Kubernetes: the "
        "pod's); or start with `--network host`. In TF_CONFIG, each worker's own entry is an address of itself.",
        source="tensorflow/tensorflow#46025",
        leads_to=("peer-unreachable",),
    ),
    KnownIssue(
        name="mpi-root",
        fault="request",
        patterns=(r"has detected an attempt to run as root",),
        cause="Open MPI does not start as root unless that is requested.",
        fix="Start the container as its own user, which is not root, or add `-e OMPI_ALLOW_RUN_AS_ROOT=1 -e "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1`.",
        source="open-mpi/ompi#4451",
    ),
    KnownIssue(
        name="tf-config",
        fault="request",
        patterns=(
            r"tfconfig_cluster_resolver\.py[\s\S]{0,600}?(?:JSONDecodeError|KeyError|ValueError): ",
            r"not found in cluster_spec|at most one 'chief' job",
        ),
        cause="TF_CONFIG is not valid: it is no JSON, often because of quotation marks, or its `task` is not in its "
        "`cluster`.",
        fix="Print it in the container: `python -c 'import os, json; print(json.loads(os.environ[\"TF_CONFIG\"]))'`. "
        "It has `cluster`, the same for all, with a list of HOST:PORT for each type, and `task` with this worker's "
        "type and index.",
        source="tensorflow/tensorflow#34568",
    ),
    KnownIssue(
        name="nccl",
        fault="host",
        patterns=(
            r"NCCL WARN (?![^\n]{0,200}(?:out of memory|shared memory|/dev/shm))[^\n]{0,200}(?:[Cc]onnect|interface|"
            r"NET/|"
            r"[Ss]ocket|Bootstrap|NCCL version|Duplicate GPU|using the same GPU|real path|Cuda failure|async|peer)",
            r"(?:NCCL|nccl)[^\n]{0,200}(?:[Rr]emote process exited or there was a network error|unhandled cuda error)",
            r"Watchdog caught collective operation timeout|nccl(?:Remote|UnhandledCuda)Error",
            r"NCCL WARN [^\n]{0,40}Call to (?:connect|ibv_\w{1,30}|recv|send|accept|bind|listen|poll)\b",
        ),
        cause="NCCL, which joins the GPUs of all workers, does not connect them: it uses a network interface that "
        "others do not reach, a port is blocked, or two processes use one GPU.",
        fix="Start with `-e NCCL_DEBUG=INFO`, which names the interface; set NCCL_SOCKET_IFNAME to the one that joins "
        "the machines (such as eth0), use `--network host`, and open the ports between them. Give each process its "
        "own GPU.",
        source="NVIDIA/nccl#290, tensorflow/tensorflow#57516",
        leads_to=("peer-unreachable", "small-shm"),
    ),
    KnownIssue(
        name="peer-unreachable",
        fault="host",
        patterns=(
            r"ORTE was unable to reliably start one or more daemons",
            r"failed to connect to all addresses|Failed to connect to remote host|Connect failed: \{\"created\"",
            r"UNAVAILABLE[^\n]{0,200}(?:Connection (?:refused|reset by peer|timed out)|Socket closed|"
            r"DNS resolution failed|No route to host)",
            r"CreateSession still waiting for response from worker: ",
            r"Barrier timed out\. Barrier_id|DEADLINE_EXCEEDED: Barrier|Barrier failed because",
            r"Collective ops is aborted by: ",
            r"/task:\d{1,5} heartbeat timeout|stopped sending heartbeats|Cluster check alive failed|"
            r"Horovod has been shut down|"
            r"[Pp]olled an error (?:for|from) coordination service|missing heartbeats",
            r"DNS resolution failed for \S{1,200}: ",
            r"UnavailableError: (?:Endpoint read failed|Transport closed|OS Error|Socket closed)",
        ),
        cause="A worker does not reach another one of TF_CONFIG, a client its model server, or MPI's first machine "
        "another: the other has not started or has ended, its name is not resolved, or its port is not open.",
        fix="Read the logs of all: the one that ended first has the cause. Each worker needs the same `cluster` in "
        "TF_CONFIG, its own `task`, and a network on which the names resolve (Compose: the services' names; "
        "Kubernetes: a headless Service). For MPI, `ssh NAME orted --version` has to work from the first.",
        source="tensorflow/tensorflow#41724, horovod/horovod#504",
    ),
)
