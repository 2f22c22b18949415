"""Google's TPU library: the one that TensorFlow was built against, and, on a TPU VM, what it computes."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bounds import ROUNDOFF
from contract import CheckFailed, claimed
from framework import require_placement, tensorflow
from native_client import ask

from .packages import installed, installed_versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contract import Facts, Measured

SIZE = 256
STEPS = 4


def pair(facts: Facts) -> Measured:
    """libtpu is the release that tensorflow-tpu of this image was built against.

    The wheel's own requirement is not enough: 2.20 accepts every 0.0.x, and a newer one finds no TPU.
    """
    expected, found = claimed(facts.libtpu, "libtpu"), installed_versions().get("libtpu")
    tensorflow = installed().get("tensorflow-tpu")
    wanted = [one for one in (tensorflow.requires if tensorflow else ()) if re.match(r"libtpu\b", one)]
    if found != expected:
        raise CheckFailed(
            f"expected libtpu {expected}, found {found or 'none'}: TensorFlow and libtpu call each other by an "
            "interface without versions, and another release may find no TPU; install the locked one",
            libtpu=found,
            required=wanted,
        )
    return {"libtpu": found, "required": wanted}


def library(facts: Facts) -> Measured:
    """libtpu.so loads on this glibc, and its wheel is for this Python."""
    claimed(facts.device, "the device")
    spec = importlib.util.find_spec("libtpu")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    path = str(Path(folder or "/", "libtpu.so"))
    complaint = ask("load", path)[path]
    libtpu = installed().get("libtpu")
    tags = re.findall(r"^Tag: (\S+)", libtpu.read("WHEEL") or "" if libtpu else "", re.MULTILINE)
    glibc = " ".join(platform.libc_ver())
    if complaint:
        raise CheckFailed(
            f"expected {path} to load on {glibc}, found {complaint}: it is missing, damaged, or for a newer glibc; "
            "install the locked libtpu on the row's base",
            glibc=glibc,
            tags=tags,
        )
    require_tag(tags, f"cp{sys.version_info.major}{sys.version_info.minor}")
    return {"path": path, "bytes": Path(path).stat().st_size, "glibc": glibc, "tags": tags}


def require_tag(tags: Sequence[str], python: str) -> None:
    """Raise CheckFailed unless one of a wheel's tags is for this Python, such as cp311, or for any Python 3."""
    if not any(tag.split("-")[0] in ("py3", python) for tag in tags):
        raise CheckFailed(f"expected a libtpu for {python}, found {tags}: install the locked wheel", tags=tags)


def cores(_facts: Facts) -> Measured:
    """The TPU of this machine starts, and TensorFlow lists its cores."""
    tf, _ = started()
    return judge_cores([device.name for device in tf.config.list_logical_devices("TPU")])


def judge_cores(listed: Sequence[str]) -> Measured:
    """What was measured. Raises CheckFailed where no core is listed."""
    if not listed:
        raise CheckFailed("expected TPU cores, found none: the container was started without the machine's TPU")
    return {"cores": list(listed)}


def matmul(_facts: Facts) -> Measured:
    """A bfloat16 product on the TPU, against float64, within the rounding of its result."""
    tf, _ = started()
    return product_on(tf, "/device:TPU:0")


def product_on(tf: Any, device: str) -> Measured:
    """Multiply bfloat16 matrices on a device. Raises CheckFailed when that is elsewhere or beyond its bound."""
    np = importlib.import_module("numpy")
    random = np.random.default_rng(20)
    # The product alone is the TPU's: what it does not know, such as float64, stays out of the way.
    with tf.device("/device:CPU:0"):
        left, right = (tf.cast(random.uniform(-1, 1, (SIZE, SIZE)).astype("float32"), tf.bfloat16) for _ in range(2))
    with tf.device(device):
        product = tf.matmul(left, right)
    a, b, found = (tensor.numpy().astype("float64") for tensor in (left, right, product))
    exact = a @ b
    error = float(np.abs(exact - found).max())
    # The sums are of float32; what counts is that the result is rounded to bfloat16. Where a test lends a CPU as the
    # TPU, TensorFlow truncates instead if that has no AVX-512 (see `numerics.product_bound`).
    rounding = ROUNDOFF["bfloat16"] * (2 if "CPU" in device else 1)
    bound = rounding * float(np.abs(exact).max())
    measured = {"device": require_placement(product, device), "max_error": error, "bound": bound}
    return judge_product(measured)


def judge_product(measured: Measured) -> Measured:
    """What was measured. Raises CheckFailed where the error exceeds the bound or is not a number."""
    error, bound = measured["max_error"], measured["bound"]
    if not error <= bound:
        raise CheckFailed(f"expected an error of at most {bound:.3g}, found {error:.3g}", **measured)
    return measured


def strategy(_facts: Facts) -> Measured:
    """Steps of a model under `TPUStrategy` lower its loss."""
    tf, resolver = started()
    return train_under(tf, tf.distribute.TPUStrategy(resolver))


def train_under(tf: Any, strategy: Any) -> Measured:
    """Train a model under a strategy. Raises CheckFailed unless its loss falls."""
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
        # Keras 3 would ask XLA to compile what TPUStrategy compiles already (keras-team/keras#19448).
        model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    inputs = importlib.import_module("numpy").random.default_rng(20).standard_normal((64, 8)).astype("float32")
    losses = model.fit(inputs, inputs.sum(axis=1, keepdims=True), batch_size=64, epochs=STEPS, verbose=0).history[
        "loss"
    ]
    return judge_losses({"replicas": strategy.num_replicas_in_sync, "losses": losses})


def judge_losses(measured: Measured) -> Measured:
    """What was measured. Raises CheckFailed unless the last loss is below the first."""
    losses = measured["losses"]
    if not losses[-1] < losses[0]:
        raise CheckFailed(f"expected a falling loss, found {losses}", **measured)
    return measured


@lru_cache(maxsize=1)
def started() -> tuple[Any, Any]:
    """TensorFlow and the resolver of this machine's TPU, started once. Raises what TensorFlow raises without one."""
    tf = tensorflow()
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf, resolver
