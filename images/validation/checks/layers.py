"""Layers of neural networks against references in NumPy: what runs in cuDNN on a GPU."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

from bounds import gamma, over, require_within
from contract import CheckFailed
from framework import (
    device_under_test,
    recorded,
    require_operations,
    require_placement,
    strictly_on,
    tensorflow,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contract import Facts, Measured
    from framework import Operation

SEED = 20
CPU = "/device:CPU:0"
# Small, because the bound grows with the number of products in a sum. Batch, height, width, channels.
IMAGE, KERNEL = (2, 10, 11, 16), (3, 3, 16, 24)
BATCH, STEPS, FEATURES, UNITS = 2, 4, 5, 8
LSTM = {
    "input": (BATCH, STEPS, FEATURES),
    "kernel": (FEATURES, 4 * UNITS),
    "recurrent kernel": (UNITS, 4 * UNITS),
    "bias": (4 * UNITS,),
}
# The operation that runs in cuDNN, whatever its version: CudnnRNNV3, CudnnRNNBackpropV3.
CUDNN = "CudnnRNN"
# The error of a difference quotient is about its square.
NUDGE = 1e-4
CAUSE = "the result is wrong or of lower precision; try another machine, then another TensorFlow"


def convolution(facts: Facts) -> Measured:
    """Check a 3 x 3 convolution and both of its gradients against NumPy in float64."""
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    arrays = convolution_inputs(np)
    with recorded() as operations:
        found = _convolve(tf, device, *arrays)
    require_operations(operations, device, "Conv2D")
    errors = convolution_errors(np, arrays, [tensor.numpy() for tensor in found])
    measured = {
        "device": [require_placement(tensor, device) for tensor in found],
        "error_over_bound": {**errors, "plane": _plane(tf, np, device)},
    }
    return require_within(measured, CAUSE)


def convolution_inputs(np: Any) -> tuple[Any, Any, Any]:
    """Return an image, a kernel and an upstream gradient in float32."""
    random = np.random.default_rng(SEED)
    shape = (IMAGE[0], IMAGE[1] - KERNEL[0] + 1, IMAGE[2] - KERNEL[1] + 1, KERNEL[3])
    image, kernel, upstream = (random.standard_normal(size, "float32") for size in (IMAGE, KERNEL, shape))
    return image, kernel, upstream


def convolution_errors(np: Any, arrays: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
    """Return the errors of output, input gradient and kernel gradient, each over its bound.

    An element of any of them is a sum of n products, wrong by at most gamma(n) times the sum of their absolute values
    when added directly. cuDNN may choose Winograd's algorithm or a Fourier transform, which are that good only against
    the largest such sum in the array (Higham, section 23.2, on fast products): so that is the scale.
    """
    image, kernel, upstream = arrays
    exact = convolution_reference(np, image, kernel, upstream)
    scales = convolution_reference(np, abs(image), abs(kernel), abs(upstream))
    window = kernel.shape[0] * kernel.shape[1]
    counts = (
        window * kernel.shape[2],
        window * kernel.shape[3],
        upstream.shape[0] * upstream.shape[1] * upstream.shape[2],
    )
    names = ("output", "input gradient", "kernel gradient")
    return {
        name: over(one, true, gamma(count) * scale.max())
        for name, one, true, scale, count in zip(names, found, exact, scales, counts)
    }


def _plane(tf: Any, np: Any, device: str) -> float:
    """Return the error, over its bound, for a slanted plane: no reference but a formula."""
    plane, kernel = plane_inputs(np)
    with strictly_on(tf, device):
        output = tf.nn.conv2d(tf.constant(plane), tf.constant(kernel), strides=1, padding="VALID")
    require_placement(output, device)
    return plane_error(np, output.numpy())


def plane_inputs(np: Any) -> tuple[Any, Any]:
    """Return a slanted plane, and a kernel of a window of ones and a single one in a corner."""
    rows, columns = np.indices(IMAGE[1:3]).astype("float32")
    kernel = np.zeros((3, 3, 1, 2), "float32")
    kernel[..., 0], kernel[0, 2, 0, 1] = 1, 1
    return (rows + 20 * columns)[None, :, :, None], kernel


def plane_error(np: Any, output: Any) -> float:
    """Return the error of the convolved plane over its bound.

    A window of ones gives nine times its middle. A single one in a corner moves the plane, and the other way if the
    kernel were turned over, as in a mathematician's convolution.
    """
    rows, columns = np.indices(IMAGE[1:3])
    middle = (rows + 1 + 20 * (columns + 1))[:-2, :-2]
    exact = np.stack([9 * middle, middle - 1 + 20], axis=2)
    return over(output[0].astype("float64"), exact, gamma(9) * exact.max())


def _convolve(tf: Any, device: str, *arrays: Any) -> tuple[Any, Any, Any]:
    with strictly_on(tf, device):
        image, kernel, upstream = map(tf.constant, arrays)
        with tf.GradientTape() as tape:
            tape.watch([image, kernel])
            output = tf.nn.conv2d(image, kernel, strides=1, padding="VALID", data_format="NHWC")
        return (output, *tape.gradient(output, [image, kernel], output_gradients=upstream))


def convolution_reference(np: Any, image: Any, kernel: Any, upstream: Any) -> tuple[Any, Any, Any]:
    """Output, input gradient and kernel gradient in float64: one matrix product per place in the kernel."""
    image, kernel, upstream = (array.astype("float64") for array in (image, kernel, upstream))
    output, to_image, to_kernel = np.zeros_like(upstream), np.zeros_like(image), np.zeros_like(kernel)
    for row, column in np.ndindex(kernel.shape[:2]):
        window = np.s_[:, row : row + upstream.shape[1], column : column + upstream.shape[2]]
        output += image[window] @ kernel[row, column]
        to_image[window] += upstream @ kernel[row, column].T
        to_kernel[row, column] = np.tensordot(image[window], upstream, ([0, 1, 2], [0, 1, 2]))
    return output, to_image, to_kernel


def lstm(facts: Facts) -> Measured:
    """Check Keras' LSTM against its equations in float64, and its gradients against their difference quotients.

    On a GPU it must run in cuDNN, and the CPU, without cuDNN, is held against the same reference.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    arrays, upstream = lstm_inputs(np)
    measured: Measured = {"device": [], "kernels": {}, "error_over_bound": {}}
    for place in dict.fromkeys((device, CPU)):
        with recorded() as operations:
            output, gradients = _keras_lstm(tf, place, arrays, upstream)
        measured["device"].append(require_placement(output, place))
        measured["kernels"][place] = require_lstm_kernels(operations, place)
        errors = lstm_errors(np, arrays, upstream, [one.numpy() for one in (output, *gradients)])
        measured["error_over_bound"].update({f"{name} {place}": error for name, error in errors.items()})
    return require_within(measured, CAUSE)


