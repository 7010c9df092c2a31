// Who uses the console: a menu of the header.
import { Fragment } from "preact";
import { hasToken, logOut, may } from "./access.ts";
import { link } from "./router.ts";
import type { Identity } from "./types.ts";
import { Ago, Icon, Menu } from "./widgets.tsx";

/** What a user without a token should know. */
const without: Partial<Record<Identity["via"], string>> = {
  loopback: "Callers on the node's own machine need no token until the store has an admin token.",
  insecure: "This node lets every caller act without a token.",
};

export function Who({ who }: { who: Identity }) {
  const name = hasToken() ? who.name : "no token";
  const lists: [title: string, names: string[] | undefined][] = [
    ["types", who.types],
    ["agents", who.agents],
    ["hosts", who.hosts],
    ["groups", who.groups],
  ];
  return (
    <div class="who">
      <Menu
        title={
          <>
            <Icon name="user" />
            <bdi class="who-name">{name}</bdi> <span class="muted who-name">{who.role}</span>
          </>
        }
        label={`User ${name} ${who.role}`}
        right
      >
        <dl class="pairs menu-text">
          <dt>name</dt>
          <dd>
            <bdi>{name}</bdi>
          </dd>
          <dt>user role</dt>
          <dd>{who.role}</dd>
          {lists.map(
            ([title, names]) =>
              names &&
              names.length > 0 && (
                <Fragment key={title}>
                  <dt>{title}</dt>
                  <dd>
                    <bdi>{names.join(", ")}</bdi>
                  </dd>
                </Fragment>
              ),
          )}
          {who.expires && (
            <>
              <dt>{who.via === "session" ? "session ends" : "expires"}</dt>
              <dd>
                <Ago at={who.expires} />
              </dd>
            </>
          )}
        </dl>
        {without[who.via] && <p class="menu-text muted small">{without[who.via]}</p>}
        {may("access") && <a href={link.tokens()}>Tokens and sessions</a>}
        {may("access") && <a href={link.audit()}>Audit log</a>}
        {who.via === "session" && (
          <button type="button" onClick={() => void logOut()}>
            Log out
          </button>
        )}
      </Menu>
    </div>
  );
}
