// The translation in its sentences and words. A sentence is linked with that of the text, and a word can be chosen.

import { $, element } from "./dom.js";

let pieces = [];    // of the translation, in order: sentences, and the strings between them
let sentences = [];
const kept = new Map(); // what was chosen for a sentence of the text, by sentence and occurrence, instead of its translation

/** The translation as it is shown. */
export const translated = () => pieces.map((piece) => piece.text ?? piece).join("");

export const isOutdated = () => $("translation").classList.contains("old");

/** Show a response of the server to a text, with the sentences that were chosen before. */
export function show(text, response) {
  const [from, to] = [offsets(text), offsets(response.translatedText)];
  const spans = response.sentences ?? [];
  const occurrences = new Map();
  pieces = [];
  let end = 0;
  sentences = spans.map(({ source, target }, number) => {
    const first = response.translatedText.slice(to[target[0]], to[target[1]]);
    const own = text.slice(from[source[0]], from[source[1]]);
    const occurrence = occurrences.get(own) ?? 0;
    occurrences.set(own, occurrence + 1);
    const key = `${occurrence} ${own}`;
    const choice = kept.get(key);
    const chosen = choice?.first === first ? choice.text : first;
    const sentence = { number, key, start: from[source[0]], source: own, first, text: chosen };
    pieces.push(response.translatedText.slice(end, to[target[0]]), sentence);
    end = to[target[1]];
    return sentence;
  });
  pieces.push(response.translatedText.slice(end));
  $("translation").classList.remove("old");
  render();
  mirror(text);
}

/** The text has changed: what is shown is no longer its translation. */
export function outdate(text) {
  $("translation").classList.add("old");
  sentences = [];
  mirror(text);
  link(null);
}

export function clear() {
  pieces = [];
  outdate("");
  $("translation").classList.remove("old");
  $("translation").replaceChildren();
}

export function forgetChoices() {
  kept.clear();
}

/** Replace a sentence of the translation. */
export function replaceSentence(sentence, text) {
  sentence.text = text;
  kept.set(sentence.key, { first: sentence.first, text });
  render();
}

/** Where each character begins: the server counts characters, JavaScript their halves if they are rare ones. */
function offsets(text) {
  const starts = [0];
  for (const character of text) starts.push(starts.at(-1) + character.length);
  return starts;
}

function render() {
  $("translation").replaceChildren(...pieces.map((piece) => (piece.text === undefined ? piece : sentenceOf(piece))));
  const first = $("translation").querySelector(".word");
  if (first) makeReachable(first);
}

function sentenceOf({ number, text }) {
  const node = element("span", "sentence");
  node.dataset.number = number;
  for (const part of text.split(/(\s+)/)) {
    const word = part.trim() && element("span", "word", part);
    if (word) word.tabIndex = -1;
    node.append(word || part);
  }
  return node;
}

/** The text once more beneath the field that it is typed in, which makes the field as high and shows its sentences. */
function mirror(text) {
  const parts = [];
  let end = 0;
  for (const { number, start, source } of sentences) {
    const node = element("span", "sentence", source);
    node.dataset.number = number;
    parts.push(text.slice(end, start), node);
    end = start + source.length;
  }
  $("mirror").replaceChildren(...parts, `${text.slice(end)}\u200b`); // so that a last empty line has a height
}

// Sentences that belong together.

let linked = null;
function link(number) {
  if (number === linked) return;
  linked = number;
  for (const node of document.querySelectorAll(".sentence")) {
    node.classList.toggle("linked", sentences.length > 1 && Number(node.dataset.number) === number);
  }
}

const numberOf = (node) => (node ? Number(node.dataset.number) : null);
const sentenceAt = (offset) => sentences.findLast(({ start, source }) => start <= offset && offset <= start + source.length);

$("translation").addEventListener("pointerover", (event) => link(numberOf(event.target.closest(".sentence"))));
$("translation").addEventListener("focusin", (event) => link(numberOf(event.target.closest(".sentence"))));
$("text").addEventListener("pointermove", (event) => {
  const under = document.elementsFromPoint(event.clientX, event.clientY);
  link(numberOf(under.find((node) => node.matches("#mirror .sentence"))));
});
for (const place of [$("text"), $("translation")]) {
  place.addEventListener("pointerleave", linkFocused);
  place.addEventListener("focusout", () => link(null));
}
document.addEventListener("selectionchange", () => document.activeElement === $("text") && linkFocused());

/** Link the sentence that the keyboard is in, if it is in one. */
function linkFocused() {
  const focused = document.activeElement;
  if (focused === $("text")) link(sentenceAt(focused.selectionStart)?.number ?? null);
  else link(numberOf(focused.closest("#translation .sentence")));
}

// Words: Tab reaches one of them, arrow keys the others. Only that one is a button, so that the rest reads as a text.

function makeReachable(word) {
  const before = $("translation").querySelector("[role=button]");
  if (before) before.tabIndex = -1;
  before?.removeAttribute("role");
  before?.removeAttribute("aria-haspopup");
  word.tabIndex = 0;
  word.setAttribute("role", "button");
  word.setAttribute("aria-haspopup", "dialog");
}

export function focusWord(sentence, index) {
  const words = $("translation").querySelectorAll(`.sentence[data-number="${sentence.number}"] .word`);
  const word = words[Math.min(index, words.length - 1)];
  if (!word) return;
  makeReachable(word);
  word.focus();
}

/** Call a function with the word, its sentence and its number in it, when a word is chosen. */
export function onWord(choose) {
  const act = (word) => {
    const sentence = sentences[numberOf(word.closest(".sentence"))];
    if (!sentence || isOutdated()) return;
    makeReachable(word);
    choose(word, sentence, [...word.parentNode.querySelectorAll(".word")].indexOf(word));
  };
  const place = $("translation");
  place.addEventListener("click", (event) => {
    const word = event.target.closest(".word");
    const selection = getSelection(); // the click may be the end of selecting a part of the translation
    if (word && !(selection.toString() && place.contains(selection.anchorNode))) act(word);
  });
  place.addEventListener("keydown", (event) => {
    const word = event.target.closest(".word");
    if (!word || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = neighbour(word, event.key);
    if (next) {
      makeReachable(next);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") act(word);
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  });
}

/** The word that a key leads to: left and right by word, up and down by sentence. */
function neighbour(word, key) {
  const words = [...$("translation").querySelectorAll(".word")];
  const here = words.indexOf(word);
  const sentence = word.closest(".sentence");
  const firsts = words.filter((other, index) => other.parentNode !== words[index - 1]?.parentNode);
  const mine = firsts.findIndex((first) => first.parentNode === sentence);
  const to = {
    ArrowLeft: words[here - 1],
    ArrowRight: words[here + 1],
    ArrowUp: firsts[mine - 1],
    ArrowDown: firsts[mine + 1],
    Home: words[0],
    End: words.at(-1),
  };
  return to[key];
}
