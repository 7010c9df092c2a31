// The text of a new token, which is shown once. Neither Esc nor a login closes it.
import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { secretShown } from "./access.ts";
import type { NewToken } from "./types.ts";
import { Copy, Icon } from "./widgets.tsx";

export function Secret({ token }: { token: Signal<NewToken | undefined> }) {
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
  const { name, role, token: text } = token.value!;
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
          Token <bdi>{name}</bdi>
        </h2>
      </header>
      <div class="stack inner">
        <div class="note warn">
          <Icon name="warn" />
          <div class="body">
            <p>Store this text now: it is shown only once. Whoever has it can act as {role}.</p>
          </div>
        </div>
        <div class="commands secret">
          <code>{text}</code>
          <Copy text={text} what="the token" />
        </div>
        <div class="buttons">
          <button type="button" onClick={() => (token.value = undefined)}>
            Close
          </button>
        </div>
      </div>
    </dialog>
  );
}
