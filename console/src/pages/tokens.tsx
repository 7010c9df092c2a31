// Tokens, and the logins to the console that were started with them. Only admins see this page.
import { signal, useSignal, type Signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { me } from "../access.ts";
import { call, callUrl, Problem, serverAddress } from "../api.ts";
import { authorHeaders, CommandLine, FormDialog, NamesField, namesOf, useSend } from "../form.tsx";
import { useLoad } from "../load.ts";
import type { UserRole } from "../rights.ts";
import { useOlder } from "../older.ts";
import { link } from "../router.ts";
import { Secret } from "../secret.tsx";
import { unknownMark } from "../state.ts";
import type { NewToken, PageSession, PageToken, Session, Token } from "../types.ts";
import { actMessage, Ago, AsOf, now, plural, ProblemNote, shellWord, State, useTitle, Waiting } from "../widgets.tsx";

/** The most rows of a page of the API. */
const pageSize = 500;
/** The most rows that are shown. */
const mostRows = 2000;

/** The user roles, and what each may do. */
const roles: [role: UserRole, may: string][] = [
  ["viewer", "reads everything except tokens, sessions and the audit log"],
  ["submitter", "submits jobs and reads them"],
  ["agent", "carries out runs of the agents that it names, and nothing else"],
  ["operator", "reads, submits and acts; sets limits"],
  ["admin", "may do everything"],
];

type Draft = { kind: "create" } | { kind: "rotate" | "revoke"; token: Token };

export function Tokens() {
  useTitle("Tokens");
  const first = useLoad<PageToken>(callUrl(["v1", "tokens"], `?limit=${pageSize}`), 10_000);
  const sessions = useLoad<PageSession>(callUrl(["v1", "sessions"], `?limit=${pageSize}`), 10_000);
  const draft = useSignal<Draft | undefined>(undefined);
  const secret = useSignal<NewToken | undefined>(undefined);
  const older = useOlder<Token, PageToken>(first.data, (cursor) => callUrl(["v1", "tokens"], `?limit=${pageSize}&cursor=${encodeURIComponent(cursor)}`));
  const tokens = [...(first.data?.items ?? []), ...older.items];
  if (!older.nextCursor) tokens.sort((a, b) => a.name.localeCompare(b.name, "en") || a.createdAt.localeCompare(b.createdAt));
  const changed = () => {
    older.forget();
    first.again();
    sessions.again();
  };
  return (
    <>
      <div class="title">
        <h1>Tokens</h1>
        <div class="end">
          <a class="button" href={link.audit()}>
            Audit log
          </a>
          <button type="button" class="main" onClick={() => (draft.value = { kind: "create" })}>
            New token …
          </button>
        </div>
      </div>
      {first.problem && <ProblemNote problem={first.problem} again={first.again} />}
      {!first.data ? (
        !first.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      ) : tokens.length === 0 ? (
        <div class="box empty">
          <h2>There are no tokens</h2>
          <p class="muted">Programs and people on other machines need one. Callers on the node's own machine do without until there is an admin token.</p>
        </div>
      ) : (
        <div class="box data">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th class="w-num">User role</th>
                <th class="w-name c2">For</th>
                <th class="w-num c4">Groups</th>
                <th class="w-time c3">Created</th>
                <th class="w-num c4">By</th>
                <th class="w-time c2">Expires</th>
                <th class="w-time c2">Last used</th>
                <th class="w-acts">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {tokens.map((token) => (
                <TokenRow key={token.id} token={token} open={(kind) => (draft.value = { kind, token })} />
              ))}
            </tbody>
          </table>
          <div class="below">
            {older.nextCursor && tokens.length < mostRows && (
              <button type="button" onClick={older.more} disabled={older.loading}>
                {older.loading ? "Loading …" : "More"}
              </button>
            )}
            <span class="muted small">
              {plural(tokens.length, "token")}
              {older.nextCursor ? ", and more. As a command: " : ". As a command: "}
              <code>perdure tokens</code>
            </span>
            <AsOf at={first.at} />
            {older.problem && <ProblemNote problem={older.problem} />}
          </div>
        </div>
      )}
      <Sessions list={sessions} />
      {draft.value?.kind === "create" && <Create close={() => (draft.value = undefined)} secret={secret} done={changed} />}
      {draft.value?.kind === "rotate" && <Rotate token={draft.value.token} close={() => (draft.value = undefined)} secret={secret} done={changed} />}
      {draft.value?.kind === "revoke" && <Revoke token={draft.value.token} close={() => (draft.value = undefined)} done={changed} />}
      {secret.value && (
        <Secret
          title={
            <>
              Token <bdi>{secret.value.name}</bdi>
            </>
          }
          text={secret.value.token}
          what="the token"
          warning={<>Whoever has it can act as {secret.value.role}.</>}
          close={() => (secret.value = undefined)}
        />
      )}
    </>
  );
}

/** The types, or the agents and hosts, of a token. */
const scopeOf = ({ types, agents, hosts }: Token | Session) => [...(types ?? []), ...(agents ?? []), ...(hosts ?? [])].join(", ");

function TokenRow({ token, open }: { token: Token; open: (kind: "rotate" | "revoke") => void }) {
  const expired = token.expiresAt !== undefined && Date.parse(token.expiresAt) <= now.value;
  const scope = scopeOf(token), groups = (token.groups ?? []).join(", ");
  return (
    <tr>
      <td class="text" title={`${token.name} (${token.id})`}>
        <b class="name">
          <bdi>{token.name}</bdi>
        </b>
        <div class="muted small">
          <code>{token.id}</code>
          {token.previousUntil && Date.parse(token.previousUntil) > now.value && (
            <>
              , its earlier secret until <Ago at={token.previousUntil} />
            </>
          )}
        </div>
      </td>
      <td>{token.role}</td>
      <td class="c2" title={scope}>
        {scope ? <bdi>{scope}</bdi> : <span class="muted">{token.role === "submitter" ? "all types" : "–"}</span>}
      </td>
      <td class="c4" title={groups}>
        {groups ? <bdi>{groups}</bdi> : <span class="muted">–</span>}
      </td>
      <td class="c3">
        <Ago at={token.createdAt} />
      </td>
      <td class="c4" title={token.createdBy}>
        <bdi>{token.createdBy}</bdi>
      </td>
      <td class="c2">{expired ? <State mark={{ ...unknownMark("expired"), sign: "×", tone: "warn" }} /> : token.expiresAt ? <Ago at={token.expiresAt} /> : <span class="muted">never</span>}</td>
      <td class="c2">{token.lastUsedAt ? <Ago at={token.lastUsedAt} /> : <span class="muted">never</span>}</td>
      <td class="act">
        <button type="button" aria-label={`Rotate the token ${token.name}`} onClick={() => open("rotate")}>
          Rotate …
        </button>{" "}
        <button type="button" aria-label={`Revoke the token ${token.name}`} onClick={() => open("revoke")}>
          Revoke …
        </button>
      </td>
    </tr>
  );
}

function Sessions({ list }: { list: { data?: PageSession; problem?: Problem; again: () => void } }) {
  const problem = useSignal<Problem | undefined>(undefined);
  const end = async (session: Session) => {
    problem.value = undefined;
    try {
      await call<undefined>(callUrl(["v1", "sessions", session.id]), { method: "DELETE", headers: authorHeaders() });
      actMessage.value = `The session of ${session.name} has ended.`;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error;
    }
    list.again();
  };
  const failed = problem.value ?? list.problem;
  return (
    <section class="box data">
      <header>
        <h2>Sessions</h2>
        <span class="muted small">logins to the console that have not ended</span>
      </header>
      {failed && <ProblemNote problem={failed} again={list.again} />}
      {!list.data ? (
        !failed && <Waiting />
      ) : list.data.items.length === 0 ? (
        <p class="fine">There are no sessions.</p>
      ) : (
        <table aria-label="Sessions">
          <thead>
            <tr>
              <th>Name</th>
              <th class="w-num">User role</th>
              <th class="w-name c3">Token</th>
              <th class="w-time c2">Started</th>
              <th class="w-time c2">Last used</th>
              <th class="w-time c3">Ends</th>
              <th class="w-act">
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.data.items.map((session) => (
              <tr key={session.id}>
                <td title={session.name}>
                  <bdi>{session.name}</bdi>
                </td>
                <td>{session.role}</td>
                <td class="c3">{session.token ? <code>{session.token}</code> : <span class="muted">–</span>}</td>
                <td class="c2">
                  <Ago at={session.createdAt} />
                </td>
                <td class="c2">
                  <Ago at={session.lastUsedAt} />
                </td>
                <td class="c3">
                  <Ago at={session.expiresAt} />
                </td>
                <td class="act">
                  <button type="button" aria-label={`End the session of ${session.name}`} onClick={() => void end(session)}>
                    End
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {list.data?.nextCursor && <p class="fine">There are more: the first {pageSize} are shown.</p>}
    </section>
  );
}

const server = () => ` --server ${shellWord(serverAddress)}`;

/** The form keeps its text while the page is shown, so that a wrong key does not lose it. */
const kept = { name: signal(""), role: signal<UserRole>("viewer"), types: signal(""), agents: signal(""), groups: signal(""), expires: signal("365d") };

interface DialogProps {
  close: () => void;
  done: () => void;
}

function Create({ close, secret, done }: DialogProps & { secret: Signal<NewToken | undefined> }) {
  const { sending, problem, send } = useSend();
  const { name, role, types, agents, groups, expires } = kept;
  const request = () => ({
    name: name.value.trim(),
    role: role.value,
    ...(role.value === "submitter" && namesOf(types.value).length > 0 && { types: namesOf(types.value) }),
    ...(role.value === "agent" && { agents: namesOf(agents.value) }),
    ...(groups.value.trim() && { groups: groups.value.split(",").map((group) => group.trim()).filter(Boolean) }),
    ...(expires.value.trim() && { expiresIn: expires.value.trim() }),
  });
  const asked = request();
  const flags = [...(asked.types ?? []).flatMap((one) => ["--type", one]), ...(asked.agents ?? []).flatMap((one) => ["--agent", one]), ...(asked.groups ?? []).flatMap((one) => ["--group", one]), ...(asked.expiresIn ? ["--expires", asked.expiresIn] : [])];
  const command = ["perdure", "tokens", "create", "--name", asked.name || "NAME", "--role", asked.role, ...flags].map(shellWord).join(" ") + server();
  const ready = asked.name !== "" && (asked.role !== "agent" || namesOf(agents.value).length > 0);
  const create = () =>
    send(async () => {
      const token = await call<NewToken>(callUrl(["v1", "tokens"]), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body: JSON.stringify(request()) });
      for (const field of [name, types, agents, groups]) field.value = "";
      close();
      secret.value = token;
      done();
    });
  return (
    <FormDialog title="A new token" send="Create the token" ready={ready} sending={sending.value} submit={create} close={close}>
      <label class="stack">
        <span class="muted">Name: the program or person, and the author of its acts</span>
        <input required maxLength={100} data-first="" autocomplete="off" spellcheck={false} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </label>
      <fieldset class="choices column">
        <legend>User role</legend>
        {roles.map(([of, may]) => (
          <label key={of}>
            <input type="radio" name="role" checked={role.value === of} onChange={() => (role.value = of)} />
            <span>
              {of} <span class="muted">{may}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {role.value === "submitter" && <NamesField title="Types of jobs that it may submit (empty: all)" value={types} example="order, refund" />}
      {role.value === "agent" && <NamesField title="Agents whose runs it may carry out" value={agents} example="payments" required />}
      {role.value === "admin" && me.value?.via === "loopback" && (
        <p class="state warn wrap">
          <span class="sign" aria-hidden="true">
            !
          </span>
          <span>From then on, callers on the node's own machine need a token, too: this page asks you for it.</span>
        </p>
      )}
      <div class="split even">
        <NamesField title="Groups, for approvals (optional)" value={groups} example="finance" />
        <label class="stack">
          <span class="muted">Valid for (empty: for ever)</span>
          <input autocomplete="off" spellcheck={false} placeholder="90d, 12h" value={expires.value} onInput={(event) => (expires.value = event.currentTarget.value)} />
        </label>
      </div>
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={command} />
    </FormDialog>
  );
}

function Rotate({ token, close, secret, done }: DialogProps & { token: Token; secret: Signal<NewToken | undefined> }) {
  const { sending, problem, send } = useSend();
  const overlap = useSignal("24h");
  const rotate = () =>
    send(async () => {
      const body = JSON.stringify(overlap.value.trim() ? { overlap: overlap.value.trim() } : {});
      const fresh = await call<NewToken>(callUrl(["v1", "tokens", token.id, "rotate"]), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body });
      close();
      secret.value = fresh;
      done();
    });
  return (
    <FormDialog title={`Rotate the token ${token.name}`} send="Give it another secret" ready sending={sending.value} submit={rotate} close={close}>
      <p class="muted">The token gets another secret, which is shown once. Its name, user role and expiry stay.</p>
      <label class="stack">
        <span class="muted">The secret of now stays valid for, at most 30d (empty: it ends at once)</span>
        <input autocomplete="off" spellcheck={false} value={overlap.value} onInput={(event) => (overlap.value = event.currentTarget.value)} />
      </label>
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={`perdure tokens rotate ${token.id}${overlap.value.trim() ? ` --overlap ${shellWord(overlap.value.trim())}` : ""}${server()}`} />
    </FormDialog>
  );
}

function Revoke({ token, close, done }: DialogProps & { token: Token }) {
  const { sending, problem, send } = useSend();
  const cancel = useRef<HTMLButtonElement>(null);
  const revoke = () =>
    send(async () => {
      await call<undefined>(callUrl(["v1", "tokens", token.id]), { method: "DELETE", headers: authorHeaders() });
      actMessage.value = `The token ${token.name} is revoked.`;
      close();
      done();
    });
  return (
    <FormDialog title={`Revoke the token ${token.name}`} send="Revoke the token" ready warn sending={sending.value} submit={revoke} close={close} cancel={cancel}>
      <p>
        All nodes refuse it within 5 seconds, and the sessions that were started with it end. This cannot be undone.
        {token.lastUsedAt && (
          <>
            {" "}
            It was last used <Ago at={token.lastUsedAt} />.
          </>
        )}
      </p>
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={`perdure tokens rm ${token.id}${server()}`} />
    </FormDialog>
  );
}
