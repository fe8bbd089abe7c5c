// Other translations of a sentence, beside one of its words. Those that change this word come first.

import { $, button, element } from "./dom.js";
import { cancel, clearError, send, showError } from "./requests.js";

const ALTERNATIVES = 6;

const panel = $("choices");

/** Offer other translations of a sentence, and call a function with the one that is chosen. */
export async function offerChoices(word, sentence, index, pair, choose) {
  const name = word.textContent.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "") || word.textContent;
  $("choices-title").textContent = `Other translations for “${name}”`;
  $("choices-list").replaceChildren();
  clearError($("choices-status"));
  $("choices-status").textContent = "Looking for some …";
  if (!panel.matches(":popover-open")) panel.showPopover();
  place(word);
  panel.focus();
  let response;
  try {
    const request = { q: sentence.source, ...pair, alternatives: ALTERNATIVES };
    response = await send("alternatives", "translate", request);
  } catch (error) {
    showError(error, $("choices-status"), () => panel.matches(":popover-open") && offerChoices(word, sentence, index, pair, choose));
    return;
  }
  const found = new Set([sentence.first, response.translatedText, ...response.alternatives]);
  found.delete(sentence.text);
  list([...found], sentence.text, index, name, choose);
  panel.querySelector("button")?.focus();
  panel.scrollIntoView({ block: "nearest" });
}

function list(found, text, index, name, choose) {
  const here = [];
  const elsewhere = [];
  for (const other of found) {
    const words = other.trim().split(/\s+/);
    const { lost, gained } = difference(text.trim().split(/\s+/), words);
    const choice = button("", undefined, () => {
      panel.hidePopover();
      choose(other);
    });
    words.forEach((part, number) => choice.append(number ? " " : "", gained.has(number) ? element("b", "", part) : part));
    (lost.has(index) ? here : elsewhere).push(choice);
  }
  $("choices-status").textContent = here.length ? "" : `No other word was found for “${name}”.`;
  const more = elsewhere.length ? [element("h3", "", "Other translations of the sentence"), ...elsewhere] : [];
  $("choices-list").replaceChildren(...here, ...more);
}

/** Which words are lost and gained from one sentence to another, by their numbers: all but the longest common ones. */
function difference(before, after) {
  const common = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i][j] = before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lost = new Set(before.keys());
  const gained = new Set(after.keys());
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (before[i] === after[j]) {
      lost.delete(i++);
      gained.delete(j++);
    } else if (common[i + 1][j] >= common[i][j + 1]) i++;
    else j++;
  }
  return { lost, gained };
}

/** Below the word, and within the window. */
function place(word) {
  const { left, bottom } = word.getBoundingClientRect();
  const room = document.documentElement.clientWidth - panel.offsetWidth - 8;
  panel.style.left = `${Math.max(8, Math.min(left, room)) + scrollX}px`;
  panel.style.top = `${bottom + 6 + scrollY}px`;
}

export function closeChoices() {
  panel.hidePopover();
}

panel.addEventListener("toggle", (event) => {
  if (event.newState === "open") return;
  cancel("alternatives");
  clearError($("choices-status"));
});
panel.addEventListener("keydown", (event) => {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const choices = [...panel.querySelectorAll("button")];
  if (!step || !choices.length) return;
  event.preventDefault();
  choices.at((choices.indexOf(document.activeElement) + step) % choices.length).focus();
});
