// The frame around every page: header, banner, help.
import { Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { leaving, loadMe, may, me, meProblem, needText, secretShown } from "./access.ts";
import { openAct } from "./act.tsx";
import { attemptNow, callUrl, loginNeeded, reach } from "./api.ts";
import { openBulk } from "./bulk.tsx";
import { helpOpen, shortcuts } from "./keys.ts";
import { lazy } from "./lazy.tsx";
import { openLimit } from "./limit.tsx";
import { useLoad } from "./load.ts";
import { onLeave, place } from "./place.ts";
import type { Right } from "./rights.ts";
import { link, type Page } from "./router.ts";
import { legend } from "./state.ts";
import { nextTheme, theme } from "./theme.ts";
import { clock, span } from "./time.ts";
import type { PageAlert } from "./types.ts";
import { Who } from "./who.tsx";
import { ActMessage, Icon, nextTimeStyle, now, ProblemNote, showCurrent, State, timeStyle, useTitle, Waiting } from "./widgets.tsx";
import { Agents } from "./pages/agents.tsx";
import { Alerts, mostAlertsCounted } from "./pages/alerts.tsx";
import { JobPage } from "./pages/job.tsx";
import { Jobs } from "./pages/jobs.tsx";
import { Limits } from "./pages/limits.tsx";
import { Nodes } from "./pages/nodes.tsx";
import { Overview } from "./pages/overview.tsx";

const Audit = lazy(() => import("./pages/audit.tsx").then((part) => part.Audit));
const Tokens = lazy(() => import("./pages/tokens.tsx").then((part) => part.Tokens));
const Login = lazy(() => import("./login.tsx").then((part) => part.Login), true);
const Dialogs = lazy(() => import("./dialogs.tsx").then((part) => part.Dialogs), true);
const BulkPages = lazy(() => import("./pages/bulk.tsx").then((part) => part.BulkPages));
const OneAgent = lazy(() => import("./pages/agent.tsx").then((part) => part.OneAgent));
const HostPages = lazy(() => import("./pages/hosts.tsx").then((part) => part.HostPages));
const SchedulePages = lazy(() => import("./pages/schedules.tsx").then((part) => part.SchedulePages));
const DefinitionPages = lazy(() => import("./pages/definitions.tsx").then((part) => part.DefinitionPages));
const WebhookPages = lazy(() => import("./pages/webhooks.tsx").then((part) => part.WebhookPages));
const Submit = lazy(() => import("./pages/submit.tsx").then((part) => part.Submit));

export function App() {
  const { page, job } = place.value;
  // A dialog that opened late would leave to the page what the operator types meanwhile.
  const acts = may("act");
  useEffect(() => {
    if (acts) Dialogs.preload();
  }, [acts]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the page
      </a>
      <Header />
      <Banner />
      <Insecure />
      <main id="main" tabIndex={-1} class={reach.value.nextAttemptAt ? "stale" : ""} key={page + job}>
        {me.value ? <Content /> : <Unidentified />}
      </main>
      <Help />
      {(openAct.value || openLimit.value || openBulk.value) && <Dialogs />}
      <ActMessage />
      {loginNeeded.value && !secretShown.value && !leaving.value && <Login />}
    </>
  );
}

/** What stands in the place of a page until the server has said who the user is. */
function Unidentified() {
  const problem = meProblem.value;
  if (loginNeeded.value) return null;
  return problem ? <ProblemNote problem={problem} again={() => void loadMe()} /> : <Waiting />;
}

/** The right that each page needs. */
const rightOf: Partial<Record<Page, Right>> = {
  overview: "watch", jobs: "read", job: "read", alerts: "watch", bulk: "watch", agents: "watch", hosts: "watch", limits: "watch", schedules: "watch", definitions: "read", webhooks: "watch", nodes: "watch", submit: "submit", tokens: "access", audit: "access",
};

function Content() {
  const { page, job } = place.value;
  const right = rightOf[page];
  if (right && !may(right)) return <NoRight right={right} />;
  switch (page) {
    case "overview":
      return <Overview />;
    case "jobs":
      return <Jobs />;
    case "job":
      return <JobPage id={job} />;
    case "alerts":
      return <Alerts />;
    case "bulk":
      return <BulkPages />;
    case "agents":
      return job ? <OneAgent key={job} name={job} /> : <Agents />;
    case "hosts":
      return <HostPages />;
    case "limits":
      return <Limits />;
    case "schedules":
      return <SchedulePages />;
    case "definitions":
      return <DefinitionPages />;
    case "webhooks":
      return <WebhookPages />;
    case "nodes":
      return <Nodes />;
    case "submit":
      return <Submit />;
    case "tokens":
      return <Tokens />;
    case "audit":
      return <Audit />;
  }
  return <NoPage />;
}

function NoPage() {
  useTitle("No such page");
  return (
    <div class="box empty">
      <h1>There is no such page</h1>
      <p class="muted">
        The address has no page of this console: <code>{place.value.path}</code>
      </p>
      <a class="button" href={link.overview()}>
        Overview
      </a>
    </div>
  );
}

function NoRight({ right }: { right: Right }) {
  useTitle("No access");
  const { name, role } = me.value!;
  const first = entries.find(([page]) => may(rightOf[page]!));
  return (
    <div class="box empty">
      <h1>This page {needText(right)}</h1>
      <p class="muted">
        You are <bdi>{name}</bdi>, with the user role {role}.{!first && " It is for programs: the console has no page for it."}
      </p>
      {first && (
        <a class="button" href={first[1]}>
          {first[2]}
        </a>
      )}
    </div>
  );
}

const entries: [page: Page, href: string, title: string][] = [
  ["overview", link.overview(), "Overview"],
  ["jobs", link.jobs(), "Jobs"],
  ["alerts", link.alerts(), "Alerts"],
  ["bulk", link.bulk(), "Bulk acts"],
  ["agents", link.agents(), "Agents"],
  ["hosts", link.hosts(), "Hosts"],
  ["limits", link.limits(), "Limits"],
  ["schedules", link.schedules(), "Schedules"],
  ["definitions", link.definitions(), "Definitions"],
  ["webhooks", link.webhooks(), "Webhooks"],
  ["nodes", link.nodes(), "Nodes"],
  ["submit", link.submit(), "Submit"],
];

function Header() {
  const current = place.value.page === "job" ? "jobs" : place.value.page;
  const alerts = useLoad<PageAlert>(may("watch") ? callUrl(["v1", "alerts"], `?limit=${mostAlertsCounted + 1}`) : "", 10_000);
  const n = alerts.data?.items.length ?? 0;
  const shown = entries.filter(([page]) => may(rightOf[page]!));
  const bar = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(bar.current), [current, me.value]);
  const themeName = { system: "as the system has it", light: "light", dark: "dark" }[theme.value];
  return (
    <header class="top">
      <a class="brand" href={link.overview()}>
        <Icon name="mark" />
        Perdure
      </a>
      <nav aria-label="Pages" ref={bar}>
        <ul>
          {shown.map(([page, href, title]) => (
            <li key={page}>
              <a href={href} aria-current={page === current ? "page" : undefined}>
                {title}
                {page === "alerts" && n > 0 && (
                  <span class="count">
                    {n > mostAlertsCounted ? `${mostAlertsCounted}+` : n}
                    <span class="hidden"> open</span>
                  </span>
                )}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <div class="tools">
        <button type="button" class="bare" title={`Colours: ${themeName}`} aria-label={`Colours: ${themeName}`} onClick={nextTheme}>
          <Icon name={theme.value} />
        </button>
        <button type="button" class="bare" title={`Times: ${timeStyle.value}`} aria-label={`Times: ${timeStyle.value}`} onClick={nextTimeStyle}>
          <Icon name="clock" />
        </button>
        <button type="button" class="bare" title="Help: signs, and keys (?)" aria-label="Help" onClick={() => (helpOpen.value = true)}>
          <Icon name="help" />
        </button>
        {me.value && <Who who={me.value} />}
      </div>
    </header>
  );
}

/** What a node says that was started with --insecure. */
function Insecure() {
  if (me.value?.via !== "insecure") return null;
  return (
    <aside class="banner" aria-label="Access">
      <Icon name="warn" />
      <span>Every caller may act without a token.</span>
    </aside>
  );
}

function Banner() {
  const { answeredAt, nextAttemptAt } = reach.value;
  if (!nextAttemptAt) return null;
  void now.value; // counts down
  const left = nextAttemptAt - Date.now();
  return (
    <div class="banner" role="status">
      <Icon name="warn" />
      <span>
        No response since {clock(answeredAt)}. The page shows what was known then.
        <span aria-hidden="true"> {left > 0 ? `Next attempt in ${span(left + 999)}.` : "Trying …"}</span>
      </span>
      <button type="button" onClick={() => attemptNow()}>
        Try now
      </button>
    </div>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open) dialog.current?.close();
  }, [open]);
  useEffect(() => void onLeave.add(() => (helpOpen.value = false)), []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="help-title"
      onClose={() => (helpOpen.value = false)}
      onClick={(event) => {
        if (event.target === dialog.current) helpOpen.value = false; // the backdrop
      }}
    >
      <header>
        <h2 id="help-title">Help</h2>
        <button type="button" class="bare" aria-label="Close" onClick={() => (helpOpen.value = false)}>
          <Icon name="close" />
        </button>
      </header>
      <div class="keys">
        <section>
          <h3>Signs</h3>
          <dl class="signs">
            {legend.map(([mark, what]) => (
              <Fragment key={mark.sign + mark.word}>
                <dt>
                  <State mark={{ ...mark, detail: "" }} />
                </dt>
                <dd>{what}</dd>
              </Fragment>
            ))}
          </dl>
          <p class="muted small">“Current → desired” is what is true of a job now, and what it is driven to. An undo is the desired state “undone”.</p>
        </section>
        {shortcuts.map(([where, list]) => (
          <section key={where}>
            <h3>{where}</h3>
            <dl>
              {list.map(([keys, what]) => (
                <Fragment key={what}>
                  <dt>
                    {keys.map((key, i) => (
                      <Fragment key={key}>
                        {i > 0 && " "}
                        <kbd>{key}</kbd>
                      </Fragment>
                    ))}
                  </dt>
                  <dd>{what}</dd>
                </Fragment>
              ))}
            </dl>
          </section>
        ))}
        <p class="muted small">No key carries out an act: acts open a dialog first.</p>
      </div>
    </dialog>
  );
}
