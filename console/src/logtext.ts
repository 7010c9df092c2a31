// The part of a log that a page shows: lines from one offset of the log to another, bounded, in blocks. Offsets are
// counted in bytes from the start of the log, so that reading goes on where it was, without a gap and without doubling.
// Pure: log.tsx loads and shows it.

/** Bytes of a log as the API sends them. leftOut bytes before offset are not stored. */
export interface Part {
  offset: number;
  leftOut: number;
  data: Uint8Array;
}

/** Lines that follow each other, or a place where bytes are not stored. A block never changes. */
export interface Block {
  id: number;
  /** Where its first byte is in the log, and where the next block begins. */
  from: number;
  to: number;
  lines: readonly string[];
  /** How many bytes are missing here; then there are no lines. */
  gap: number;
}

/** The page has at most so many lines, and bytes of them. */
export const mostLines = 20_000;
export const mostBytes = 4 << 20;
/** Lines of a block. */
export const blockLines = 200;
/** A longer line is cut: browsers are slow with long ones. In bytes. */
export const longestLine = 16 << 10;

const newline = 10;

export class LogWindow {
  /** The lines that have ended. */
  blocks: Block[] = [];
  /** The first byte that is shown. */
  start: number;
  /** The byte after the last one that is known here. The next part begins there. */
  end: number;
  #rest = new Uint8Array(0); // of a line that has not ended
  #restFrom: number;
  #skipping: boolean; // the window begins within a line, which is not shown
  #nextId = 1;

  /** A window that is empty, at an offset. within: the offset may be within a line, which is skipped. */
  constructor(offset: number, within = offset > 0) {
    this.start = this.end = this.#restFrom = offset;
    this.#skipping = within;
  }

