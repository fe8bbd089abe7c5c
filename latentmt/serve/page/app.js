// The page: sends what is typed to the server and shows the response. Nothing is stored, and no other host is contacted.

import { draw } from "./plot.js";

const TYPING_DELAY = 180; // ms without a key before a request is sent
const MAX_TRACED = 1200; // characters whose refinement is shown
const SURE = 0.9;        // probability from which on a token is not shaded: label smoothing keeps most below it
const SEARCH = { lengths: 5, samples: 5 };
const RERANKERS = {
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
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const per = (share) => `${Math.round(100 * share)}%`;
const milliseconds = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;

let model;
let traced = [];          // the sentences of the last trace
let chosen = { sentence: 0, token: null };

// Requests.

class RequestError extends Error {
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Send a request. There is one of each kind at a time: a new one cancels the one before, in the server's queue, too. */
const running = {};
async function send(kind, path, body) {
  running[kind]?.abort();
  const control = (running[kind] = new AbortController());
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, api_key: $("key").value }),
  };
  let response, result;
  try {
    response = await fetch(path, { ...options, signal: control.signal });
    result = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server cannot be reached.", 0, 3);
  }
  if (response.ok) return result;
  throw new RequestError(result.error, response.status, Number(response.headers.get("Retry-After")) || null);
}

const MESSAGES = {
  413: (error) => `That is too much at once: ${error.message}.`,
  429: (error) => `The server is busy. Trying again in ${error.retryAfter} s …`,
  503: () => "This took too long. Fewer steps or candidates would help.",
  500: () => "Something went wrong in the server. It is not your fault.",
};
let retry;
/** Show an error, and try again where that may help. */
function showError(error, tryAgain) {
  if (error.name === "AbortError") return; // a newer request replaced it
  setBusy(false);
  if (!(error instanceof RequestError)) throw error;
  if (error.status === 403) $("key-field").hidden = false;
  const message = MESSAGES[error.status]?.(error) ?? (error.retryAfter ? `${error.message} Trying again …` : `${error.message}`);
  $("status").textContent = message[0].toUpperCase() + message.slice(1);
  if (error.retryAfter && error.status !== 503) {
    clearTimeout(retry);
    retry = setTimeout(tryAgain, 1000 * Math.min(error.retryAfter, 30));
  }
}

function setBusy(busy) {
  $("refinement").setAttribute("aria-busy", busy);
}

function decodingOptions() {
  const method = document.querySelector("input[name=method]:checked")?.value;
  const search = $("search").checked && method !== "teacher";
  return { method, steps: Number($("steps").value), ...(search && { ...SEARCH, rerank: $("rerank").value }) };
}

async function refresh() {
  clearTimeout(retry);
  running.trace?.abort(); // of the text before
  const text = $("text").value;
  $("count").textContent = text.length > 0.8 * model.characters ? `${text.length} of ${model.characters}` : "";
  if (!text.trim()) {
    for (const control of Object.values(running)) control.abort();
    $("translation").textContent = $("status").textContent = $("took").textContent = "";
    $("refinement").hidden = true;
    return;
  }
  $("translation").classList.add("old");
  setBusy(true);
  const request = { source: model.source, target: model.target, ...decodingOptions() };
  const start = performance.now();
  try {
    const response = await send("translate", "translate", { q: text, ...request });
    $("translation").textContent = response.translatedText;
    $("translation").classList.remove("old");
    $("took").textContent = milliseconds(performance.now() - start);
    $("status").textContent = "";
  } catch (error) {
    showError(error, refresh);
    return;
  }
  retrace(text, request);
}

async function retrace(text, request) {
  if (request.method === "teacher") {
    $("refinement").hidden = true;
    return;
  }
  setBusy(true);
  const space = text.lastIndexOf(" ", MAX_TRACED);
  const shown = text.length > MAX_TRACED ? text.slice(0, space > 0 ? space : MAX_TRACED) : text;
  try {
    traced = (await send("trace", "trace", { q: shown, ...request })).sentences;
  } catch (error) {
    showError(error, () => retrace(text, request));
    return;
  }
  $("status").textContent = "";
  chosen = { sentence: Math.min(chosen.sentence, Math.max(0, traced.length - 1)), token: null };
  $("refinement").hidden = !traced.length;
  if (traced.length) showSentences();
  setBusy(false);
}

