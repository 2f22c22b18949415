"use strict";
// Runs a graph model on inputs that are JSON: {NAME: {dtype, shape, data}}. `data` is Base64 of little-endian numbers, or
// a list of Base64 for texts. The proof in Node and the page in a browser both run this file.
globalThis.tfimg = (() => {
  const ARRAYS = { float32: Float32Array, int32: Int32Array, bool: Uint8Array };

  const toBytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

  function toBase64(bytes) {
    let text = "";
    for (const one of bytes) text += String.fromCharCode(one);
    return btoa(text);
  }

  function toTensor({ dtype, shape, data }) {
    if (dtype === "string") return tf.tensor(data.map(toBytes), shape, dtype);
    return tf.tensor(new ARRAYS[dtype](toBytes(data).buffer), shape, dtype);
  }

  async function toJson(tensor) {
    const { dtype, shape } = tensor;
    if (dtype === "string") return { dtype, shape, data: (await tensor.bytes()).map(toBase64) };
    let data = await tensor.data();
    if (dtype in ARRAYS && !(data instanceof ARRAYS[dtype])) {
      data = ARRAYS[dtype].from(data); // the backend for CPUs keeps the bytes of a bool that becomes a float32
    }
    return { dtype, shape, data: toBase64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) };
  }

  // Control flow needs executeAsync, which `execute` says in its error.
  async function execute(model, feeds, names) {
    try {
      return model.execute(feeds, names);
    } catch (error) {
      if (!/executeAsync/.test(error.message)) throw error;
      return await model.executeAsync(feeds, names);
    }
  }

  async function answer(model, inputs) {
    const { inputs: places, outputs } = model.modelSignature;
    // The converter drops inputs that no output depends on.
    const known = new Set(model.inputs.map((one) => one.name));
    const feeds = {};
    for (const [name, value] of Object.entries(inputs)) {
      if (places[name] && known.has(places[name].name.split(":")[0])) feeds[name] = toTensor(value);
    }
    const names = Object.keys(outputs);
    const found = [await execute(model, feeds, names)].flat();
    const answers = {};
    for (const [place, name] of names.entries()) answers[name] = await toJson(found[place]);
    return answers;
  }

  return { answer, toBytes, ARRAYS };
})();
