// Draws a large graph that is zoomed out, and its minimap, on a canvas. The boxes are drawn at once, and the edges beneath
// them in slices, so that no frame takes long. What is drawn is larger than the window: a movement only copies it.
import type { Tone } from "./state.ts";
import { contains, overlaps, visiblePart, type Rect, type View } from "./view.ts";

/** A drawing as the canvas needs it. */
export interface Scene {
  boxes: readonly { x: number; y: number }[];
  boxWidth: number;
  boxHeight: number;
  edges: readonly { bounds: Rect; path: string }[];
}

export type Colours = Record<Tone | "line" | "accent", string>;

/** Edges that are drawn between two frames. */
const edgesInASlice = 250;
/** How much more than the window is drawn on each side, in windows. */
const windowsAround = 0.5;
/** Screens with more pixels are drawn with this many for one of the page. */
const mostPixels = 2;
/** Boxes that do not match what is searched for. */
const fainter = 0.25;

export class FarCanvas {
  private readonly front: CanvasRenderingContext2D;
  private readonly back: CanvasRenderingContext2D;
  private drawn: { view: View; part: Rect } | undefined; // what is on the back
  private nextEdge = 0;
  private visibleEdges: Scene["edges"] = [];
  private scene: Scene | undefined;
  private tones: readonly Tone[] = [];
  private faint: readonly boolean[] = [];
  private colours: Colours | undefined;
  private view: View = { x: 0, y: 0, k: 1 };
  private chosen: { x: number; y: number } | undefined;
  private width = 0;
  private height = 0;
  private scale = 1;
  private frame = 0;

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.front = canvas.getContext("2d")!;
    this.back = document.createElement("canvas").getContext("2d")!;
  }

  /** Sets what is drawn. A change of a few colours is drawn over what is there. */
  set(scene: Scene, tones: readonly Tone[], faint: readonly boolean[], colours: Colours, chosen: { x: number; y: number } | undefined): void {
    const same = scene === this.scene && colours.line === this.colours?.line && colours.calm === this.colours?.calm;
    const changed = same ? tones.flatMap((tone, i) => (tone !== this.tones[i] || faint[i] !== this.faint[i] ? [i] : [])) : [];
    Object.assign(this, { scene, tones, faint, colours, chosen });
    if (!same) this.drawn = undefined;
    else if (this.drawn && changed.length > 0) {
      if (faint.length > 0 || changed.some((i) => faint[i])) this.drawn = undefined; // faint boxes cannot be drawn over
      else this.drawBoxes(changed);
    }
    this.ask();
  }

  move(view: View, width: number, height: number): void {
    this.view = view;
    const scale = Math.min(devicePixelRatio || 1, mostPixels);
    if (width !== this.width || height !== this.height || scale !== this.scale) {
      Object.assign(this, { width, height, scale });
      this.canvas.width = width * scale;
      this.canvas.height = height * scale;
      this.back.canvas.width = width * scale * (1 + 2 * windowsAround);
      this.back.canvas.height = height * scale * (1 + 2 * windowsAround);
      this.drawn = undefined;
    }
    this.ask();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private ask(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const { view, width, height, scale, front, scene, colours } = this;
    if (!scene || !colours || width === 0) return;
    const visible = visiblePart(view, width, height);
    if (!this.drawn || this.drawn.view.k !== view.k || !contains(this.drawn.part, visible)) this.begin();
    else if (this.nextEdge < this.visibleEdges.length) this.drawEdges();
    const from = this.drawn!.view;
    front.setTransform(1, 0, 0, 1, 0, 0);
    front.clearRect(0, 0, this.canvas.width, this.canvas.height);
    front.drawImage(this.back.canvas, (view.x - from.x - width * windowsAround) * scale, (view.y - from.y - height * windowsAround) * scale);
    if (this.chosen) {
      front.setTransform(view.k * scale, 0, 0, view.k * scale, view.x * scale, view.y * scale);
      front.strokeStyle = colours.accent;
      front.lineWidth = 3 / view.k;
      front.strokeRect(this.chosen.x - 2 / view.k, this.chosen.y - 2 / view.k, scene.boxWidth + 4 / view.k, scene.boxHeight + 4 / view.k);
    }
    if (this.nextEdge < this.visibleEdges.length) this.ask();
  }

  /** Draws the boxes near the window. The edges follow. */
  private begin(): void {
    const { back, view, width, height } = this;
    const part = visiblePart(view, width, height, windowsAround);
    this.drawn = { view, part };
    back.setTransform(1, 0, 0, 1, 0, 0);
    back.clearRect(0, 0, back.canvas.width, back.canvas.height);
    this.visibleEdges = this.scene!.edges.filter((edge) => overlaps(edge.bounds, part));
    this.nextEdge = 0;
    this.drawBoxes(this.tones.keys());
  }

  private place(): void {
    const { view } = this.drawn!;
    const { width, height, scale, back } = this;
    back.setTransform(view.k * scale, 0, 0, view.k * scale, (view.x + width * windowsAround) * scale, (view.y + height * windowsAround) * scale);
  }

  private drawBoxes(indexes: Iterable<number>): void {
    const { back, scene, tones, faint, colours } = this;
    const { part } = this.drawn!;
    const { boxes, boxWidth, boxHeight } = scene!;
    this.place();
    back.globalCompositeOperation = "source-over";
    for (const i of indexes) {
      const box = boxes[i];
      if (!box || box.x > part.x1 || box.y > part.y1 || box.x + boxWidth < part.x0 || box.y + boxHeight < part.y0) continue;
      back.globalAlpha = faint[i] ? fainter : 1;
      back.fillStyle = colours![tones[i]!];
      back.fillRect(box.x, box.y, boxWidth, boxHeight);
    }
    back.globalAlpha = 1;
  }

  private drawEdges(): void {
    const { back, visibleEdges, colours } = this;
    const slice = visibleEdges.slice(this.nextEdge, this.nextEdge + edgesInASlice);
    this.nextEdge += slice.length;
    this.place();
    back.globalCompositeOperation = "destination-over"; // beneath the boxes
    back.strokeStyle = colours!.line;
    back.lineWidth = Math.max(1.4, 0.6 / this.drawn!.view.k);
    back.stroke(new Path2D(slice.map((edge) => edge.path).join("")));
    back.globalCompositeOperation = "source-over";
  }
}

/** Draws all boxes into a small canvas. */
export function drawMinimap(canvas: HTMLCanvasElement, scene: Scene, width: number, height: number, k: number, tones: readonly Tone[], colours: Colours): void {
  const context = canvas.getContext("2d")!;
  const scale = Math.min(devicePixelRatio || 1, mostPixels);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.setTransform(k * scale, 0, 0, k * scale, 0, 0);
  // A box is at least a pixel large; urgent ones are drawn last.
  const w = Math.max(scene.boxWidth, 1 / k), h = Math.max(scene.boxHeight, 1 / k);
  for (const pass of [false, true]) {
    scene.boxes.forEach((box, i) => {
      const tone = tones[i]!;
      if ((tone === "bad") !== pass) return;
      context.fillStyle = colours[tone];
      context.fillRect(box.x, box.y, w, h);
    });
  }
}