// Rendering.

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
    step.tokens.forEach((token, index) => {
      const button = tokenButton(token, index, step);
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

function tokenButton(token, index, step) {
  if (!token.text.trim()) return null;
  const button = element("button", "token", token.text.trim());
  button.type = "button";
  button.dataset.index = index;
  button.dataset.step = step.number;
  button.tabIndex = -1;
  button.classList.toggle("changed", token.changed);
  button.style.setProperty("--unsure", Math.max(0, (SURE - token.probability) / SURE).toFixed(3));
  button.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-label", `${token.text.trim()}, ${per(token.probability)} sure${token.changed ? ", changed" : ""}`);
  button.title = `${per(token.probability)} sure`;
  button.onclick = () => choose(index);
  return button;
}

function play() {
  $("rows").classList.remove("playing");
  void $("rows").offsetWidth; // so that the animation begins anew
  $("rows").classList.add("playing");
}

/** The token selected first: the one whose latent moved furthest, among those that changed if there are any. */
function mostMoved(sentence) {
  const first = sentence.steps[0].tokens;
  const last = sentence.steps.at(-1).tokens;
  const distances = first.map((token, index) => {
    if (!last[index].text.trim()) return -1;
    const distance = Math.hypot(last[index].place[0] - token.place[0], last[index].place[1] - token.place[1]);
    return distance + (sentence.steps.some((step) => step.tokens[index].changed) ? 1e6 : 0);
  });
  return distances.indexOf(Math.max(...distances));
}

async function choose(index) {
  chosen.token = index;
  const sentence = traced[chosen.sentence];
  for (const button of $("rows").querySelectorAll(".token")) {
    const mine = Number(button.dataset.index) === index;
    button.setAttribute("aria-pressed", mine);
    button.tabIndex = mine ? 0 : -1;
  }
  $("plot").hidden = sentence.steps.length < 2;
  if ($("plot").hidden) return;
  const known = sentence.field?.token === index ? sentence.field : null;
  showPlot(sentence, index, known);
  if (known) return;
  try {
    const response = await send("field", "trace", { q: sentence.source, ...decodingOptions(), sentence: 0, token: index });
    const field = response.sentences[0]?.field;
    if (field && chosen.token === index && traced[chosen.sentence] === sentence) {
      sentence.field = field;
      showPlot(sentence, index, field);
    }
  } catch (error) {
    if (error.name !== "AbortError" && !(error instanceof RequestError)) throw error; // the arrows are optional
  }
}

function showPlot(sentence, index, field) {
  draw($("drawing"), sentence, index, field);
  const words = sentence.steps.map((step) => step.tokens[index].text.trim() || "·");
  const changes = words.filter((word, number) => number === 0 || word !== words[number - 1]);
  const caption = [element("em", "", changes.join(" → ")), ": the path of this token’s latent"];
  if (field) caption.push(", and where the field would move it from elsewhere");
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
  $("judge").textContent = RERANKERS[$("rerank").value] ?? "";
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
    next = other?.querySelector(`[data-index="${here.dataset.index}"]`);
  }
  if (!next) return;
  next.focus();
  choose(Number(next.dataset.index));
});

// Start.

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
    const label = element("label", "", method === "prior" ? "none" : method);
    label.title = model.hints[method];
    const input = element("input");
    Object.assign(input, { type: "radio", name: "method", value: method, checked: method === model.method });
    label.prepend(input);
    return label;
  });
  $("methods").replaceChildren(...methods);
  const options = model.reranks.filter((reranker) => reranker !== "none").map((reranker) => new Option(reranker, reranker));
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
  $("about").textContent = `${name(model.source)} to ${name(model.target)}. This page uses the options chosen above. Programs that choose none get ${model.default}. `;
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
function refreshSoon(delay) {
  clearTimeout(typing);
  typing = setTimeout(refresh, delay);
}

async function start() {
  try {
    model = await send("model", "model");
  } catch (error) {
    showError(error, start);
    return;
  }
  $("status").textContent = "";
  showControls();
  enable();
  refresh();
}

$("text").addEventListener("input", () => refreshSoon(TYPING_DELAY));
$("replay").addEventListener("click", play);
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
document.querySelector("form").addEventListener("input", () => {
  enable();
  refreshSoon(60);
});
start();
