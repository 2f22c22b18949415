"use strict";
// Loads model.json beside this file, and answers the inputs of examples.json.
const state = document.getElementById("state");

function toNumbers({ dtype, data }) {
  if (dtype === "string") return data.map((one) => new TextDecoder().decode(tfimg.toBytes(one)));
  return Array.from(new tfimg.ARRAYS[dtype](tfimg.toBytes(data).buffer));
}

function shorten(values) {
  const shown = values.slice(0, 8).map((one) => (typeof one === "number" ? String(+one.toPrecision(6)) : one));
  return shown.join(", ") + (values.length > 8 ? ", …" : "");
}

function difference(one, other) {
  if (one.length !== other.length) return NaN;
  const far = (a, b) => (typeof a === "string" ? Number(a !== b) : Object.is(a, b) ? 0 : Math.abs(a - b));
  return one.reduce((most, value, place) => Math.max(most, far(value, other[place])), 0);
}

async function main() {
  if (location.protocol === "file:") {
    throw new Error("a browser loads no model from a file: start `python -m http.server` in this folder, and open its address");
  }
  await tf.setBackend("cpu");
  const model = await tf.loadGraphModel("model.json");
  const examples = await (await fetch("examples.json")).json();
  const answers = [];
  for (const [place, { inputs, answers: wanted }] of examples.entries()) {
    const found = await tfimg.answer(model, inputs);
    answers.push(found);
    for (const [name, value] of Object.entries(wanted)) {
      const cells = [place + 1, name, shorten(toNumbers(found[name])), shorten(toNumbers(value))];
      cells.push(difference(toNumbers(found[name]), toNumbers(value)).toPrecision(2));
      const row = document.getElementById("rows").insertRow();
      for (const text of cells) row.insertCell().textContent = text;
    }
  }
  state.textContent = `TensorFlow.js ${tf.version_core} answered ${answers.length} examples with its backend ${tf.getBackend()}.`;
  return answers;
}

// The answers, or what failed; a program may wait for it.
globalThis.done = main().catch((error) => {
  state.textContent = `Failed: ${error.message}`;
  return { failed: error.message };
});
