"use strict";
/* Looks the resolver's answers up: data.rows[a row][release × Python] is the number of an answer. */
const data = JSON.parse(document.getElementById("answers").textContent);
const place = document.querySelector(".selector");
const form = place.querySelector("form");
const said = place.querySelector(".answer");
const fields = [...form.elements];
const state = () => Object.fromEntries(fields.map((field) => [field.name, field.disabled ? "" : field.value.trim()]));

function compare(one, other) {
  const [a, b] = [one, other].map((text) => text.split(".").map(Number));
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    if ((a[i] || 0) !== (b[i] || 0)) return (a[i] || 0) - (b[i] || 0);
  }
  return 0;
}

function row(asked) {
  if (asked.device !== "gpu") return data.devices[asked.device];
  const group = data.groups.find((one) => one.names.includes(asked.gpu));
  return group.rows[asked.driver ? group.drivers.filter((start) => compare(asked.driver, start) >= 0).length : 0];
}

/* What is wrong with a driver's version, in the resolver's words. */
function refuseDriver(driver) {
  if (!driver) return "";
  return /^[0-9]{1,9}(\.[0-9]{1,9})*$/.test(driver) ? data.drivers.incomplete[driver] : data.drivers.wrong;
}

function look(asked) {
  const column = data.releases.indexOf(asked.tf) * data.pythons.length + data.pythons.indexOf(asked.python);
  return data.answers[data.rows[row(asked)][column]];
}

const quote = (text) => /[^\w.-]/.test(text) ? `'${text}'` : text;

/* The text of an answer with the GPU and the driver that were asked for. */
function text(number, asked) {
  return data.texts[number].replaceAll("\u0001", asked.gpu).replaceAll("\u0002", quote(asked.gpu)).replaceAll("\u0003", asked.driver);
}

function make(name, ...content) {
  const part = document.createElement(name);
  part.append(...content);
  return part;
}

function line(label, command) {
  const code = make("code", ...command.split(/( )/).map((word) => word === " " ? word : make("span", word)));
  const button = make("button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy: ${label}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } catch {
      getSelection().selectAllChildren(code);
    }
  });
  const part = make("div", make("span", label), code, button);
  part.className = "line";
  return part;
}

function list(texts) {
  return make("ul", ...texts.map((one) => make("li", one)));
}

/* What was measured of an extra package beside an image: a sentence, and options of a build. */
function beside(asked, image) {
  const known = data.packages[asked.with];
  const found = known?.[image.release];
  if (!known) return ["", ""];
  if (!found) return [`${asked.with} was not measured beside ${image.release}, only beside ${Object.keys(known).join(", ")}. The build resolves it against the package index, or refuses and says why.`, ` --with ${asked.with}`];
  const where = found.image === image.identifier ? "" : " This is another image, and the build decides.";
  if (found.problem) return [`Beside ${found.image}, ${asked.with} ${found.version ? `${found.version} fails` : "is refused"}: ${found.problem}${where}`, ""];
  const apt = found.debian.length ? ` --apt ${found.debian.join(",")}` : "";
  return [`Beside ${found.image}, ${asked.with} ${found.version} was measured.${where}`, ` --with ${asked.with}${apt}`];
}

function showImage(asked, [number, notes]) {
  const image = data.images[number];
  const variant = asked.variant ? `-${asked.variant}` : "";
  const [sentence, extra] = beside(asked, image);
  const suffix = `${variant}${extra ? "-own" : ""}`;
  const tag = `${data.repository}:${image.identifier}${suffix}`;
  const build = `tfimg build ${image.options}${asked.variant ? ` --variant ${asked.variant}` : ""}${extra}`;
  const level = make("span", image.level);
  level.className = "level";
  const title = make("p", make("code", `${image.identifier}${suffix}`), " ", level);
  title.className = "title";
  const facts = notes.map((one) => text(one, asked));
  if (image.until) facts.push(`Security fixes until ${image.until}.`);
  if (asked.variant || extra) facts.push(`The level is that of ${image.identifier}; the build runs the suite in this image.`);
  if (sentence) facts.push(sentence);
  if (image.tags.length) facts.push(`Also tagged ${image.tags.map((one) => one + suffix).join(", ")}.`);
  const program = asked.variant === "jupyter" || asked.variant === "dev" ? `tfimg jupyter ${tag}` : `tfimg run ${tag} -v "$PWD:/work" -w /work -- python train.py`;
  said.replaceChildren(title, line("build", build), line("run", program),
    line("pull", `tfimg pull registry.example/team/tensorflow:${image.identifier}${suffix} --public-key tfimg.pub`), list(facts));
}

function showRefusal(asked, [headline, reasons, nearest]) {
  const [first, ...rest] = reasons.map((one) => text(one, asked));
  const title = make("p", `${text(headline, asked)}:`);
  title.className = "title refused";
  const variant = asked.variant ? ` --variant ${asked.variant}` : "", suffix = asked.variant ? `-${asked.variant}` : "";
  const works = nearest.map((number) => data.nearest[number]).map(([request, image, driver]) => {
    const range = driver < 0 ? "" : `, ${text(driver, asked)}`;
    return line(`${data.images[image].identifier}${suffix}${range}`, `tfimg build ${text(request, asked)}${variant}`);
  });
  said.replaceChildren(title, list([first, ...rest]), ...(works.length ? [make("p", "What would work:"), ...works] : []));
}

function apply() {
  for (const name of ["gpu", "driver"]) form.elements[name].disabled = form.elements.device.value !== "gpu";
  const asked = state();
  const wrong = refuseDriver(asked.driver);
  form.elements.driver.setAttribute("aria-invalid", String(Boolean(wrong)));
  if (wrong) {
    said.replaceChildren(make("p", wrong.replaceAll("\u0003", asked.driver)));
    return;
  }
  const answer = look(asked);
  if (answer.length === 2) showImage(asked, answer);
  else showRefusal(asked, answer);
}

function recall() {
  const set = new URLSearchParams(location.hash.slice(1));
  if ((set.has("gpu") || set.has("driver")) && !set.has("device")) set.set("device", "gpu");
  for (const field of fields) {
    const wanted = set.get(field.name) || "";
    const known = field.options && [...field.options].find((one) => one.value.toLowerCase() === wanted.toLowerCase());
    field.value = field.options ? known?.value ?? field.options[0].value : wanted;
  }
  apply();
}

form.addEventListener("input", () => {
  apply();
  const set = new URLSearchParams(Object.entries(state()).filter(([, value]) => value));
  try {
    history.replaceState(null, "", `#${set}`);
  } catch {
    /* Some browsers limit how often; the next change keeps it. */
  }
});
form.addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", recall);
place.hidden = false;
recall();
