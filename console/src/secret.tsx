// A text that is shown once: that of a new token, or the secret of a receiver of notifications. Neither Esc nor a login
// closes it.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { secretShown } from "./access.ts";
import { Copy, Icon } from "./widgets.tsx";

/** warning is the sentence about the use of the text. children are shown below the text. */
export function Secret({ title, text, what, warning, children, close }: { title: ComponentChildren; text: string; what: string; warning: ComponentChildren; children?: ComponentChildren; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = dialog.current!;
    secretShown.value = true;
    shown.showModal();
    return () => {
      secretShown.value = false;
      shown.close();
    };
  }, []);
  return (
    <dialog
      class="act"
      ref={dialog}
      aria-labelledby="secret-title"
      onCancel={(event) => event.preventDefault()}
      onClose={(event) => event.currentTarget.isConnected && event.currentTarget.showModal()}
      onKeyDown={(event) => event.key === "Escape" && event.preventDefault()}
    >
      <header>
        <h2 id="secret-title" class="clamp">
          {title}
        </h2>
      </header>
      <div class="stack inner">
        <div class="note warn">
          <Icon name="warn" />
          <div class="body">
            <p>Store this text now: it is shown only once. {warning}</p>
          </div>
        </div>
        <div class="commands secret">
          <code>{text}</code>
          <Copy text={text} what={what} />
        </div>
        {children}
        <div class="buttons">
          <button type="button" onClick={close}>
            Close
          </button>
        </div>
      </div>
    </dialog>
  );
}
