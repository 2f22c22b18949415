"""How long a trainer waits for its input: read in its own process, and by tf.data service in another container.

`.venv/bin/python tests/benchmarks/data_service.py IMAGE [--rounds N]` needs an engine and two processors: the trainer
has the first alone, dispatcher and worker the second, as on two machines. All ways take turns. `images` decodes and
resizes 32 JPEG pictures a step, `rows` doubles 64 rows of four numbers. Prints medians in milliseconds: of a step, of
one without new input, and of the difference, which is what the trainer waits and what reading takes of its processor.
"""

import argparse
import json
import secrets
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

DISPATCHER = """\
import tensorflow as tf
service = tf.data.experimental.service
dispatcher = service.DispatchServer(service.DispatcherConfig(port=5000))
worker = service.WorkerServer(service.WorkerConfig("localhost:5000", "input:5001", port=5001))
print("ready", flush=True)
dispatcher.join()
"""

TRAINER = """\
import json, sys, time
import numpy as np
import tensorflow as tf

kind, way = sys.argv[1:]
random = np.random.default_rng(0)
if kind == "images":
    noise = random.integers(0, 255, size=(48, 64, 3), dtype="uint8")
    picture = tf.image.resize(noise, [384, 512])
    jpeg = tf.io.encode_jpeg(tf.cast(picture, tf.uint8)).numpy()
    data = tf.data.Dataset.from_tensor_slices([jpeg] * 32).repeat()
    resize = lambda text: tf.cast(tf.image.resize(tf.io.decode_jpeg(text, channels=3), [224, 224]), tf.uint8)
    data = data.map(resize, num_parallel_calls=tf.data.AUTOTUNE).batch(32)
else:
    rows = random.normal(size=(640, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(rows).repeat().map(lambda row: row * 2).batch(64)
if way != "in process":
    service, compression = tf.data.experimental.service, None if way == "service" else "AUTO"
    data = data.apply(service.distribute("distributed_epoch", "grpc://input:5000", compression=compression))
batches = iter(data.prefetch(tf.data.AUTOTUNE))
weights = tf.Variable(tf.random.normal([1024, 1024]) / 32)

@tf.function
def train(batch):
    state = tf.ones([256, 1024]) * tf.reduce_mean(tf.cast(batch, tf.float32))
    for _ in range(6):
        state = tf.tanh(state @ weights)
    weights.assign_add(state[:1] * 1e-9 + tf.zeros_like(weights))
    return tf.reduce_sum(state)

for _ in range(10):
    train(next(batches)).numpy()
steps, start = 60, time.perf_counter()
for _ in range(steps):
    train(next(batches)).numpy()
step, batch = (time.perf_counter() - start) / steps, next(batches)
time.sleep(2)  # until nothing is read ahead any more
start = time.perf_counter()
for _ in range(steps):
    train(batch).numpy()
print(json.dumps({"step": step * 1e3, "alone": (time.perf_counter() - start) / steps * 1e3}))
"""

WAYS = ("in process", "service", "compressed")
"""The last is a service as well, with the compression that TensorFlow has by default."""


def docker(*arguments: str) -> str:
    """Return what a command of the engine prints."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def input_service(image: str, network: str) -> Iterator[None]:
    """Dispatcher and worker in a container on the second processor, for as long as the block lasts."""
    name = f"{network}-input"
    options = ("--detach", "--name", name, "--network", network, "--network-alias", "input", "--cpuset-cpus", "1")
    docker("run", *options, image, "python", "-c", DISPATCHER)
    try:
        deadline = time.monotonic() + 120
        while "ready" not in docker("logs", name):
            if time.monotonic() > deadline:
                raise SystemExit("The input service does not start: see what `python -c` prints in the image.")
            time.sleep(0.5)
        yield
    finally:
        docker("rm", "--force", name)


def measure(image: str, network: str, kind: str, way: str) -> dict[str, float]:
    """Return milliseconds of a step with its input, and of one alone."""
    options = ("--rm", "--network", network, "--cpuset-cpus", "0")
    found: dict[str, float] = json.loads(
        docker("run", *options, image, "python", "-c", TRAINER, kind, way).splitlines()[-1]
    )
    return found


def main() -> None:
    """Measure both kinds of input, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", metavar="IMAGE")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    network = f"tfimg-data-service-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        docker("network", "create", network)
        stack.callback(docker, "network", "rm", network)
        print("input    way           step ms  alone ms  input ms")
        for kind in ("images", "rows"):
            found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for _ in range(given.rounds):
                for way, each in found.items():
                    with nullcontext() if way == WAYS[0] else input_service(given.image, network):
                        each.append(measure(given.image, network, kind, way))
            for way, each in found.items():
                step, alone = (statistics.median(one[name] for one in each) for name in ("step", "alone"))
                read = statistics.median(one["step"] - one["alone"] for one in each)
                print(f"{kind:8} {way:12} {step:8.1f} {alone:9.1f} {read:9.1f}", flush=True)


if __name__ == "__main__":
    main()
