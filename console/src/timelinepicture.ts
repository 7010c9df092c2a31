// The shapes of a timeline's rows, and the timeline as an SVG that can be saved. Pure.
import { escapeXml, type Picture } from "./picture.ts";
import { endOf, foldWidth, words, type Kind, type Row, type Scale, type Span, type Tick } from "./spans.ts";
import { absolute, span } from "./time.ts";
import type { RunRecord } from "./types.ts";
import { shorten } from "./view.ts";

/** A part of a row as it is drawn: a bar, a line or a sign. A sign is a shape that says the same as the colour. */
export interface Shape {
  kind: Kind | "deadline";
  x: number;
  y: number;
  width: number;
  height: number;
  rx: number;
  undo: boolean;
  bar: boolean;
  line?: string;
  sign?: string;
  title: string;
  run?: RunRecord;
}

const barHeight = 12;
const lane = 16;
const leastBar = 3;

/** The height of each row. Rows of a job with undo runs have two lanes. */
export const rowHeights = (undo: boolean): number => (undo ? 2 * lane + 8 : 28);

const laneTop = (part: Pick<Span, "undo">, undo: boolean): number => (undo ? (part.undo ? 4 + lane : 4) + 2 : 8);

/** The shapes of a row, in the order in which they are drawn. undo: rows have two lanes. */
export function shapesOf(row: Row, scale: Scale, undo: boolean, now: number): Shape[] {
  const shapes: Shape[] = [];
  for (const part of row.spans) {
    if (part.to < scale.from || part.from > scale.to) continue;
    const x0 = scale.x(part.from), y = laneTop(part, undo);
    const width = Math.max(scale.x(part.to) - x0, part.run ? leastBar : 0);
    if (width === 0) continue;
    shapes.push(shapeOf(part, Math.round(x0 * 10) / 10, y, Math.round(width * 10) / 10, titleOf(part.run?.step || row.step, part, now)));
  }
  if (row.deadline !== undefined && row.deadline >= scale.from && row.deadline <= scale.to) {
    const x = Math.round(scale.x(row.deadline) * 10) / 10;
    shapes.push({ kind: "deadline", x, y: 2, width: 0, height: 0, rx: 0, undo: false, bar: false, line: `M${x} 3v${rowHeights(undo) - 6}`, sign: `M${x} 3h6l-2 3 2 3h-6z`, title: `${row.step}: deadline ${absolute(iso(row.deadline))}` });
  }
  return shapes;
}

function shapeOf(part: Span, x: number, y: number, width: number, title: string): Shape {
  const shape: Shape = { kind: part.kind, x, y, width, height: barHeight, rx: 2, undo: part.undo, bar: false, title, ...(part.run && { run: part.run }) };
  const middle = y + barHeight / 2, end = x + width;
  // An arrow to the left marks an undo run.
  const arrow = part.run && part.undo ? `M${x + 1} ${middle}l6 -4v8z` : "";
  const room = width >= 12 ? end - 7 : end + 6; // a sign that does not fit is behind the bar
  switch (part.kind) {
    case "done":
    case "other":
      return { ...shape, bar: true, ...(arrow && width >= 10 && { sign: arrow }) };
    case "running":
      return { ...shape, bar: true, sign: `${arrow}M${end} ${y}l6 6l-6 6z` };
    case "failed":
      return { ...shape, bar: true, sign: `${arrow}M${room - 3} ${middle - 3}l6 6m0 -6l-6 6` };
    case "expired":
      return { ...shape, bar: true, sign: `${arrow}M${room - 3} ${middle - 4}h6l-6 8h6z` };
    case "returned":
      return { ...shape, bar: true, sign: `${arrow}M${room + 3} ${middle}h-6m3 -3l-3 3l3 3` };
    case "ready":
      return { ...shape, line: `M${x} ${middle}h${width}` };
    case "wait":
    case "backoff":
      return { ...shape, line: wave(x, middle, width) };
    case "parked":
      return { ...shape, line: `M${x} ${middle}h${width}`, sign: `M${x} ${middle - 4}h8v8h-8z` };
    case "lock":
      return { ...shape, line: `M${x} ${middle}h${width}m0 -4v8` };
  }
}

/** A wave that ends where it has to. */
function wave(x: number, y: number, width: number): string {
  let path = `M${x} ${y}`;
  const count = Math.floor(width / 6);
  for (let i = 0; i < Math.min(count, mostWaves); i++) path += `q1.5 -4 3 0t3 0`;
  const rest = width - 6 * Math.min(count, mostWaves);
  return rest > 0 ? `${path}h${Math.round(rest * 10) / 10}` : path;
}
const mostWaves = 400;

const iso = (t: number): string => new Date(Math.round(t)).toISOString();

/** What a part is, in words, for its tooltip. */
export function titleOf(step: string, part: Span, now: number): string {
  const { run } = part;
  const times = `${absolute(iso(part.from))}${part.to > part.from ? `, ${span(part.to - part.from)}` : ""}`;
  if (!run) return `${step}: ${words[part.kind]}\n${times}`;
  const lines = [`${step}, run ${run.run}${run.direction ? `, ${run.direction}` : ""}${run.turn ? `, turn ${run.turn}` : ""}: ${run.endedAt === undefined ? "running" : (run.outcome ?? "ended")}`];
  lines.push(run.startedAt ? `${absolute(run.startedAt)}, ${run.endedAt === undefined ? "for " : ""}${span(endOf(run, now) - Date.parse(run.startedAt))}` : `ended ${absolute(run.endedAt ?? "")}; the start is not known`);
  if (run.holder) lines.push(`by ${run.holder}`);
  if (run.error) lines.push(run.error.slice(0, 300));
  return lines.join("\n");
}

