// The menu that copies or saves a picture.
import { useSignal } from "@preact/signals";
import { mostPictureBoxes, type Picture } from "./picture.ts";
import { copyText, Icon, Menu } from "./widgets.tsx";

/** The longest side of a PNG, in pixels: browsers draw no larger ones. */
const longestSide = 8000;
const pixels = 2; // of a PNG, for one of the drawing

async function png({ svg, width, height }: Picture): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = Math.min(pixels, longestSide / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the browser made no picture"))), "image/png"));
}

/** Saves a file of the user. */
export function save(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const a = document.createElement("a");
  a.href = url;
  a.download = name.replace(/[^\w.@+-]+/g, "_").slice(0, 100);
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A menu that copies or saves a picture. make returns undefined if the drawing has too many boxes. */
export function PictureMenu({ make, name, label = "Picture of the graph" }: { make: () => Picture | undefined; name: string; label?: string }) {
  const said = useSignal("");
  const act = (what: (made: Picture) => Promise<string>) => async () => {
    const made = make();
    try {
      said.value = made ? await what(made) : `The drawing has more than ${mostPictureBoxes} boxes: fold or hide steps first.`;
    } catch {
      said.value = "This browser, or this address without TLS, does not allow that. Save the picture instead.";
    }
  };
  const items: [text: string, what: (made: Picture) => Promise<string>][] = [
    [
      "Copy as picture",
      async (made) => {
        await navigator.clipboard.write([new ClipboardItem({ "image/png": png(made) })]);
        return "The picture is on the clipboard.";
      },
    ],
    ["Copy as SVG", async (made) => ((await copyText(made.svg)) ? "The SVG is on the clipboard." : "The browser did not allow it. Save the SVG instead.")],
    [
      "Save as PNG",
      async (made) => {
        save(`${name}.png`, await png(made));
        return "";
      },
    ],
    [
      "Save as SVG",
      async (made) => {
        save(`${name}.svg`, new Blob([made.svg], { type: "image/svg+xml" }));
        return "";
      },
    ],
  ];
  return (
    <>
      <span class="muted small" role="status">{said.value}</span>
      <Menu title={<><Icon name="download" /> Picture</>} label={label} right>
        {items.map(([text, what]) => (
          <button type="button" key={text} onClick={act(what)}>
            {text}
          </button>
        ))}
      </Menu>
    </>
  );
}
