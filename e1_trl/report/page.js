
function drawGrid() {
  const cells = columns();
  const several = new Set(cells.filter((cell) => cell.method !== NO_METHOD).map((cell) => cell.solution)).size > 1;
  const head = at("grid").tHead;
  const body = at("grid").tBodies[0];
  head.replaceChildren();
  body.replaceChildren();
  const top = make("tr", head);
  const under = make("tr", head);
  make("td", top);
  make("td", under);
  for (const model of models()) {
    make("th", top, data.models[model], "first", { colSpan: cells.length, scope: "colgroup" });
    cells.forEach((cell, i) => {
      const name = cell.method === NO_METHOD ? "∞" : several ? cell.budget : (cell.thinking ?? cell.budget);
      make("th", under, name, i ? "" : "first", { title: `${cell.method} ${cell.budget}`, scope: "col" });
    });
  }
  visible = data.items.map((_, index) => index).filter((index) => models().some((model) => {
    const given = cells.map((cell) => ({ ...answerTo(data.items[index], model, cell.index), cell }));
    return FILTERS[place.filter][1](given.filter((answer) => answer.end), data.items[index]);
  }));
  at("count").textContent = `${visible.length} of ${data.items.length}`;
  for (const index of visible) {
    const item = data.items[index];
    const row = make("tr", body);
    row.dataset.item = index;
    make("th", row, title(item), "", { scope: "row" });
    for (const model of models()) {
      cells.forEach((cell, i) => {
        const box = make("td", row, undefined, i ? "" : "first");
        const found = answerTo(item, model, cell.index)?.final_outcome;
        if (!found) return;
        const button = make("button", box, symbol(found), shade(found), { type: "button", tabIndex: -1 });
        Object.assign(button.dataset, { item: index, cell: cell.index, model });
        button.setAttribute("aria-label", `${title(item)}, ${data.models[model]}, ${cell.budget}: ${words(found)}`);
      });
    }
  }
}

function mark() {
  for (const old of at("grid").querySelectorAll(".here")) old.classList.remove("here");
  for (const old of at("grid").querySelectorAll("[aria-current]")) {
    old.removeAttribute("aria-current");
    old.tabIndex = -1;
  }
  const row = at("grid").querySelector(`tr[data-item="${place.item}"]`);
  row?.classList.add("here");
  for (const button of row?.querySelectorAll(`[data-cell="${place.cell}"]`) ?? []) {
    button.setAttribute("aria-current", "true");
    button.tabIndex = 0;
  }
  if (row) reveal(row);
}

/* Scroll only the grid: `scrollIntoView` would move the page, and the place from which Tab goes on. */
function reveal(row) {
  const box = at("grid-box");
  const above = row.offsetTop - at("grid").tHead.offsetHeight;
  const below = row.offsetTop + row.offsetHeight - box.clientHeight;
  box.scrollTop = Math.max(below, Math.min(above, box.scrollTop));
}

function drawProblem() {
  const item = data.items[place.item];
  const cells = columns();
  const cell = data.cells[place.cell];
  for (const id of ["problem-title", "question", "accepted", "models"]) at(id).replaceChildren();
  write(at("problem-title"), `Problem ${title(item)} `);
  write(at("problem-title"), item.id ?? "", "dim");
  at("budget").max = cells.length - 1;
  at("budget").value = cells.findIndex((other) => other.index === place.cell);
  const name = `${cell.method} ${cell.budget}`;
  at("budget").setAttribute("aria-valuetext", name);
  at("budget-name").textContent = name;
  const asked = models().map((model) => answerTo(item, model, place.cell)).find(Boolean);
  writeClipped(at("question"), item.questions[asked?.question ?? 0]);
  write(at("accepted"), item.accepted.length ? `Accepted: ${item.accepted.join(" or ")}` : "");
  for (const model of models()) drawAnswer(data.models[model], item.models[model]);
  const thoughts = [...at("models").querySelectorAll(".thought")];
  for (const thought of thoughts) {
    thought.addEventListener("scroll", () => {
      const share = thought.scrollTop / Math.max(1, thought.scrollHeight - thought.clientHeight);
      for (const other of thoughts) {
        const top = Math.round(share * (other.scrollHeight - other.clientHeight));
        if (other !== thought && thought.matches(":hover, :focus")) other.scrollTop = top;
      }
    });
  }
}

function drawAnswer(model, own) {
  const panel = make("section", at("models"));
  const heading = make("h3", panel, `${model} `);
  const answer = own.answers[place.cell];
  if (!answer) {
    make("p", panel, "No answer at this budget.", "facts");
    return;
  }
  const found = answer.final_outcome;
  make("span", heading, `${symbol(found)} ${words(found)}`, `badge ${shade(found)}`);
  const end = ENDS[answer.end];
  const facts = [`${answer.thinking} tokens of thinking, ${end}`, `${answer.spent} of solution${answer.truncated ? ", truncated" : ""}`];
  if (answer.read !== null) facts.push(`read: ${answer.read}`);
  make("p", panel, facts.join(" · "), "facts");
  const thought = make("pre", panel, undefined, "thought", { tabIndex: 0 });
  thought.setAttribute("aria-label", `Thought of ${model}`);
  const [text, length] = answer.own === null ? own.thought : [answer.own, answer.length];
  writeClipped(thought, [text.slice(0, answer.length), answer.length]);
  if (answer.close) write(thought, `‖${answer.close}‖`, "close");
  if (answer.length < text.length) {
    write(thought, text.slice(answer.length), "beyond");
    thought.lastChild.setAttribute("role", "deletion");
  }
  const left = length - Math.max(answer.length, text.length);
  if (left > 0) write(thought, ` … ${left} characters more`, "strange");
  const solution = make("pre", panel, undefined, "solution", { tabIndex: 0 });
  solution.setAttribute("aria-label", `Solution of ${model}`);
  writeClipped(solution, own.solutions[answer.solution]);
  const stopped = thought.querySelector(".close, .beyond");
  if (stopped) thought.scrollTop = stopped.offsetTop - thought.clientHeight / 2;
}