def lstm_inputs(np: Any) -> tuple[list[Any], Any]:
    """Return inputs, kernel, recurrent kernel and bias, and an upstream gradient, in float32."""
    random = np.random.default_rng(SEED)
    arrays = [random.standard_normal(shape, "float32") / shape[0] ** 0.5 for shape in LSTM.values()]
    return arrays, random.standard_normal((BATCH, STEPS, UNITS), "float32")


def lstm_errors(np: Any, arrays: Sequence[Any], upstream: Any, found: Sequence[Any]) -> dict[str, float]:
    """Return the errors of the output and of the gradients for all arrays, each over its bound.

    To first order: no gate or tanh has a slope above 1, so each step adds at most the error of one inner product,
    and the gradient goes there and back.
    """
    rounding = STEPS * gamma(FEATURES + UNITS + 1)
    inputs, kernel, recurrent, bias = map(abs, arrays)
    scale = (inputs @ kernel).max() + recurrent.sum(axis=0).max() + bias.max()
    output, *gradients = found
    errors = {"output": over(output, lstm_reference(np, *arrays), rounding * scale)}
    for name, gradient, slope in zip(LSTM, gradients, lstm_slopes(np, arrays, upstream)):
        errors[f"{name} gradient"] = over(gradient, slope, 2 * rounding * scale * abs(slope).max())
    return errors


