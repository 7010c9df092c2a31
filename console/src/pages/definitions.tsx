// Stored definitions: their list, and one of them with its versions. A version can be compared with another, promoted, and
// submitted.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { needs } from "../access.ts";
import { call, callUrl, serverAddress } from "../api.ts";
import { differences } from "../differences.ts";
import { authorHeaders, CommandLine, FormDialog, useSend } from "../form.tsx";
import { showJson, type Json } from "../json.ts";
import { ListBox } from "../listbox.tsx";
import { useLoad } from "../load.ts";
import { goOnFromHere, place, setQuery } from "../place.ts";
import { link, queryText } from "../router.ts";
import { unknownMark } from "../state.ts";
import type { Job, PageDefinition, StoredDefinition } from "../types.ts";
import { toYaml } from "../yaml.ts";
import { actMessage, Ago, AsOf, Copy, plural, ProblemNote, shellWord, State, useTitle, Waiting } from "../widgets.tsx";

const pageSize = 100;
/** Places of two versions that are shown. */
const mostDifferences = 200;
/** Characters of a value that has changed. */
const mostOfValue = 200;

/** The list of stored definitions, or one of them. */
export function DefinitionPages() {
  const { job: name } = place.value;
  return name ? <DefinitionPage key={name} name={name} /> : <DefinitionList />;
}

function DefinitionList() {
  useTitle("Definitions");
  const list = useLoad<PageDefinition>(callUrl(["v1", "definitions"], queryText({ limit: String(pageSize) })), 5000);
  return (
    <>
      <div class="title">
        <h1>Definitions</h1>
      </div>
      <ListBox
        list={list}
        none={
          <>
            <h2>There are no stored definitions</h2>
            <p class="muted">A definition that is stored has a name and versions. Jobs are submitted by its name.</p>
            <pre>perdure definitions apply order.yaml --server {serverAddress}</pre>
          </>
        }
        head={
          <>
            <th>Definition</th>
            <th class="w-num num">Current</th>
            <th class="w-num num">Latest</th>
            <th class="w-time">Changed</th>
          </>
        }
        row={(d) => (
          <tr key={d.name}>
            <td>
              <a data-row href={link.definitions(d.name)} title={d.name}>
                <bdi>{d.name}</bdi>
              </a>
            </td>
            <td class="num">{d.current.toLocaleString("en")}</td>
            <td class="num">{d.latest.toLocaleString("en")}</td>
            <td>
              <Ago at={d.updatedAt} />
            </td>
          </tr>
        )}
        note={({ items, nextCursor }) => (
          <>
            {nextCursor ? `The first ${pageSize} definitions.` : `${plural(items.length, "definition")}.`} As a command: <code>perdure definitions</code>
          </>
        )}
      />
    </>
  );
}