// Colours of a saved picture: those of the page in light.
const colours: Record<Shape["kind"], [fill: string, stroke: string]> = {
  done: ["#1b7a43", "#1b7a43"], failed: ["#fdebea", "#c2302a"], expired: ["#fdebea", "#c2302a"], returned: ["#fdf3dc", "#96640a"], running: ["#1d66c9", "#1d66c9"],
  other: ["#dde2e9", "#566070"], ready: ["none", "#1d66c9"], wait: ["none", "#96640a"], backoff: ["none", "#96640a"], parked: ["#c2302a", "#c2302a"], lock: ["none", "#1d66c9"],
  deadline: ["#c2302a", "#c2302a"],
};
const dashes: Partial<Record<Shape["kind"], string>> = { ready: "2 3", expired: "3 2", returned: "3 2", lock: "4 2" };

/** The longest picture that is saved, in rows. */
export const mostSaved = 300;

function drawn(s: Shape): string {
  const [fill, stroke] = s.undo && (s.kind === "done" || s.kind === "running") ? ["#f1ebfc", "#6b3fb5"] : colours[s.kind];
  const dash = dashes[s.kind] ? ` stroke-dasharray="${dashes[s.kind]}"` : "";
  const bar = s.bar ? `<rect x="${s.x}" y="${s.y}" width="${s.width}" height="${s.height}" rx="${s.rx}" fill="${fill}" stroke="${stroke}"${dash}/>` : "";
  const line = s.line ? `<path d="${s.line}" fill="none" stroke="${stroke}" stroke-width="${s.kind === "parked" ? 2 : 1.4}"${dash}/>` : "";
  const solid = s.kind !== "failed" && s.kind !== "returned" && s.kind !== "expired";
  const sign = s.sign ? `<path d="${s.sign}" fill="${solid ? stroke : "none"}" stroke="${stroke}" stroke-width="1.4"/>` : "";
  return `<g><title>${escapeXml(s.title)}</title>${bar}${line}${sign}</g>`;
}

export interface Saved {
  title: string;
  state: string;
  date: string;
  ticks: readonly Tick[];
  width: number;
  names: number;
  /** Whether undo runs have a place of their own in each row. */
  lanes: boolean;
}

/** The timeline as an SVG that needs nothing else: a title, the rows, and a legend. Rows without a part of it are left out. */
export function savedTimeline(rows: readonly Row[], scale: Scale, { title, state, date, ticks, width, names, lanes }: Saved): Picture {
  const shown = rows.filter((row) => row.spans.some((part) => part.to >= scale.from && part.from <= scale.to)).slice(0, mostSaved);
  const undone = shown.some((row) => row.spans.some((part) => part.undo)), undo = undone && lanes;
  const height = rowHeights(undo), top = 62, bottom = top + shown.length * height;
  const used = (Object.keys(words) as Kind[]).filter((kind) => shown.some((row) => row.spans.some((part) => part.kind === kind)));
  const left = rows.length - shown.length;
  const out: string[] = [];
  out.push(`<rect width="100%" height="100%" fill="#fff"/>`);
  out.push(`<text x="12" y="22" font-size="15" font-weight="600">${escapeXml(shorten(title, Math.floor((width - 24) / 8.5)))}</text>`);
  out.push(`<text x="12" y="40" fill="#566070">${escapeXml(`${state}; ${date}, ${span(scale.to - scale.from)}${left > 0 ? `; ${left} more rows have no run in this time` : ""}`)}</text>`);
  for (const tick of ticks) {
    const x = names + tick.x;
    out.push(`<path d="M${x} ${top}V${bottom}" stroke="#dde2e9"/><text x="${x}" y="${top - 6}" fill="#566070" font-size="11">${tick.label}</text>`);
  }
  for (const piece of scale.pieces.filter((p) => p.folded)) {
    out.push(`<rect x="${names + piece.x}" y="${top}" width="${piece.width}" height="${bottom - top}" fill="#eef1f5"/>`);
    out.push(`<text x="${names + piece.x + foldWidth / 2}" y="${bottom + 12}" fill="#566070" font-size="10" text-anchor="middle">${span(piece.to - piece.from)}</text>`);
  }
  shown.forEach((row, i) => {
    const y = top + i * height;
    out.push(`<g transform="translate(0 ${y})"><path d="M0 ${height}H${width}" stroke="#eef1f5"/><text x="12" y="${height / 2 + 4}">${escapeXml(shorten(row.label ?? row.step, Math.floor((names - 16) / 7.2)))}</text><g transform="translate(${names} 0)">${shapesOf(row, scale, undo, scale.to).map(drawn).join("")}</g></g>`);
  });
  let x = 12, y = bottom + 34;
  for (const kind of used) {
    const wide = 44 + 7 * words[kind].length;
    if (x + wide > width) [x, y] = [12, y + 18];
    const part: Span = { kind, from: 0, to: 1, undo: false, ...(words[kind] && { run: { step: "", run: 0 } }) };
    out.push(`<g transform="translate(${x} ${y - 10})">${drawn({ ...shapeOf(part, 2, 0, 24, words[kind]) })}</g><text x="${x + 34}" y="${y}" fill="#566070">${words[kind]}</text>`);
    x += wide;
  }
  if (undone) out.push(`<text x="12" y="${(y += 18)}" fill="#566070">undo runs ${undo ? "are violet, have an arrow, and are below do runs" : "are violet, and have an arrow"}</text>`);
  const whole = y + 14;
  return { width, height: whole, svg: `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${whole}" viewBox="0 0 ${width} ${whole}" font-family="system-ui, sans-serif" font-size="12" fill="#1c2430">${out.join("")}</svg>` };
}
