"use strict";

// The server looks once a second while a page asks; a page that is not seen does not ask.
const EVERY = 1000;
// So many rows are shown at first: more take a browser long.
const ROWS = 500;
// So much of a name is shown in a table.
const NAME = 160;

const find = (id) => document.getElementById(id);
const state = { seen: null, problem: null, mayChange: false, etag: null, age: 0, at: 0, sort: "waiting", down: true, all: false, failed: null };
const rows = new Map();

// The same rules as in redlock-sync/src/names.rs. A message has its names escaped already.
const ODD = /\p{C}|[^\P{Z} ]|\p{DI}|[\u2800\u{1d159}\u{13441}\u{13442}]/gu;
const NAMED = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };
const number = (c) => NAMED[c] ?? `\\u{${c.codePointAt(0).toString(16)}}`;
const printable = (message) => message.replace(ODD, number);
const spaced = (name) => name.replace(/  +/g, (run) => " " + number(" ").repeat(run.length - 1)).replace(/^ | $/g, number);
const escaped = (name) => spaced(printable(name.replaceAll("\\", "\\\\")));

const short = (name) => (name.length > NAME ? `${escaped(name.slice(0, NAME))}…` : escaped(name));

function time(ms) {
  const s = Math.floor(ms / 1000);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`;
}

// An element with text and children; text is never read as HTML.
function make(tag, text, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function button(text, act) {
  const made = make("button", text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

const age = () => state.age + performance.now() - state.at;

// --- asking ------------------------------------------------------------------------------------------------------------

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(10000), ...options });
  if (answer.status === 401 && path !== "/api/login" && !find("login").open) find("login").showModal();
  return answer;
}

async function send(path, what) {
  const answer = await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
  if (answer.ok) return null;
  try { return (await answer.json()).error; } catch { return `${answer.status}`; }
}

let waiting = null;

async function poll() {
  clearTimeout(waiting);
  if (document.hidden) return;
  try {
    const answer = await ask("/api/snapshot", { headers: state.etag ? { "If-None-Match": state.etag } : {} });
    if (answer.status === 200) {
      const told = await answer.json();
      [state.seen, state.problem, state.mayChange] = [told.snapshot, told.problem, told.allow_release];
      state.etag = answer.headers.get("ETag");
      state.locks = grouped();
    }
    if (answer.status === 200 || answer.status === 304) {
      [state.age, state.at] = [Number(answer.headers.get("Redlock-Age-Ms")), performance.now()];
      // A refusal that came after the login may have opened the dialog again.
      find("login").close();
    }
    state.failed = answer.status === 200 || answer.status === 304 ? null : `the page's server says ${answer.status}`;
  } catch (error) {
    state.failed = `the page's server does not answer: ${error.message}`;
  }
  show();
  clearTimeout(waiting);
  waiting = setTimeout(poll, EVERY);
}

// --- what is shown -----------------------------------------------------------------------------------------------------

// A row for each lock and each latch.
function grouped() {
  const all = new Map();
  if (!state.seen) return [];
  for (const held of state.seen.locks) {
    const known = all.get(held.name);
    if (known) known.holders.push(held);
    else all.set(held.name, { name: held.name, holders: [held], waiting: held.waiting });
  }
  for (const row of all.values()) {
    const first = row.holders.reduce((a, b) => (b.nodes > a.nodes || (b.nodes === a.nodes && b.seen_for_ms > a.seen_for_ms) ? b : a));
    const others = row.holders.length - 1;
    Object.assign(row, { first, kind: first.kind, left: first.remaining_ms, lease: first.lease_ms, held: first.seen_for_ms });
    row.holder = (first.holder_name || `${first.holder}…`) + (others ? ` +${others}` : "");
    row.mark = mark(first);
  }
  const latches = state.seen.latches.map((latch) => ({
    name: latch.name, kind: "latch", holder: `${latch.arrived} arrived${latch.open ? ", open" : ""}`, holders: [], held: null,
    left: latch.remaining_ms, lease: null, waiting: latch.waiting, mark: "",
  }));
  return [...all.values(), ...latches];
}

// What is wrong with a holder, in words: colour alone would not be seen by all.
function mark(held) {
  // The servers are not read at one moment. So a lock that is taken or released meanwhile is seen on some only.
  if (!held.seen_for_ms) return "";
  if (held.nodes * 2 <= held.of) return "no majority";
  const half = held.lease_ms / 2;
  if (held.lease_ms && held.seen_for_ms > half && held.remaining_ms < half) return "not renewed";
  // A server that does not answer is no server that differs.
  const answered = state.seen.round_trips_ms.filter((trip) => trip !== null).length;
  return held.nodes < answered ? "servers differ" : "";
}

function sorted() {
  const text = find("filter").value;
  const chosen = state.locks.filter((row) => !text || row.name.includes(text) || row.holder.includes(text));
  const value = (row) => row[state.sort] ?? Infinity;
  const compare = (a, b) => {
    const [one, other] = [value(a), value(b)];
    const order = one < other ? -1 : one > other ? 1 : 0;
    return (state.down ? -order : order) || (b.held ?? 0) - (a.held ?? 0) || (a.name < b.name ? -1 : 1);
  };
  return chosen.sort(compare);
}