function DefinitionPage({ name }: { name: string }) {
  useTitle(name);
  const { query } = place.value;
  const page = useLoad<StoredDefinition>(callUrl(["v1", "definitions", name]), 5000);
  const version = Number(query.get("version")) || page.data?.current || 0;
  const against = Number(query.get("against")) || 0;
  const shown = useLoad<StoredDefinition>(version ? callUrl(["v1", "definitions", `${name}@${version}`]) : "", 0);
  const other = useLoad<StoredDefinition>(against ? callUrl(["v1", "definitions", `${name}@${against}`]) : "", 0);
  const submitting = useSignal(false);
  const { sending, problem, send } = useSend();
  const current = page.data?.current;
  const promote = () =>
    void send(async () => {
      await call(callUrl(["v1", "definitions", name, "promote"]), { method: "POST", headers: { "Content-Type": "application/json", ...authorHeaders() }, body: `{"version": ${version}}` });
      actMessage.value = `${name} means version ${version} from now on`;
      page.again();
    });
  const failed = problem.value ?? page.problem ?? shown.problem ?? other.problem;
  return (
    <>
      <div class="title">
        <h1 class="cut">
          <bdi>{name}</bdi>
        </h1>
        {page.data && (
          <div class="buttons">
            <button type="button" class="main" {...needs("submit")} onClick={() => (submitting.value = true)}>
              Submit a job
            </button>
            {version !== current && (
              <button type="button" {...needs("act")} disabled={sending.value} onClick={promote}>
                Promote version {version}
              </button>
            )}
          </div>
        )}
      </div>
      {failed && <ProblemNote problem={failed} again={page.again} />}
      {page.data ? (
        <div class="box data">
          <table aria-label="Versions">
            <thead>
              <tr>
                <th class="w-num num">Version</th>
                <th class="w-state">State</th>
                <th class="w-time">Stored</th>
                <th class="c3">By</th>
                <th class="w-name c2">Compare</th>
              </tr>
            </thead>
            <tbody>
              {(page.data.versions ?? []).map((v) => (
                <tr key={v.version} aria-current={v.version === version ? "true" : undefined}>
                  <td class="num">
                    <a data-row href={link.definitions(name, { version: String(v.version) })} title={v.hash}>
                      {v.version.toLocaleString("en")}
                    </a>
                  </td>
                  <td>{v.version === current && <State mark={{ ...unknownMark("current"), sign: "✓", tone: "good" }} />}</td>
                  <td>
                    <Ago at={v.createdAt} />
                  </td>
                  <td class="c3">
                    <bdi>{v.author}</bdi>
                  </td>
                  <td class="c2">
                    {v.version === version ? (
                      <span class="muted">shown below</span>
                    ) : (
                      <button type="button" class="link" aria-pressed={v.version === against} onClick={() => setQuery({ version: String(version), against: v.version === against ? undefined : String(v.version) })}>
                        {v.version === against ? "Do not compare" : `Compare with ${version}`}
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <div class="below">
            <AsOf at={page.at} />
            <span class="muted small">
              As a command: <code>perdure definitions show {name}</code>
            </span>
          </div>
        </div>
      ) : (
        !page.problem && (
          <div class="box">
            <Waiting />
          </div>
        )
      )}
      {shown.data?.version === version && against > 0 && other.data?.version === against && <Differences name={name} from={other.data} to={shown.data} />}
      {shown.data?.version === version && <Text definition={shown.data} />}
      {submitting.value && <SubmitStored name={`${name}@${version}`} close={() => (submitting.value = false)} />}
    </>
  );
}

function Text({ definition }: { definition: StoredDefinition }) {
  const text = useMemo(() => {
    const { type, steps, ...rest } = definition.definition as { [name: string]: Json };
    return toYaml({ type: type!, ...rest, steps: steps! }); // the stored text has its fields in the order of the alphabet
  }, [definition]);
  return (
    <section class="box inner">
      <div class="value-head">
        <h2>Version {definition.version}</h2>
        <Copy text={text} what="the definition" />
      </div>
      <pre class="value" tabIndex={0} role="region" aria-label="Definition">
        <bdi>{text}</bdi>
      </pre>
    </section>
  );
}

function cut(text: string): string {
  return text.length > mostOfValue ? `${text.slice(0, mostOfValue)} …` : text;
}

function Differences({ name, from, to }: { name: string; from: StoredDefinition; to: StoredDefinition }) {
  const list = useMemo(() => differences(from.definition as Json, to.definition as Json), [from, to]);
  return (
    <section class="box data" aria-label="Differences">
      <header>
        <h2>
          From version {from.version} to version {to.version}
        </h2>
      </header>
      {list.length === 0 ? (
        <p class="inner muted">They are the same.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th>Place</th>
              <th>In version {from.version}</th>
              <th>In version {to.version}</th>
            </tr>
          </thead>
          <tbody>
            {list.slice(0, mostDifferences).map((d) => (
              <tr key={d.pointer}>
                <td>
                  <code>
                    <bdi>{d.pointer || "/"}</bdi>
                  </code>
                </td>
                {[d.from, d.to].map((value, i) => (
                  <td key={i} class="said">
                    {value === undefined ? <span class="muted">–</span> : <bdi class="mono">{cut(showJson(value))}</bdi>}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <div class="below">
        <span class="muted small">
          {list.length > mostDifferences && `The first ${mostDifferences} of ${plural(list.length, "place")}. `}As a command:{" "}
          <code>
            perdure definitions diff {name}@{from.version} {name}@{to.version}
          </code>
        </span>
      </div>
    </section>
  );
}

/** A dialog that submits a job of a version. */
function SubmitStored({ name, close }: { name: string; close: () => void }) {
  const key = useSignal("");
  const input = useSignal("");
  const { sending, problem, send } = useSend();
  const submit = () =>
    void send(async () => {
      const goOn = goOnFromHere();
      const members = [`"definition": ${JSON.stringify(name)}`];
      if (key.value.trim()) members.push(`"key": ${JSON.stringify(key.value.trim())}`);
      if (input.value.trim()) members.push(`"input": ${input.value}`); // as it is written: reading it would round large numbers
      const job = await call<Job>(callUrl(["v1", "jobs"]), { method: "POST", headers: { "Content-Type": "application/json" }, body: `{${members.join(", ")}}` });
      close();
      goOn(link.job(job.id));
    });
  const given = input.value.trim();
  const words = ["perdure", "submit", "--definition", name, ...(key.value.trim() ? ["--key", key.value.trim()] : []), ...(given ? ["--input", "-"] : [])];
  return (
    <FormDialog title={`Submit a job of ${name}`} send="Submit" ready sending={sending.value} submit={submit} close={close}>
      <label class="stack">
        <span class="muted">Key (optional: the same key is the same job)</span>
        <input autocomplete="off" spellcheck={false} value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} />
      </label>
      <label class="stack">
        <span class="muted">Input, as JSON (empty: that of the definition)</span>
        <textarea rows={6} spellcheck={false} autocomplete="off" wrap="off" value={input.value} onInput={(event) => (input.value = event.currentTarget.value)} />
      </label>
      {problem.value && <ProblemNote problem={problem.value} />}
      <CommandLine command={`${given ? `echo ${shellWord(given)} | ` : ""}${words.map(shellWord).join(" ")} --server ${shellWord(serverAddress)}`} />
    </FormDialog>
  );
}
