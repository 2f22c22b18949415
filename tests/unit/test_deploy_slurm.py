"""Batch scripts for Slurm, run by bash with programs that stand for Slurm and the runners and print their words."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.programs import program
from tfimg.core.errors import UsageError
from tfimg.deploy.slurm import Runner, render_slurm
from tfimg.deploy.workload import Workload, quote_word

HEX = "a" * 64
ONE = Workload(image=f"registry.example:5000/team/tensorflow@sha256:{HEX}", command=["python", "train.py"])
RUNNERS: tuple[Runner, ...] = get_args(Runner)

WORDS = [
    "a b", "", "'", '"', "\\", "$HOME", "$(id)", "`id`", "a\nb", "\n", "a\n", "\t", "*", "~", "!", "#a", "-n",
    "é", "\x07", "\x1b[31m", "é1", "\x07f", "名前", "\U0001f600", "\u202e", "a;b", "a&b", "{a,b}", "=x", "%x", "\\x41",
    "\\n",
]  # fmt: skip

PRINT = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
TOOLS = {
    "srun": f'{sys.executable} -c \'{PRINT}\' "$@" >>"$RECORD"; exit "${{SRUN_STATUS:-0}}"',
    "scontrol": 'if [ "$1" = show ]; then printf "%s\\n" $3; else echo "scontrol $*" >>"$CONTROL"; fi',
    "ch-image": 'echo "ch-image $*" >>"$CONTROL"',
    "ch-convert": 'echo "ch-convert $*" >>"$CONTROL"; mkdir "$6"',
    "ch-fromhost": 'echo "ch-fromhost $*" >>"$CONTROL"',
    "apptainer": 'echo "apptainer $*" >>"$CONTROL"; touch "$2"',
}


@dataclass(frozen=True)
class Ran:
    """A script that ended: its exit status, words and variables of each srun, and what other programs were run."""

    status: int
    steps: list[tuple[list[str], dict[str, str]]]
    others: list[str]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Run a script as Slurm would."""
    record, control = tmp_path / "record", tmp_path / "control"
    for name, script in TOOLS.items():
        environ = program(tmp_path / "tools", name, script)

    def run_script(text: str, **variables: str) -> Ran:
        record.write_text("")
        control.write_text("")
        slurm = {"SLURM_JOB_ID": "7", "RECORD": str(record), "CONTROL": str(control), **variables}
        done = subprocess.run(
            ["/bin/bash", "-c", text], text=True, env={**environ, **slurm}, capture_output=True, check=False
        )  # fmt: skip
        assert done.stderr == ""
        steps = [tuple(json.loads(line)) for line in record.read_text().splitlines()]
        return Ran(done.returncode, steps, control.read_text().splitlines())

    return run_script


def test_bash_reads_each_quoted_word_as_it_is() -> None:
    line = f"{sys.executable} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' {' '.join(map(quote_word, WORDS))}"
    assert line.isascii()
    assert line.isprintable()
    done = subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, text=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert json.loads(done.stdout) == WORDS


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_bash_reads_any_text_as_it_is(words: list[str]) -> None:
    script = f"printf '%s\\0' {' '.join(map(quote_word, words))}"
    assert script.isascii()
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C"})
    assert done.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("runner", RUNNERS)
def test_words_and_variables_reach_the_runner_as_they_are(
    runner: Runner, run: Callable[..., Ran], tmp_path: Path
) -> None:
    variables = {"PATH": "/nowhere", "V": "$HOME 'a'\n\"é", "EMPTY": ""}
    text = render_slurm(replace(ONE, workers=2, command=WORDS, env=variables), runner)
    ran = run(text, TFIMG_IMAGES=str(tmp_path))
    assert ran.status == 0
    ((words, environ),) = ran.steps
    settings = [f"{name}={value}" for name, value in variables.items()]
    expected = ["env", *settings, "tfimg-cluster", "--", *WORDS]
    assert words[-len(expected) :] == expected
    assert environ["PATH"] != "/nowhere", "the script's own programs are found"
    assert "TFIMG_CLUSTER" not in environ, "Slurm describes the cluster"


def directives(text: str) -> list[list[str]]:
    """Return the options that sbatch reads, of each component."""
    found: list[list[str]] = [[]]
    for line in text.splitlines()[1:]:
        if not line.startswith("#SBATCH "):
            break
        if line == "#SBATCH hetjob":
            found.append([])
        else:
            found[-1].append(line.removeprefix("#SBATCH "))
    return found


def test_sbatch_reads_what_a_worker_needs() -> None:
    (options,) = directives(render_slurm(replace(ONE, workers=3, gpus=4, queue="gpu,debug", name="resnet")))
    assert set(options) == {
        "--job-name=resnet", "--output=%x-%j.log", "--open-mode=append", "--requeue", "--partition=gpu,debug",
        "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=16", "--mem=64G", "--gpus-per-node=4",
    }  # fmt: skip


def test_parameter_servers_get_nodes_without_gpus(run: Callable[..., Ran]) -> None:
    text = render_slurm(replace(ONE, workers=2, ps=2, gpus=1, queue="gpu"))
    servers, workers = directives(text)
    assert "--nodes=3" in servers
    assert not [option for option in servers if "gpu" in option and "partition" not in option]
    assert {"--nodes=2", "--gpus-per-node=1"} <= set(workers)
    assert [option for option in servers if "=gpu" in option] == ["--partition=gpu"]
    lists = {"SLURM_JOB_NODELIST_HET_GROUP_0": "s1 s2 s3", "SLURM_JOB_NODELIST_HET_GROUP_1": "w1 w2"}
    ran = run(text, **lists)
    assert ran.status == 0
    assert {environ["TFIMG_CLUSTER"] for _, environ in ran.steps} == {"chief=s1;worker=w1,w2;ps=s2,s3"}
    assert sorted([word for word in words if "group" in word or "relative" in word] for words, _ in ran.steps) == [
        ["--het-group=0", "--relative=0"], ["--het-group=0", "--relative=1"], ["--het-group=1"],
    ]  # fmt: skip


