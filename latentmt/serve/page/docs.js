// Renders openapi.json as a page, without a library.

const element = (name, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

const api = await (await fetch("openapi.json")).json();
document.getElementById("summary").textContent = `${api.info.summary} Version ${api.info.version}.`;

const resolved = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema);

function type(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(type).filter((name) => name !== "null").join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "array") return `list of ${type(schema.items ?? { type: "values" })}`;
  return schema.type ?? "";
}

function table(schema) {
  const required = resolved(schema)?.required ?? [];
  const fields = Object.entries(resolved(schema)?.properties ?? {});
  fields.sort(([a], [b]) => required.includes(b) - required.includes(a));
  if (!fields.length) return element("p", type(schema));
  const node = element("table");
  const head = node.createTHead().insertRow();
  for (const title of ["field", "type", ""]) head.append(element("th", title));
  const body = node.createTBody();
  for (const [name, field] of fields) {
    const row = body.insertRow();
    row.insertCell().append(element("code", name + (required.includes(name) ? " *" : "")));
    row.insertCell().textContent = type(field);
    row.insertCell().textContent = field.description ?? "";
  }
  return node;
}

/** The names of all schemas that a schema refers to, directly or indirectly. */
function within(schema, seen = new Set()) {
  for (const [, name] of JSON.stringify(resolved(schema) ?? {}).matchAll(/#\/components\/schemas\/(\w+)/g)) {
    if (!seen.has(name)) within(api.components.schemas[name], seen.add(name));
  }
  return seen;
}

function operation(path, verb, about) {
  const article = element("article");
  const title = element("h2");
  title.append(element("span", verb.toUpperCase(), "verb"), ` ${path}`);
  article.append(title, element("p", about.description));
  const bodies = about.requestBody?.content ?? {};
  const request = bodies["application/json"]?.schema;
  const upload = bodies["multipart/form-data"]?.schema;
  if (request) {
    article.append(element("h3", "Request, as JSON or as a form"), table(request));
    const example = Object.fromEntries(
      Object.entries(resolved(request).properties)
        .filter(([, field]) => field.examples)
        .map(([name, field]) => [name, field.examples[0]]),
    );
    const address = new URL(path.slice(1), new URL("./", location.href));
    const json = JSON.stringify(example);
    article.append(element("pre", `curl ${address} -H 'Content-Type: application/json' \\\n  -d '${json}'`));
  }
  if (upload && !request) article.append(element("h3", "Request, as a form with a file"), table(upload));
  const response = about.responses["200"]?.content?.["application/json"]?.schema;
  if (response) {
    const inner = response.type === "array" ? response.items : response;
    article.append(element("h3", response.type === "array" ? "Response, a list of" : "Response"), table(inner));
    for (const name of within(inner)) article.append(element("h3", name), table(api.components.schemas[name]));
  }
  const errors = Object.entries(about.responses).filter(([status]) => Number(status) >= 400);
  if (errors.length) {
    article.append(element("h3", `Errors, as {"${path.startsWith("/v2/") ? "message" : "error"}": message}`));
    const list = element("ul");
    for (const [status, error] of errors) list.append(element("li", `${status}: ${error.description}`));
    article.append(list);
  }
  return article;
}

for (const [path, verbs] of Object.entries(api.paths)) {
  for (const [verb, about] of Object.entries(verbs)) document.getElementById("paths").append(operation(path, verb, about));
}
