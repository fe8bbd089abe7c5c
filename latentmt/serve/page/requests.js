// Requests to the server, and its errors in plain words. No other host is contacted.

import { $ } from "./dom.js";

export class RequestError extends Error {
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Send a request. There is one of each kind at a time: a new one cancels the one before, in the server's queue, too. */
const running = {};
export async function send(kind, path, body) {
  cancel(kind);
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
    throw unreachable();
  }
  if (response.ok) return result;
  if (typeof result?.error !== "string" || !result.error) throw unreachable(); // what is before the server has answered
  throw new RequestError(result.error, response.status, Number(response.headers.get("Retry-After")) || null);
}

const unreachable = () => new RequestError("The server cannot be reached.", 0, 3);

export function cancel(kind) {
  running[kind]?.abort();
}

const MESSAGES = {
  413: (error) => `That is too much at once: ${error.message}.`,
  429: (error) => `The server is busy. Trying again in ${error.retryAfter} s …`,
  503: () => "This took too long. Less at once would help.",
  500: () => "Something went wrong in the server. It is not your fault.",
};

/** An error as one line. */
export function plainly(error, retried) {
  const known = error.status === 429 && !retried ? null : MESSAGES[error.status];
  const message = known?.(error) ?? (error.retryAfter && retried ? `${error.message} Trying again …` : error.message);
  return message[0].toUpperCase() + message.slice(1);
}

const retries = new Map();

/** Show an error where it belongs, and try again where that may help. */
export function showError(error, place, tryAgain) {
  if (error.name === "AbortError") return; // a newer request replaced it
  if (!(error instanceof RequestError)) throw error;
  if (error.status === 403) $("key-field").hidden = false;
  place.textContent = plainly(error, true);
  if (!error.retryAfter || error.status === 503) return;
  clearTimeout(retries.get(place));
  retries.set(place, setTimeout(tryAgain, 1000 * Math.min(error.retryAfter, 30)));
}

/** Take back what `showError` showed and planned. */
export function clearError(place) {
  clearTimeout(retries.get(place));
  place.textContent = "";
}
