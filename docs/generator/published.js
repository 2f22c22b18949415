"use strict";
const root = document.querySelector(".published");
const form = document.getElementById("filters");
const fields = [...form.elements].filter((field) => field.name);
const body = root.querySelector("tbody");
const wide = matchMedia("(min-width: 44.01rem)");
const DAY = 86400000;

const builds = [...body.querySelectorAll("tr.build")].map((line, place) => {
  const button = line.querySelector("button.unfold");
  const more = document.getElementById(button.getAttribute("aria-controls"));
  button.addEventListener("click", () => unfold(button, more, more.hidden));
  return { line, button, more, place, is: line.dataset };
});

function unfold(button, part, open) {
  button.setAttribute("aria-expanded", String(open));
  part.hidden = !open;
}

function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/* A page lies about for months: ages are those of the moment in which it is read. */
function age(part) {
  const days = Math.max(0, Math.floor((Date.now() - Date.parse(part.dateTime)) / DAY));
  part.title = part.dateTime;
  part.textContent = days === 0 ? "today" : days === 1 ? "1 day ago" : `${days} days ago`;
  if (days > Number(root.dataset.maxAge)) {
    part.classList.add("stale");
    part.title += `: older than ${root.dataset.maxAge} days`;
  }
}

const orders = {
  "": (one, other) => one.place - other.place,
  time: (one, other) => Date.parse(other.is.time) - Date.parse(one.is.time) || one.place - other.place,
  size: (one, other) => one.is.size - other.is.size || one.place - other.place,
};

function meets(build, asked) {
  const release = build.is.tensorflow;
  if (asked.tensorflow && release !== asked.tensorflow && !release.startsWith(`${asked.tensorflow}.`)) return false;
  if ("earlier" in build.is && !asked.earlier) return false;
  return ["python", "device", "level"].every((name) => !asked[name] || build.is[name] === asked[name]);
}

function apply() {
  const asked = Object.fromEntries(fields.map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]));
  const filters = fields.filter((field) => field.name !== "sort" && asked[field.name]).length;
  const found = builds.filter((build) => {
    const shown = meets(build, asked);
    build.line.hidden = !shown;
    build.more.hidden = !shown || build.button.getAttribute("aria-expanded") !== "true";
    return shown;
  });
  for (const build of [...builds].sort(orders[asked.sort] || orders[""])) body.append(build.line, build.more);
  document.getElementById("none").hidden = found.length > 0;
  const all = builds.filter((build) => asked.earlier || !("earlier" in build.is)).length;
  say(document.getElementById("count"), `${found.length === all ? all : `${found.length} of ${all}`} ${all === 1 ? "image" : "images"}`);
  say(document.getElementById("filter-count"), filters ? ` (${filters} set)` : "");
}

/* The clipboard of the page, and without one (an old browser, a page without TLS) that of a selection. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

root.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const words = button.dataset.words || (button.dataset.words = button.textContent);
  const done = await copy(button.dataset.copy);
  button.textContent = done ? "Copied" : "Select it";
  say(document.getElementById("copied"), done ? `Copied: ${button.dataset.copy}` : "This browser does not copy: select the text.");
  setTimeout(() => { button.textContent = words; }, 2000);
});
for (const button of root.querySelectorAll("button.copy")) button.hidden = false;
for (const part of root.querySelectorAll("tr.build time")) age(part);
form.addEventListener("input", apply);
form.addEventListener("reset", () => setTimeout(apply));
form.addEventListener("submit", (event) => event.preventDefault());
const foldedOnPhones = [document.getElementById("filter-fold"), document.getElementById("legend")];
const unfoldIfWide = () => { for (const part of foldedOnPhones) part.open ||= wide.matches; };
wide.addEventListener("change", unfoldIfWide);
unfoldIfWide();
apply();
