// How the translation was refined: every step of its sentences, with options of its own. Nothing is computed while closed.

import { $, beginning, button, count, element, milliseconds, per } from "./dom.js";
import { draw } from "./plot.js";
import { RequestError, cancel, clearError, send, showError } from "./requests.js";

const MAX_TRACED = 1200; // characters whose refinement is shown
const SURE = 0.9;        // probability from which on a token is not shaded: label smoothing keeps most below it
const GUESSES = [[1, 1], [5, 1], [5, 5]]; // lengths and samples that are tried
const RERANKERS = {
  teacher: "scored by the teacher: log-probability per token",
  decoder: "scored by the decoder: log-probability per token, given the latent",
  elbo: "scored by the evidence lower bound per token",
  marginal: "scored by the marginal log-probability per token",
};

let model = null;
let known = "";           // where the model was asked for
let subject = null;       // the text and the languages that are to be traced
let isShown = false;      // whether what is shown is their trace
let isOwn = false;        // whether the options are other ones than those of the translation
let traced = [];          // the sentences of the last trace
let chosen = { sentence: 0, token: null };

/** Trace another text: at once if the view is open, or else when it is opened. */
export function traceRefinement(text, pair) {
  subject = { text, pair };
  $("refinement").hidden = false;
  outdateRefinement();
  traceIfOpen();
}

/** The text has changed: what is shown is no longer how its translation was refined. */
export function outdateRefinement() {
  isShown = false;
  $("trace").classList.add("old");
  cancel("trace"); // of the text before
  cancel("field");
}

export function hideRefinement() {
  outdateRefinement();
  clearError($("refinement-status"));
  subject = null;
  $("refinement").hidden = true;
}

function traceIfOpen() {
  if (subject && $("refinement").open) trace();
}

async function trace() {
  clearError($("refinement-status"));
  $("trace").classList.add("old");
  $("trace").setAttribute("aria-busy", true);
  try {
    const about = `model?${new URLSearchParams(subject?.pair)}`;
    if (known !== about) startControls(await send("model", about));
    known = about;
    if (!subject || !methods().length) {
      if (subject) $("refinement-status").textContent = "This model writes word after word. There is nothing to refine.";
      $("trace").setAttribute("aria-busy", false);
      return;
    }
    const { text, pair } = subject;
    const shown = beginning(text, MAX_TRACED);
    traced = (await send("trace", "trace", { q: shown, ...pair, ...decodingOptions() })).sentences;
    $("cut").hidden = shown === text;
  } catch (error) {
    showError(error, $("refinement-status"), traceIfOpen);
    if (error.name !== "AbortError") $("trace").setAttribute("aria-busy", false);
    return;
  }
  isShown = true;
  chosen = { sentence: Math.min(chosen.sentence, Math.max(0, traced.length - 1)), token: null };
  $("trace").hidden = !traced.length;
  if (traced.length) showSentences();
  $("trace").classList.remove("old");
  $("trace").setAttribute("aria-busy", false);
}

// Options.

/** None as long as they are those of the translation. */
function decodingOptions() {
  if (!isOwn) return {};
  const method = document.querySelector("input[name=method]:checked").value;
  const [lengths, samples] = $("candidates-tried").value.split("×").map(Number);
  const search = lengths * samples > 1 && { lengths, samples, rerank: $("rerank").value };
  return { method, steps: Number($("steps").value), lm_weight: model.default_options.lm_weight, ...search };
}

/** Those of the model that have steps: the teacher has none. */
const methods = () => model.methods.filter((method) => method !== "teacher");

