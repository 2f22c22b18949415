"""Verdicts on a notebook's run, on the answers of JupyterLab and on tools of a development image, each with a fault.

No Jupyter and no TensorFlow is needed; a small server stands where JupyterLab would.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from checks import development, notebook, servers
from contract import CheckFailed, CheckSkipped, Facts

FACTS = Facts(tensorflow="2.15.1", device="cpu", level="validated")
GPU = Facts(tensorflow="2.15.1", device="gpu", level="validated")
FOUND = {"version": "2.15.1", "devices": ["CPU"], "sum": 45}
STATUSES = {"token": 200, "page": 200, "no token": 403, "wrong token": 403, "health": 0}


def ran(facts: Facts = FACTS, **found: Any) -> dict[str, Any]:
    output = "a warning\n\n" + json.dumps(json.dumps({**FOUND, **found}) + "\n") + "\n"
    return notebook.judge_run(facts, 0, output, "")


def test_a_notebook_with_the_image_s_tensorflow_and_devices_passes() -> None:
    assert ran() == FOUND
    assert ran(GPU, devices=["CPU", "GPU"])["devices"] == ["CPU", "GPU"]
    linked = Facts(tensorflow="2.15.1", device="gpu", level="linked")
    assert ran(linked) == FOUND, "without the GPU, none is expected"


@pytest.mark.parametrize(
    ("facts", "found", "reason"),
    [
        (FACTS, {"version": "2.16.2"}, "expected TensorFlow 2.15.1 in a notebook, found 2.16.2: the kernel is another"),
        (GPU, {}, "expected the devices CPU, GPU in a notebook, found CPU: "),
        (FACTS, {"sum": 44}, "expected the sum 45 from a notebook, found 44"),
    ],
)
def test_a_notebook_of_another_python_or_without_the_gpu_fails(
    facts: Facts, found: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CheckFailed, match=reason):
        ran(facts, **found)


def test_a_notebook_that_does_not_run_is_quoted() -> None:
    with pytest.raises(CheckFailed, match=r"exit status 1 \(No module named nbclient\)"):
        notebook.judge_run(FACTS, 1, "", "Traceback\nNo module named nbclient\n")


@pytest.mark.parametrize(
    ("name", "status"), [("no token", 200), ("wrong token", 200), ("token", 403), ("page", 404), ("health", 1)]
)
def test_a_server_that_lets_others_in_or_its_user_out_fails(name: str, status: int) -> None:
    notebook.judge_server(STATUSES, [])
    with pytest.raises(CheckFailed, match=rf"found {status} \({name}\): its settings") as failed:
        notebook.judge_server({**STATUSES, name: status}, ["line"])
    assert failed.value.measured["output"] == ["line"]


JUPYTER = """\
import http.server, os

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get("Authorization") == "token " + os.environ["JUPYTER_TOKEN"]
        self.send_response(200 if OPEN or known or self.path == "/api" else 403)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(os.environ["JUPYTER_PORT"])), Answer).serve_forever()
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs of an image, first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    install(tmp_path, "tfimg-jupyter", f"#!{sys.executable}\nOPEN = False\n{JUPYTER}")
    install(tmp_path, "tfimg-jupyter-health", "#!/bin/sh\nexit 0\n")
    return tmp_path


