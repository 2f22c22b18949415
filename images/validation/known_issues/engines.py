"""Failures of the container engine, and of images that it cannot pull or start."""

from __future__ import annotations

from known_issues.issue import KnownIssue

ENGINES = (
    KnownIssue(
        name="engine-permission",
        fault="host",
        patterns=(
            r"permission denied while trying to connect to the (?:Docker daemon socket|docker API|Docker API)",
            r"dial unix \S{1,100}\.sock: connect: permission denied",
            r"Connection aborted\.?', PermissionError\(13",
        ),
        cause="This user may not use the engine's socket.",
        fix="Run `sudo usermod -aG docker $USER` and log in again (`newgrp docker` for this shell); the group is as "
        "powerful as root. Inside a container, mount the socket and add its group: `--group-add $(stat -c %g "
        "/var/run/docker.sock)`.",
        source="moby/moby#17645",
        leads_to=("engine-down", "folder-permission"),
    ),
    KnownIssue(
        name="engine-down",
        fault="host",
        patterns=(
            r"Cannot connect to the Docker daemon at",
            r"Is the docker daemon running\?|the docker daemon is not running|Docker Desktop is (?:not running|"
            r"unable to start)",
            r"dial unix \S{1,100}\.sock: connect: (?:no such file or directory|connection refused)",
            r"Connection aborted\.?', (?:FileNotFoundError|ConnectionRefusedError)\(",
            r"open //\./pipe/\w{1,60}: The system cannot find the file specified",
            r"failed to connect to the docker API at",
            r"Cannot connect to Podman|unable to connect to Podman socket",
            r"docker: (?:command )?not found|exec: \"docker\": executable file not found",
        ),
        cause="No container engine answers: it is not running, or DOCKER_HOST or the docker context names another one.",
        fix="Start it: `sudo systemctl start docker`, or Docker Desktop; `tfimg engine up` starts what there is, and "
        "`tfimg engine status` says which one is used. `docker context ls` and DOCKER_HOST name another address.",
        source="docker/for-linux#52",
        leads_to=("network", "program-missing"),
    ),
    KnownIssue(
        name="engine-version",
        fault="host",
        patterns=(
            r"value 'devices' does not match any of the regexes",
            r"unknown flag: --gpus|Additional [a-z]{8,10}[^\n]{0,40}(?:gpus|devices)|'(?:devices|"
            r"gpus)' was unexpected",
            r"client version \S{1,20} is too (?:new|old)\. (?:Maximum|Minimum) supported API version",
        ),
        cause="The docker program, its Compose or the engine is of a release that does not understand the other, or "
        "what is requested of it.",
        fix="Update the older one: `--gpus` needs Docker 19.03, `gpus:` Compose 2.30. For an API version that the "
        "message names, set DOCKER_API_VERSION until then.",
        source="docker/cli#2533",
    ),
    KnownIssue(
        name="wrong-platform",
        fault="request",
        patterns=(
            r"(?:: |\"|\] |^)[Ee]xec format error",
            r"no matching manifest for \S{1,60}",
            r"no match for platform in manifest",
            r"does not match the specified platform",
            r"image operating system \S{1,20} cannot be used on this platform",
        ),
        cause="The image is for another processor or operating system than the machine: amd64 is Intel and AMD, arm64 "
        "is Apple silicon, Graviton and Jetson.",
        fix="Build or pull the one for this machine: `tfimg build --platform linux/arm64` (for CPU), or linux/amd64. "
        "`docker image inspect --format '{{.Architecture}}' IMAGE` shows what an image is.",
        source="docker/for-mac#5123",
        leads_to=("image-not-found",),
    ),
    KnownIssue(
        name="image-not-found",
        fault="request",
        patterns=(
            r"(?:^|: )manifest unknown",
            r"(?:manifest for|Tag) \S{1,200}\s{1,9}not found",
            r"(?:pull|resolve|unpack) [^\n]{1,300}: not found\b",
            r"No such image: ",
            r"(?:Unable to find image|reading manifest) [^\n]{1,200}(?:manifest unknown|not found)",
            r"is not present with pull policy of Never|ErrImageNeverPull",
        ),
        cause="The registry, or the node, has no image of this name and tag: the tag is misspelt, was never pushed "
        "there, or was removed.",
        fix="`docker manifest inspect IMAGE` asks the registry; `tfimg list` shows the tags of tfimg's images. Images "
        "of tfimg are in the engine that built them until `tfimg publish` or `tfimg build --push` pushes them.",
        source="docker/hub-feedback#1222",
    ),
    KnownIssue(
        name="image-name",
        fault="request",
        patterns=(r"invalid reference format", r"\bInvalidImageName\b"),
        cause="What stands where the image's name belongs is not one: it has capital letters or blanks, or an option "
        "before it is not closed, such as `-v $PWD:/work` where the folder has blanks.",
        fix='Quote variables (`-v "$PWD":/work`), and write the name in small letters: HOST/NAME:TAG.',
        source="docker/cli#1103",
    ),
    KnownIssue(
        name="image-pull",
        fault="request",
        patterns=(
            r"Back-off pulling image|(?:: {1,20}|\d/\d {1,40}|\"reason\": ?\"|Init:|^)(?:ImagePullBackOff|"
            r"ErrImagePull)\b",
        ),
        cause="Kubernetes cannot pull the image: its name is wrong, the registry needs credentials, or the node does "
        "not reach it. This log does not say which.",
        fix="`kubectl describe pod NAME` has the registry's answer: `tfimg explain` reads that. A private registry "
        "needs `imagePullSecrets`, made by `kubectl create secret docker-registry`.",
        source="kubernetes/kubernetes#41536",
        generic=True,
    ),
    KnownIssue(
        name="crash-loop",
        fault="request",
        patterns=(
            r"(?:: {1,20}|\d/\d {1,40}|\"reason\": ?\"|Init:)CrashLoopBackOff\b|Back-off restarting failed container",
        ),
        cause="The container ends again and again, and Kubernetes waits longer before each new start. This log does "
        "not say why.",
        fix="`kubectl logs --previous POD` has what the program printed, `kubectl describe pod POD` its exit code and "
        "events: give both to `tfimg explain`.",
        source="kubernetes/kubernetes#57291",
        generic=True,
    ),
    KnownIssue(
        name="kubernetes-reference",
        fault="request",
        patterns=(
            r"Error: (?:secret|configmap) \"[^\"\n]{1,200}\" not found",
            r"references non-existent (?:secret|config) key|couldn't find key \S{1,100} in (?:Secret|ConfigMap)",
            r"MountVolume\.SetUp failed for volume [^\n]{1,200} not found",
            r"persistentvolumeclaim \"[^\"\n]{1,200}\" not found|unbound immediate PersistentVolumeClaims",
        ),
        cause="The pod refers to a Secret, ConfigMap or volume that does not exist in its namespace, or that lacks "
        "the key.",
        fix="`kubectl get secret,configmap,pvc -n NAMESPACE` lists what is there; create it, or correct the name in "
        "the pod.",
        source="kubernetes/kubernetes#54239",
        leads_to=("no-node",),
    ),
    KnownIssue(
        name="mount-source",
        fault="request",
        patterns=(
            r"Are you trying to mount a directory onto a file",
            r"bind source path does not exist: ",
            r"[Mm]ounts denied: ",
            r"error while creating mount source path",
        ),
        cause="What is to be mounted does not exist on the machine of the engine, is a folder where a file is "
        "expected, or is not shared with Docker Desktop's virtual machine. Within a container or over DOCKER_HOST, "
        "paths are those of the engine's machine.",
        fix="Check the path before the colon, and write it in full (`$PWD/data`); engines make a missing file a "
        "folder: remove that. In Docker Desktop, share the folder under Settings, Resources, File sharing.",
        source="moby/moby#30555",
    ),
    KnownIssue(
        name="build-context",
        fault="request",
        patterns=(
            r"failed to read dockerfile: open \S{1,200}: no such file or directory",
            r"unable to (?:prepare context|evaluate symlinks in Dockerfile path)",
            r"failed to (?:compute cache key|calculate checksum of ref)[^\n]{0,300}: not found",
            r"COPY failed: (?:no source files|file not found in build context|stat \S{1,200}: (?:file does not exist|"
            r"no such file))",
        ),
        cause="The build does not find the Dockerfile, or a file that it copies: both are looked for below the folder "
        "that `docker build` names last, and .dockerignore leaves files out.",
        fix="Run `docker build -f PATH/Dockerfile FOLDER` with the folder that has the files, and look into "
        ".dockerignore.",
        source="moby/moby#17738",
        leads_to=("image-not-found",),
    ),
    KnownIssue(
        name="subordinate-ids",
        fault="host",
        patterns=(r"insufficient UIDs or GIDs available in user namespace|Check /etc/subuid and /etc/subgid",),
        cause="A rootless engine has no subordinate users for the files of the image: /etc/subuid and /etc/subgid "
        "have no range for this user.",
        fix="Run `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER` and `podman system "
        "migrate`.",
        source="podman-container-tools/podman#2542",
    ),
    KnownIssue(
        name="name-in-use",
        fault="request",
        patterns=(
            r"Conflict\. The container name \S{1,100} is already in use",
            r"container name \S{1,100} is already in use",
        ),
        cause="A container of this name exists, maybe a stopped one.",
        fix="Remove it with `docker rm NAME`, or start with another name (`tfimg run --name`); `--rm` removes "
        "containers when they end.",
        source="moby/moby#3155",
    ),
    KnownIssue(
        name="credential-helper",
        fault="host",
        patterns=(
            r"error (?:getting|storing) credentials - err: ",
            r'exec: "docker-credential-[\w-]{1,40}": executable file not found',
        ),
        cause="~/.docker/config.json names a program for credentials (`credsStore`, `credHelpers`) that is not "
        "installed or fails, as after a change from Docker Desktop.",
        fix="Remove the entry `credsStore` from ~/.docker/config.json and log in again, or install that program.",
        source="docker/for-mac#3785",
        leads_to=("program-missing",),
    ),
)
