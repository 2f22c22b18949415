"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const form = document.getElementById("filters");
const fields = [...form.elements].filter((field) => field.name);
const told = { count: document.getElementById("count"), hint: document.getElementById("hint") };
const fold = document.getElementById("fold");
const foldedOnPhones = [document.getElementById("filter-fold"), document.getElementById("legend")];
const wide = matchMedia("(min-width: 44.01rem)");

const groups = new Map([...document.querySelectorAll("tr.row")].map((line) => {
  const button = line.querySelector("button");
  const body = document.getElementById(button.getAttribute("aria-controls"));
  return [line.id.slice("row-".length), {
    line, button, body, shown: line.querySelector(".shown"), details: body.querySelector("details"), images: [],
  }];
}));
for (const line of document.querySelectorAll("tr.image")) {
  const button = line.querySelector("button");
  const more = line.nextElementSibling;
  const row = line.parentElement.id.slice("images-".length);
  const [identifier, python, device, platform, cuda] = [...line.cells].map((cell) => cell.textContent.trim());
  const is = { tensorflow: identifier.split("-")[0], python, device, platform, cuda, level: line.querySelector(".level").textContent };
  const known = facts.rows[row];
  const image = { line, button, more, is, row: known?.others[cuda] || known, driver: line.cells[5] };
  groups.get(row).images.push(image);
  button.setAttribute("aria-controls", more.id);
  unfold(button, more, false);
  button.addEventListener("click", () => unfold(button, more, more.hidden));
}
const everything = [...groups.values()].flatMap((group) => group.images);

function unfold(button, part, open) {
  button.setAttribute("aria-expanded", String(open));
  part.hidden = !open;
}

function compare(one, other) {
  const [a, b] = [one, other].map((text) => text.split(".").map(Number));
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] || 0) - (b[i] || 0);
    if (difference) return difference;
  }
  return 0;
}

const plain = (name) => name.toLowerCase().replace(/[\s_-]/g, "").replace(/^(nvidia|geforce|tesla|grid)+/, "");

/* The capability of the longest name that a text begins with, as `tfimg which` finds it: "GeForce RTX 4070 Laptop GPU",
   "A100 MIG", "Tesla V100-SXM2-16GB", and the board of a virtual GPU, "GRID T4-16Q". */
function named(asked) {
  const known = new Map(Object.entries(facts.gpus).flatMap(([sm, names]) => names.map((name) => [name.toLowerCase().replace(/[\s_-]/g, ""), sm])));
  const board = /^(.+?)-(?:\d{1,2}-)?\d{1,3}[abcq]\d?$/i.exec(asked.trim());
  const words = (board ? board[1] : asked).toLowerCase().replace(/[\s_-]+/g, " ").trim();
  const model = words.replace(/^(?:(?:nvidia|geforce|tesla|quadro|grid|jetson|agx) ?)+/, "");
  let longest = "";
  for (const form of [words.replace(/^nvidia ?/, ""), model, ...(board ? [`quadro ${model}`] : [])]) {
    if (form.startsWith("quadro") && board && longest) break; // the virtual GPUs of a Quadro RTX 6000 are called RTX6000-24Q
    form.split(" ").forEach((_, at, parts) => {
      const start = parts.slice(0, at + 1).join("");
      for (const name of [start, start.replace(/(\d)(?:ti|super|d)+$/, "$1"), ...(board ? [start.replace(/(\d)[dlmpsx]{1,2}$/, "$1")] : [])]) {
        if (known.has(name) && name.length > longest.length) longest = name;
      }
    });
  }
  return longest && known.get(longest);
}

/* What was typed → compute capabilities: exactly one for a capability or a whole name, several for a part of names. */
function capabilities(asked) {
  const word = plain(asked);
  const number = /^(?:sm|compute|cc)?(\d{1,2})\.?(\d)$/.exec(word);
  if (number) return [`sm_${number[1]}${number[2]}`];
  const whole = named(asked);
  if (whole) return [whole];
  const having = (test) => Object.keys(facts.gpus).filter((sm) => facts.gpus[sm].some((name) => test(plain(name))));
  const model = word.replace(/^quadro/, "");
  return having((name) => model && name.includes(model));
}

/* How a row's GPU wheel runs on one of the capabilities: "code", "ptx", "unproven", or nothing. */
function means(row, wanted) {
  return ["code", "ptx", "unproven"].find((way) => wanted.some((sm) => row.runs[way].includes(sm)));
}

function request() {
  const asked = Object.fromEntries(fields.map((field) => [field.name, field.value.trim()]));
  asked.wanted = asked.gpu ? capabilities(asked.gpu) : null;
  asked.words = asked.text.toLowerCase().split(/\s+/).filter(Boolean);
  asked.wrongDriver = asked.driver !== "" && !/^\d+(\.\d+)*\.?$/.test(asked.driver);
  return asked;
}

/* The lowest driver: that of the wheel, of its PTX where that is used, or the first that knows the GPU. */
function floorOf(image, asked) {
  const lowest = ["ptx", "unproven"].includes(asked.wanted && means(image.row, asked.wanted)) ? image.row.ptx_driver : image.row.driver;
  const since = (asked.wanted || []).map((sm) => facts.drivers[sm]?.since).filter(Boolean);
  return [lowest, ...since].reduce((one, other) => compare(one, other) < 0 ? other : one);
}

/* The first driver that no longer knows the GPU. */
function endOf(asked) {
  return (asked.wanted || []).map((sm) => facts.drivers[sm]?.below).find(Boolean);
}

function tooNew(asked) {
  const end = endOf(asked);
  return end !== undefined && compare(asked.driver, end) >= 0;
}