def install(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_the_server_is_checked_with_and_without_its_token(image: Path) -> None:
    measured = notebook.server(FACTS)
    assert {name: measured[name] for name in STATUSES} == STATUSES


def test_a_server_without_a_token_and_a_health_check_that_fails_are_noticed(image: Path) -> None:
    server = (image / "tfimg-jupyter").read_text()
    install(image, "tfimg-jupyter", server.replace("OPEN = False", "OPEN = True"))
    with pytest.raises(CheckFailed, match=r"found 200 \(no token\), 200 \(wrong token\)"):
        notebook.server(FACTS)
    install(image, "tfimg-jupyter", server)
    install(image, "tfimg-jupyter-health", "#!/bin/sh\nexit 1\n")
    with pytest.raises(CheckFailed, match=r"found 1 \(health\)"):
        notebook.server(FACTS)


def test_a_server_that_ends_is_quoted(image: Path) -> None:
    install(image, "tfimg-jupyter", "#!/bin/sh\necho 'address in use'\nexit 3\n")
    with pytest.raises(CheckFailed, match=r"found exit status 3 \(address in use\)"):
        notebook.server(FACTS)
    (image / "tfimg-jupyter").unlink()
    with pytest.raises(CheckFailed, match=r"expected `tfimg-jupyter` to start, found .*No such file"):
        notebook.server(FACTS)


def test_a_server_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $$; exec sleep 60"]
    with (
        pytest.raises(CheckFailed, match="found no answer within 0 s"),
        servers.serving(command, tmp_path, {}, lambda: False, 0.3),
    ):
        raise AssertionError("it was never ready")
    number = int(servers.tail(tmp_path / "output.log")[0])
    with pytest.raises(ProcessLookupError):
        os.killpg(number, 0)


def test_tools_are_named_with_their_versions_and_a_missing_one_is_noticed(image: Path) -> None:
    with pytest.raises(CheckFailed, match=r"expected git, g\+\+ to start, found g\+\+ missing or broken"):
        development.judge_tools({"git": "git version 2", "g++": None})
    for name in development.TOOLS:
        install(image, name, "#!/bin/sh\necho 1.0\n")
    assert development.tools(FACTS)["versions"] == dict.fromkeys(development.TOOLS, "1.0")
    install(image, "make", "#!/bin/sh\nexit 127\n")
    with pytest.raises(CheckFailed, match="found make missing or broken"):
        development.tools(FACTS)


def test_a_custom_op_has_to_compute_and_one_that_does_not_compile_is_quoted(image: Path) -> None:
    assert development.judge_op([3, -6, 120], ["g++"])["answer"] == [3, -6, 120]
    with pytest.raises(CheckFailed, match=r"expected \[3, -6, 120\] from a custom op, found \[0, 0, 0\]"):
        development.judge_op([0, 0, 0], ["g++"])
    install(image, "g++", "#!/bin/sh\necho noise >&2\necho 'op.h:1: fatal error: op.h: No such file' >&2\nexit 1\n")
    with pytest.raises(CheckFailed, match=r"found op\.h:1: fatal error: op\.h: No such file: headers") as failed:
        development._compile(["g++", "x.cc"])
    assert failed.value.measured["command"] == ["g++", "x.cc"]
    with pytest.raises(CheckFailed, match="Debian packages of the variant are missing"):
        development._compile([str(image / "missing")])


ACCEPTED, DENIED = (0, "/opt/tensorflow"), (255, "t@127.0.0.1: Permission denied (publickey).")
NO_KEY = (2, "tfimg-sshd: no key may log in.")


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (((255, "Permission denied"), DENIED, NO_KEY), "a login with the key, found 'Permission denied' .status 255"),
        (((0, "/usr"), DENIED, NO_KEY), "the image's Python after a login with the key, found '/usr'"),
        ((ACCEPTED, (0, "/opt/tensorflow"), NO_KEY), "no other way to log in than a key, found '/opt/tensorflow'"),
        ((ACCEPTED, (255, "Permission denied (publickey,password)."), NO_KEY), "no other way to log in than a key"),
        ((ACCEPTED, DENIED, (0, "")), "no start without a key, found '' .status 0"),
    ],
)
def test_a_server_of_ssh_with_passwords_or_without_keys_fails(answers: Any, reason: str) -> None:
    assert development.judge_ssh(ACCEPTED, DENIED, NO_KEY, [])["accepted"] == ACCEPTED
    with pytest.raises(CheckFailed, match=f"expected .*{reason}"):
        development.judge_ssh(*answers, ["line"])


def test_without_an_entry_in_passwd_ssh_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(CheckSkipped, match="uid 4000000000 has no entry in /etc/passwd"):
        development.sshd(FACTS)
