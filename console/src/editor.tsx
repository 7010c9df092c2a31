// A text area with line numbers, marks at lines with faults, and Tab as indentation. It grows with its text, and its frame
// scrolls, so that numbers and marks need no synchronization.
import { useMemo, useRef } from "preact/hooks";

/** A fault or warning at a line of the text. Lines and columns begin at 1. */
export interface LineMark {
  line: number;
  column?: number | undefined;
  tone: "bad" | "warn";
  text: string;
}

const indent = "  ";
const lineHeight = 20; // as in style.css
const top = 10;
const fewestRows = 20;
/** The longest line that makes the text area wider; a longer one scrolls in it. */
const mostColumns = 2000;

/** Moves the caret of an editor to a place, and shows it. */
export function caretTo(area: HTMLTextAreaElement | null, line: number, column = 1): void {
  if (!area) return;
  const lines = area.value.split("\n");
  const at = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  area.focus({ preventScroll: true });
  area.setSelectionRange(at + Math.min(column - 1, lines[line - 1]?.length ?? 0), at + (lines[line - 1]?.length ?? 0));
  const frame = area.closest(".editor")!;
  const y = (line - 1) * lineHeight;
  if (y < frame.scrollTop || y > frame.scrollTop + frame.clientHeight - 2 * lineHeight) frame.scrollTop = y - frame.clientHeight / 3;
  area.scrollIntoView({ block: "nearest" });
}

/** Replaces the selection, so that the browser's undo works. */
function insert(area: HTMLTextAreaElement, text: string): void {
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/** Shifts the selected lines. */
function shift(area: HTMLTextAreaElement, out: boolean): void {
  const { value, selectionStart, selectionEnd } = area;
  const from = value.lastIndexOf("\n", selectionStart - 1) + 1;
  const end = selectionEnd > selectionStart && value[selectionEnd - 1] === "\n" ? selectionEnd - 1 : selectionEnd;
  const to = value.indexOf("\n", end) < 0 ? value.length : value.indexOf("\n", end);
  const lines = value.slice(from, to).split("\n");
  const shifted = lines.map((line) => (out ? line.replace(/^ {1,2}/, "") : line && indent + line)).join("\n");
  if (shifted === lines.join("\n")) return;
  area.setSelectionRange(from, to);
  insert(area, shifted);
  area.setSelectionRange(lines.length === 1 ? from + shifted.length : from, from + shifted.length);
}

export function Editor({ value, set, marks, label, area }: { value: string; set: (value: string) => void; marks: readonly LineMark[]; label: string; area: { current: HTMLTextAreaElement | null } }) {
  const lines = useMemo(() => value.split("\n"), [value]);
  const own = useRef<HTMLTextAreaElement | null>(null);
  const numbers = useMemo(() => lines.map((_, i) => i + 1).join("\n"), [lines.length]);
  const columns = useMemo(() => lines.reduce((most, line) => Math.max(most, line.length), 0), [lines]);
  const key = (event: KeyboardEvent) => {
    const target = own.current!;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const { selectionStart, selectionEnd } = target;
    if (event.key === "Tab") {
      const several = target.value.slice(selectionStart, selectionEnd).includes("\n");
      if (event.shiftKey || several) shift(target, event.shiftKey);
      else insert(target, indent);
    } else if (event.key === "Enter" && selectionStart === selectionEnd) {
      const line = target.value.slice(target.value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
      insert(target, `\n${/^ */.exec(line)![0]}${/:\s*$/.test(line) ? indent : ""}`);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="editor">
      <svg class="editor-marks" aria-hidden="true" width="100%" height={top + lines.length * lineHeight}>
        {marks.map((mark) => (
          <rect key={`${mark.line}${mark.tone}${mark.text}`} class={mark.tone} x="0" y={top + (mark.line - 1) * lineHeight} width="100%" height={lineHeight}>
            <title>{mark.text}</title>
          </rect>
        ))}
      </svg>
      <pre class="gutter" aria-hidden="true">
        {numbers}
      </pre>
      <textarea
        ref={(element) => {
          own.current = element;
          area.current = element;
        }}
        data-filter=""
        aria-label={label}
        rows={Math.max(lines.length, fewestRows)}
        cols={Math.min(columns + 2, mostColumns)}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        wrap="off"
        value={value}
        onInput={(event) => set(event.currentTarget.value)}
        onKeyDown={key}
      />
    </div>
  );
}
