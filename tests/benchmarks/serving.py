"""What serving costs: 10,000 requests of a load generator against calling the model in the server's own process.

.venv/bin/python tests/benchmarks/serving.py IMAGE [OPTION …]

IMAGE is one of variant serve; options are those of its server, such as --batch 32. It needs `hey` (Debian's package of
that name) and prints a table.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REQUESTS = 10_000
CONCURRENCY = (1, 8, 32)

MODEL = """
import sys, tensorflow as tf
model = tf.keras.Sequential([tf.keras.Input((28, 28, 1)), tf.keras.layers.Conv2D(16, 3, activation="relu"),
    tf.keras.layers.MaxPool2D(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
model.export(sys.argv[1])
"""

DIRECT = """
import json, sys, time, numpy as np, tensorflow as tf
call = tf.saved_model.load("/models/digits/1").signatures["serving_default"]
(name,) = call.structured_input_signature[1]
image, found = np.full((1, 28, 28, 1), 0.5, "float32"), []
for _ in range(int(sys.argv[1]) + 100):
    begun = time.perf_counter()
    {key: value.numpy() for key, value in call(**{name: tf.constant(image)}).items()}
    found.append(time.perf_counter() - begun)
print(json.dumps([float(np.percentile(found[100:], 50)), float(np.percentile(found[100:], 99))]))
"""


def main(image: str, *options: str) -> None:
    """Measure, and print a table of Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        docker("run", "--rm", "--volume", f"{folder}:/out", image, "python", "-c", MODEL, "/out/digits")
        body = Path(folder, "request.json")
        body.write_text(json.dumps({"instances": [[[[0.5]] * 28] * 28]}))
        with served(image, f"{folder}/digits", *options) as server:
            direct = json.loads(
                docker("exec", server["container"], "python", "-c", DIRECT, str(REQUESTS)).splitlines()[-1]
            )
            print(f"| in the process, one at a time | {direct[0] * 1e3:.2f} ms | {direct[1] * 1e3:.2f} ms | 1 | 1 | |")
            for clients in CONCURRENCY:
                p50, p99, rate = load(f"{server['url']}:predict", body, clients)
                ratios = f"{p50 / direct[0]:.1f} | {p99 / direct[1]:.1f}"
                print(f"| {clients} clients | {p50 * 1e3:.2f} ms | {p99 * 1e3:.2f} ms | {ratios} | {rate:.0f} |")


@contextmanager
def served(image: str, model: str, *options: str) -> Iterator[dict[str, Any]]:
    """Serve a model for as long as the block lasts; yield what `tfimg serve --json` says."""
    line = [sys.executable, "-m", "tfimg", "serve", model, "--image", image, "--json", "--", *options]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield json.loads(child.stdout.readline())
        finally:
            child.terminate()


def load(url: str, body: Path, clients: int) -> tuple[float, float, float]:
    """Send the requests; return p50 and p99 in seconds, and requests a second. Any other status than 200 fails."""
    options = ["-n", str(REQUESTS), "-c", str(clients), "-m", "POST", "-T", "application/json", "-D", str(body)]
    said = subprocess.run(["hey", *options, url], capture_output=True, text=True, check=True).stdout
    answered = sum(int(count) for count in re.findall(r"\[200\]\s+(\d+) responses", said))
    assert answered == REQUESTS // clients * clients, said
    assert "Error distribution" not in said, said
    p50, p99 = (float(re.search(rf"{percent}% in ([0-9.]+) secs", said)[1]) for percent in (50, 99))  # type: ignore[index]
    return p50, p99, float(re.search(r"Requests/sec:\s+([0-9.]+)", said)[1])  # type: ignore[index]


def docker(*words: str) -> str:
    """Run docker, and return what it prints."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
