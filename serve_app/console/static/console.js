// What every page does: tell the server the time zone, move by keys, look for news while somebody looks at the page.
"use strict";

(() => {
  const root = document.body.dataset.root;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector) => Array.from(document.querySelectorAll(selector));

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `switchboard_zone=${zone}; Path=${root || "/"}; Max-Age=31536000; SameSite=Lax${secure}`;

  // A one-time link carries its secret behind the #, which no server and no log is ever told.
  const link = /^#link=([\w-]+)$/.exec(location.hash);
  if (link && one("#link")) {
    history.replaceState(null, "", location.pathname + location.search);
    one("#link").value = link[1];
    one("#sign-in").requestSubmit();
  }

  // News. The mark of what is shown goes along, so that a look that finds nothing new changes nothing.
  const marks = new WeakMap();
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.hasAttribute("data-live") && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:configRequest", (event) => {
    const mark = marks.get(event.detail.elt);
    if (mark) event.detail.headers["If-None-Match"] = mark;
  });
  let focused = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "call" && event.detail.xhr.responseText.includes('id="player"')) {
      event.detail.shouldSwap = false;
      location.reload(); // the transcript is there, and with it the player
      return;
    }
    focused = document.activeElement?.closest?.("[id].row")?.id ?? null;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const mark = event.detail.xhr.getResponseHeader("ETag");
    const fresh = document.getElementById(event.detail.target.id);
    if (mark && fresh) marks.set(fresh, mark);
    if (focused) one(`#${CSS.escape(focused)} [data-row]`)?.focus({ preventScroll: true });
  });

  // Filters apply as they are chosen.
  const filters = one("[data-filters]");
  if (filters) {
    const apply = () => {
      const asked = new URLSearchParams();
      for (const [name, value] of new FormData(filters)) if (value) asked.set(name, value);
      location.assign(`${filters.action}${asked.size ? "?" : ""}${asked}`);
    };
    filters.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
    filters.addEventListener("change", (event) => { if (event.target.matches("select, [type=date]")) apply(); });
  }

  for (const button of all("[data-dialog]")) {
    button.addEventListener("click", () => document.getElementById(button.dataset.dialog).showModal());
  }
  document.addEventListener("click", (event) => {
    for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  const back = one("[data-back]");
  if (back) {
    if (document.referrer.startsWith(`${location.origin}${root}/calls?`)) back.href = document.referrer;
  }

  const step = (places, by) => {
    const at = places.findIndex((place) => place === document.activeElement || place.contains(document.activeElement));
    const next = places[Math.min(places.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const places = all("[data-row]").length ? all("[data-row]") : all(".turn");
    const todo = {
      j: () => step(places, 1),
      k: () => step(places, -1),
      "/": () => one("[data-search]")?.focus(),
      "?": () => document.getElementById("shortcuts")?.showModal(),
      u: () => back?.click(),
    }[event.key];
    if (!todo) return;
    event.preventDefault();
    todo();
  });
})();
