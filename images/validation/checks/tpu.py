"""Google's TPU library: the one that TensorFlow was built against, and, on a TPU VM, what it computes."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from bounds import ROUNDOFF
from child import ask
from contract import CheckFailed, claimed
from framework import require_placement, tensorflow

from .packages import installed_versions

if TYPE_CHECKING:
    from typing import Any

    from contract import Evidence, Facts

SIZE = 256
STEPS = 4


def pair(facts: Facts) -> Evidence:
    """libtpu is the release that tensorflow-tpu of this image was built against.

    The wheel's own requirement is not enough: 2.20 accepts every 0.0.x, and a newer one finds no TPU.
    """
    expected, found = claimed(facts.libtpu, "libtpu"), installed_versions().get("libtpu")
    wanted = [one for one in distribution("tensorflow-tpu").requires or () if re.match(r"libtpu\b", one)]
    if found != expected:
        raise CheckFailed(
            f"expected libtpu {expected}, found {found or 'none'}: TensorFlow and libtpu call each other by an "
            "interface without versions, and another release may find no TPU; install the locked one",
            libtpu=found,
            required=wanted,
        )
    return {"libtpu": found, "required": wanted}


def library(facts: Facts) -> Evidence:
    """libtpu.so loads on this glibc, and its wheel is for this Python."""
    claimed(facts.device, "the device")
    spec = importlib.util.find_spec("libtpu")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    path = str(Path(folder or "/", "libtpu.so"))
    complaint = ask("load", path)[path]
    tags = re.findall(r"^Tag: (\S+)", distribution("libtpu").read_text("WHEEL") or "", re.MULTILINE)
    glibc = " ".join(platform.libc_ver())
    if complaint:
        raise CheckFailed(
            f"expected {path} to load on {glibc}, found {complaint}: it is missing, damaged, or for a newer glibc; "
            "install the locked libtpu on the row's base",
            glibc=glibc,
            tags=tags,
        )
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if not any(tag.split("-")[0] in ("py3", here) for tag in tags):
        raise CheckFailed(f"expected a libtpu for {here}, found {tags}: install the locked wheel", tags=tags)
    return {"path": path, "bytes": Path(path).stat().st_size, "glibc": glibc, "tags": tags}


def cores(_facts: Facts) -> Evidence:
    """The TPU of this machine starts, and TensorFlow lists its cores."""
    tf, _ = started()
    listed = [device.name for device in tf.config.list_logical_devices("TPU")]
    if not listed:
        raise CheckFailed(
            "expected TPU cores, found none: the container was started without the machine's TPU"
        )
    return {"cores": listed}


def matmul(_facts: Facts) -> Evidence:
    """A bfloat16 product on the TPU, against float64, within the rounding of its result."""
    tf, _ = started()
    np = importlib.import_module("numpy")
    random = np.random.default_rng(20)
    left, right = (
        tf.cast(tf.constant(random.uniform(-1, 1, (SIZE, SIZE)), "float32"), tf.bfloat16) for _ in range(2)
    )
    with tf.device("/device:TPU:0"):
        product = tf.matmul(left, right)
    exact = tf.cast(left, tf.float64).numpy() @ tf.cast(right, tf.float64).numpy()
    error = float(np.abs(exact - tf.cast(product, tf.float64).numpy()).max())
    # The sums are of float32; what counts is that the result is rounded to bfloat16.
    bound = ROUNDOFF["bfloat16"] * float(np.abs(exact).max())
    evidence = {"device": require_placement(product, "/device:TPU:0"), "max_error": error, "bound": bound}
    if not error <= bound:
        raise CheckFailed(f"expected an error of at most {bound:.3g}, found {error:.3g}", **evidence)
    return evidence


def strategy(_facts: Facts) -> Evidence:
    """Steps of a model under `TPUStrategy` lower its loss."""
    tf, resolver = started()
    strategy = tf.distribute.TPUStrategy(resolver)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    inputs = (
        importlib.import_module("numpy").random.default_rng(20).standard_normal((64, 8)).astype("float32")
    )
    losses = model.fit(
        inputs, inputs.sum(axis=1, keepdims=True), batch_size=64, epochs=STEPS, verbose=0
    ).history["loss"]
    evidence = {"replicas": strategy.num_replicas_in_sync, "losses": losses}
    if not losses[-1] < losses[0]:
        raise CheckFailed(f"expected a falling loss, found {losses}", **evidence)
    return evidence


@lru_cache(maxsize=1)
def started() -> tuple[Any, Any]:
    """TensorFlow and the resolver of this machine's TPU, started once. Raises what TensorFlow raises without one."""
    tf = tensorflow()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf, resolver
