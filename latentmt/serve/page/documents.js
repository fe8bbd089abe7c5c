// Documents: chosen or dropped, sent, translated by the server, and downloaded.

import { $, count } from "./dom.js";
import { RequestError, plainly } from "./requests.js";

let settings;
let languages; // gives the languages at the moment of sending
let request = null; // while a document is sent and translated

export function startDocuments(given, pair) {
  [settings, languages] = [given, pair];
  if (!settings.filesTranslation) return;
  const types = settings.supportedFilesFormat.map((type) => type.slice(1)).join(", ");
  $("types").textContent = `${types}; up to ${size(settings.fileSizeLimit)}.`;
  $("file").accept = settings.supportedFilesFormat.join(",");
  $("documents").hidden = false;
  $("choose-file").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    if ($("file").files.length) translateFiles($("file").files);
    $("file").value = ""; // so that the same file can be chosen again
  });
  $("cancel").addEventListener("click", () => request?.abort());
  acceptDrops();
}

const size = (bytes) => (bytes < 1e6 ? `${count(Math.round(bytes / 1e3))} kB` : `${count(Math.round(bytes / 1e5) / 10)} MB`);

/** Why a file is not sent, if it is not. The server says the same, but only after all of it was sent. */
function refusal(files) {
  if (request) return "Wait until this document is done, or cancel it.";
  if (files.length > 1) return "One document at a time, please.";
  const [file] = files;
  if (!settings.supportedFilesFormat.some((type) => file.name.toLowerCase().endsWith(type))) {
    return `${file.name}: documents of this type cannot be translated.`;
  }
  if (file.size > settings.fileSizeLimit) return `${file.name} has ${size(file.size)}. The limit is ${size(settings.fileSizeLimit)}.`;
  return null;
}

async function translateFiles(files) {
  const reason = refusal(files);
  if (reason) {
    say(reason, true);
    return;
  }
  const [file] = files;
  const pair = languages();
  $("download").hidden = true;
  $("working").hidden = false;
  if (document.activeElement === $("choose-file")) $("cancel").focus();
  $("choose-file").disabled = true;
  const began = performance.now();
  const clock = setInterval(() => ($("elapsed").textContent = `${Math.round((performance.now() - began) / 1000)} s`), 1000);
  say(`Sending ${file.name} …`);
  try {
    const { translatedFileUrl } = await upload(file, pair);
    offer(translatedFileUrl, file.name, pair.target);
  } catch (error) {
    if (error instanceof RequestError && error.status === 403) $("key-field").hidden = false;
    if (error.name !== "AbortError" && !(error instanceof RequestError)) throw error;
    if (error.name === "AbortError") say(`${file.name} was cancelled.`);
    else say(error.message.startsWith(file.name) ? error.message : plainly(error), true);
  } finally {
    clearInterval(clock);
    request = null;
    $("elapsed").textContent = "";
    $("choose-file").disabled = false;
    const next = $("download").hidden ? $("choose-file") : $("download");
    if (document.activeElement === $("cancel")) next.focus();
    $("working").hidden = true;
  }
}

function say(text, alarming = false) {
  $("file-status").textContent = text;
  $("file-status").classList.toggle("alarm", alarming);
}

/** What the server answers to a document. XMLHttpRequest tells how much is sent; fetch does not. */
function upload(file, { source, target }) {
  const form = new FormData();
  for (const [name, value] of Object.entries({ source, target, api_key: $("key").value, file })) form.append(name, value);
  return new Promise((resolve, reject) => {
    request = new XMLHttpRequest();
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => Object.assign($("progress"), { max: total, value: loaded });
    request.upload.onload = () => {
      $("progress").removeAttribute("value"); // how long it takes from here is unknown
      say(`Translating ${file.name} …`);
    };
    request.onabort = () => reject(new DOMException("", "AbortError"));
    request.onerror = () => reject(new RequestError("The server cannot be reached.", 0));
    request.onload = ({ target: { status, response } }) => {
      if (status === 200) resolve(response);
      else reject(new RequestError(response?.error ?? "The server cannot be reached.", status));
    };
    request.open("POST", "translate_file");
    request.send(form);
  });
}

/** Offer a translated document, under the name that the server gives it, too. */
function offer(address, name, target) {
  const dot = name.lastIndexOf(".");
  const result = `${name.slice(0, dot)}.${target}${name.slice(dot)}`;
  const link = $("download");
  link.href = `download_file/${address.split("/").at(-1)}`; // of this server, whatever name it knows itself by
  link.download = result;
  link.textContent = `Download ${result}`;
  link.hidden = false;
  say("Translated. The result is kept for ten minutes:");
}

function acceptDrops() {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (over) => document.body.classList.toggle("dropping", over);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && mark(false));
  document.addEventListener("drop", (event) => {
    mark(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    translateFiles(event.dataTransfer.files);
  });
}
