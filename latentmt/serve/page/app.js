// The page: sends what is typed to the server and shows its translation. Nothing is stored.

import { closeChoices, offerChoices } from "./choices.js";
import { startDocuments } from "./documents.js";
import { $, announce, button, count, element, milliseconds } from "./dom.js";
import { hideRefinement, outdateRefinement, traceRefinement } from "./refinement.js";
import { cancel, clearError, send, showError } from "./requests.js";
import * as translation from "./translation.js";

const TYPING_DELAY = 180;    // ms without a key before a request is sent
const SPEAKING_DELAY = 1000; // ms without a key before a translation is read out
const MAX_SPOKEN = 400;      // characters
const COPIED = 2000;         // ms for which the button says so
const NEARLY = 0.9;          // share of the limit from which on the number of characters stands out
const EXAMPLES = {
  de: {
    "Everyday": "Ohne die Hilfe meiner Freunde hätte ich das nie geschafft. Morgen koche ich für alle.",
    "Parliament": "Die Bürger Europas erwarten von uns, dass wir endlich handeln.",
    "A document’s address stays as it is": "Die Anleitung steht unter https://example.org/hilfe/anleitung.pdf im Netz.",
  },
  en: {
    "Everyday": "I could never have done that without the help of my friends. I am cooking for all of them tomorrow.",
    "Parliament": "The citizens of Europe expect us to act at last.",
    "A document’s address stays as it is": "The manual is at https://example.org/help/manual.pdf on the web.",
  },
};

let limit;     // characters of a text
let languages; // with the languages that each is translated into
let pair;      // the source and the target

const nameOf = (code) => languages.find((language) => language.code === code)?.name ?? code;
const targetsOf = (source) => languages.find(({ code }) => code === source)?.targets ?? [];

// Translating.

let speaking;
async function refresh() {
  clearError($("status"));
  const text = $("text").value;
  if (!text.trim() || excess() > 0) return;
  const request = { q: text, ...pair, confidence: true, alignment: true };
  const start = performance.now();
  let response;
  try {
    response = await send("translate", "translate", request);
  } catch (error) {
    showError(error, $("status"), refresh);
    return;
  }
  translation.show(text, response);
  $("took").textContent = milliseconds(performance.now() - start);
  $("hint").textContent = response.warning ?? "";
  $("copy").hidden = $("copy").disabled = $("usage").hidden = false;
  speaking = setTimeout(speak, SPEAKING_DELAY);
  traceRefinement(text, pair);
}

function speak() {
  const text = translation.translated();
  announce(text.length > MAX_SPOKEN ? "The translation is ready." : text);
}

/** How many characters the text has too many, as the server counts them. */
const excess = () => [...$("text").value].length - limit;

/** The text has changed. What is shown is dimmed until there is something new to show. */
function outdate() {
  const text = $("text").value;
  clearTimeout(speaking);
  cancel("translate");
  closeChoices();
  $("hint").textContent = "";
  $("clear").hidden = !text;
  $("examples").hidden = text !== "" && !Object.values(EXAMPLES[pair.source] ?? {}).includes(text);
  showCount();
  translation.outdate(text);
  $("copy").disabled = true;
  outdateRefinement();
  if (text.trim()) return;
  clearError($("status"));
  translation.clear();
  hideRefinement();
  $("took").textContent = "";
  $("copy").hidden = $("usage").hidden = true;
}

function showCount() {
  const over = excess();
  $("count").textContent = `${count(over + limit)} of ${count(limit)} characters`;
  $("count").classList.toggle("near", over > (NEARLY - 1) * limit);
  $("text").setAttribute("aria-invalid", over > 0);
  if (over <= 0) return;
  const many = over === 1 ? "One character" : `${count(over)} characters`;
  $("hint").textContent = `${many} too many. Shorten the text, or translate it as a document.`;
}

let typing;
function changed(delay = 0) {
  outdate();
  clearTimeout(typing);
  typing = setTimeout(refresh, delay);
}

function write(text) {
  $("text").value = text;
  changed();
}

// Languages.

function showLanguages() {
  const { source, target } = pair;
  offerLanguages("source", languages.map(({ code }) => code).filter((code) => targetsOf(code).length), source);
  offerLanguages("target", targetsOf(source), target);
  $("text").lang = source;
  $("mirror").lang = source;
  $("translation").lang = $("choices-list").lang = target;
  $("text").placeholder = `Type or paste ${nameOf(source)} text.`;
  const swaps = targetsOf(target).includes(source);
  $("swap").setAttribute("aria-disabled", !swaps);
  $("one-way").textContent = swaps ? "" : `This server does not translate ${nameOf(target)} to ${nameOf(source)}.`;
  const examples = Object.entries(EXAMPLES[source] ?? {});
  const buttons = examples.map(([name, text]) => button("plain", name, () => write(text)));
  $("examples").replaceChildren(...(buttons.length ? [element("span", "quiet", "Examples:"), ...buttons] : []));
}

/** Languages to choose from, or the name alone of the only one. */
function offerLanguages(id, codes, chosen) {
  $(`${id}-name`).textContent = nameOf(chosen);
  $(`${id}-name`).classList.toggle("sr", codes.length > 1);
  $(id).replaceChildren(...codes.map((code) => new Option(nameOf(code), code, false, code === chosen)));
  $(id).hidden = codes.length < 2;
}

function choosePair(source, target) {
  pair = { source, target };
  translation.forgetChoices();
  showLanguages();
  announce(`${nameOf(source)} to ${nameOf(target)}`);
}

$("source").addEventListener("change", () => {
  const targets = targetsOf($("source").value);
  choosePair($("source").value, [pair.target, pair.source].find((code) => targets.includes(code)) ?? targets[0]);
  changed();
});
$("target").addEventListener("change", () => {
  choosePair(pair.source, $("target").value);
  changed();
});
$("swap").addEventListener("click", () => {
  if ($("swap").getAttribute("aria-disabled") === "true") return;
  const text = translation.isOutdated() ? $("text").value : translation.translated();
  choosePair(pair.target, pair.source);
  write(text);
});

// Copying.

async function copy() {
  const text = translation.translated();
  try {
    await navigator.clipboard.writeText(text);
  } catch { // it is not there where the page has no TLS
    if (!copySelected(text)) {
      $("status").textContent = "The browser does not allow copying. Select the translation and copy it.";
      return;
    }
  }
  $("copy").textContent = "Copied";
  announce("The translation was copied.");
  setTimeout(() => ($("copy").textContent = "Copy"), COPIED);
}

function copySelected(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "sr";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  $("copy").focus();
  return done;
}

// Start.

async function start() {
  let settings;
  try {
    [settings, languages] = await Promise.all([send("settings", "frontend/settings"), send("languages", "languages")]);
  } catch (error) {
    showError(error, $("status"), start);
    return;
  }
  clearError($("status"));
  limit = settings.charLimit;
  pair = { source: settings.language.source.code, target: settings.language.target.code };
  $("key-field").hidden = !settings.keyRequired;
  showLanguages();
  startDocuments(settings, () => pair);
  $("text").addEventListener("input", () => changed(TYPING_DELAY));
  $("key").addEventListener("input", () => changed(TYPING_DELAY));
  $("copy").addEventListener("click", copy);
  $("clear").addEventListener("click", () => {
    translation.forgetChoices();
    write("");
    $("text").focus();
  });
  translation.onWord((word, sentence, index) => {
    offerChoices(word, sentence, index, pair, (text) => {
      translation.replaceSentence(sentence, text);
      translation.focusWord(sentence, index);
      announce(text);
    });
  });
  changed(); // a browser may have kept what was typed
}

start();
