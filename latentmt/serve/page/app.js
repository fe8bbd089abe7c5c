// The page: types, asks the server, and shows what it answers. Nothing is kept, and nobody else is asked.

import { draw } from "./plot.js";

const TYPING = 180;      // ms without a key before the server is asked
const TRACED = 1200;     // characters whose refinement is shown
const SURE = 0.9;        // a probability from which on a token is not shaded: trained with smoothed labels, few are surer
const SEARCH = { lengths: 5, samples: 5 };
const NAMES = { prior: "none", delta: "delta", score: "score", energy: "energy", teacher: "teacher" };
const HINTS = {
  prior: "no refinement: the first guess",
  delta: "re-reads its own translation",
  score: "a learned direction, no word decoded",
  energy: "downhill on a learned energy",
  teacher: "the autoregressive teacher, word after word, instead",
};
const JUDGES = {
  teacher: "scored by the teacher: log-probability per token",
  decoder: "scored by the decoder: log-probability per token, given the latent",
  elbo: "scored by the evidence lower bound per token",
  marginal: "scored by the marginal log-probability per token",
};
const EXAMPLES = {
  de: [
    "Ohne die Hilfe meiner Freunde hätte ich das nie geschafft.",
    "Diese Richtlinie wird die Sicherheit der Verbraucher in der gesamten Union verbessern.",
    "Die Bürger Europas erwarten von uns, dass wir endlich handeln.",
  ],
};

const $ = (id) => document.getElementById(id);
const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const per = (share) => `${Math.round(100 * share)}%`;
const milliseconds = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;

let model;
let traced = [];          // the sentences of the last trace
let chosen = { sentence: 0, token: null };

// Asking.

class Problem extends Error {
  constructor(message, status, again) {
    super(message);
    this.status = status;
    this.again = again;
  }
}

/** One question at a time of each kind: a new one takes back the one before, and frees its place in the server. */
const under_way = {};
async function ask(kind, path, body) {
  under_way[kind]?.abort();
  const control = (under_way[kind] = new AbortController());
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, api_key: $("key").value }),
  };
  let answer, found;
  try {
    answer = await fetch(path, { ...options, signal: control.signal });
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached.", 0, 3);
  }
  if (answer.ok) return found;
  throw new Problem(found.error, answer.status, Number(answer.headers.get("Retry-After")) || null);
}

const KIND = {
  413: (problem) => `That is too much at once: ${problem.message}.`,
  429: (problem) => `Many are asking just now. Trying again in ${problem.again} s …`,
  503: () => "This took too long. Fewer steps or candidates would help.",
  500: () => "Something went wrong in the server. It is not your fault.",
};
let retry;
/** Say what is wrong; and do it again, where that may help. */
function complain(error, again) {
  if (error.name === "AbortError") return; // a newer question is under way
  busy(false);
  if (!(error instanceof Problem)) throw error;
  if (error.status === 403) $("key-field").hidden = false;
  const said = KIND[error.status]?.(error) ?? (error.again ? `${error.message} Trying again …` : `${error.message}`);
  $("status").textContent = said[0].toUpperCase() + said.slice(1);
  if (error.again && error.status !== 503) {
    clearTimeout(retry);
    retry = setTimeout(again, 1000 * Math.min(error.again, 30));
  }
}

function busy(is) {
  $("refinement").setAttribute("aria-busy", is);
}

function choices() {
  const method = document.querySelector("input[name=method]:checked")?.value;
  const search = $("search").checked && method !== "teacher";
  return { method, steps: Number($("steps").value), ...(search && { ...SEARCH, rerank: $("rerank").value }) };
}

async function refresh() {
  clearTimeout(retry);
  under_way.trace?.abort(); // of what was asked before
  const text = $("text").value;
  $("count").textContent = text.length > 0.8 * model.characters ? `${text.length} of ${model.characters}` : "";
  if (!text.trim()) {
    for (const control of Object.values(under_way)) control.abort();
    $("translation").textContent = $("status").textContent = $("took").textContent = "";
    $("refinement").hidden = true;
    return;
  }
  $("translation").classList.add("old");
  busy(true);
  const asked = { source: model.source, target: model.target, ...choices() };
  const start = performance.now();
  try {
    const found = await ask("translate", "translate", { q: text, ...asked });
    $("translation").textContent = found.translatedText;
    $("translation").classList.remove("old");
    $("took").textContent = milliseconds(performance.now() - start);
    $("status").textContent = "";
  } catch (error) {
    complain(error, refresh);
    return;
  }
  retrace(text, asked);
}

