// Parts of the console that few pages need are scripts of their own, which the browser loads when they are first shown.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Waiting } from "./widgets.tsx";

/**
 * A component that is loaded when it is first shown, or before, by its function preload. load is an import() of its
 * module. A quiet one shows nothing until then.
 */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>, quiet = false): ComponentType<P> & { preload: () => void } {
  let Loaded: ComponentType<P> | undefined;
  function Lazy(props: P) {
    const state = useSignal<"waiting" | "loaded" | "failed">(Loaded ? "loaded" : "waiting");
    useEffect(() => {
      if (Loaded) return;
      let left = false;
      load().then(
        (component) => {
          Loaded = component;
          if (!left) state.value = "loaded";
        },
        () => !left && (state.value = "failed"),
      );
      return () => {
        left = true;
      };
    }, []);
    if (Loaded) return <Loaded {...props} />;
    if (state.value === "waiting") return quiet ? null : <Waiting />;
    // A node of another version has other scripts. A browser does not repeat an import that has failed.
    return (
      <div class="note warn" role="alert">
        <div class="body">
          <p>A part of the console could not be loaded. The node may have been updated, or is not reachable.</p>
        </div>
        <button type="button" onClick={() => location.reload()}>
          Load the page again
        </button>
      </div>
    );
  }
  const preload = () => {
    load().then(
      (component) => {
        Loaded = component;
      },
      () => undefined, // it is loaded when it is shown
    );
  };
  return Object.assign(Lazy, { preload });
}
