// Saved views: names for queries of the list of jobs, kept in this browser.
import { signal, useSignal } from "@preact/signals";
import { place } from "./place.ts";
import { link } from "./router.ts";
import { Icon, Menu } from "./widgets.tsx";

export interface View {
  name: string;
  /** The query of the list, without the question mark. */
  query: string;
}

const key = "perdure.views";
const mostViews = 50;
const longestName = 60;

/** Reads what is kept; anything else than views is dropped. */
export function readViews(text: string | null): View[] {
  try {
    const kept: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(kept)) return [];
    return kept.filter((view): view is View => typeof view?.name === "string" && view.name !== "" && typeof view?.query === "string").slice(0, mostViews);
  } catch {
    return [];
  }
}

function stored(): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

const views = signal(readViews(stored()));

function keep(list: View[]): void {
  views.value = list;
  try {
    localStorage.setItem(key, JSON.stringify(list));
  } catch {
    // they hold until the page is closed
  }
}

// Another tab has changed them.
addEventListener("storage", (event) => {
  if (event.key === key) views.value = readViews(event.newValue);
});

export function Views() {
  const name = useSignal("");
  const now = place.value.query.toString();
  const full = views.value.length >= mostViews;
  const save = () => {
    const text = name.value.trim().slice(0, longestName);
    if (!text) return;
    keep([...views.value.filter((view) => view.name !== text), { name: text, query: now }].sort((a, b) => a.name.localeCompare(b.name)).slice(0, mostViews));
    name.value = "";
  };
  return (
    <Menu title="Views" label="Saved views" right>
      {views.value.length === 0 && <p class="muted small menu-text">Save filters that you need often. They are kept in this browser.</p>}
      {views.value.map((view) => (
        <span class="menu-row" key={view.name}>
          <a href={link.jobs() + (view.query && `?${view.query}`)} aria-current={view.query === now ? "true" : undefined}>
            <bdi>{view.name}</bdi>
          </a>
          <button type="button" data-stay="" class="bare" aria-label={`Remove the view ${view.name}`} onClick={() => keep(views.value.filter((other) => other !== view))}>
            <Icon name="close" />
          </button>
        </span>
      ))}
      <form
        class="menu-form"
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <input aria-label="Name of the view" placeholder={now ? "save these filters as" : "save the list as"} maxLength={longestName} autocomplete="off" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
        <button type="submit" data-stay="" disabled={!name.value.trim() || full} title={full ? `At most ${mostViews} views are kept` : undefined}>
          Save
        </button>
      </form>
    </Menu>
  );
}