async function retrace(text, asked) {
  if (asked.method === "teacher") {
    $("refinement").hidden = true;
    return;
  }
  busy(true);
  const space = text.lastIndexOf(" ", TRACED);
  const shown = text.length > TRACED ? text.slice(0, space > 0 ? space : TRACED) : text;
  try {
    traced = (await ask("trace", "trace", { q: shown, ...asked })).sentences;
  } catch (error) {
    complain(error, () => retrace(text, asked));
    return;
  }
  $("status").textContent = "";
  chosen = { sentence: Math.min(chosen.sentence, Math.max(0, traced.length - 1)), token: null };
  $("refinement").hidden = !traced.length;
  if (traced.length) showSentences();
  busy(false);
}

// Showing.

function showSentences() {
  const pills = traced.map((sentence, number) => {
    const pill = element("button", "", sentence.source);
    pill.type = "button";
    pill.setAttribute("aria-pressed", number === chosen.sentence);
    pill.onclick = () => {
      chosen = { sentence: number, token: null };
      showSentences();
    };
    return pill;
  });
  $("sentences").replaceChildren(...pills);
  $("sentences").hidden = pills.length < 2;
  showSteps();
  showCandidates();
  choose(mostMoved(traced[chosen.sentence]));
}

function showSteps() {
  const sentence = traced[chosen.sentence];
  const rows = sentence.steps.map((step) => {
    const row = element("li");
    row.style.setProperty("--turn", step.number);
    const words = element("span", "words");
    step.tokens.forEach((token, place) => {
      const button = tokenButton(token, place, step);
      if (button) words.append(/^\s/.test(token.text) ? " " : "", button);
    });
    const facts = element("span", "facts");
    facts.append(element("b", "", per(step.probability)), element("i", "", milliseconds(step.milliseconds)));
    facts.title = step.number
      ? "how sure the model is of a token, and how long this step took"
      : "how sure the model is of a token, and how long encoding, length and first guess took";
    row.append(element("span", "name", step.number ? `step ${step.number}` : "start"), words, facts);
    return row;
  });
  $("rows").replaceChildren(...rows);
  play();
}

function tokenButton(token, place, step) {
  if (!token.text.trim()) return null;
  const button = element("button", "token", token.text.trim());
  button.type = "button";
  button.dataset.place = place;
  button.dataset.step = step.number;
  button.tabIndex = -1;
  button.classList.toggle("changed", token.changed);
  button.style.setProperty("--unsure", Math.max(0, (SURE - token.probability) / SURE).toFixed(3));
  button.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-label", `${token.text.trim()}, ${per(token.probability)} sure${token.changed ? ", changed" : ""}`);
  button.title = `${per(token.probability)} sure`;
  button.onclick = () => choose(place);
  return button;
}

function play() {
  $("rows").classList.remove("playing");
  void $("rows").offsetWidth; // so that the animation begins anew
  $("rows").classList.add("playing");
}

/** The token that went furthest is the one worth looking at first; one that changed, if there is one. */
function mostMoved(sentence) {
  const first = sentence.steps[0].tokens;
  const last = sentence.steps.at(-1).tokens;
  const far = first.map((token, place) => {
    if (!last[place].text.trim()) return -1;
    const way = Math.hypot(last[place].place[0] - token.place[0], last[place].place[1] - token.place[1]);
    return way + (sentence.steps.some((step) => step.tokens[place].changed) ? 1e6 : 0);
  });
  return far.indexOf(Math.max(...far));
}

async function choose(place) {
  chosen.token = place;
  const sentence = traced[chosen.sentence];
  for (const button of $("rows").querySelectorAll(".token")) {
    const mine = Number(button.dataset.place) === place;
    button.setAttribute("aria-pressed", mine);
    button.tabIndex = mine ? 0 : -1;
  }
  $("plot").hidden = sentence.steps.length < 2;
  if ($("plot").hidden) return;
  const known = sentence.field?.token === place ? sentence.field : null;
  showPlot(sentence, place, known);
  if (known) return;
  try {
    const found = await ask("field", "trace", { q: sentence.source, ...choices(), sentence: 0, token: place });
    const field = found.sentences[0]?.field;
    if (field && chosen.token === place && traced[chosen.sentence] === sentence) {
      sentence.field = field;
      showPlot(sentence, place, field);
    }
  } catch (error) {
    if (error.name !== "AbortError" && !(error instanceof Problem)) throw error; // the arrows are not worth a complaint
  }
}