function meets(image, asked) {
  const { is } = image;
  if (asked.tensorflow && is.tensorflow !== asked.tensorflow && !(/^\d+\.\d+$/.test(asked.tensorflow) && is.tensorflow.startsWith(`${asked.tensorflow}.`))) return false;
  if (["python", "device", "platform", "cuda", "level"].some((name) => asked[name] && is[name] !== asked[name])) return false;
  if ((asked.wanted || asked.driver) && is.device !== "gpu") return false;
  if (asked.wanted && !means(image.row, asked.wanted)) return false;
  if (asked.driver && (asked.wrongDriver || tooNew(asked) || compare(asked.driver, floorOf(image, asked)) < 0)) return false;
  image.text ??= `${image.line.textContent} ${image.more.textContent}`.toLowerCase();
  return asked.words.every((word) => image.text.includes(word));
}

function hint(asked, found) {
  const said = [];
  if (asked.wanted && !asked.wanted.length) said.push(`The matrix knows no GPU “${asked.gpu}”: write a name such as T4, or a compute capability such as 8.6.`);
  for (const sm of asked.wanted || []) {
    const names = facts.gpus[sm] ? `: ${facts.gpus[sm].join(", ")}` : "";
    said.push(`Compute capability ${sm.slice(3, -1)}.${sm.slice(-1)}${names}.`);
  }
  if (asked.wanted && found.some((image) => means(image.row, asked.wanted) === "ptx")) said.push(`PTX goes to the driver: ${facts.ptx.note}.`);
  if (asked.wanted && found.some((image) => means(image.row, asked.wanted) === "unproven")) said.push("Unproven: the wheel has PTX only, and nothing proves that it runs; its row says more.");
  if (asked.wanted?.length && !everything.some((image) => image.row && means(image.row, asked.wanted))) said.push(`None runs there; ${facts.ptx.reason}.`);
  if (asked.driver && !asked.wrongDriver && tooNew(asked)) said.push(`That driver no longer knows this GPU: ${endOf(asked) - 1} is the last branch that does.`);
  for (const [name, label] of found.length ? [] : [["tensorflow", "TensorFlow"], ["python", "Python"], ["cuda", "CUDA"]]) {
    const there = asked[name] ? everything.filter((image) => meets(image, { ...asked, [name]: "" })).map((image) => image.is[name]) : [];
    if (there.length) said.push(`With the rest of it there is ${label} ${[...new Set(there)].sort(compare).join(", ")}.`);
  }
  if (asked.wrongDriver) said.push(`“${asked.driver}” is not the version of a driver: write what nvidia-smi shows, for example 535.104.`);
  return said.join(" ");
}

function showHow(image, asked) {
  if (image.is.device !== "gpu") return;
  const way = asked.wanted && means(image.row, asked.wanted);
  const how = { code: " by code", ptx: " by PTX", unproven: ", unproven" }[way] || "";
  const end = endOf(asked);
  image.driver.textContent = `${end ? `${floorOf(image, asked)} to ${end - 1}` : `≥${floorOf(image, asked)}`}${how}`;
}

function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

function apply() {
  const asked = request();
  const filters = fields.filter((field) => field.value.trim()).length;
  const filtering = filters > 0;
  const found = everything.filter((image) => {
    const shown = meets(image, asked);
    image.line.hidden = !shown;
    image.more.hidden = !shown || image.button.getAttribute("aria-expanded") !== "true";
    showHow(image, asked);
    return shown;
  });
  let rows = 0;
  for (const group of groups.values()) {
    const shown = group.images.filter((image) => !image.line.hidden).length;
    const kept = shown > 0 || (!filtering && group.images.length === 0);
    rows += kept;
    group.line.hidden = !kept;
    group.shown.textContent = `${shown === group.images.length ? shown : `${shown} of ${group.images.length}`} images`;
    group.details.open = !filtering;
    unfold(group.button, group.body, kept && filtering);
  }
  document.getElementById("none").hidden = found.length > 0;
  form.elements.gpu.setAttribute("aria-invalid", String(Boolean(asked.wanted && !asked.wanted.length)));
  form.elements.driver.setAttribute("aria-invalid", String(asked.wrongDriver));
  say(told.count, `${found.length} of ${everything.length} images, in ${rows} of ${groups.size} rows of the matrix`);
  say(told.hint, hint(asked, found));
  say(document.getElementById("filter-count"), filtering ? ` (${filters} set)` : "");
  nameFold();
}

function nameFold() {
  const open = [...groups.values()].some((group) => !group.body.hidden);
  say(fold, open ? "Fold all" : "Unfold all");
}

function keep() {
  const set = new URLSearchParams(fields.map((field) => [field.name, field.value.trim()]).filter(([, value]) => value));
  try {
    history.replaceState(null, "", `#${set}`);
  } catch {
    /* Some browsers limit how often; the next change keeps it. */
  }
}

function recall() {
  const set = new URLSearchParams(location.hash.slice(1));
  for (const field of fields) {
    field.value = set.get(field.name) || "";
    if (field.selectedIndex === -1) field.value = "";
  }
  apply();
}

for (const group of groups.values()) {
  group.button.addEventListener("click", () => {
    unfold(group.button, group.body, group.body.hidden);
    nameFold();
  });
}
fold.addEventListener("click", () => {
  const open = ![...groups.values()].some((group) => !group.body.hidden);
  for (const group of groups.values()) unfold(group.button, group.body, open && !group.line.hidden);
  nameFold();
});
form.addEventListener("input", () => { apply(); keep(); });
form.addEventListener("reset", () => setTimeout(() => { apply(); keep(); }));
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", recall);
const unfoldIfWide = () => { for (const part of foldedOnPhones) part.open ||= wide.matches; };
wide.addEventListener("change", unfoldIfWide);
unfoldIfWide();
recall();
