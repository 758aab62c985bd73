// Parts of the page whose id begins with live_ are replaced when the server sends them again.
// The server escapes everything that it sends, and the page's policy lets no script of it run.

const stuck = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 30;
const toEnd = (part) => part.querySelectorAll("[data-stick]").forEach((log) => (log.scrollTop = log.scrollHeight));

function replace(id, html) {
  const part = document.getElementById(id);
  if (!part) return;
  const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  const logs = [...part.querySelectorAll("[data-stick]")];
  const isAtEnd = logs.every(stuck);
  const top = logs.map((log) => log.scrollTop);
  part.innerHTML = html;
  open.forEach((name) => document.getElementById(name)?.setAttribute("open", ""));
  if (isAtEnd) toEnd(part);
  else part.querySelectorAll("[data-stick]").forEach((log, at) => (log.scrollTop = top[at] ?? 0));
  if (focused) document.getElementById(focused)?.focus();
  const next = part.querySelector("[data-go]");
  if (next) location.replace(next.href);
}

export function follow() {
  if (!document.querySelector("[id^=live_]:not(#live_error)")) return;
  const status = document.getElementById("connection");
  let source = null;
  const open = () => {
    if (source) return;
    source = new EventSource(location.pathname + location.search);
    source.onopen = () => (status.textContent = "");
    source.onerror = () => (status.textContent = "The page's server does not answer; runs go on without it.");
    source.onmessage = (event) => {
      for (const [id, html] of Object.entries(JSON.parse(event.data))) replace(id, html);
      document.body.dataset.live = "yes";
    };
  };
  // a browser opens few connections to a server: a page that nobody sees needs none
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  toEnd(document);
  if (!document.hidden) open();
}
