// A picture of a drawing, to be pasted into a chat or an incident report: an SVG with its own colours and legend. Text of
// users is escaped. Pure: picturemenu.tsx copies and saves it.
import { plainText } from "./bidi.ts";
import type { Shown } from "./fold.ts";
import type { Mark, Tone } from "./state.ts";
import { arrowHead, curve, shorten } from "./view.ts";

/** Columns of text that fit into a box, as in internal/graph. */
export const nameColumns = 19;
export const wordColumns = 22;

/** A picture of more boxes is not made: nobody could read it. */
export const mostPictureBoxes = 2000;

export interface Picture {
  svg: string;
  width: number;
  height: number;
}

const paint: Record<Tone, [back: string, line: string, text: string]> = {
  calm: ["#ffffff", "#8a94a3", "#566070"],
  busy: ["#e8f1fd", "#1d66c9", "#1d59ad"],
  good: ["#e7f5ec", "#1b7a43", "#166538"],
  warn: ["#fdf3dc", "#96640a", "#7d5206"],
  bad: ["#fdebea", "#c2302a", "#ac241e"],
};
const font = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, Arial, sans-serif"';
const space = 24;
const titleHeight = 44;
const legendRow = 22;

/** A text in XML. Characters that XML does not allow become a replacement character. */
export function escapeXml(text: string): string {
  return plainText(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu, "\ufffd").replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** The drawing as a picture, in light colours. legend names each state that occurs. */
export function picture(shown: Shown, marks: readonly Mark[], title: string, state: string, legend: readonly { mark: Mark; n: number }[]): Picture {
  const entries = legend.map(({ mark, n }) => ({ mark, text: `${mark.sign} ${mark.word}${n > 1 ? ` ${n}` : ""}` }));
  const entryWidth = 130;
  const width = Math.max(shown.width, 2 * space + Math.min(entries.length, 3) * entryWidth, 420);
  const inRow = Math.max(1, Math.floor((width - 2 * space) / entryWidth));
  const legendTop = titleHeight + shown.height;
  const height = legendTop + Math.ceil(entries.length / inRow) * legendRow + space;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ${font} font-size="13" role="img">`,
    `<title>${escapeXml(`${title}, ${state}`)}</title>`,
    `<rect width="${width}" height="${height}" fill="#f7f8fa"/>`,
    `<text x="${space}" y="28" font-size="15" font-weight="600" fill="#1c2430">${escapeXml(shorten(title, Math.floor((width - 2 * space) / 9) - Math.min(40, state.length)))} <tspan font-size="13" font-weight="400" fill="#566070">${escapeXml(shorten(state, 40))}</tspan></text>`,
    `<g transform="translate(0 ${titleHeight})">`,
    `<path d="${shown.edges.map((e) => curve(e.points)).join("")}" fill="none" stroke="#8a94a3" stroke-width="1.4"/>`,
    `<path d="${shown.edges.map((e) => arrowHead(e.points)).join("")}" fill="#8a94a3"/>`,
  ];
  shown.nodes.forEach((n, i) => {
    const mark = marks[i]!;
    const [back, line, text] = paint[mark.tone];
    const box = (by: number) => `<rect x="${by}" y="${by}" width="${shown.nodeWidth}" height="${shown.nodeHeight}" rx="6" fill="${back}" stroke="${line}" stroke-width="1.2"/>`;
    parts.push(
      `<g transform="translate(${n.x} ${n.y})">${n.members ? box(6) + box(3) : ""}${box(0)}`,
      `<text x="12" y="19" font-weight="600" fill="#1c2430">${escapeXml(shorten(boxName(n), nameColumns))}</text>`,
      `<text x="12" y="35" font-size="12" fill="${text}">${escapeXml(shorten(`${mark.sign} ${mark.word}`.trim(), wordColumns))}</text></g>`,
    );
  });
  parts.push("</g>");
  entries.forEach(({ mark, text }, i) => {
    const [back, line, ink] = paint[mark.tone];
    const x = space + (i % inRow) * entryWidth, y = legendTop + Math.floor(i / inRow) * legendRow;
    parts.push(`<rect x="${x}" y="${y}" width="14" height="14" rx="3" fill="${back}" stroke="${line}"/><text x="${x + 20}" y="${y + 11}" font-size="12" fill="${ink}">${escapeXml(shorten(text, 16))}</text>`);
  });
  parts.push("</svg>");
  return { svg: parts.join("\n"), width, height };
}

/** What stands in a box: the step's name, or how many steps a stack has. */
export function boxName(box: { name: string; agent: string; action?: string; members?: readonly number[] }): string {
  return box.members ? `${box.members.length} × ${box.action ?? box.agent}` : box.name;
}