def _keras_lstm(tf: Any, device: str, arrays: list[Any], upstream: Any) -> tuple[Any, Any]:
    """Return the output, and the gradients for inputs and weights. Keras places some small operations itself."""
    with strictly_on(tf, device, soft=True):
        kind = tf.keras.layers.LSTM
        layer = kind(UNITS, return_sequences=True, **cudnn_option(kind, device))
        layer.build(arrays[0].shape)
        layer.set_weights(arrays[1:])
        inputs = tf.constant(arrays[0])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = layer(inputs)
        gradients = tape.gradient(output, [inputs, *layer.trainable_weights], tf.constant(upstream))
    return output, gradients


def cudnn_option(layer: type, device: str) -> dict[str, bool]:
    """Return the argument that makes a recurrent layer use cuDNN on a GPU, and nothing of it elsewhere.

    Left alone, Keras 3 takes cuDNN wherever TensorFlow lists a GPU, also for a layer on the CPU. Its first releases,
    which have no argument against that, do without for an unrolled layer. Keras 2 uses the device scope.
    """
    known = inspect.signature(layer.__init__).parameters  # type: ignore[misc]
    if "use_cudnn" in known:
        return {"use_cudnn": "GPU" in device}
    is_keras_3 = "seed" in known
    return {"unroll": True} if is_keras_3 and "GPU" not in device else {}


def require_lstm_kernels(operations: Sequence[Operation], device: str) -> list[str]:
    """Return the kinds of operations that an LSTM is made of: cuDNN's on a GPU, products elsewhere, all on the device.

    Raises CheckFailed otherwise.
    """
    on_gpu = "GPU" in device
    kinds = require_operations(operations, device, CUDNN if on_gpu else "MatMul")
    if not on_gpu and any(CUDNN in operation.kind for operation in operations):
        raise CheckFailed(
            f"expected an LSTM without cuDNN on {device}, found {CUDNN}: Keras ran the layer on the GPU; {CAUSE}",
            operations=sorted({operation.kind for operation in operations}),
        )
    return kinds


def lstm_reference(np: Any, inputs: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """The outputs of all steps in float64 (Hochreiter and Schmidhuber with forget gates, in Keras' order i f c o)."""
    hidden = cell = np.zeros((len(inputs), recurrent.shape[0]))
    outputs = []
    for step in range(inputs.shape[1]):
        gates = inputs[:, step].astype("float64") @ kernel + hidden @ recurrent + bias
        enter, forget, new, leave = np.split(gates, 4, axis=1)
        cell = _sigmoid(np, forget) * cell + _sigmoid(np, enter) * np.tanh(new)
        hidden = _sigmoid(np, leave) * np.tanh(cell)
        outputs.append(hidden)
    return np.stack(outputs, axis=1)


def _sigmoid(np: Any, value: Any) -> Any:
    return 1 / (1 + np.exp(-value))


def lstm_slopes(np: Any, arrays: Sequence[Any], upstream: Any) -> list[Any]:
    """How the weighted sum of the outputs changes with each element of each array, by central differences."""
    arrays = [array.astype("float64") for array in arrays]
    slopes = [np.zeros_like(array) for array in arrays]
    for array, slope in zip(arrays, slopes):
        for place in np.ndindex(array.shape):
            middle, sums = array[place], []
            for array[place] in (middle + NUDGE, middle - NUDGE):
                sums.append((upstream * lstm_reference(np, *arrays)).sum())
            array[place] = middle
            slope[place] = (sums[0] - sums[1]) / (2 * NUDGE)
    return slopes