  /** The line that has not ended, as far as it is known. */
  get open(): string {
    return new TextDecoder().decode(this.#rest, { stream: true });
  }

  get lines(): number {
    return this.blocks.reduce((sum, block) => sum + Math.max(block.lines.length, 1), 0) + (this.#rest.length > 0 ? 1 : 0);
  }

  get full(): boolean {
    return this.lines > mostLines || this.end - this.start - this.blocks.reduce((sum, block) => sum + block.gap, 0) > mostBytes;
  }

  /** Adds what follows. Bytes that are there already are left out; a part that begins later than the window ends is refused. */
  append({ offset, leftOut, data }: Part): void {
    const begin = offset - leftOut;
    if (begin > this.end) throw new RangeError(`bytes ${this.end} to ${begin} of the log are missing`);
    if (offset > this.end) this.#gap(offset);
    if (offset < this.end) data = data.subarray(Math.min(this.end - offset, data.length));
    if (data.length === 0) return;
    if (this.#skipping) {
      const found = data.indexOf(newline);
      const skipped = this.end + data.length - this.start;
      if (found < 0 && skipped < longestLine) {
        this.end += data.length;
        return;
      }
      this.#skipping = false;
      const at = found < 0 ? 0 : found + 1;
      this.end += at;
      this.start = this.#restFrom = this.end;
      data = data.subarray(at);
    }
    this.#take(data);
  }

  /** Adds bytes that follow the window. */
  #take(data: Uint8Array): void {
    let bytes = data;
    if (this.#rest.length > 0) {
      bytes = new Uint8Array(this.#rest.length + data.length);
      bytes.set(this.#rest);
      bytes.set(data, this.#rest.length);
    }
    this.end += data.length;
    let from = 0, lines: string[] = [], blockFrom = 0;
    const decoder = new TextDecoder();
    const close = () => {
      if (lines.length > 0) this.#block(this.#restFrom + blockFrom, this.#restFrom + from, lines);
      [lines, blockFrom] = [[], from];
    };
    while (from < bytes.length) {
      let to = bytes.indexOf(newline, from);
      const ended = to >= 0 && to - from <= longestLine;
      if (!ended) {
        if (bytes.length - from <= longestLine) break;
        to = from + longestLine;
        while (to > from + 1 && (bytes[to]! & 0xc0) === 0x80) to--; // not within a character
      }
      lines.push(decoder.decode(bytes.subarray(from, to)));
      from = ended ? to + 1 : to;
      if (lines.length === blockLines) close();
    }
    close();
    this.#rest = bytes.slice(from);
    this.#restFrom += from;
  }

  /** Adds lines: to the last block if it has room, which gets another id then. */
  #block(from: number, to: number, lines: string[]): void {
    const last = this.blocks.at(-1);
    if (last && last.gap === 0 && last.to === from && last.lines.length + lines.length <= blockLines) {
      this.blocks = [...this.blocks.slice(0, -1), { ...last, to, lines: [...last.lines, ...lines] }];
    } else {
      this.blocks = [...this.blocks, { id: this.#nextId++, from, to, lines, gap: 0 }];
    }
  }

  /** Records that the bytes from the end of the window to an offset are not stored. */
  #gap(to: number): void {
    this.flush();
    const last = this.blocks.at(-1), gap = to - this.end;
    if (last && last.gap > 0 && last.to === this.end) this.blocks = [...this.blocks.slice(0, -1), { ...last, to, gap: last.gap + gap }];
    else this.blocks = [...this.blocks, { id: this.#nextId++, from: this.end, to, lines: [], gap }];
    this.end = this.#restFrom = to;
    this.#skipping = false;
  }

  /** Ends the line that has not ended. */
  flush(): void {
    if (this.#rest.length > 0) this.#block(this.#restFrom, this.#restFrom + this.#rest.length, [new TextDecoder().decode(this.#rest)]);
    this.#rest = new Uint8Array(0);
    this.#restFrom = this.end;
  }

  /** Adds what precedes the window: parts that follow each other, from an offset to at least the window's start. It adds nothing if no line begins there. */
  prepend(from: number, parts: readonly Part[]): void {
    const earlier = new LogWindow(from);
    for (const part of parts) {
      const room = this.start - part.offset;
      if (part.offset - part.leftOut >= this.start) break;
      if (room <= 0) earlier.append({ offset: this.start, leftOut: this.start - (part.offset - part.leftOut), data: new Uint8Array(0) });
      else earlier.append({ ...part, data: part.data.subarray(0, room) });
    }
    if (earlier.end !== this.start) throw new RangeError(`bytes ${earlier.end} to ${this.start} of the log are missing`);
    if (earlier.#skipping) return;
    if (this.#skipping) {
      // No line has begun here: what was skipped is read again, after what precedes it.
      [this.blocks, this.start, this.end, this.#rest, this.#restFrom, this.#skipping] = [earlier.blocks, earlier.start, earlier.end, earlier.#rest, earlier.#restFrom, false];
      return;
    }
    earlier.flush();
    const [first, ...others] = this.blocks;
    const last = earlier.blocks.at(-1);
    const before = earlier.blocks.map((block) => ({ ...block, id: -this.#nextId++ }));
    if (first && last && first.gap > 0 && last.gap > 0) this.blocks = [...before.slice(0, -1), { ...first, from: last.from, gap: first.gap + last.gap }, ...others];
    else this.blocks = [...before, ...this.blocks];
    this.start = earlier.start;
  }

  /** Drops the first blocks until the window is not full. */
  dropEarlier(): void {
    while (this.full && this.blocks.length > 1) {
      this.start = this.blocks[1]!.from;
      this.blocks = this.blocks.slice(1);
    }
  }

  /** Drops the last blocks, and the line that has not ended, until the window is not full. */
  dropLater(): void {
    while (this.full && this.blocks.length > 1) {
      const last = this.blocks.at(-1)!;
      this.blocks = this.blocks.slice(0, -1);
      this.end = this.#restFrom = last.from;
      this.#rest = new Uint8Array(0);
    }
  }
}

/** A number of bytes as the marks in logs have it. operate.LeftOutText has the same rule. */
export function leftOutText(n: number): string {
  let unit = "bytes";
  for (const larger of ["KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024) break;
    n = Math.floor(n / 1024);
    unit = larger;
  }
  return `… ${n} ${unit} left out …`;
}

/** A part of a line in one style: the classes of style.css. */
export interface Piece {
  text: string;
  style: string;
}

const colours = ["", "red", "green", "yellow", "blue", "magenta", "cyan", ""];

/** The escape sequences of terminals, of which only those for colours (…m) are read; and the other controls. */
// eslint-disable-next-line no-control-regex
const escapes = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)|[\x00-\x08\x0b-\x1f\x7f]/g;
const special = /[\x00-\x08\x0b-\x1f\x7f]/;

/** A line as a terminal would show it: what a carriage return overwrites is left out, colours are styles, and other escape sequences have no effect. */
export function piecesOf(line: string): Piece[] {
  if (!special.test(line)) return [{ text: line, style: "" }];
  line = line.replace(/\r+$/, "");
  line = line.slice(line.lastIndexOf("\r") + 1);
  const pieces: Piece[] = [];
  let colour = "", bold = false, faint = false, at = 0;
  const put = (text: string) => {
    const style = [colour && `ansi-${colour}`, bold && "ansi-bold", faint && "ansi-faint"].filter(Boolean).join(" ");
    const last = pieces.at(-1);
    if (text === "") return;
    if (last && last.style === style) last.text += text;
    else pieces.push({ text, style });
  };
  for (const match of line.matchAll(escapes)) {
    put(line.slice(at, match.index));
    at = match.index + match[0].length;
    const codes = /^\x1b\[([\d;:]*)m$/.exec(match[0])?.[1];
    if (codes === undefined) continue;
    const list = codes.split(/[;:]/).map(Number);
    for (let i = 0; i < list.length; i++) {
      const code = list[i]!;
      if (code === 0) [colour, bold, faint] = ["", false, false];
      else if (code === 1) bold = true;
      else if (code === 2) faint = true;
      else if (code === 22) bold = faint = false;
      else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) colour = colours[code % 10]!;
      else if (code === 39) colour = "";
      else if (code === 38 || code === 48 || code === 58) {
        // 5;N, one of 256 colours, of which the first 16 are the usual ones; 2;R;G;B
        if (list[i + 1] === 5) {
          const n = list[i + 2] ?? 16;
          if (code === 38) colour = n < 16 ? colours[n % 8]! : "";
          i += 2;
        } else if (list[i + 1] === 2) {
          if (code === 38) colour = "";
          i += 4;
        }
      }
    }
  }
  put(line.slice(at));
  return pieces;
}

/** The lines of a block as pieces; pieces of the same style are one, with line ends between the lines. */
export function blockPieces(lines: readonly string[]): Piece[] {
  if (!lines.some((line) => special.test(line))) return [{ text: lines.join("\n"), style: "" }];
  const pieces: Piece[] = [];
  lines.forEach((line, i) => {
    if (i > 0) {
      const last = pieces.at(-1);
      if (last && last.style === "") last.text += "\n";
      else pieces.push({ text: "\n", style: "" });
    }
    for (const piece of piecesOf(line)) {
      const last = pieces.at(-1);
      if (last && last.style === piece.style) last.text += piece.text;
      else pieces.push({ ...piece });
    }
  });
  return pieces;
}

/** Reads base64. */
export function bytesOf(base64: string): Uint8Array {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}
