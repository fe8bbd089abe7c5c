// The latent plane as a drawing: the path of one token, the paths of the others, and the field.

const SIDE = 320;
const MARGIN = 1.6; // 2 × (0.5 + margin) of the server's grid

const svg = (name, attributes, className) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (className) node.setAttribute("class", className);
  return node;
};
const number = (value) => value.toFixed(1);

/** Maps the plane to the drawing: a square around the path of a token. */
function view(path) {
  const xs = path.map(([x]) => x);
  const ys = path.map(([, y]) => y);
  const middle = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
  const size = Math.max(Math.max(...xs) - Math.min(...xs), Math.max(...ys) - Math.min(...ys)) / 2;
  const half = Math.max(size * MARGIN, 0.1) * 1.08;
  return ([x, y]) => [
    SIDE / 2 + ((x - middle[0]) / half) * (SIDE / 2),
    SIDE / 2 - ((y - middle[1]) / half) * (SIDE / 2),
  ];
}

function line(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${number(x)} ${number(y)}`).join("");
}

function arrows(field, at) {
  const ends = field.points.map((point, index) => {
    const [x, y] = at(point);
    const [toX, toY] = at([point[0] + field.moves[index][0], point[1] + field.moves[index][1]]);
    return { x, y, dx: toX - x, dy: toY - y };
  });
  const longest = Math.max(...ends.map(({ dx, dy }) => Math.hypot(dx, dy)), 1e-9);
  const cell = SIDE / Math.sqrt(field.points.length);
  return ends.map(({ x, y, dx, dy }) => {
    const size = Math.hypot(dx, dy);
    const length = 0.75 * cell * Math.sqrt(size / longest); // the root makes short ones visible
    if (length < 1) return svg("circle", { cx: number(x), cy: number(y), r: 1 }, "flow-head");
    const [ux, uy] = [dx / size, dy / size];
    const tip = [x + ux * length, y + uy * length];
    const wing = Math.min(4, length / 2);
    const back = (side) => [tip[0] - ux * wing - side * uy * wing * 0.6, tip[1] - uy * wing + side * ux * wing * 0.6];
    return svg("path", { d: line([[x, y], tip]) + line([back(1), tip, back(-1)]) }, "flow");
  });
}

/** Draws the chosen token's path through the steps of a sentence. */
export function draw(drawing, sentence, index, field) {
  const paths = sentence.steps[0].tokens.map((_, token) => sentence.steps.map((step) => step.tokens[token].place));
  const at = view(paths[index]);
  const shapes = field ? arrows(field, at) : [];
  paths.forEach((path, token) => {
    if (token === index || !sentence.steps.at(-1).tokens[token].text.trim()) return;
    const points = path.map(at);
    const [x, y] = points.at(-1);
    shapes.push(svg("path", { d: line(points) }, "other"), svg("circle", { cx: number(x), cy: number(y), r: 2 }, "other-end"));
  });
  const points = paths[index].map(at);
  shapes.push(svg("path", { d: line(points) }, "path"));
  points.forEach(([x, y], step) => {
    shapes.push(svg("circle", { cx: number(x), cy: number(y), r: step ? 3.5 : 4.5 }, step ? "stop" : "stop start"));
  });
  labels(points, sentence, index).forEach((label) => shapes.push(label));
  drawing.replaceChildren(...shapes);
}

/** The token at the start and at the end, one label above and one below. */
function labels(points, sentence, index) {
  const words = [sentence.steps[0], sentence.steps.at(-1)].map((step) => step.tokens[index].text.trim() || "·");
  const ends = [points[0], points.at(-1)];
  const upper = ends[0][1] < ends[1][1] ? 0 : 1;
  return ends.map(([x, y], index) => {
    const left = x > SIDE / 2;
    const attributes = { x: number(x + (left ? 6 : -6)), y: number(y + (index === upper ? -10 : 19)) };
    const text = svg("text", { ...attributes, "text-anchor": left ? "end" : "start" }, "mark");
    text.textContent = index ? words[1] : `${words[0]} (start)`;
    return text;
  });
}