def test_each_task_of_a_step_knows_its_number(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The words after the runner's, run by bash as in a container."""
    text = render_slurm(replace(ONE, workers=2, ps=1, command=["a 'b'"]), "enroot")
    ran = run(text, SLURM_JOB_NODELIST_HET_GROUP_0="s1 s2", SLURM_JOB_NODELIST_HET_GROUP_1="w1 w2")
    environ = program(tmp_path / "image", "tfimg-cluster", 'echo "$TFIMG_TASK" "$@"')
    found = [
        subprocess.run(
            words[words.index("bash") :],
            env={**environ, "SLURM_PROCID": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for words, _ in ran.steps
    ]
    assert sorted(found) == ["chief:1 -- a 'b'\n", "ps:1 -- a 'b'\n", "worker:1 -- a 'b'\n"]


def test_a_job_that_fails_is_queued_again_three_times(run: Callable[..., Ran]) -> None:
    text = render_slurm(replace(ONE, workers=2), "enroot")
    assert (run(text).status, run(text).others) == (0, [])
    first, last = run(text, SRUN_STATUS="9"), run(text, SRUN_STATUS="9", SLURM_RESTART_COUNT="3")
    assert (first.status, first.others) == (9, ["scontrol requeue 7"])
    assert (last.status, last.others) == (9, [])
    ((words, _),) = first.steps
    assert "--kill-on-bad-exit=1" in words, "a worker that fails takes its peers with it"


CACHE = ("env", "CUDA_CACHE_PATH=/checkpoints/.cuda-cache", "CUDA_CACHE_MAXSIZE=4294967296")
"""Of a worker with GPUs and a volume: what the driver compiles stays there."""


def test_charliecloud_unpacks_the_digest_once(run: Callable[..., Ran], tmp_path: Path) -> None:
    images = tmp_path / "images of ann"
    text = render_slurm(replace(ONE, gpus=1, checkpoints="/shared/a b"), "charliecloud")
    ran = run(text, TFIMG_IMAGES=str(images))
    unpacked = f"{images}/{HEX}"
    assert ran.others == [
        f"ch-image pull {ONE.image}",
        f"ch-convert -i ch-image -o dir {ONE.image} {unpacked}.7",
        f"ch-fromhost --nvidia {unpacked}.7",
    ]
    assert (images / HEX / "checkpoints").is_dir(), "where the volume is mounted"
    assert run(text, TFIMG_IMAGES=str(images)).others == []
    ((words, _),) = ran.steps
    start = words.index("ch-run")
    assert words[start : words.index("tfimg-cluster")] == [
        "ch-run", "--private-tmp", "--env-no-expand", "--set-env", "--set-env=HOME=/tmp",
        "--bind=/shared/a b:/checkpoints", unpacked, "--", *CACHE,
    ]  # fmt: skip


def test_apptainer_pulls_the_digest_once(run: Callable[..., Ran], tmp_path: Path) -> None:
    text = render_slurm(replace(ONE, gpus=1, checkpoints="/shared/a b"), "apptainer")
    ran = run(text, TFIMG_IMAGES=str(tmp_path))
    assert ran.others == [f"apptainer pull {tmp_path}/{HEX}.7.sif docker://{ONE.image}"]
    assert run(text, TFIMG_IMAGES=str(tmp_path)).others == []
    ((words, _),) = ran.steps
    assert words[words.index("apptainer") : words.index("tfimg-cluster")] == [
        "apptainer", "exec", "--contain", "--no-eval", "--nv", "--bind", "/shared/a b:/checkpoints",
        f"{tmp_path}/{HEX}.sif", *CACHE,
    ]  # fmt: skip


def test_pyxis_gets_the_digest_in_the_form_of_enroot(run: Callable[..., Ran]) -> None:
    ((words, _),) = run(render_slurm(replace(ONE, checkpoints="/shared/a b"), "enroot")).steps
    assert [word for word in words if "container" in word] == [
        f"--container-image=registry.example:5000#team/tensorflow:sha256:{HEX}",
        "--container-readonly",
        "--no-container-mount-home",
        "--container-mounts=/shared/a b:/checkpoints",
    ]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_script_is_printable_ascii(runner: Runner) -> None:
    text = render_slurm(
        replace(ONE, workers=2, ps=1, gpus=1, command=WORDS, env={"A": "é\n"}, checkpoints="/a"), runner
    )
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue": "a b"}, "is not a partition"),
        ({"queue": "gpu\n#SBATCH --uid=0"}, "is not a partition"),
        ({"queue": ""}, "is not a partition"),
        ({"checkpoints": "relative"}, "is not an absolute path"),
        ({"checkpoints": "/a:b"}, "without colons"),
        ({"checkpoints": "/a\nb"}, "is not an absolute path"),
        ({"name": "a\nb"}, "is not a host name"),
        ({"command": ["a\udce9"]}, "is not UTF-8"),
    ],
)
def test_what_would_break_the_script_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        render_slurm(replace(ONE, **change))
