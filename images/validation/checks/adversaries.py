"""A generative adversarial network: two models, two tapes, one step."""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING

from bounds import SINGLE, over, require_within
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
    from typing import Any

    from contract import Facts, Measured

SEED = 20
BATCH, NOISE, FEATURES, HIDDEN = 64, 4, 8, 16
STEPS, RATE = 8, 0.1
SIDES = ("generator", "discriminator")
CAUSE = "a gradient or the optimizer is wrong; see numerics.matmul, then try another TensorFlow and Keras"


def gan(facts: Facts) -> Measured:
    """Steps of a GAN: each side moves down its own gradient, and the discriminator learns to tell.

    Losses equal their formula for the scores given (Goodfellow and others, 2014, with the loss of the generator that
    does not saturate). Real examples lie around 1, so that a few steps are enough to tell them.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    with strictly_on(tf, device, soft=True), recorded() as operations:
        models = _model(tf, NOISE, FEATURES), _model(tf, FEATURES, 1)
        optimizers = [tf.keras.optimizers.SGD(RATE) for _ in SIDES]
        steps = [_step(tf, np, models, optimizers, *_examples(tf, random)) for _ in range(STEPS)]
    require_operations(operations, device, "MatMul")
    measured = {
        "device": require_placement(steps[0]["scores"], device),
        "losses": {side: [step["losses"][side] for step in steps] for side in SIDES},
        "gradient_norms": steps[0]["norms"],
        "error_over_bound": steps[0]["errors"],
    }
    problems = judge(measured["losses"], measured["gradient_norms"])
    if problems:
        raise CheckFailed(f"{'; '.join(problems)}: {CAUSE}", **measured)
    return require_within(measured, CAUSE)


def judge(losses: dict[str, list[float]], norms: dict[str, float]) -> list[str]:
    """What is wrong with the losses of all steps and the norms of the first one's gradients."""
    problems = [
        f"expected a gradient of the {side}, found one of norm {norm:.4g}"
        for side, norm in norms.items()
        if not 0 < norm < math.inf
    ]
    first, last = losses["discriminator"][0], losses["discriminator"][-1]
    if not all(math.isfinite(loss) for side in losses.values() for loss in side) or not last < first:
        problems.append(f"expected finite losses and the discriminator's to fall, found {first:.4g} to {last:.4g}")
    return problems


def _examples(tf: Any, random: Any) -> tuple[Any, Any]:
    """Noise for the generator, and real examples."""
    noise, real = (random.standard_normal((BATCH, width), "float32") for width in (NOISE, FEATURES))
    return tf.constant(noise), tf.constant(1 + 0.1 * real)


def _model(tf: Any, inputs: int, outputs: int) -> Any:
    layers, drawn = tf.keras.layers, tf.keras.initializers.GlorotUniform
    return tf.keras.Sequential(
        [
            tf.keras.Input((inputs,)),
            layers.Dense(HIDDEN, activation="tanh", kernel_initializer=drawn(SEED)),
            layers.Dense(outputs, kernel_initializer=drawn(SEED + 1)),
        ]
    )


def _step(tf: Any, np: Any, models: Any, optimizers: Any, noise: Any, real: Any) -> dict[str, Any]:
    """One step of gradient descent for both sides, from the same scores."""
    generator, discriminator = models
    with tf.GradientTape() as generating, tf.GradientTape() as judging:
        fake, true = discriminator(generator(noise)), discriminator(real)
        losses = {
            "generator": _mean_softplus(tf, -fake),
            "discriminator": _mean_softplus(tf, -true) + _mean_softplus(tf, fake),
        }
    errors, norms = _loss_errors(np, losses, fake.numpy(), true.numpy()), {}
    for side, tape, model, optimizer in zip(SIDES, (generating, judging), models, optimizers):
        gradients = tape.gradient(losses[side], model.trainable_variables)
        before = model.get_weights()
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        errors[f"{side} step"] = _step_error(before, [slope.numpy() for slope in gradients], model.get_weights())
        norms[side] = float(tf.linalg.global_norm(gradients))
    return {
        "scores": fake,
        "losses": {side: round(float(loss), 5) for side, loss in losses.items()},
        "norms": norms,
        "errors": errors,
    }


def _mean_softplus(tf: Any, scores: Any) -> Any:
    """The mean of -log(sigmoid(-score))."""
    return tf.reduce_mean(tf.nn.softplus(scores))


def _loss_errors(np: Any, losses: Any, fake: Any, true: Any) -> dict[str, float]:
    """Errors over their bounds: a sum of BATCH terms, and a few units in the last place for exp, log and 1 +."""

    def mean(scores: Any) -> Any:
        return np.logaddexp(0, scores.astype("float64")).mean()

    exact = {"generator": mean(-fake), "discriminator": mean(-true) + mean(fake)}
    return {side: over(losses[side].numpy(), exact[side], (BATCH + 16) * SINGLE * (1 + exact[side])) for side in SIDES}


def _step_error(before: list[Any], slopes: list[Any], after: list[Any]) -> float:
    """The largest error of new weights over its bound: a product and a difference, each rounded, and the rate."""
    return max(
        over(
            new.astype("float64"),
            old.astype("float64") - RATE * slope.astype("float64"),
            4 * SINGLE * (abs(old) + RATE * abs(slope)) + 1e-30,
        )
        for old, slope, new in zip(before, slopes, after)
    )
