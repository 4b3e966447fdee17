// All pages: send the time zone, keyboard shortcuts, polling while the page is visible.
"use strict";

(() => {
  const root = document.body.dataset.root;
  const first = (selector, from = document) => from.querySelector(selector);
  const all = (selector) => Array.from(document.querySelectorAll(selector));

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `switchboard_zone=${zone}; Path=${root || "/"}; Max-Age=31536000; SameSite=Lax${secure}`;

  // A one-time link has its secret after the #, so that it is never sent to a server or logged.
  const link = /^#link=([\w-]+)$/.exec(location.hash);
  if (link && first("#link")) {
    history.replaceState(null, "", location.pathname + location.search);
    first("#link").value = link[1];
    first("#sign-in").requestSubmit();
  }

  // Polling sends the ETag of the current content; a 304 changes nothing.
  const etags = new WeakMap();
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.hasAttribute("data-live") && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:configRequest", (event) => {
    const etag = etags.get(event.detail.elt);
    if (etag) event.detail.headers["If-None-Match"] = etag;
  });
  let focused = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "call" && event.detail.xhr.responseText.includes('id="player"')) {
      event.detail.shouldSwap = false;
      location.reload(); // the transcript is ready; the player needs a full page
      return;
    }
    focused = document.activeElement?.closest?.("[id].row")?.id ?? null;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const etag = event.detail.xhr.getResponseHeader("ETag");
    const fresh = document.getElementById(event.detail.target.id);
    if (etag && fresh) etags.set(fresh, etag);
    if (focused) first(`#${CSS.escape(focused)} [data-row]`)?.focus({ preventScroll: true });
  });

  // Filters apply as they are chosen.
  const filters = first("[data-filters]");
  if (filters) {
    const apply = () => {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(filters)) if (value) query.set(name, value);
      location.assign(`${filters.action}${query.size ? "?" : ""}${query}`);
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

  const back = first("[data-back]");
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
    if (event.ctrlKey || event.metaKey || event.altKey || first("dialog[open]")) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const places = all("[data-row]").length ? all("[data-row]") : all(".turn");
    const todo = {
      j: () => step(places, 1),
      k: () => step(places, -1),
      "/": () => first("[data-search]")?.focus(),
      "?": () => document.getElementById("shortcuts")?.showModal(),
      u: () => back?.click(),
    }[event.key];
    if (!todo) return;
    event.preventDefault();
    todo();
  });
})();
