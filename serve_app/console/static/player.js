// The player: waveform, highlighting of the current word, and seeking from every time on the page.
"use strict";

(() => {
  const player = document.getElementById("player");
  if (!player || !window.WaveSurfer) return;
  const { audio: source, waveform, seconds: duration } = player.dataset;
  const seconds = Number(duration);
  const audio = document.getElementById("audio");
  const button = document.getElementById("play");
  const now = document.getElementById("now");
  const seek = document.getElementById("seek");
  const follow = document.getElementById("follow");
  const conversation = document.getElementById("conversation");
  const style = getComputedStyle(document.documentElement);
  const color = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };
  const faint = (paint, share) => `color-mix(in srgb, ${paint} ${share}%, transparent)`;

  const clock = (at) => {
    const whole = Math.floor(at), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    const rest = String(whole % 60).padStart(2, "0");
    return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
  };

  // Audio is loaded on first use.
  let pending = null;
  const load = () => {
    if (!audio.src) audio.src = source;
  };
  const jump = (at, play = true) => {
    const to = Math.min(Math.max(0, at), seconds);
    load();
    if (audio.readyState > 0) audio.currentTime = to;
    else pending = to;
    if (play) audio.play().catch(() => {});
    show(to, true);
  };
  audio.addEventListener("loadedmetadata", () => {
    if (pending !== null) audio.currentTime = pending;
    pending = null;
  });
  // Decoding on the server can take longer than one request.
  let tries = 0;
  audio.addEventListener("error", () => {
    if (++tries > 8) { document.getElementById("audio-problem").hidden = false; return; }
    pending ??= Number(seek.value);
    setTimeout(() => { audio.load(); audio.play().catch(() => {}); }, 2000);
  });
  audio.addEventListener("playing", () => { tries = 0; });
  const toggle = () => {
    load();
    if (audio.paused) audio.play().catch(() => {});
    else audio.pause();
  };
  const reflect = () => {
    button.classList.toggle("playing", !audio.paused);
    button.setAttribute("aria-label", audio.paused ? button.dataset.play : button.dataset.pause);
  };
  for (const name of ["play", "pause", "ended"]) audio.addEventListener(name, reflect);
  button.addEventListener("click", toggle);
  seek.addEventListener("input", () => { scrolled = -Infinity; jump(Number(seek.value), !audio.paused); });
  document.getElementById("speed").addEventListener("change", (event) => {
    audio.playbackRate = Number(event.target.value);
  });
  document.getElementById("channel")?.addEventListener("change", (event) => {
    const at = audio.currentTime, playing = !audio.paused;
    audio.src = event.target.value ? `${source}${source.includes("?") ? "&" : "?"}channel=${event.target.value}` : source;
    pending = at;
    if (playing) audio.play().catch(() => {});
  });

  // The current word. Turns of later parts are collected once they are loaded.
  let turns = [], lit = [];
  const collect = () => {
    turns = Array.from(conversation.querySelectorAll(".turn"), (turn) => ({
      turn, start: Number(turn.dataset.s), end: Number(turn.dataset.e), words: null,
    }));
  };
  const words = (entry) => {
    entry.words ??= Array.from(entry.turn.querySelectorAll(".w"), (word) => [Number(word.dataset.t), word]);
    return entry.words;
  };
  const last = (list, at, key) => {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(list[middle]) <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };
  const part = (at) => Array.from(conversation.querySelectorAll(".part.later")).find(
    (one) => Number(one.dataset.s) <= at + 0.5 && at <= Number(one.dataset.e));
  const need = (at) => {
    const missing = part(at);
    if (missing && !missing.dataset.asked) {
      missing.dataset.asked = "yes";
      window.htmx.trigger(missing, "need");
    }
    return missing;
  };
  let scrolled = -Infinity, place = 0, awaited = false; // current time; whether it jumped to a part that is not loaded yet
  const show = (at, jumped = false) => {
    place = at;
    awaited = jumped && part(at) !== undefined;
    now.textContent = clock(at);
    seek.value = at;
    seek.setAttribute("aria-valuetext", clock(at));
    need(at);
    need(at + 60);
    const current = [];
    const newest = last(turns, at + 0.02, (one) => one.start);
    for (let n = newest; n >= 0 && newest - n < 8; n--) {
      const entry = turns[n];
      // In a pause the previous word stays highlighted.
      if (entry.end + 0.25 < at && (n < newest || part(at))) continue;
      const index = last(words(entry), at + 0.02, ([start]) => start);
      if (index >= 0) current.push([entry.turn, entry.words[index][1]]);
    }
    for (const [turn, word] of lit) { turn.classList.remove("current"); word.classList.remove("now"); }
    for (const [turn, word] of current) { turn.classList.add("current"); word.classList.add("now"); }
    const changed = current.length && current[0][0] !== lit[0]?.[0];
    lit = current;
    if (current.length && follow.checked && (jumped || changed) && performance.now() - scrolled > 2500) {
      const box = current[0][1].getBoundingClientRect(), top = player.getBoundingClientRect().bottom;
      const seen = box.top >= top + 8 && box.bottom <= innerHeight - 60;
      if (!seen && jumped) {
        const word = current[0][1];
        word.scrollIntoView({ block: "center" });
        requestAnimationFrame(() => word.scrollIntoView({ block: "center" })); // heights of parts in between were only estimated
      } else if (!seen) {
        scrollTo({ top: scrollY + box.top - top - (innerHeight - top) * 0.3, behavior: "smooth" });
      }
    }
  };
  // Manual scrolling suspends auto-scroll for a moment.
  for (const name of ["wheel", "touchmove"]) {
    addEventListener(name, () => { scrolled = performance.now(); }, { passive: true });
  }
  collect();
  // Double-clicking a word opens the form of its turn with the word selected.
  let chosen = null, returns = null;
  conversation.addEventListener("dblclick", (event) => {
    const word = event.target.closest(".w"), turn = word?.closest(".turn");
    if (!turn?.querySelector(".correct")) return;
    const range = document.createRange();
    range.setStart(turn.querySelector(".said p"), 0);
    range.setEndBefore(word);
    const before = range.toString().trimStart().length;
    chosen = [before, before + word.textContent.length];
    getSelection().removeAllRanges();
    audio.pause();
    turn.querySelector(".correct").click();
  });
  conversation.addEventListener("htmx:beforeRequest", (event) => { returns = event.target.closest(".turn")?.id ?? null; });
  conversation.addEventListener("htmx:afterSettle", () => {
    const fresh = returns && document.getElementById(returns);
    if (!fresh) return;
    returns = null;
    const words = fresh.querySelector("textarea");
    (words ?? fresh).focus({ preventScroll: true });
    if (words && chosen) words.setSelectionRange(...chosen);
    chosen = null;
  });
  conversation.addEventListener("htmx:afterSwap", (event) => {
    event.target.classList.remove("later");
    collect();
    show(place, awaited);
  });
  const frame = () => {
    if (!audio.paused) { show(audio.currentTime); wave?.setTime(audio.currentTime); }
    requestAnimationFrame(frame);
  };

  // Words, evidence and charts seek to their time.
  const to = (at, play) => {
    scrolled = -Infinity;
    jump(at, play);
    wave?.setTime(at);
  };
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-t]");
    if (!target || getSelection()?.toString()) return;
    event.preventDefault();
    history.replaceState(null, "", `#t=${target.dataset.t}`);
    to(Number(target.dataset.t), true);
  });
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest("form.correcting");
    if (form && event.key === "Escape") { event.stopPropagation(); form.querySelector("[data-cancel]").click(); return; }
    if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
    const turn = event.target.closest(".turn");
    if (event.key === " " && !event.target.matches("button, a, summary, input")) { event.preventDefault(); toggle(); }
    else if (event.key === "ArrowLeft" && !event.target.matches("input")) to((audio.currentTime || 0) - 5, !audio.paused);
    else if (event.key === "ArrowRight" && !event.target.matches("input")) to((audio.currentTime || 0) + 5, !audio.paused);
    else if (event.key === "e" && turn?.querySelector(".correct")) { event.preventDefault(); turn.querySelector(".correct").click(); }
    else if (event.key === "Enter" && event.target === turn) to(Number(turn.dataset.s), true);
  });

  // The server computes the waveform, so that the browser decodes nothing.
  let wave = null;
  const draw = async () => {
    const response = await fetch(waveform, { headers: { Accept: "application/octet-stream" } });
    if (response.status === 202) { setTimeout(draw, 1500); return; }
    const box = document.getElementById("wave");
    const waits = box.querySelector(".wait");
    if (!response.ok) { waits.textContent = "–"; return; }
    const sides = box.dataset.sides.split(" ");
    const bytes = new Uint8Array(await response.arrayBuffer());
    const size = Math.floor(bytes.length / sides.length);
    const peaks = sides.map((_, n) => Float32Array.from(bytes.subarray(n * size, (n + 1) * size), (one) => one / 255));
    waits.remove();
    const narrow = matchMedia("(max-width: 40rem)").matches;
    const lane = narrow ? Math.floor(72 / sides.length) : Math.max(30, Math.floor(104 / sides.length));
    const regions = window.WaveSurfer.Regions.create();
    wave = window.WaveSurfer.create({
      container: box,
      height: lane,
      peaks,
      duration: seconds,
      cspNonce: document.querySelector("meta[name=nonce]").content,
      cursorColor: color("ink"),
      cursorWidth: 1,
      barWidth: 2,
      barGap: 1,
      barRadius: 1,
      normalize: true,
      interact: true,
      hideScrollbar: true,
      splitChannels: sides.map((side) => {
        const paint = color(side);
        return { waveColor: faint(paint, 55), progressColor: paint };
      }),
      plugins: [regions],
    });
    wave.on("interaction", (at) => to(at, !audio.paused));
    wave.on("ready", () => {
      for (const mark of box.querySelectorAll("[data-region]")) {
        const channel = Number(mark.dataset.lane);
        const start = Number(mark.dataset.s), end = Math.max(Number(mark.dataset.e), start + 0.2);
        const wide = ((end - start) / seconds) * box.clientWidth > mark.textContent.length * 6 + 8;
        const region = regions.addRegion({
          start, end, drag: false, resize: false,
          channelIdx: channel >= 0 ? channel : undefined,
          content: wide ? label(mark.textContent) : undefined,
          color: faint(color("quiet"), 22),
        });
        if (region.element) region.element.title = `${mark.textContent}, ${clock(start)}`;
      }
      wave.setTime(audio.currentTime || 0);
    });
  };
  const label = (text) => {
    const element = document.createElement("span");
    element.textContent = text;
    Object.assign(element.style, { font: "11px system-ui", color: color("quiet"), padding: "1px 4px", display: "block", whiteSpace: "nowrap" });
    return element;
  };

  requestAnimationFrame(frame);
  draw();
  const target = /^#t=([\d.]+)$/.exec(location.hash);
  if (target) to(Number(target[1]), false);
})();
