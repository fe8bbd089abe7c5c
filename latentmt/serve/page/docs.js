// Shows openapi.json to a person, without anybody else's code.

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};

const api = await (await fetch("openapi.json")).json();
document.getElementById("summary").textContent = `${api.info.summary} Version ${api.info.version}.`;

const resolved = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema);

function type(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(type).filter((one) => one !== "null").join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "array") return `list of ${type(schema.items ?? { type: "values" })}`;
  return schema.type ?? "";
}

function table(schema) {
  const needed = resolved(schema)?.required ?? [];
  const fields = Object.entries(resolved(schema)?.properties ?? {});
  fields.sort(([one], [other]) => needed.includes(other) - needed.includes(one));
  if (!fields.length) return element("p", type(schema));
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const title of ["field", "type", ""]) head.append(element("th", title));
  const body = made.createTBody();
  for (const [name, field] of fields) {
    const row = body.insertRow();
    row.insertCell().append(element("code", name + (needed.includes(name) ? " *" : "")));
    row.insertCell().textContent = type(field);
    row.insertCell().textContent = field.description ?? "";
  }
  return made;
}

/** The names of the schemas that one refers to, and those that these refer to. */
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
  const asked = about.requestBody?.content["application/json"].schema;
  if (asked) {
    article.append(element("h3", "Asked, as JSON or as a form"), table(asked));
    const example = Object.fromEntries(
      Object.entries(resolved(asked).properties)
        .filter(([, field]) => field.examples)
        .map(([name, field]) => [name, field.examples[0]]),
    );
    const address = new URL(path.slice(1), new URL("./", location.href));
    const json = JSON.stringify(example);
    article.append(element("pre", `curl ${address} -H 'Content-Type: application/json' \\\n  -d '${json}'`));
  }
  const answer = about.responses["200"]?.content?.["application/json"]?.schema;
  if (answer) {
    const inner = answer.type === "array" ? answer.items : answer;
    article.append(element("h3", answer.type === "array" ? "Answered, a list of" : "Answered"), table(inner));
    for (const name of within(inner)) article.append(element("h3", name), table(api.components.schemas[name]));
  }
  const problems = Object.entries(about.responses).filter(([status]) => Number(status) >= 400);
  if (problems.length) {
    article.append(element("h3", 'Refused, with {"error": …}'));
    const list = element("ul");
    for (const [status, problem] of problems) list.append(element("li", `${status}: ${problem.description}`));
    article.append(list);
  }
  return article;
}

for (const [path, verbs] of Object.entries(api.paths)) {
  for (const [verb, about] of Object.entries(verbs)) document.getElementById("paths").append(operation(path, verb, about));
}