function show() {
  const seen = state.seen;
  const told = find("state");
  const problem = state.failed || state.problem;
  told.classList.toggle("bad", Boolean(problem) || (seen !== null && !seen.health.ready));
  if (!seen) {
    put(told, problem ? printable(problem) : "asking");
    return;
  }
  const nodes = seen.health.nodes;
  const well = `${nodes.filter((node) => !node.problem).length} of ${nodes.length} servers well`;
  const ready = seen.health.ready ? well : `${well}: no lock can be taken`;
  put(told, problem ? `as of ${time(age())} ago: ${printable(problem)}` : `${ready}, ${time(age())} ago`);
  servers(seen);
  locks();
  queues(seen);
}

function cells(row, texts) {
  while (row.cells.length < texts.length) row.append(make("td"));
  texts.forEach((text, at) => { if (text !== null) put(row.cells[at], text); });
}

function servers(seen) {
  const body = find("servers").tBodies[0];
  while (body.rows.length > seen.health.nodes.length) body.deleteRow(-1);
  seen.health.nodes.forEach((node, at) => {
    const row = body.rows[at] || body.insertRow();
    const round = seen.round_trips_ms[at];
    const trip = round === null ? "no answer" : round === 0 ? "< 1 ms" : `${round} ms`;
    cells(row, [printable(node.address), node.problem ? `down: ${printable(node.problem)}` : "well", trip, printable(node.version ?? "")]);
    row.cells[1].classList.toggle("bad", Boolean(node.problem));
    row.cells[2].classList.add("number");
    row.cells[3].classList.add("wide");
  });
  const warnings = find("warnings");
  const texts = seen.health.warnings.map(printable);
  if (warnings.dataset.shown !== texts.join("\n")) {
    warnings.dataset.shown = texts.join("\n");
    warnings.replaceChildren(...texts.map((text) => make("li", text)));
  }
}

