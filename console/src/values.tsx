// Values of jobs and steps as JSON. Large ones are a tree that can be folded, of which only the open part is in the page.
// Numbers are shown as they were stored.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { ExactNumber, namesOf, quoted, showJson, type Json } from "./json.ts";
import { Copy, plural, sizeText } from "./widgets.tsx";

/** A value with a shorter text is shown as text. */
const longestText = 2000;
/** The longest string that is shown at once, in characters. */
const longestString = 2000;
/** Fields of one object or array that are shown at once. */
const fieldsAtOnce = 100;
/** Objects and arrays down to this level are open at first, if they have few fields. */
const openLevels = 2;
const fewFields = 20;

/** A value of a job or step. Large ones are not in the job's view; load gets them. */
export function Value({ title, value, bytes, load, under = false, none = "none" }: { title: string; value: unknown; bytes?: number | undefined; load?: () => void; under?: boolean; none?: string }) {
  const text = useMemo(() => (value === undefined ? "" : showJson(value as Json)), [value]);
  return (
    <section>
      <div class="value-head">
        {under ? (
          <h3>
            <bdi>{title}</bdi>
          </h3>
        ) : (
          <h2>
            <bdi>{title}</bdi>
          </h2>
        )}
        {text && <Copy text={text} what={title.toLowerCase()} />}
        {text.length > longestText && <span class="muted small">{sizeText(text.length)}</span>}
      </div>
      {text ? (
        text.length <= longestText ? (
          <pre class="value" tabIndex={0} role="region" aria-label={title}>
            <bdi>{text}</bdi>
          </pre>
        ) : (
          <div class="value json" tabIndex={0} role="region" aria-label={title}>
            <Part value={value as Json} level={0} />
          </div>
        )
      ) : bytes ? (
        <p class="muted">
          {sizeText(bytes)}, not loaded.{" "}
          {load && (
            <button type="button" onClick={load}>
              Load
            </button>
          )}
        </p>
      ) : (
        <p class="muted">{none}</p>
      )}
    </section>
  );
}

function Part({ name, value, level }: { name?: string; value: Json; level: number }) {
  const label = name === undefined ? null : (
    <>
      <bdi class="json-name">{quoted(name)}</bdi>
      {": "}
    </>
  );
  if (value === null || typeof value !== "object" || value instanceof ExactNumber) {
    return (
      <div class="json-line">
        {label}
        <Scalar value={value} />
      </div>
    );
  }
  return <Fold label={label} value={value} level={level} />;
}

function Fold({ label, value, level }: { label: ComponentChildren; value: Json[] | { [name: string]: Json }; level: number }) {
  const names = Array.isArray(value) ? undefined : namesOf(value);
  const n = names?.length ?? (value as Json[]).length;
  const open = useSignal(level === 0 || (level < openLevels && n <= fewFields));
  const most = useSignal(fieldsAtOnce);
  const [begin, end] = names ? "{}" : "[]";
  if (n === 0) {
    return (
      <div class="json-line">
        {label}
        {begin}
        {end}
      </div>
    );
  }
  return (
    <details class="json-fold" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        {label}
        {begin}
        <span class="muted small"> {plural(n, names ? "field" : "item")}</span>
        {!open.value && ` ${end}`}
      </summary>
      {open.value && (
        <>
          <div class="json-inner">
            {names
              ? names.slice(0, most.value).map((name) => <Part key={name} name={name} value={(value as { [name: string]: Json })[name]!} level={level + 1} />)
              : (value as Json[]).slice(0, most.value).map((item, i) => <Part key={i} value={item} level={level + 1} />)}
            {n > most.value && (
              <button type="button" class="link" onClick={() => (most.value += fieldsAtOnce)}>
                {plural(n - most.value, "more item")}
              </button>
            )}
          </div>
          {end}
        </>
      )}
    </details>
  );
}

function Scalar({ value }: { value: Json }) {
  const all = useSignal(false);
  const text = typeof value === "string" ? quoted(value) : String(value);
  return (
    <>
      <bdi class={typeof value === "string" ? "json-text" : "json-number"}>{all.value ? text : text.slice(0, longestString)}</bdi>
      {!all.value && text.length > longestString && (
        <button type="button" class="link" onClick={() => (all.value = true)}>
          … all {sizeText(text.length)}
        </button>
      )}
    </>
  );
}