function showPlot(sentence, place, field) {
  draw($("drawing"), sentence, place, field);
  const words = sentence.steps.map((step) => step.tokens[place].text.trim() || "·");
  const way = words.filter((word, number) => number === 0 || word !== words[number - 1]);
  const caption = [element("em", "", way.join(" → ")), ": the way of this token’s latent"];
  if (field) caption.push(", and where it would be pushed from elsewhere");
  caption.push(
    sentence.dimensions <= 2
      ? ". The latent has two dimensions; this is all of it."
      : `. It has ${sentence.dimensions} dimensions; this plane holds ${per(sentence.seen)} of all movement.`,
  );
  $("caption").replaceChildren(...caption);
}

function showCandidates() {
  const { candidates } = traced[chosen.sentence];
  $("candidates").hidden = candidates.length < 2;
  $("judge").textContent = JUDGES[$("rerank").value] ?? "";
  const rows = candidates.slice(0, 8).map((candidate) => {
    const row = element("li", candidate.kept ? "kept" : "");
    row.append(element("span", "score", candidate.score.toFixed(3).replace("-", "−")), element("span", "words", candidate.text));
    if (candidate.kept) row.lastChild.append(element("span", "sr", " (kept)"));
    return row;
  });
  $("ranking").replaceChildren(...rows);
}

// Keys: arrows go from token to token, within a step and between steps.

$("rows").addEventListener("keydown", (event) => {
  const here = event.target.closest(".token");
  const along = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!here || !(along || across)) return;
  event.preventDefault();
  const row = here.closest("li");
  let next;
  if (along) next = along > 0 ? here.nextElementSibling : here.previousElementSibling;
  else {
    const other = across > 0 ? row.nextElementSibling : row.previousElementSibling;
    next = other?.querySelector(`[data-place="${here.dataset.place}"]`);
  }
  if (!next) return;
  next.focus();
  choose(Number(next.dataset.place));
});

// Beginning.

function showControls() {
  $("source-name").textContent = name(model.source);
  $("text").lang = model.source;
  $("text").placeholder = `Type ${name(model.source)} here.`;
  $("target-name").textContent = name(model.target);
  $("translation").lang = model.target;
  $("text").maxLength = model.characters;
  $("steps").max = Math.min(8, model.steps);
  $("key-field").hidden = !model.keys;
  const methods = model.methods.map((method) => {
    const label = element("label", "", NAMES[method]);
    label.title = HINTS[method];
    const input = element("input");
    Object.assign(input, { type: "radio", name: "method", value: method, checked: method === model.method });
    label.prepend(input);
    return label;
  });
  $("methods").replaceChildren(...methods);
  const options = model.reranks.filter((one) => one !== "none").map((one) => new Option(one, one));
  $("rerank").replaceChildren(...options);
  document.querySelector(".search").hidden = model.candidates < SEARCH.lengths * SEARCH.samples;
  const examples = (EXAMPLES[model.source] ?? []).map((text, number) => {
    const button = element("button", "plain", `Example ${number + 1}`);
    button.type = "button";
    button.onclick = () => {
      $("text").value = text;
      refresh();
    };
    return button;
  });
  $("examples").replaceChildren(...examples);
  $("about").textContent = `${name(model.source)} to ${name(model.target)}. This page shows the way that is chosen on it; programs that choose none get ${model.default}. `;
  if (!$("text").value) $("text").value = EXAMPLES[model.source]?.[0] ?? "";
}

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
function name(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

function enable() {
  const method = document.querySelector("input[name=method]:checked")?.value;
  $("steps").disabled = method === "prior" || method === "teacher";
  $("search").disabled = method === "teacher";
  $("steps-shown").textContent = $("steps").disabled ? "–" : $("steps").value;
}

let typing;
function soon(delay) {
  clearTimeout(typing);
  typing = setTimeout(refresh, delay);
}

async function begin() {
  try {
    model = await ask("model", "model");
  } catch (error) {
    complain(error, begin);
    return;
  }
  $("status").textContent = "";
  showControls();
  enable();
  refresh();
}

$("text").addEventListener("input", () => soon(TYPING));
$("replay").addEventListener("click", play);
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
document.querySelector("form").addEventListener("input", () => {
  enable();
  soon(60);
});
begin();
