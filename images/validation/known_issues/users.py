"""Failures of users, their homes and permissions, and of the program that a container starts."""

from __future__ import annotations

from known_issues.issue import KnownIssue

AS_ROOT = (
    "In a Dockerfile, write `USER root` before such a step and `USER 1000:1000` after it; in a running "
    "container, start "
    "with `--user 0`. "
)

USERS = (
    KnownIssue(
        name="ci-workspace",
        fault="request",
        patterns=(
            r"permission denied, (?:open|mkdir|unlink|copyfile|scandir|access) '/(?:__w|__t|github)/",
            r"Permission denied: '/(?:__w|__t|github)/",
            r"(?:could not create work tree dir|cannot create directory) .?/(?:builds|__w|github)/",
            r"/builds/\S{1,200}: Permission denied",
        ),
        cause="The CI runner's folder belongs to another user than the image's, which is not root (1000).",
        fix="GitHub: `container: {image: …, options: --user 0}`. GitLab: `image: {name: …, docker: {user: root}}`, or "
        "the runner's feature flag FF_DISABLE_UMASK_FOR_DOCKER_EXECUTOR=true, with which the files are the image's "
        "user's.",
        source="actions/checkout#1014, actions/checkout#1575",
        leads_to=("not-root", "folder-permission"),
    ),
    KnownIssue(
        name="git-ownership",
        fault="request",
        patterns=(
            r"detected dubious ownership in repository",
            r"fatal: unsafe repository",
        ),
        cause="The mounted repository belongs to another user than the one in the container, and git refuses it.",
        fix="Run `git config --global --add safe.directory '*'` in the container, or start it as the owner: `tfimg "
        "run --user $(id -u):$(id -g) …`.",
        source="actions/checkout#1169",
    ),
    KnownIssue(
        name="not-root",
        fault="request",
        patterns=(
            r"/var/lib/apt/lists/\S{0,40} is missing\. - Acquire \(13: Permission denied\)",
            r"Could not open lock file /var/\S{1,60} - open \(13: Permission denied\)|is not in the sudoers file",
            r"Unable to (?:acquire the dpkg frontend lock|lock \S{1,80})[^\n]{0,80}are you root\?",
            r"requested operation requires superuser privilege",
            r"[Pp]ermission denied:? [`'\"]?/(?:usr|etc|bin|sbin|lib|var/(?:lib|cache|log)|opt/\S{1,100}-packages)/|"
            r"(?<!stat)[`' ]/(?:usr|etc|bin|sbin|lib|var/(?:lib|cache|"
            r"log))/[^\s:]{1,200}:(?: open[^\n:]{0,200}:)? [Pp]ermission denied",
            r"cannot create directory .?/[\w.-]{1,60}'?.?: Permission denied",
            r"cannot (?:create|remove|create regular file|touch|move) [^\n]{0,40}/(?:usr|opt|root|etc|var|bin|"
            r"lib)\b[^\n]{0,200}: Permission denied",
            r"(?:chmod|chown): changing (?:permissions|ownership) of [^\n]{1,200}: Operation not permitted",
            r"sudo: (?:command )?not found|exec: \"sudo\": executable file not found|sudo: (?:a (?:password|"
            r"terminal) is|no tty)",
            r"su: must be run from a terminal",
        ),
        cause="The step needs root, and the image's user is not root (1000, without sudo).",
        fix=AS_ROOT + "Packages go into the image without that: `tfimg build --with NAMES --apt FILE`.",
        source="tensorflow/build#176",
        leads_to=("folder-permission",),
        done=r"\bUSER (?:root|0)\b|--user[ =](?:0|root)\b",
        then="`USER root` or `--user 0` is there, and does not reach this step: a later `USER`, a stage of its own or "
        "`--user` of the start comes after it. A rootless engine or `--cap-drop` limits root as well.",
    ),
    KnownIssue(
        name="unknown-user",
        fault="request",
        patterns=(
            r"getpwuid\(\): uid not found",
            r"No username set in the environment|cannot find name for user ID|I have no name!",
            r"ermission denied:? \W?/\.(?:local|cache|config|keras|jupyter|ipython|matplotlib|npm|"
            r"kaggle|huggingface|conda|tfhub|dotnet)\b",
            r"(?:mkdir:|cannot create directory) \W?/\.(?:local|cache|config|keras|jupyter|"
            r"ipython)\b.{0,60}[Pp]ermission denied",
            r"Permission denied: '(?:/root)?//?\.\w{1,30}|/root/\.\S{1,100}: [Pp]ermission denied",
            r"problem when trying to write in your cache folder",
            r"no locator available for file",
        ),
        cause="The container runs as a user that the image does not know, as on OpenShift or with --user, so it has "
        "no name, and its home is / or another folder that it may not write to.",
        fix="Set `-e HOME=/tmp -e USER=tensorflow` (getpass reads USER); with Kubernetes the same in `env`, with an "
        "emptyDir at that home. Otherwise run as the image's own user, 1000:1000.",
        source="matplotlib/matplotlib#17707, tensorflow/tensorflow#42738",
        leads_to=("folder-permission", "not-root", "matplotlib-cache", "jupyter-runtime"),
    ),
    KnownIssue(
        name="run-as-non-root",
        fault="request",
        patterns=(
            r"container has runAsNonRoot and image (?:has non-numeric user|will run as root)",
            r"runAsNonRoot and image has non-numeric",
        ),
        cause="The pod demands a user that is not root, and the image's user is a name, or root, so Kubernetes cannot "
        "see that it is not.",
        fix="Set `securityContext: {runAsUser: 1000, runAsGroup: 1000}` in the pod, or `USER 1000:1000` as the last "
        "user of the Dockerfile; tfimg's images have that.",
        source="kubernetes/kubernetes#40958",
    ),
    KnownIssue(
        name="jupyter-runtime",
        fault="request",
        patterns=(
            r"[Pp]ermission denied: ['\"]?\S{0,200}/(?:jupyter|\.jupyter|\.ipython)\b",
            r"Read-only file system: ['\"]?\S{0,200}/(?:jupyter|\.jupyter|\.ipython)\b",
            r"Running as root is not recommended\. Use --allow-root",
            r"IPython (?:parent|dir) [^\n]{1,200} is not a writable location",
            r"no write access to /home/",
        ),
        cause="JupyterLab may not write to its folders for settings and runtime, or is started as root: the user of "
        "the container is not the one that the home belongs to.",
        fix="Start it with `tfimg jupyter IMAGE`, as the image's own user; with another user set `-e HOME=/tmp` or "
        "`-e JUPYTER_RUNTIME_DIR=/tmp/jupyter`. As root, add --allow-root.",
        source="jupyter/docker-stacks#188",
        leads_to=("folder-permission", "read-only"),
    ),
    KnownIssue(
        name="jupyter-refused",
        fault="request",
        patterns=(
            r"Can \"Upgrade\" only to \"WebSocket\"",
            r"Blocking (?:Cross Origin|request with non-local 'Host')",
            r"'_xsrf' argument missing from|XSRF cookie does not match",
            r"Couldn't authenticate WebSocket connection|wrote error: ['\"]Forbidden",
        ),
        cause="JupyterLab refuses the browser: the page has the token of an earlier start, or it comes through a "
        "proxy that does not pass WebSockets or the name of the host.",
        fix="Open the address with the token that the log prints last (`docker logs NAME`). In a proxy pass `Host`, "
        "`Upgrade` and `Connection`, and start with `--ServerApp.allow_origin=https://NAME`. `tfimg jupyter IMAGE "
        "--open` needs none of this.",
        source="jupyter/notebook#4757, jupyter/docker-stacks#1919",
    ),
    KnownIssue(
        name="folder-permission",
        fault="request",
        patterns=(
            r"PermissionError: \[Errno 13\]|\[Errno 13\] Permission denied: ['\"]?/",
            r"Permission denied: \S{0,200}\.ipynb\b",
            r"OSError: \[Errno 13\] Permission denied",
            r"errors_impl\.PermissionDeniedError\b(?!: Error executing an HTTP)|; Permission denied\b",
            r"EACCES: permission denied",
            r"Unable to (?:synchronously )?(?:open|create) file \(unable to (?:open|"
            r"create) file: name = [^\n]{1,300}errno = 13\b",
            r"(?:^|[\s'\"`:=])[~.\w-]{0,60}/(?!/)[^\s:'\"`]{1,200}['\"`]?: [Pp]ermission denied\b(?! \(publickey)",
            r"(?:cannot|can't|could not|[Ff]ailed to|[Uu]nable to) \w{1,20} [^\n]{1,200}: [Pp]ermission denied\b|"
            r"tee: \S{1,200}: Permission denied|attempt to write a readonly database",
            r"PermissionError: \[Errno 1\] Operation not permitted",
        ),
        cause="The container's user (1000, unless --user or the platform says otherwise) may not read or write this "
        "path: a mounted folder keeps its owner on the machine, and one that the engine created, or a new volume, "
        "belongs to root.",
        fix="Start as the folder's owner: `docker run -u $(id -u):$(id -g) -v FOLDER:/work …`, or let `tfimg run` "
        "take the owner; or give the folder to the container's user: `sudo chown -R 1000:1000 FOLDER`. With SELinux, "
        "mount with `:z`; in Kubernetes set `fsGroup: 1000`.",
        source="tensorflow/tensorflow#37051",
        done=r"--user[ =]\"?\$\(id -u\)|-u[ =]\"?\$\(id -u\)|\bfsGroup: \d",
        then="The container has the starting user already, and the folder belongs to a different one: `ls -ldn "
        "FOLDER` on the machine shows whose; `sudo chown -R $(id -u):$(id -g) FOLDER` makes it yours. A folder that "
        "does not exist is made by the engine, for root: create it first. With SELinux, mount with `:z`.",
    ),
    KnownIssue(
        name="privileged-port",
        fault="host",
        patterns=(r"cannot expose privileged port|bind: permission denied|bind\(\) to \S{1,60} failed \(13: ",),
        cause="Only root may listen on ports below 1024, on the machine and in the container.",
        fix="Publish a higher port, such as `-p 8888:8888`, and let the program listen on one; for a rootless engine, "
        "`sudo sysctl net.ipv4.ip_unprivileged_port_start=80` on the machine.",
        source="moby/moby#8460",
        leads_to=("folder-permission",),
    ),
    KnownIssue(
        name="program-missing",
        fault="request",
        patterns=(
            r"failed to execute: /\S{1,200}: No such file or directory",
            r'exec: "[^"\n]{1,300}": (?:executable file not found in \$PATH|'
            r'stat [^"\n]{1,300}: no such file or directory)',
            r"\[FATAL tini \(\d{1,9}\)\] exec \S{1,200} failed: No such file or directory",
            r"exec (?:user process caused:? \S{0,3}|/\S{1,200}: )no such file or directory",
            r"executable file `?[^`\n]{1,100}`? not found in \$PATH",
        ),
        cause="The container is to start a program that the image does not have: its name is wrong, it is not copied "
        "or mounted, or its first line names an interpreter that is not there (or ends with Windows' line end), or a "
        "whole command line is given as one string. Platforms such as SageMaker start a program of their own name, "
        "`train` or `serve`.",
        fix="Put the program on the image's PATH, such as /usr/local/bin, with `COPY --chmod=755`; or name the whole "
        "command: `tfimg run IMAGE -- python train.py`.",
        source="aws/sagemaker-python-sdk#222",
    ),
    KnownIssue(
        name="program-not-executable",
        fault="request",
        patterns=(
            r"\[FATAL tini \(\d{1,9}\)\] exec \S{1,200} failed: Permission denied",
            r'exec: "[^"\n]{1,300}": (?:stat [^"\n]{1,300}: )?permission denied',
            r"exec (?:user process caused:? \S{0,3}|/\S{1,200}: )permission denied",
        ),
        cause="The program that the container is to start may not be executed by the container's user: its file lacks "
        "the mode x, its folder is not open to that user, or its file system is mounted with noexec.",
        fix="Copy it with `COPY --chmod=755`, or run `chmod +x FILE` on the machine before the build (as USER root in "
        "a Dockerfile); or start the interpreter: `python train`.",
        source="aws/sagemaker-python-sdk#4678",
        leads_to=("folder-permission",),
    ),
    KnownIssue(
        name="windows-lines",
        fault="request",
        patterns=(
            r"\$'\\r': command not found",
            r"bad interpreter: (?:No such file or directory)?[^\n]{0,20}\^M|\^M: bad interpreter",
            r"env: .{1,40}\\r.{0,3}: No such file or directory",
        ),
        cause="The script has Windows' line ends, which shells and interpreters of Linux take for part of a name.",
        fix="Convert it: `sed -i 's/\\r$//' FILE`; in git set `* text=auto eol=lf` in .gitattributes.",
        leads_to=("program-missing",),
    ),
    KnownIssue(
        name="command-missing",
        fault="request",
        patterns=(
            r"^(?:\S{0,60}(?:sh|bash|dash|zsh)|\S{1,80}\.sh)(?:: line \d{1,6}|"
            r": \d{1,6})?: [\w.+-]{1,60}: (?:command )?not found",
        ),
        cause="The image does not have this program, or it is not on PATH; slim images have few.",
        fix="Add the Debian package that has it: `tfimg build --apt FILE`; `apt-file search bin/NAME` or "
        "packages.debian.org name it. `--variant dev` has compilers, git and curl.",
        generic=True,
    ),
    KnownIssue(
        name="kernel-died",
        fault="host",
        patterns=(
            r"KernelRestarter: restarting kernel|[Kk]ernel (?:\S{1,60} )?(?:appears to have )?died\b|DeadKernelError",
        ),
        cause="The process behind the notebook ended: memory ran out, or a library crashed in it. This log does not "
        "say which.",
        fix="`docker inspect NAME` has OOMKilled, `sudo dmesg | tail` on the machine says what was killed. Run the "
        "cells as a program (`jupyter nbconvert --to script NOTEBOOK`), which prints the error, and give that to "
        "`tfimg explain`.",
        source="jupyter/notebook#4135",
        generic=True,
    ),
    KnownIssue(
        name="native-crash",
        fault="request",
        patterns=(
            r"\b(?:free|malloc|realloc|munmap_chunk)\(\): (?:invalid|corrupted|double free|mismatching|unaligned|"
            r"memory corruption)",
            r"double free or corruption \(|corrupted (?:size vs\. prev_size|double-linked list)|"
            r"smallbin double linked list corrupted",
            r"Segmentation fault|(?<!found signal 11 \()SIGSEGV|\bsegfault at [0-9a-f]{1,16} ip ",
            r"(?:exit(?:ed)?|finished)(?: with)?(?: exit)? (?:code|status):? \(?139\b|was sent code 139\b|"
            r"Exit Code: {1,9}139\b",
        ),
        cause="The program crashed in native code, of TensorFlow or of a package beside it; this log does not say in "
        "which.",
        fix="`python -X faulthandler PROGRAM` prints the line at which it crashes. `tfimg validate IMAGE` shows "
        "whether the image works by itself; if it does, import the packages one at a time, and run once with `-e "
        "CUDA_VISIBLE_DEVICES=` to see whether it occurs on the processor too.",
        source="tensorflow/tensorflow#41802, NatLibFi/Annif#922",
        generic=True,
    ),
    KnownIssue(
        name="no-display",
        fault="request",
        patterns=(
            r"Could not load the Qt platform plugin \"xcb\"",
            r"no display name and no \$DISPLAY",
            r"cannot connect to X server",
            r"Unable to init server: Could not connect",
            r"The function is not implemented\. Rebuild the library with Windows, GTK",
        ),
        cause="The program opens a window, and a container has no display (and headless OpenCV no windows).",
        fix="Write to files in place of `imshow` (`cv2.imwrite`, `plt.savefig` with MPLBACKEND=Agg), or show images "
        "in JupyterLab: `tfimg jupyter IMAGE`.",
        source="opencv/opencv-python#18",
        leads_to=("opencv-library",),
    ),
)
