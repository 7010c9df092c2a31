// A choice among a few words that is kept in the browser.
import { signal, type ReadonlySignal } from "@preact/signals";

export interface Choice<T extends string> {
  value: ReadonlySignal<T>;
  /** Takes the next word. */
  next: () => void;
}

/** A choice under a key of the browser's storage. The first option is the default. */
export function keptChoice<T extends string>(key: string, options: readonly [T, ...T[]]): Choice<T> {
  const kept = (): T => {
    try {
      return options.find((option) => option === localStorage.getItem(key)) ?? options[0];
    } catch {
      return options[0]; // the browser keeps nothing for this page
    }
  };
  const value = signal<T>(kept());
  const next = () => {
    value.value = options[(options.indexOf(value.value) + 1) % options.length]!;
    try {
      localStorage.setItem(key, value.value);
    } catch {
      // it holds until the page is closed
    }
  };
  return { value, next };
}
