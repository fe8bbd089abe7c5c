// The calls of LibreTranslate's JavaScript clients and of its page, with what Node and browsers have: `fetch` and `FormData`.
// It prints what each call got as one JSON object.

const [address, text, other] = process.argv.slice(2);

async function ask(path, request) {
  const response = await fetch(address + path, request);
  return { status: response.status, body: await response.json() };
}

function json(path, body) {
  return ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });
}

function form(path, fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value instanceof File) body.append(name, value, value.name);
    else body.append(name, value);
  }
  return ask(path, { method: "POST", body });
}

const file = new File([`${text}\n\n${other}\n`], "Brief über Bücher.txt", { type: "text/plain" });
const sent = await form("/translate_file", { file, source: "de", target: "en", api_key: "" });
const received = await fetch(sent.body.translatedFileUrl);

console.log(
  JSON.stringify({
    languages: await ask("/languages"),
    settings: await ask("/frontend/settings"),
    detect: await json("/detect", { q: text, api_key: "" }),
    detectForm: await form("/detect", { q: text, api_key: "" }),
    detectParameters: await ask("/detect", { method: "POST", body: new URLSearchParams({ q: text }) }),
    simple: await json("/translate", { q: text, source: "de", target: "en" }),
    full: await json("/translate", { q: text, source: "de", target: "en", format: "text", alternatives: 2, api_key: "" }),
    auto: await json("/translate", { q: text, source: "auto", target: "en" }),
    list: await json("/translate", { q: [text, other], source: "de", target: "en", format: "text" }),
    html: await json("/translate", { q: `<p class="green">${text}</p>`, source: "de", target: "en", format: "html" }),
    apiKey: await json("/translate", { q: text, source: "de", target: "en", format: "text", apiKey: "" }),
    form: await form("/translate", {
      q: text, source: "de", target: "en", format: "text", alternatives: 2, api_key: "", secret: "",
    }),
    parameters: await ask("/translate", {
      method: "POST",
      body: new URLSearchParams({ q: text, source: "de", target: "en", format: "text", api_key: "" }),
    }),
    wrong: await json("/translate", { q: text, source: "de", target: "xx" }),
    file: { status: received.status, name: received.headers.get("content-disposition"), text: await received.text() },
  }),
);
