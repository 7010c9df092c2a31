// Who uses the console, and what this user may do. The server decides; the console only disables what it would refuse.
import { batch, effect, signal } from "@preact/signals";
import { call, callUrl, loginNeeded, Problem, reach, returned } from "./api.ts";
import { rights, type Right, type UserRole } from "./rights.ts";
import type { Identity } from "./types.ts";

/** The identity of the user; undefined until the server has answered, and while nobody is logged in. */
export const me = signal<Identity | undefined>(undefined);

/** Why the identity is not known. */
export const meProblem = signal<Problem | undefined>(undefined);

/** Whether a new secret is on the screen. No login covers it: no other call returns the secret. */
export const secretShown = signal(false);

/** The user roles with a right, the least ones: admin is named only if no other has it. */
export function rolesWith(right: Right): UserRole[] {
  const roles: UserRole[] = rights[right];
  return roles.length > 0 ? roles : ["admin"];
}

/** Whether the user has a right. Until the identity is known, the answer is no. */
export function may(right: Right): boolean {
  const role = me.value?.role;
  return role !== undefined && (role === "admin" || (rights[right] as UserRole[]).includes(role));
}

/** "needs the user role viewer or operator" */
export function needText(right: Right): string {
  return `needs the user role ${rolesWith(right).join(" or ")}`;
}

/**
 * The attributes of a button for something that needs a right: it is disabled while the server cannot be reached, and
 * for users without the right. Then its tooltip, which is also its accessible description, names the user role.
 */
export function needs(right: Right, disabled = false): { disabled: boolean; title?: string } {
  if (me.value && !may(right)) return { disabled: true, title: needText(right) };
  return { disabled: disabled || reach.value.nextAttemptAt !== undefined };
}

/** Whether the user is identified by a token. The author of acts is then its name. */
export function hasToken(): boolean {
  return me.value?.via === "session" || me.value?.via === "token";
}

/** The option of curl that sends the user's token, if calls need one. */
export function curlToken(): string {
  return hasToken() ? ` -H "Authorization: Bearer $PERDURE_TOKEN"` : "";
}

/** Asks the server who the user is. */
export async function loadMe(): Promise<void> {
  try {
    identified(await call<Identity>(callUrl(["v1", "me"])));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    meProblem.value = error;
  }
}

/** Continues as a user. Another one than before begins with an empty page, at the same address. */
export function identified(identity: Identity): void {
  const before = me.peek();
  if (before && (before.name !== identity.name || before.role !== identity.role)) {
    location.reload();
    return;
  }
  batch(() => {
    me.value = identity;
    meProblem.value = undefined;
    if (loginNeeded.peek()) returned.value++;
    loginNeeded.value = false;
  });
}

/** Whether the user logs out. Calls that are refused meanwhile show no login: the page is loaded again. */
export const leaving = signal(false);

/** Ends the session. The page is loaded again, so that it keeps nothing of the user. */
export async function logOut(): Promise<void> {
  leaving.value = true;
  try {
    await call<undefined>(callUrl(["v1", "sessions", "current"]), { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof Problem) || error.code === "unreachable") {
      leaving.value = false;
      throw error;
    }
    // the session has ended already
  }
  location.reload();
}

/** Asks for the identity, and again when the server is back. A tab that is shown again may have another user now: tabs share the session. */
export function startAccess(): void {
  effect(() => {
    void returned.value;
    if (!me.peek()) void loadMe();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && (loginNeeded.peek() || hasToken())) void loadMe();
  });
}
