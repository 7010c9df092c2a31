// Light or dark: as the system has it, or as the user has chosen. The choice is kept in the browser.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const themes: Theme[] = ["system", "light", "dark"];
const key = "perdure.theme";

function kept(): Theme {
  try {
    return themes.find((theme) => theme === localStorage.getItem(key)) ?? "system";
  } catch {
    return "system"; // the browser keeps nothing for this page
  }
}

export const theme = signal<Theme>(kept());

export function nextTheme(): void {
  theme.value = themes[(themes.indexOf(theme.value) + 1) % themes.length]!;
  try {
    localStorage.setItem(key, theme.value);
  } catch {
    // it holds until the page is closed
  }
}

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
});
