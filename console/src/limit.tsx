// The button that sets a limit; limitdialog.tsx has its dialog.
import { signal } from "@preact/signals";
import { needs } from "./access.ts";
import type { Limit } from "./types.ts";

export interface LimitForm {
  /** The limit's name; empty: the operator writes one. */
  name: string;
  /** The limit as it is now; missing: it is not set, or not known. */
  limit?: Limit | undefined;
  done?: () => void; // called after a change
}

/** The limit whose dialog is open. */
export const openLimit = signal<LimitForm | undefined>(undefined);

/** A button that opens the dialog of a limit, such as agent:payments. */
export function LimitButton({ name, limit, done, text = "Set …" }: LimitForm & { text?: string }) {
  return (
    <button type="button" {...needs("act")} aria-label={name ? `${text === "Set …" ? "Set" : `${text.replace(/ …$/, "")}: set`} the limit ${name}` : undefined} onClick={() => (openLimit.value = { name, limit, ...(done && { done }) })}>
      {text}
    </button>
  );
}

/** What a limit bounds for one key, or for all permits. */
export function boundText(bound: { max?: number; rate?: string }): string {
  return [bound.max ?? "", bound.rate ?? ""].filter((part) => part !== "").join(", ");
}
