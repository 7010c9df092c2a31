// The place of this tab: the URL, as a signal.
import { signal } from "@preact/signals";
import { placeOf } from "./router.ts";

const base = new URL("./", document.baseURI);

/** Where the tab is. */
export const place = signal(placeOf(new URL(location.href), base.pathname));

/** What closes the dialogs that are open: they are about the place that is left. */
export const onLeave = new Set<() => void>();

function leave(): void {
  for (const close of onLeave) close();
}

/** Goes to a link of the console. With replace, "back" leads to the place before the current one. */
export function go(to: string, replace = false): void {
  const url = new URL(to, base);
  if (url.href === location.href) return;
  const before = place.value;
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  place.value = placeOf(url, base.pathname);
  if (place.value.page !== before.page || place.value.job !== before.job) {
    leave();
    window.scrollTo(0, 0);
    document.querySelector<HTMLElement>("main")?.focus({ preventScroll: true });
  }
}

/** Returns a `go` for the time when an answer has come: it does nothing if the operator is on another page by then. */
export function goOnFromHere(): typeof go {
  const { page, job } = place.value;
  return (to, replace) => {
    if (place.value.page === page && place.value.job === job) go(to, replace);
  };
}

/** Changes fields of the query, and stays on the page. An empty value removes a field. */
export function setQuery(change: Record<string, string | string[] | undefined>, replace = true): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(change)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one) query.append(name, one);
    }
  }
  const text = query.toString();
  go((place.value.path || "./") + (text && `?${text}`), replace);
}

/** Follows the browser's back and forward, and clicks on links of the console. */
export function startPlace(): void {
  addEventListener("popstate", () => {
    leave();
    place.value = placeOf(new URL(location.href), base.pathname);
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const a = event.target instanceof Element ? event.target.closest("a") : null;
    if (!a || a.target || a.hasAttribute("download") || a.getAttribute("href")?.startsWith("#")) return;
    if (a.origin !== base.origin || !a.pathname.startsWith(base.pathname)) return;
    event.preventDefault();
    go(a.href);
  });
}