function startControls(about) {
  model = about;
  for (const part of document.querySelectorAll("#refinement .explained, .controls")) part.hidden = !methods().length;
  if (!methods().length) return;
  $("cut").textContent = `Only the beginning of the text is shown, ${count(MAX_TRACED)} characters at most.`;
  $("steps").max = Math.min(8, model.steps);
  $("methods").replaceChildren(...methods().map((method) => {
    const label = element("label", "", method === "prior" ? "none" : method);
    const input = element("input");
    Object.assign(input, { type: "radio", name: "method", value: method });
    label.prepend(input);
    return label;
  }));
  const { lengths, samples } = model.default_options;
  const guesses = [...GUESSES, [lengths, samples]].filter(([a, b]) => a * b <= model.candidates);
  const names = new Map(guesses.sort((a, b) => a[0] * a[1] - b[0] * b[1]).map(([a, b]) => [`${a}×${b}`, `${a * b}`]));
  $("candidates-tried").replaceChildren(...[...names].map(([value, name]) => new Option(name, value)));
  const rerankers = model.reranks.filter((reranker) => reranker !== "none");
  $("rerank").replaceChildren(...rerankers.map((reranker) => new Option(reranker, reranker)));
  resetControls();
}

/** Choose the options of the translation, or the likest ones if it was not refined. */
function resetControls() {
  const { method, steps, lengths, samples, rerank } = model.default_options;
  isOwn = method === "teacher";
  const inputs = [...document.querySelectorAll("input[name=method]")];
  (inputs.find((input) => input.value === method) ?? inputs.at(-1)).checked = true;
  $("steps").value = steps;
  $("candidates-tried").value = `${lengths}×${samples}`;
  if (rerank !== "none") $("rerank").value = rerank;
  showControls();
}

function showControls() {
  const method = document.querySelector("input[name=method]:checked").value;
  $("steps").disabled = method === "prior";
  $("steps-shown").textContent = $("steps").disabled ? "–" : $("steps").value;
  $("rerank").parentNode.hidden = $("candidates-tried").value === "1×1";
  $("reset").hidden = !isOwn || model.default_options.method === "teacher";
  $("method-hint").textContent = `${method === "prior" ? "none" : method}: ${model.hints[method]}.`;
}

let changing;
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
document.querySelector(".controls").addEventListener("input", () => {
  isOwn = true;
  showControls();
  clearTimeout(changing);
  $("trace").classList.add("old");
  changing = setTimeout(traceIfOpen, 60);
});
$("reset").addEventListener("click", () => {
  resetControls();
  document.querySelector("input[name=method]:checked").focus(); // since the button is gone
  trace();
});
$("refinement").addEventListener("toggle", () => {
  if (!$("refinement").open) cancel("trace");
  else if (!isShown) traceIfOpen();
});

// The trace.

function showSentences() {
  const pills = traced.map((sentence, number) => {
    const pill = button("", sentence.source, () => {
      chosen = { sentence: number, token: null };
      showSentences();
      $("sentences").children[number].focus();
    });
    pill.setAttribute("aria-pressed", number === chosen.sentence);
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
      const node = tokenButton(token, index, step);
      if (node) words.append(/^\s/.test(token.text) ? " " : "", node);
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
  const text = token.text.trim();
  if (!text) return null;
  const node = button("token", text, () => choose(index));
  Object.assign(node.dataset, { index, step: step.number });
  node.tabIndex = -1;
  node.classList.toggle("changed", token.changed);
  node.style.setProperty("--unsure", Math.max(0, (SURE - token.probability) / SURE).toFixed(3));
  node.setAttribute("aria-pressed", "false");
  node.setAttribute("aria-label", `${text}, ${per(token.probability)} sure${token.changed ? ", changed" : ""}`);
  node.title = `${per(token.probability)} sure`;
  return node;
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
  for (const node of $("rows").querySelectorAll(".token")) {
    const mine = Number(node.dataset.index) === index;
    node.setAttribute("aria-pressed", mine);
    node.tabIndex = mine ? 0 : -1;
  }
  $("plot").hidden = sentence.steps.length < 2;
  if ($("plot").hidden) return;
  const known = sentence.field?.token === index ? sentence.field : null;
  showPlot(sentence, index, known);
  if (known) return;
  try {
    const response = await send("field", "trace", { q: sentence.source, ...subject.pair, ...decodingOptions(), sentence: 0, token: index });
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
$("replay").addEventListener("click", play);
