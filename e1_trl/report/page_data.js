const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const SYMBOLS = { correct: "✓", wrong: "✗", unanswered: "✂", unevaluated: "=", unparseable: "?", unboxed: "∅",
  no_program: "∅", timed_out: "T", crashed: "C", out_of_memory: "M", too_much_output: "O", not_callable: "N", ungraded: "U" };
const ENDS = { closed: "closed naturally", forced: "closed by force", eos: "ended without an answer (eos)", total: "ended by the total budget",
  prompt: "closed by the prompt", none: "none began" };
const symbol = (finalOutcome) => SYMBOLS[finalOutcome] ?? "!";
const shade = (finalOutcome) => (finalOutcome === "correct" ? "right" : finalOutcome === "wrong" ? "wrong" : "other");
const words = (name) => (name === "correct" ? "right" : name.replaceAll("_", " "));

/* Texts of models go into text nodes only. Invisible characters, and those that turn text around, are shown by name. */
const STRANGE =
  /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\ud800-\udfff\u{e0000}-\u{e007f}])/u;
function write(element, text, kind) {
  const part = element.appendChild(document.createElement("span"));
  part.className = kind ?? "";
  const pieces = text.replaceAll("\r\n", "\n").split(STRANGE); // every second one is such a character
  pieces.forEach((piece, i) => {
    if (i % 2 === 0) return part.append(piece);
    const named = part.appendChild(document.createElement("span"));
    named.className = "strange";
    named.textContent = `⟨U+${piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

function writeClipped(element, [text, length]) {
  write(element, text);
  if (length > text.length) write(element, ` … ${length - text.length} characters more`, "strange");
}

function make(tag, parent, text, kind, properties) {
  const element = parent.appendChild(document.createElement(tag));
  if (text !== undefined) write(element, String(text));
  if (kind) element.className = kind;
  return Object.assign(element, properties);
}

async function inflate(base64) {
  if (!window.DecompressionStream) throw new Error("This browser cannot unpack the texts (DecompressionStream).");
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}

/* Tables: a click on the name of a column sorts by it. */
function value(row, column) {
  const text = row.cells[column].textContent;
  const number = parseFloat(text);
  return Number.isNaN(number) ? text : number;
}
function compare(one, other) {
  if (typeof one === typeof other) return one < other ? -1 : one > other ? 1 : 0;
  return typeof one === "number" ? 1 : -1;
}
for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    header.firstChild.addEventListener("click", () => {
      const falling = header.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => (falling ? -1 : 1) * compare(value(one, column), value(other, column)));
      table.tBodies[0].append(...rows);
    });
  });
}
at("copy")?.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(at("copy").dataset.command);
    at("copied").textContent = "copied";
  } catch {
    at("copied").textContent = at("copy").dataset.command; // without a clipboard, to be selected
  }
});

/* Problems. `place` is everything that a reader has chosen, and the page's address. */
try {
  for (const part of ["items", "steps"]) data[part] = await Promise.all(data[part].map(inflate));
} catch (error) {
  at("problem-title").textContent = error.message;
  throw error;
}
const NO_METHOD = "unconstrained";
const methods = [...new Set(data.cells.map((cell) => cell.method))].filter((name) => name !== NO_METHOD);
if (!methods.length && data.cells.length) methods.push(NO_METHOD);
const place = { item: 0, cell: 0, method: methods[0], model: "", filter: "all" };
let visible = [];

const columns = () =>
  data.cells.map((cell, index) => ({ ...cell, index })).filter((cell) => [place.method, NO_METHOD].includes(cell.method))
    .sort((one, other) => (one.thinking ?? Infinity) - (other.thinking ?? Infinity) || one.solution - other.solution);
const models = () => data.models.map((_, index) => index).filter((i) => !place.model || data.models[i] === place.model);
const answerTo = (item, model, cell) => item.models[model].answers[cell];
const isRight = (answer) => answer.final_outcome === "correct";
const isForced = (answer) => answer.end === "forced";
const comparable = (cell, later) => cell.solution === later.solution || !later.solution;

/* Each filter looks at one model's answers to an item, in the order of their budgets, each with its `cell`. */
const FILTERS = {
  all: ["all problems", () => true],
  forced: ["right only when forced", (given) => given.some(isRight) && given.filter(isRight).every(isForced)],
  never: ["wrong at every budget", (given) => given.length && !given.some(isRight)],
  lost: ["right at a budget, wrong at a larger one", (given) => given.some((answer, i) => isRight(answer) &&
    given.slice(i + 1).some((later) => comparable(answer.cell, later.cell) && !isRight(later)))],
  escapes: ["a forced solution is truncated, or closes again", (given) => given.some((answer) => isForced(answer) &&
    (answer.truncated || answer.closes_again))],
  differ: ["models differ", (given, item) => given.some((answer) => item.models.some(({ answers }) =>
    answers[answer.cell.index] && isRight(answers[answer.cell.index]) !== isRight(answer)))],
};

const offered = () => Object.keys(FILTERS).filter((key) => key !== "differ" || data.models.length > 1);

function title(item) {
  return `${item.problem}${data.samples ? `/${item.sample}` : ""}`;
}
