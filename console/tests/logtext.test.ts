import assert from "node:assert/strict";
import { test } from "node:test";
import { blockLines, blockPieces, leftOutText, longestLine, LogWindow, mostBytes, mostLines, piecesOf, type Part } from "../src/logtext.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

/** A log that keeps all bytes, and answers as the server does: with what is stored from an offset on, in parts. */
function logOf(text: string, partSize = 7, hole?: [from: number, to: number]) {
  const all = bytes(text);
  return (from: number): Part[] => {
    const parts: Part[] = [];
    for (let at = from; at < all.length; ) {
      if (hole && at >= hole[0] && at < hole[1]) {
        parts.push({ offset: hole[1], leftOut: hole[1] - at, data: all.slice(hole[1], hole[1] + partSize) });
        at = hole[1] + partSize;
        continue;
      }
      let to = Math.min(at + partSize, all.length);
      if (hole && at < hole[0]) to = Math.min(to, hole[0]);
      parts.push({ offset: at, leftOut: 0, data: all.slice(at, to) });
      at = to;
    }
    return parts;
  };
}

const shown = (window: LogWindow) => [...window.blocks.flatMap((block) => (block.gap > 0 ? [`<${block.gap}>`] : block.lines)), ...(window.open ? [window.open] : [])].join("\n");

test("lines are whole however the bytes are cut, within characters too", () => {
  const text = "first\nzweite äöü 😀\n\nlast without an end";
  for (let size = 1; size < 20; size++) {
    const window = new LogWindow(0);
    for (const part of logOf(text, size)(0)) window.append(part);
    assert.equal(shown(window), text, `parts of ${size} bytes`);
    assert.equal(window.end, bytes(text).length);
  }
});

test("a character that is not complete yet is not shown", () => {
  const window = new LogWindow(0);
  window.append({ offset: 0, leftOut: 0, data: bytes("ä").slice(0, 1) });
  assert.equal(window.open, "");
  window.append({ offset: 1, leftOut: 0, data: bytes("ä").slice(1) });
  assert.equal(window.open, "ä");
});

test("bytes that come twice are shown once, and missing ones are refused", () => {
  const window = new LogWindow(0);
  window.append({ offset: 0, leftOut: 0, data: bytes("one\ntwo\n") });
  window.append({ offset: 4, leftOut: 0, data: bytes("two\nthree\n") });
  window.append({ offset: 0, leftOut: 0, data: bytes("one\n") });
  assert.equal(shown(window), "one\ntwo\nthree");
  assert.throws(() => window.append({ offset: 20, leftOut: 0, data: bytes("x") }), /bytes 14 to 20/);
});

test("a window that begins within a line begins with the next one", () => {
  const window = new LogWindow(3);
  window.append({ offset: 3, leftOut: 0, data: bytes("st\nsecond\n") });
  assert.equal(shown(window), "second");
  assert.equal(window.start, 6);
  const long = new LogWindow(3);
  for (let at = 3; at < 3 * longestLine; at += 1000) long.append({ offset: at, leftOut: 0, data: bytes("x".repeat(1000)) });
  assert.ok(long.lines > 0, "a line without an end is shown nevertheless");
});

test("bytes that are not stored are marked, wherever the window begins", () => {
  const text = Array.from({ length: 40 }, (_, i) => `line ${i}`).join("\n") + "\n";
  const log = logOf(text, 11, [50, 120]);
  const whole = new LogWindow(0);
  for (const part of log(0)) whole.append(part);
  assert.match(shown(whole), /^line 0\n(.*\n)*<70>\n(.*\n)*line 39$/);

  // The same from the end to the start, in steps of a few bytes, of which some begin in the hole.
  const end = bytes(text).length;
  const window = new LogWindow(end - 20);
  for (const part of log(end - 20)) window.append(part);
  for (let steps = 0; window.start > 0; steps++) {
    const from = Math.max(0, window.start - 23);
    window.prepend(from, log(from));
    assert.ok(steps < 100, `the start stays at ${window.start}`);
  }
  assert.equal(shown(window), shown(whole));
});

