// What the page does beyond links and forms: keys, a tree that opens in place, and a log that follows its branch.
// Text is only ever set as text: the policy of the page refuses everything else.

const status = document.getElementById("status");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

function say(text, ...actions) {
  if (status) status.replaceChildren(text, ...actions);
}

function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

function button(label, act, name = "") {
  const made = element("button", name, label);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

// Keys

const KEYS = [
  ["j, k", "the next or the previous row"],
  ["[, ]", "the previous or the next page"],
  ["o", "open the row"],
  ["x", "open a value in place"],
  ["/", "search"],
  ["g", "the sessions"],
  ["?", "these keys"],
];

function rows() {
  const all = [...document.querySelectorAll("[data-keys] .row, [data-keys] > .bubble")];
  return all.filter((row) => row.offsetParent !== null);
}

function here() {
  return document.querySelector(".here") ?? document.activeElement?.closest(".row, .bubble");
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(here());
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  for (const row of all) row.classList.toggle("here", row === next);
  (next.querySelector("a, button") ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest", behavior: calm.matches ? "auto" : "smooth" });
}

function help() {
  const known = document.getElementById("keys");
  if (known) {
    known.close();
    known.remove();
    return;
  }
  const list = element("dl", "facts");
  for (const [key, does] of KEYS) list.append(element("div", "", element("dt", "path", key), element("dd", "", does)));
  const title = element("h2", "", "Keys");
  title.id = "keys-title";
  const dialog = element("dialog", "keys", title, list, button("Close", help));
  dialog.id = "keys";
  dialog.setAttribute("aria-labelledby", "keys-title");
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function follow(selector) {
  document.querySelector(selector)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target instanceof Element && event.target.closest("input, select, textarea, dialog")) return;
  const acts = {
    j: () => move(1),
    k: () => move(-1),
    "[": () => follow('.pages a[rel="prev"]'),
    "]": () => follow('.pages a[rel="next"]'),
    o: () => here()?.querySelector("a")?.click(),
    x: () => here()?.querySelector(".twist")?.click(),
    "/": () => document.querySelector('input[type="search"], .filters input[type="text"]')?.focus(),
    g: () => follow(".home"),
    "?": help,
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// A tree that opens in place

function addressOf(base, query) {
  const address = new URL(base, location.href);
  for (const [name, text] of Object.entries(query)) address.searchParams.set(name, text);
  return address;
}

async function load(base, query) {
  const answer = await fetch(addressOf(base, query), { headers: { accept: "application/json" } });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.title ?? "It cannot be read.");
  return data;
}

function treeRow(base, part) {
  const label = element(part.path === null ? "span" : "a", "label path", part.label);
  if (part.path !== null) label.href = addressOf(base, { path: part.path });
  const [type, size] = [element("span", "type", part.type), element("span", "size n", part.size)];
  const row = element("li", "row", label, type, size, element("code", "line", part.line));
  if (part.opens && part.path !== null) {
    row.dataset.path = part.path;
    twist(base, row);
  }
  return row;
}

function fill(base, list, data) {
  if (data.text) list.append(element("li", "", element("pre", "text", data.text.text)));
  for (const part of data.parts_of) list.append(treeRow(base, part));
  if (data.next === null) return;
  const [next, total] = [data.next + 1, data.total].map((number) => number.toLocaleString("en"));
  const more = button(`More: ${next} of ${total}`, async () => {
    more.disabled = true;
    try {
      const rest = await load(base, { path: data.path, start: data.next });
      more.parentElement.remove();
      fill(base, list, rest);
    } catch (error) {
      more.disabled = false;
      say(error.message);
    }
  });
  list.append(element("li", "", more));
}

function twist(base, row) {
  const open = button("▸", async () => {
    const inner = row.querySelector(":scope > .inner");
    if (inner) {
      inner.hidden = !inner.hidden;
    } else {
      open.disabled = true;
      try {
        const list = element("ul", "list tree inner");
        fill(base, list, await load(base, { path: row.dataset.path }));
        row.append(list);
      } catch (error) {
        say(error.message);
        return;
      } finally {
        open.disabled = false;
        open.focus();
      }
    }
    const shown = !row.querySelector(":scope > .inner").hidden;
    open.textContent = shown ? "▾" : "▸";
    open.setAttribute("aria-expanded", String(shown));
  }, "twist");
  open.setAttribute("aria-expanded", "false");
  open.setAttribute("aria-label", `Open ${row.dataset.path} in place`);
  row.querySelector(".label").before(open);
}

for (const tree of document.querySelectorAll("[data-tree]")) {
  tree.classList.add("twists");
  for (const row of tree.querySelectorAll(":scope > [data-path]")) twist(tree.dataset.tree, row);
}

// A log that follows its branch: one stream a tab, closed while the tab is hidden. Nothing moves that the reader is
// looking at.

class Follower {
  constructor(list) {
    this.list = list;
    this.waiting = [];
    this.seen = new Set([...list.querySelectorAll(".row")].map((row) => row.id));
    this.last = list.dataset.head;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
    addEventListener("scroll", () => this.isAtTop() && this.show(), { passive: true });
    addEventListener("pagehide", () => this.stop());
    this.start();
  }

  isAtTop() {
    return scrollY < 24;
  }

  start() {
    if (this.stream || document.hidden) return;
    this.stream = new EventSource(addressOf(this.list.dataset.live, this.last ? { after: this.last } : {}));
    this.stream.addEventListener("open", () => this.lost && this.found());
    this.stream.addEventListener("message", (event) => this.take(event));
    this.stream.addEventListener("moved", () => {
      this.stop();
      say("The session was moved to another round. ", button("Load the page again", () => location.reload()));
    });
    this.stream.addEventListener("error", () => this.lose());
  }

  stop() {
    this.stream?.close();
    this.stream = undefined;
  }

  lose() {
    if (this.stream?.readyState === EventSource.CLOSED) {
      this.stop(); // refused, not lost: this page is not followed
      if (this.lost) say("The connection was lost. ", button("Load the page again", () => location.reload()));
      return;
    }
    this.lost = true;
    say("The connection was lost. Trying again …");
  }

  found() {
    this.lost = false;
    say("");
  }

  take(event) {
    const commit = JSON.parse(event.data);
    const id = `c-${commit.id.slice(0, 12)}`;
    this.last = commit.id;
    if (this.seen.has(id)) return;
    this.seen.add(id);
    this.waiting.push(commit);
    if (this.isAtTop() && !this.list.contains(document.activeElement)) this.show();
    else say(`Paused, ${this.waiting.length} new. `, button("Show", () => this.jump()));
  }

  jump() {
    scrollTo({ top: 0, behavior: calm.matches ? "auto" : "smooth" });
    this.show();
  }

  show() {
    if (!this.waiting.length) return;
    for (const commit of this.waiting) this.list.prepend(this.row(commit));
    say(this.waiting.length === 1 ? "1 new round" : `${this.waiting.length} new rounds`);
    this.waiting = [];
    setTimeout(() => !this.waiting.length && !this.lost && say(""), 4000);
    while (this.list.children.length > 300) this.list.lastElementChild.remove();
  }

  row(commit) {
    const row = this.list.querySelector(".row").cloneNode(true);
    const link = row.querySelector(".message a");
    const before = Number(row.querySelector(".round").textContent.replaceAll(",", ""));
    row.id = `c-${commit.id.slice(0, 12)}`;
    row.className = "row new";
    row.querySelector(".badge")?.remove();
    row.querySelector(".hidden")?.remove();
    link.textContent = commit.message.split("\n")[0] || "no message";
    link.href = new URL(link.href.replace(/[0-9a-f]{48}/, commit.id));
    row.querySelector(".round").textContent = (commit.round ?? before + 1).toLocaleString("en");
    row.querySelector(".author").textContent = commit.author ?? "";
    row.querySelector(".id").textContent = commit.id.slice(0, 12);
    const at = new Date(commit.time?.iso ?? commit.time ?? Date.now()).toISOString();
    const time = row.querySelector("time");
    time.dateTime = time.title = at;
    time.replaceChildren(`${at.slice(0, 10)} `, element("span", "clock", at.slice(11, 19)));
    setTimeout(() => row.classList.remove("new"), 3000);
    return row;
  }
}

for (const list of document.querySelectorAll("[data-live]")) new Follower(list);
