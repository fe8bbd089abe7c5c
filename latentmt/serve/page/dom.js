// Helpers for the page's elements and what they read.

export const $ = (id) => document.getElementById(id);

export const element = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

export const button = (className, text, onclick) => {
  const node = element("button", className, text);
  node.type = "button";
  node.onclick = onclick;
  return node;
};

export const per = (share) => `${Math.round(100 * share)}%`;
export const milliseconds = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;
export const count = (number) => number.toLocaleString("en");

/** As much of a text as a number of characters allows, up to a space if there is one. The server counts them so, too. */
export function beginning(text, limit) {
  const characters = [...text]; // a string's own places are halves of rare ones
  if (characters.length <= limit) return text;
  const space = characters.lastIndexOf(" ", limit);
  return characters.slice(0, space > 0 ? space : limit).join("");
}

/** Let screen readers say something that is not shown. */
export function announce(text) {
  $("announced").textContent = text;
}