function locks() {
  const all = sorted();
  const shown = state.all ? all : all.slice(0, ROWS);
  const body = find("locks").tBodies[0];
  const focused = document.activeElement;
  const gone = new Set(rows.keys());
  shown.forEach((lock, at) => {
    const key = `${lock.kind === "latch" ? "l" : "k"}${lock.name}`;
    gone.delete(key);
    let row = rows.get(key);
    if (!row) rows.set(key, (row = newRow(lock.name)));
    fill(row, lock);
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  for (const key of gone) {
    rows.get(key).remove();
    rows.delete(key);
  }
  if (focused !== document.activeElement && document.contains(focused)) focused.focus();
  const more = find("more");
  more.hidden = shown.length === all.length;
  put(more, `Show all ${all.length}`);
  const left = state.seen.left_out ? `, ${state.seen.left_out} more are not shown` : "";
  const wait = state.locks.reduce((sum, row) => sum + row.waiting, 0);
  put(find("counts"), `${all.length} of ${state.locks.length} locks and latches, ${wait} wait${left}`);
  document.querySelectorAll("#locks th").forEach((th) => {
    const is = th.firstElementChild.dataset.sort === state.sort;
    if (is) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  });
}

function newRow(name) {
  const row = make("tr");
  const meter = make("meter");
  const left = make("td", null, meter, make("span"));
  // On a phone, the cell of the holder also shows for how long it has held the lock.
  const holder = make("td", null, make("span"), make("small"));
  row.append(make("td", null, button(short(name), () => details(name))), make("td"), holder, make("td"), left, make("td"));
  row.cells[1].className = "wide";
  row.cells[3].className = "wide number";
  row.cells[5].className = "number";
  return row;
}

function fill(row, lock) {
  const past = age();
  const left = lock.left === null ? null : Math.max(0, lock.left - past);
  const held = lock.held === null ? "" : `${time(lock.held)} or more`;
  cells(row, [null, lock.kind, null, held, null, String(lock.waiting)]);
  const [holder, since] = row.cells[2].children;
  put(holder, short(lock.holder));
  put(since, held && `for ${held}`);
  const [meter, text] = row.cells[4].children;
  meter.hidden = !lock.lease || left === null;
  if (!meter.hidden) [meter.max, meter.value] = [lock.lease, left];
  put(text, `${left === null ? "never ends" : time(left)}${lock.mark ? ` (${lock.mark})` : ""}`);
  text.classList.toggle("bad", Boolean(lock.mark));
}

function queues(seen) {
  const body = find("queues").tBodies[0];
  while (body.rows.length > seen.queues.length) body.deleteRow(-1);
  seen.queues.forEach((queue, at) => {
    const row = body.rows[at] || body.insertRow();
    const number = (n) => (queue.problem ? "?" : String(n));
    const state = queue.problem ? ` (${printable(queue.problem)})` : queue.is_paused ? " (paused)" : "";
    const name = short(queue.name) + state;
    const oldest = queue.due ? time(queue.oldest_ms + age()) : "";
    cells(row, [name, number(queue.tasks), number(queue.due), number(queue.claimed), null, oldest]);
    const dead = row.cells[4];
    if (dead.dataset.of !== `${queue.dead} ${queue.name}`) {
      dead.dataset.of = `${queue.dead} ${queue.name}`;
      const show = button(`${queue.dead}`, () => deadTasks(queue.name));
      show.setAttribute("aria-label", `${queue.dead} dead tasks of ${escaped(queue.name)}`);
      dead.replaceChildren(queue.dead ? show : number(queue.dead));
    }
    [1, 2, 3, 4, 5].forEach((cell) => row.cells[cell].classList.add("number"));
    [3, 5].forEach((cell) => row.cells[cell].classList.add("wide"));
  });
}

// --- what is looked at closely -------------------------------------------------------------------------------------------

function open(title, ...children) {
  put(find("details-title"), title);
  put(find("details-said"), "");
  find("details-body").replaceChildren(...children);
  if (!find("details").open) find("details").showModal();
}

function entry(...lines) {
  const made = make("div");
  made.className = "entry";
  made.append(...lines.map((line) => (typeof line === "string" ? make("p", line) : line)));
  return made;
}

function details(name) {
  const lock = state.locks.find((row) => row.name === name);
  if (!lock) return;
  const about = make("p", `${lock.kind}, ${lock.waiting} wait${lock.mark ? `, ${lock.mark}` : ""}`);
  if (!lock.holders.length) about.textContent += `, ${lock.holder}`;
  const holders = lock.holders.map((held) => {
    const left = held.remaining_ms === null ? "never ends" : `${time(Math.max(0, held.remaining_ms - age()))} left`;
    const lines = [
      `${escaped(held.holder_name) || "a holder without a name"}, token ${escaped(held.holder)}…`,
      `${held.kind}, held for ${time(held.seen_for_ms)} or more, ${left}, on ${held.nodes} of ${held.of} servers`,
    ];
    // This library gives each lock a time to live. Another program set what never ends.
    if (state.mayChange && held.kind === "mutex" && held.remaining_ms !== null) lines.push(make("p", null, button("Release by force", () => confirmRelease(name, held))));
    return entry(...lines);
  });
  const why = lock.holders.length && lock.kind !== "mutex"
    ? "Only a mutex can be taken away. To free this one, end the process of its holder: its lease runs out." : "";
  open(escaped(name), about, ...holders, make("p", why));
}

function confirmRelease(name, held) {
  const holder = escaped(held.holder_name) || `${escaped(held.holder)}…`;
  open(escaped(name),
    make("p", `Take the lock away from ${holder}? It may still be at work, and learns of it about a second later, or on a Redis Cluster at its next renewal.`),
    make("p", null,
      button("Release it", () => act("/api/release", { name, holder: held.holder }, "released")),
      button("Leave it", () => details(name))));
}

async function act(path, what, done, then) {
  const said = find("details-said");
  put(said, "asking");
  try {
    const why = await send(path, what);
    put(said, why ? printable(why) : done);
    if (!why) {
      if (then) then();
      else find("details-body").replaceChildren();
    }
  } catch (error) {
    put(said, error.message);
  }
  poll();
}

async function deadTasks(queue) {
  open(`Dead tasks of ${escaped(queue)}`, make("p", "asking"));
  try {
    const answer = await ask(`/api/dead?queue=${encodeURIComponent(queue)}`);
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    const shown = told.tasks.map((task) => deadTask(queue, task));
    find("details-body").replaceChildren(...(shown.length ? shown : [make("p", "There are none.")]));
  } catch (error) {
    find("details-body").replaceChildren(make("p", printable(error.message)));
  }
}

function deadTask(queue, task) {
  const body = make("details", null, make("summary", task.is_text ? "Body" : "Body, which is no text"), make("pre", escaped(task.body)));
  const made = entry(`${escaped(task.id)}, ${task.attempts} attempts, died ${new Date(task.at_ms).toLocaleString()}`, escaped(task.why), body);
  if (state.mayChange) {
    const what = { queue, id: task.id };
    const gone = () => made.remove();
    made.append(make("p", null,
      button("Revive", () => act("/api/revive", what, "revived", gone)),
      button("Remove", () => act("/api/remove", what, "removed", gone))));
  }
  return made;
}

// --- what is pressed -----------------------------------------------------------------------------------------------------

find("filter").addEventListener("input", () => { if (state.seen) locks(); });
find("more").addEventListener("click", () => { state.all = true; locks(); });
document.querySelectorAll("[data-sort]").forEach((head) => head.addEventListener("click", () => {
  const sort = head.dataset.sort;
  [state.down, state.sort] = [sort === state.sort ? !state.down : ["waiting", "held"].includes(sort), sort];
  if (state.seen) locks();
}));
find("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  put(find("login-said"), "asking");
  try {
    const why = await send("/api/login", { token: find("token").value });
    put(find("login-said"), printable(why ?? ""));
    if (!why) {
      find("token").value = "";
      find("login").close();
      poll();
    }
  } catch (error) {
    put(find("login-said"), error.message);
  }
});
document.addEventListener("visibilitychange", poll);
// What is counted in seconds goes on between two answers.
setInterval(() => { if (!document.hidden) show(); }, 1000);
poll();
