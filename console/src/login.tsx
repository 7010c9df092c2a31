// The login. It covers the page, which stays as it is: what was entered is still there afterwards, and the address is the
// same. After a login at a provider, the node returns the browser to an address of this console only.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { identified, me } from "./access.ts";
import { call, callUrl, loginAtProvider, Problem } from "./api.ts";
import type { Identity } from "./types.ts";
import { Icon, now, plural, ProblemNote } from "./widgets.tsx";

/** Why a login at the provider has failed: the node sends the browser back with the code in the fragment of the address. */
function providerProblem(): Problem | undefined {
  const code = /^#login=(\w{1,40})$/.exec(location.hash)?.[1];
  if (code === undefined) return undefined;
  history.replaceState(null, "", location.pathname + location.search);
  if (code === "forbidden") return new Problem(403, code, "The login at the provider succeeded, but your account has no user role here.", "Ask an admin of this node.");
  return new Problem(401, code, "The login at the provider has failed.", "Try again. The log of the node has the reason.");
}

export function Login() {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const toProvider = useRef<HTMLAnchorElement>(null);
  const token = useSignal("");
  const sending = useSignal(false);
  const problem = useSignal<Problem | undefined>(undefined);
  const failedThere = useMemo(providerProblem, []);
  const waitUntil = useSignal(0);
  useLayoutEffect(() => {
    const shown = dialog.current!;
    const title = document.title;
    document.title = "Log in · Perdure";
    shown.showModal();
    (toProvider.current ?? field.current)?.focus();
    return () => {
      document.title = title;
      shown.close(); // gives the focus back
    };
  }, []);
  void now.value; // counts down
  const left = Math.ceil((waitUntil.value - Date.now()) / 1000);
  useEffect(() => {
    if (waitUntil.value && left <= 0) waitUntil.value = 0;
  }, [left]);
  const submit = async () => {
    const text = token.value.trim();
    if (sending.value || left > 0 || !text) return;
    sending.value = true;
    try {
      const identity = await call<Identity>(callUrl(["v1", "sessions"]), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: text }) });
      token.value = "";
      identified(identity);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error.code === "unreachable" ? new Problem(0, "noAnswer", error.message) : error; // the banner is below the login
      if (error.retryAfter > 0) waitUntil.value = Date.now() + 1000 * error.retryAfter;
      field.current?.select();
    } finally {
      sending.value = false;
    }
  };
  return (
    <dialog
      class="login"
      ref={dialog}
      aria-labelledby="login-title"
      onCancel={(event) => event.preventDefault()}
      onClose={(event) => event.currentTarget.isConnected && event.currentTarget.showModal()} // browsers close a dialog at the second Esc
      onKeyDown={(event) => event.key === "Escape" && event.preventDefault()}
    >
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h1 id="login-title">
          <Icon name="mark" />
          Log in
        </h1>
        {me.value ? (
          <p>
            Your session has ended. What you have entered is still there after you log in as <bdi>{me.value.name}</bdi>
            {loginAtProvider.value && " with a token; the login at your provider loads this page again"}.
          </p>
        ) : (
          <p class="muted">{loginAtProvider.value ? "Log in at your provider, or with a token." : "This node asks for a token. An admin can create one for you."}</p>
        )}
        {loginAtProvider.value && (
          <>
            {failedThere && !problem.value && <ProblemNote problem={failedThere} />}
            <a ref={toProvider} class="button main" target="_self" href={`oidc/start?to=${encodeURIComponent(location.pathname + location.search)}`}>
              Log in with OpenID Connect
            </a>
            <hr />
          </>
        )}
        <label class="stack">
          <span>Token</span>
          <input ref={field} type="password" name="token" required autocomplete="current-password" placeholder="pdr_…" spellcheck={false} value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} />
        </label>
        {problem.value && <ProblemNote problem={problem.value} />}
        {left > 0 && (
          <p role="status" class="state warn wrap">
            <span class="sign" aria-hidden="true">
              ○
            </span>
            <span>
              Try again in <span aria-hidden="true">{plural(left, "second")}.</span>
              <span class="hidden">a minute.</span>
            </span>
          </p>
        )}
        <button type="submit" class={loginAtProvider.value ? "" : "main"} disabled={sending.value || left > 0}>
          {sending.value ? "Logging in …" : "Log in"}
        </button>
        <p class="muted small">The session ends after 12 hours, or after one hour without use. The token is not kept in this browser.</p>
      </form>
    </dialog>
  );
}
