// What each user role may do.
import type { Identity } from "./types.ts";

export type UserRole = Identity["role"];

/** The user roles that may do something, beside admin. docs/access.md has the same table by calls: a test compares them. */
export const rights = {
  /** Read jobs. */
  read: ["viewer", "submitter", "operator"],
  /** Read everything else, except tokens, sessions and the audit log. */
  watch: ["viewer", "operator"],
  /** Submit jobs, and validate definitions. */
  submit: ["submitter", "operator"],
  /** Acts, bulk acts, limits; tests of receivers of notifications, and their pauses. */
  act: ["operator"],
  /** Tokens, sessions, and the audit log; changes of receivers of notifications. */
  access: [],
} satisfies Record<string, readonly UserRole[]>;

export type Right = keyof typeof rights;
