"""Ask the exported model on a machine without TensorFlow, and compare with what the original answered."""

# /// script
# requires-python = ">=3.10"
# dependencies = ["ai-edge-litert", "numpy"]
# ///

import numpy as np
from ai_edge_litert.interpreter import Interpreter

known = np.load("answers.npz")
ask = Interpreter("exported/model.tflite").get_signature_runner()
(name,) = ask.get_input_details()
(answer,) = ask(**{name: known["inputs"]}).values()
difference = abs(answer - known["outputs"]).max()
print(f"LiteRT answers {answer.item():.6f}; the original differs by {difference:.1e}")
if difference > 1e-5:
    raise SystemExit("These are different answers.")
