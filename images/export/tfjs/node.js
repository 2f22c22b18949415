"use strict";
// node node.js JAVASCRIPT MODEL CASES ANSWERS: writes the answers of TensorFlow.js, with the backend for CPUs, to cases.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [javascript, folder, cases, answers] = process.argv.slice(2);
globalThis.require = require; // the files are those of browsers, which look for `util` where they find themselves in Node
for (const name of ["core", "converter", "backend-cpu"].map((one) => `tf-${one}.es2017.min.js`)) {
  vm.runInThisContext(fs.readFileSync(path.join(javascript, name), "utf8"), { filename: name });
}
require("./run.js");

async function loadWeights(manifest) {
  const paths = manifest.flatMap((group) => group.paths);
  const buffer = Buffer.concat(paths.map((one) => fs.readFileSync(path.join(folder, one))));
  return [tf.io.getWeightSpecs(manifest), new Uint8Array(buffer).buffer];
}

async function main() {
  await tf.setBackend("cpu");
  const json = JSON.parse(fs.readFileSync(path.join(folder, "model.json"), "utf8"));
  const model = await tf.loadGraphModel({ load: () => tf.io.getModelArtifactsForJSON(json, loadWeights) });
  const found = [];
  for (const inputs of JSON.parse(fs.readFileSync(cases, "utf8"))) found.push(await tfimg.answer(model, inputs));
  fs.writeFileSync(answers, JSON.stringify({ version: tf.version_core, answers: found }));
}

main().catch((error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
