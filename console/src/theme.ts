// Light or dark: as the system has it, or as the user has chosen.
import { effect } from "@preact/signals";
import { keptChoice } from "./choice.ts";

export type Theme = "system" | "light" | "dark";

export const { value: theme, next: nextTheme } = keptChoice<Theme>("perdure.theme", ["system", "light", "dark"]);

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
});