test("any steps backwards and forwards show each byte once", () => {
  let seed = 7;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const lines = Array.from({ length: 1 + random(60) }, () => "é".repeat(random(30)) + random(1000));
    const text = lines.join("\n") + (random(2) ? "\n" : "");
    const end = bytes(text).length;
    const log = logOf(text, 1 + random(40));
    let known = Math.min(end, 1 + random(end));
    const until = (parts: Part[]) => parts.map((part) => ({ ...part, data: part.data.subarray(0, Math.max(0, known - part.offset)) })).filter((part) => part.data.length > 0);
    const window = new LogWindow(random(known));
    for (let i = 0; window.start > 0 || window.end < end; i++) {
      known = Math.min(end, known + random(20));
      for (const part of until(log(window.end))) window.append(part);
      // A window that has found no beginning of a line yet begins where it was.
      if (random(2) && window.start > 0) {
        const from = Math.max(0, window.start - 1 - random(200));
        window.prepend(from, log(from));
      }
      assert.ok(i < 2000);
    }
    window.flush();
    assert.equal(shown(window).replace(/\n$/, ""), text.replace(/\n$/, ""), `round ${round}`);
  }
});

test("a window is bounded in lines and bytes, and can be dropped at either end", () => {
  const line = "0123456789abcdef\n";
  const fill = (lines: number) => {
    const window = new LogWindow(0);
    for (let i = 0; i < lines; i += 1000) window.append({ offset: window.end, leftOut: 0, data: bytes(line.repeat(1000)) });
    return window;
  };
  const early = fill(mostLines + 5000);
  assert.ok(early.full);
  early.dropEarlier();
  assert.ok(!early.full && early.lines > mostLines - 2 * blockLines);
  assert.equal(early.start, (mostLines + 5000 - early.lines) * line.length);
  const late = fill(mostLines + 5000);
  late.dropLater();
  assert.ok(!late.full);
  assert.equal(late.end, late.lines * line.length);
  late.append({ offset: late.end, leftOut: 0, data: bytes("and on\n") });
  assert.equal(late.blocks.at(-1)!.lines.at(-1), "and on");
  const large = new LogWindow(0);
  for (let i = 0; i < 2 * (mostBytes >> 16); i++) large.append({ offset: large.end, leftOut: 0, data: bytes("x".repeat((1 << 16) - 1) + "\n") });
  assert.ok(large.full);
  large.dropEarlier();
  assert.ok(large.end - large.start <= mostBytes);
});

test("a line that is too long is cut between characters", () => {
  const window = new LogWindow(0);
  const text = "😀".repeat(longestLine);
  window.append({ offset: 0, leftOut: 0, data: bytes(text + "\nnext\n") });
  const lines = window.blocks.flatMap((block) => block.lines);
  assert.equal(lines.slice(0, -1).join(""), text);
  assert.equal(lines.at(-1), "next");
  assert.ok(lines.every((one) => bytes(one).length <= longestLine));
});

test("colours of terminals are styles, and other sequences have no effect", () => {
  assert.deepEqual(piecesOf("plain <b>"), [{ text: "plain <b>", style: "" }]);
  assert.deepEqual(piecesOf("\x1b[31mred\x1b[0m \x1b[1;92mgreen\x1b[22;39m end"), [
    { text: "red", style: "ansi-red" }, { text: " ", style: "" }, { text: "green", style: "ansi-green ansi-bold" }, { text: " end", style: "" },
  ]);
  assert.deepEqual(piecesOf("\x1b[38;5;4mblue\x1b[38;2;1;2;3mtrue\x1b[48;5;1mback"), [{ text: "blue", style: "ansi-blue" }, { text: "trueback", style: "" }]);
  assert.deepEqual(piecesOf("a\x1b[2J\x1b]0;title\x07b\x1b(Bc\x00\x08d\x1b"), [{ text: "abcd", style: "" }]);
  assert.deepEqual(piecesOf("10 %\r50 %\r100 %\r"), [{ text: "100 %", style: "" }]);
  assert.deepEqual(blockPieces(["a", "\x1b[31mb\x1b[0m", "c"]), [{ text: "a\n", style: "" }, { text: "b", style: "ansi-red" }, { text: "\nc", style: "" }]);
  assert.deepEqual(blockPieces(["a", "b"]), [{ text: "a\nb", style: "" }]);
});

test("marks of missing bytes are those of the server", () => {
  assert.equal(leftOutText(17), "… 17 bytes left out …");
  assert.equal(leftOutText(312 << 20), "… 312 MiB left out …");
  assert.equal(leftOutText(1023 * 1024 + 1023), "… 1023 KiB left out …");
});
