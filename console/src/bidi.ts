// Controls of the direction of text can make a text read differently from what it is. They are shown as a sign, in all
// text of all pages; in JSON as escapes (json.ts). Letters that run from right to left are left as they are.
import { options, type VNode } from "preact";

/** U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. */
export const bidiControls = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text with a sign in the place of each control. */
export function plainText(text: string): string {
  return text.replace(bidiControls, "\ufffd");
}

/** Attributes that are read by people. The value of a field is not among them: it would be sent changed. */
const readable = ["title", "aria-label", "placeholder", "label"];

/** From now on, pages show the controls. */
export function showBidiControls(): void {
  const before = options.vnode;
  options.vnode = (vnode: VNode) => {
    const node = vnode as { type: unknown; props: unknown };
    if (typeof node.props === "string") node.props = plainText(node.props); // a text of its own
    else if (typeof node.type === "string") {
      const props = node.props as Record<string, unknown>;
      for (const name of readable) {
        const value = props[name];
        if (typeof value === "string" && value.search(bidiControls) >= 0) props[name] = plainText(value);
      }
    }
    before?.(vnode);
  };
}
