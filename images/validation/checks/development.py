"""Tools of a development image: compilers, TensorFlow's headers, and a server of SSH for keys alone."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped
from emulation import extend
from fork_group import call_in_forks, hide_gpus
from framework import tensorflow

from .cluster import free_addresses
from .servers import serving, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from contract import Facts, Measured

TOOLS = ("git", "g++", "make")
ROWS = (1, -2, 40)
# Half a minute on two busy cores: the headers include Eigen, protobuf and Abseil.
COMPILE_SECONDS = 240
SSH_SECONDS = 60
LOADING = "the op was compiled with other flags than TensorFlow; compare g++ with the compiler of the wheel"

OP = """\
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

REGISTER_OP("TfimgTriple")
    .Input("rows: int32")
    .Output("tripled: int32")
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(0));
      return ::tensorflow::Status();
    });

class TfimgTriple : public tensorflow::OpKernel {
 public:
  explicit TfimgTriple(tensorflow::OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& rows = context->input(0);
    tensorflow::Tensor* tripled = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, rows.shape(), &tripled));
    auto from = rows.flat<int>();
    auto to = tripled->flat<int>();
    for (int i = 0; i < from.size(); ++i) to(i) = 3 * from(i);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfimgTriple").Device(tensorflow::DEVICE_CPU), TfimgTriple);
"""


def tools(_facts: Facts) -> Measured:
    """git, g++ and make are on PATH, and start."""
    return judge_tools({name: _version(name) for name in TOOLS})


def judge_tools(versions: Mapping[str, str | None]) -> Measured:
    """The verdict on the first lines of versions; None for a program that does not start."""
    missing = [name for name, version in versions.items() if not version]
    if missing:
        raise CheckFailed(
            f"expected {', '.join(versions)} to start, found {', '.join(missing)} missing or broken: the Debian "
            "packages of the variant were not installed or were removed; build the image again",
            versions=dict(versions),
        )
    return {"versions": dict(versions)}


def _version(name: str) -> str | None:
    """First line of a program's version; None without."""
    try:
        done = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=extend(SSH_SECONDS))
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if lines and not done.returncode else None


def custom_op(_facts: Facts) -> Measured:
    """An op in C++ compiles with TensorFlow's headers and flags, loads and computes."""
    tf = tensorflow()
    compile_flags, link_flags = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
    if not any("-std=" in flag for flag in compile_flags):
        compile_flags = [*compile_flags, "-std=c++17"]
    hide_gpus()
    with tempfile.TemporaryDirectory() as name:
        if os.statvfs(name).f_flag & getattr(os, "ST_NOEXEC", 8):
            raise CheckSkipped(
                f"{name} is mounted noexec, and no library can be loaded from there; start with --tmpfs /tmp:exec"
            )
        source, library = Path(name) / "triple.cc", Path(name) / "triple.so"
        source.write_text(OP, encoding="utf-8")
        # -O0: the code matters, not its speed.
        command = ["g++", "-shared", "-fPIC", "-O0", *compile_flags, str(source), "-o", str(library), *link_flags]
        _compile(command)
        answers = call_in_forks({"op": partial(_triple, tf, library)}, COMPILE_SECONDS, LOADING)
    return judge_op(answers["op"], command)


def _compile(command: Sequence[str]) -> None:
    """Run a compiler. Raises CheckFailed with its first errors."""
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, timeout=extend(COMPILE_SECONDS))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckFailed(
            f"expected g++ to compile an op, found {error}: Debian packages of the variant are missing, or the machine "
            "is very slow",
            command=list(command),
        ) from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise CheckFailed(
            f"expected g++ to compile an op, found {errors[0] if errors else 'no message'}: headers of TensorFlow are "
            "missing, or its flags do not fit this compiler",
            command=list(command),
            output=errors[:20],
        )


def _triple(tf: Any, library: Path) -> Any:
    return tf.load_op_library(str(library)).tfimg_triple(rows=list(ROWS)).numpy().tolist()


def judge_op(answer: object, command: Sequence[str]) -> Measured:
    """The verdict on what the op has computed."""
    wanted = [3 * row for row in ROWS]
    if answer != wanted:
        raise CheckFailed(f"expected {wanted} from a custom op, found {answer}: {LOADING}", command=list(command))
    return {"command": list(command), "answer": answer}


def sshd(_facts: Facts) -> Measured:
    """`tfimg-sshd` accepts a key and runs the image's Python, offers no password, and does not start without a key."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise CheckSkipped(f"uid {os.getuid()} has no entry in /etc/passwd, and SSH needs one") from None
    (address,) = free_addresses(1)
    host, port = address.split(":")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = folder / "key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=extend(SSH_SECONDS)
        )
        public = key.with_suffix(".pub").read_text(encoding="utf-8")
        refused = _without_key(folder)
        command = ["tfimg-sshd", "-o", f"ListenAddress={host}", "-p", port]

        def ready() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0

        with serving(command, folder, {"AUTHORIZED_KEYS": public}, ready, SSH_SECONDS) as log:
            login = ["ssh", "-F", "/dev/null", "-p", port, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
            login += ["-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "LogLevel=ERROR"]
            program = [f"{user}@{host}", "python -c 'import sys; print(sys.prefix)'"]
            accepted = _ended([*login, "-i", str(key), *program])
            others = ["-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password,keyboard-interactive"]
            password = _ended([*login, *others, *program])
            return judge_ssh(accepted, password, refused, tail(log))


def judge_ssh(
    accepted: tuple[int, str], password: tuple[int, str], refused: tuple[int, str], output: list[str]
) -> Measured:
    """The verdict on exit statuses and last lines: with the key, without it, and of the start without any key."""
    measured = {"accepted": accepted, "password": password, "without key": refused, "output": output}
    problem = None
    if accepted[0] or not accepted[1].startswith("/opt/tensorflow"):
        problem = f"the image's Python after a login with the key, found {accepted[1]!r} (status {accepted[0]})"
    elif password[0] != 255 or "Permission denied (publickey)" not in password[1]:
        problem = f"no other way to log in than a key, found {password[1]!r} (status {password[0]})"
    elif refused[0] != 2 or "no key may log in" not in refused[1]:
        problem = f"no start without a key, found {refused[1]!r} (status {refused[0]})"
    if problem:
        raise CheckFailed(
            f"expected {problem}: the settings of tfimg-sshd were changed, or openssh-server was replaced; build the "
            "image again",
            **measured,
        )
    return measured


def _without_key(folder: Path) -> tuple[int, str]:
    """How the server ends that has no key; it may take one that is in the container's home."""
    env = {name: value for name, value in os.environ.items() if name != "AUTHORIZED_KEYS"}
    return _ended(["tfimg-sshd", "-t"], {**env, "HOME": str(folder)})


def _ended(command: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status and last line of a program."""
    path = shutil.which(command[0])
    if path is None:
        raise CheckFailed(f"expected `{command[0]}` on PATH, found none: build the image again")
    done = subprocess.run(
        [path, *command[1:]],
        capture_output=True,
        text=True,
        timeout=extend(SSH_SECONDS),
        env=env,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, ((done.stdout + done.stderr).strip().splitlines() or [""])[-1]