function address() {
  const item = data.items[place.item];
  const parts = { p: item.problem, s: data.samples ? item.sample : "", b: data.cells[place.cell].budget,
    by: place.method === methods[0] ? "" : place.method, m: place.model, f: place.filter === "all" ? "" : place.filter };
  return "#" + Object.entries(parts).filter(([, text]) => text !== "").map(([key, text]) =>
    `${key}=${encodeURIComponent(text).replaceAll("%2B", "+")}`).join("&");
}

function read(hash) {
  const parts = Object.fromEntries(hash.slice(1).split("&").map((part) => part.split("=").map((text) => {
    try { return decodeURIComponent(text); } catch { return text; }
  })));
  place.method = methods.includes(parts.by) ? parts.by : methods[0];
  place.model = data.models.includes(parts.m) ? parts.m : "";
  place.filter = offered().includes(parts.f) ? parts.f : "all";
  const item = data.items.findIndex((each) => `${each.problem}` === parts.p && `${each.sample}` === (parts.s ?? `${each.sample}`));
  if (item >= 0) place.item = item;
  const cell = columns().find((each) => each.budget === parts.b || each.budget.split("+")[0] === parts.b);
  place.cell = cell ? cell.index : columns()[Math.floor((columns().length - 1) / 2)].index;
}

function show(redraw) {
  if (!columns().some((cell) => cell.index === place.cell)) {
    const before = data.cells[place.cell];
    const alike = columns().find((cell) => cell.budget === before.budget || cell.thinking === before.thinking);
    place.cell = (alike ?? columns()[0]).index;
  }
  for (const id of ["method", "filter", "model"]) at(id).value = place[id];
  if (redraw) drawGrid();
  mark();
  drawProblem();
  history.replaceState(null, "", address());
}

const moves = {
  j: () => step(1),
  k: () => step(-1),
  ArrowLeft: () => budget(-1),
  ArrowRight: () => budget(1),
  m: () => {
    place.method = methods[(methods.indexOf(place.method) + 1) % methods.length];
    show(true);
  },
};
function step(by) {
  if (!visible.length) return;
  const now = visible.indexOf(place.item);
  place.item = visible[Math.min(visible.length - 1, Math.max(0, now < 0 ? 0 : now + by))];
  show(false);
}
function budget(by) {
  const cells = columns();
  const now = cells.findIndex((cell) => cell.index === place.cell);
  place.cell = cells[Math.min(cells.length - 1, Math.max(0, now + by))].index;
  show(false);
}

if (data.items.length) {
  for (const method of methods) at("method").add(new Option(method, method));
  for (const key of offered()) at("filter").add(new Option(FILTERS[key][0], key));
  at("model").add(new Option(data.models.join(" | "), ""));
  if (data.models.length > 1) for (const model of data.models) at("model").add(new Option(model, model));
  for (const id of ["method", "filter", "model"]) {
    at(id).addEventListener("change", () => {
      place[id] = at(id).value;
      show(true);
    });
  }
  const given = data.items.flatMap((item) => item.models.flatMap((own) => own.answers.map((answer) => answer?.final_outcome)));
  at("legend").textContent = [...new Set(["correct", "wrong", ...given])].filter(Boolean).map((name) => `${symbol(name)} ${words(name)}`).join("  ");
  at("budget").addEventListener("input", () => {
    place.cell = columns()[at("budget").value].index;
    show(false);
  });
  at("grid").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    place.item = Number(button.dataset.item);
    place.cell = Number(button.dataset.cell);
    show(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
    if (!Object.hasOwn(moves, event.key)) return;
    if (event.key.startsWith("Arrow") && event.target.matches("input, pre, .wide")) return; // arrows move these
    const inGrid = event.target.matches("#grid button");
    event.preventDefault();
    moves[event.key]();
    if (inGrid) at("grid").querySelector("[aria-current]")?.focus();
  });
  window.addEventListener("hashchange", () => {
    read(location.hash);
    show(true);
  });
  read(location.hash);
  show(true);
}

/* Rollouts of the training, one step at a time. */
function drawStep() {
  const { step, rollouts } = data.steps[at("step").value];
  at("step-name").textContent = step;
  at("step").setAttribute("aria-valuetext", step);
  at("rollouts").replaceChildren();
  for (const rollout of rollouts) {
    make("p", at("rollouts"), rollout.facts, "facts");
    const text = make("pre", at("rollouts"), undefined, "", { tabIndex: 0 });
    text.setAttribute("aria-label", `Rollout: ${rollout.facts}`);
    write(text, `${rollout.prompt}\n\n`, "beyond");
    write(text, rollout.thinking);
    if (rollout.close) write(text, `‖${rollout.close}‖`, "close");
    write(text, rollout.solution);
  }
}
if (data.steps.length) {
  at("step").max = data.steps.length - 1;
  at("step").addEventListener("input", drawStep);
  drawStep();
}
