// The login, what each user role sees and may do, and the pages of tokens and of the audit log. The first token makes the
// node ask for tokens: its store has none before.
import assert from "node:assert/strict";
import process from "node:process";
import { before } from "node:test";
import { counted, empty, eventually, full, loaded, narrow, open, test, titled, violations, wide } from "./browser.mjs";

const insecure = process.env.INSECURE_CONSOLE_URL;
const html = "<img src=x onerror=document.title='broken'>";
const pages = ["", "jobs", "jobs/order-1042?step=charge", "alerts", "bulk", "agents", "hosts", "hosts/h1", "limits", "schedules", "definitions", "webhooks", "webhooks/shop", "nodes", "submit", "tokens", "audit"];

/** Calls the API of the console with jobs. */
async function call(method, path, { token, body, base = full } = {}) {
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) };
  const response = await fetch(new URL(`../v1/${path}`, base), { method, headers, ...(body && { body: JSON.stringify(body) }) });
  const text = await response.text();
  return { response, answer: text ? JSON.parse(text) : undefined };
}

async function must(method, path, options) {
  const { response, answer } = await call(method, path, options);
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}

/** The sizes for pages and menus of which other tests check all sizes, without logins. */
const at = [narrow, wide];

const tokens = {};
before(async () => {
  await must("POST", "webhooks", { body: { name: "shop", stream: true } });
  await must("PUT", "hosts/h1", { body: { incarnation: "i1", capacity: { slots: 4 } } });
  tokens.admin = (await must("POST", "tokens", { body: { name: "ada", role: "admin" } })).token;
  for (const [key, body] of Object.entries({
    viewer: { name: "vera", role: "viewer" },
    operator: { name: "olaf", role: "operator", groups: ["finance", "night shift"] },
    submitter: { name: "shop", role: "submitter", types: ["order", "refund"], expiresIn: "90d" },
    agent: { name: "payments-1", role: "agent", agents: ["payments"] },
    hostile: { name: html, role: "operator" },
  })) {
    tokens[key] = (await must("POST", "tokens", { token: tokens.admin, body })).token;
  }
});

/** The cookie of a new session. */
async function session(token) {
  const { response } = await call("POST", "sessions", { body: { token } });
  assert.equal(response.status, 201);
  const [name, value] = response.headers.get("set-cookie").split(";")[0].split("=");
  return { name, value };
}

/** Opens a page as a user. */
async function openAs(t, who, path, options = {}) {
  return open(t, path, { cookie: await session(tokens[who]), ...options });
}

/** Opens a page without a session. */
async function openOut(t, path, options = {}) {
  const page = await open(t, path, options);
  page.expectedErrors.push(/401/);
  await page.getByRole("dialog", { name: "Log in" }).waitFor();
  return page;
}

async function logIn(page, token) {
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
}

test("a page without a session asks for a token, makes no other call, and is shown at the same address after the login", async (t) => {
  const calls = [];
  const page = await openOut(t, "nodes");
  page.on("request", (request) => request.url().includes("/v1/") && calls.push(`${request.method()} ${new URL(request.url()).pathname.replace(/.*\/v1\//, "")}`));
  await page.goto(full + "jobs?type=order&phase=parked");
  await page.getByRole("dialog", { name: "Log in" }).waitFor();
  await titled(page, "Log in · Perdure");
  await page.waitForTimeout(1500);
  assert.deepEqual(calls, ["GET me"]);
  const field = page.getByLabel("Token", { exact: true });
  assert.equal(await field.getAttribute("type"), "password");
  assert.ok(await field.evaluate((element) => element === document.activeElement));
  for (let i = 0; i < 2; i++) await page.keyboard.press("Escape");
  assert.ok(await page.getByRole("dialog", { name: "Log in" }).isVisible(), "Esc does not close it");

  await logIn(page, "pdr_wrong");
  await page.getByText("the token is not valid").waitFor();
  await page.getByText("perdure tokens create").waitFor(); // the hint
  await violations(page, "login");
  await field.fill(` ${tokens.viewer}\n`);
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "order-1042" }).waitFor();
  assert.equal(page.url(), full + "jobs?type=order&phase=parked");
  await titled(page, "Jobs · Perdure");
  await counted(page.getByRole("dialog"), 0);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.ok(!kept.includes("pdr_"), "scripts find no token");
});

test("no link leads to another site after the login", async (t) => {
  const page = await openOut(t, "");
  for (const path of ["jobs?next=https://example.org/&returnTo=//example.org&to=javascript:alert(1)#https://example.org", "/example.org/..%2f?next=//example.org", "login?next=https://example.org"]) {
    await page.context().clearCookies();
    await page.goto(full + path);
    await page.getByRole("dialog", { name: "Log in" }).waitFor();
    const before = page.url();
    assert.equal(new URL(before).origin, new URL(full).origin);
    await logIn(page, tokens.viewer);
    await page.getByLabel("User vera viewer").waitFor();
    assert.equal(page.url(), before);
  }
});

test("the login offers the provider of OpenID Connect, and says why it failed there", async (t) => {
  const page = await openOut(t, "");
  await page.route("**/v1/me", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, headers: { ...response.headers(), "Perdure-Login": "oidc" } });
  });
  await page.goto(full + "jobs?type=order#login=forbidden");
  await page.getByText("your account has no user role here").waitFor();
  const link = page.getByRole("link", { name: "Log in with OpenID Connect" });
  assert.equal(await link.evaluate((a) => a.href), `${full}oidc/start?to=${encodeURIComponent(new URL(full).pathname + "jobs?type=order")}`);
  assert.equal(page.url(), full + "jobs?type=order");
  await violations(page, "login at a provider");
});

test("a session that ends shows the login, and what was entered is kept", async (t) => {
  const page = await openAs(t, "operator", "jobs/order-1042?step=charge");
  page.expectedErrors.push(/401/);
  await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: "Settle …" }).click();
  const dialog = page.getByRole("dialog", { name: "Settle charge of order-1042" });
  await dialog.getByLabel("Reason", { exact: true }).fill("paid in cash");
  await dialog.getByText("Recorded as").waitFor();
  assert.equal(await dialog.getByLabel("Your name, for the history").count(), 0);
  await dialog.getByText("The job would be").waitFor();
  for (const { id, name } of (await must("GET", "sessions", { token: tokens.admin })).items) {
    if (name === "olaf") await must("DELETE", `sessions/${id}`, { token: tokens.admin });
  }
  const login = page.getByRole("dialog", { name: "Log in" });
  await login.waitFor();
  await login.getByText("Your session has ended").waitFor();
  assert.equal(page.url(), full + "jobs/order-1042?step=charge");
  await logIn(page, tokens.operator);
  await login.waitFor({ state: "hidden" });
  assert.equal(await dialog.getByLabel("Reason", { exact: true }).inputValue(), "paid in cash");
  await dialog.getByRole("button", { name: "Settle", exact: true }).click();
  await page.getByText("Settle charge of order-1042: recorded.").waitFor();
  const { items } = await must("GET", "audit?act=settle", { token: tokens.admin });
  assert.deepEqual([items[0].author, items[0].reason, items[0].via, items[0].onBehalfOf], ["olaf", "paid in cash", "session", undefined]);
});

test("another user who logs in sees a page of their own", async (t) => {
  const page = await openAs(t, "operator", "limits");
  page.expectedErrors.push(/401/);
  await page.getByRole("button", { name: "New limit …" }).waitFor();
  await page.context().clearCookies();
  await page.getByRole("dialog", { name: "Log in" }).waitFor();
  await logIn(page, tokens.viewer);
  await page.getByLabel("User vera viewer").waitFor();
  assert.ok(await page.getByRole("button", { name: "New limit …" }).isDisabled());
  assert.equal(page.url(), full + "limits");
});

test("the menu of the user names the rights, and logs out", async (t) => {
  const page = await openAs(t, "submitter", "jobs");
  page.expectedErrors.push(/401/);
  await page.getByLabel("User shop submitter").click();
  const menu = page.locator(".who");
  await menu.getByText("order, refund").waitFor();
  await menu.getByText("session ends").waitFor();
  assert.equal(await menu.getByRole("link").count(), 0); // tokens and audit log are for admins
  await violations(page, "menu of the user", { covered: true, at });
  await menu.getByRole("button", { name: "Log out" }).click();
  await page.getByText("This node asks for a token.").waitFor(); // a page that was loaded again: it knows no user
  assert.equal(page.url(), full + "jobs");
  assert.equal(await page.getByText("order-1042").count(), 0, "nothing of the page is left");
  const { items } = await must("GET", "sessions", { token: tokens.admin });
  assert.ok(!items.some((s) => s.name === "shop"));
});

test("no login is shown while a logout is on its way", async (t) => {
  const page = await openAs(t, "operator", "limits");
  page.expectedErrors.push(/401/);
  let answer;
  const asked = new Promise((wake) => (answer = wake));
  await page.route("**/v1/sessions/current", async (route) => {
    const response = await route.fetch(); // the session has ended
    await asked;
    await route.fulfill({ response });
  });
  await page.getByLabel("User olaf operator").click();
  const refused = page.waitForResponse((response) => response.status() === 401);
  await page.getByRole("button", { name: "Log out" }).click();
  await (await refused).finished();
  await page.waitForTimeout(500); // a login would be shown by then
  assert.equal(await page.getByRole("dialog", { name: "Log in" }).count(), 0);
  answer();
  await page.getByText("This node asks for a token.").waitFor();
});

for (const [who, shown] of Object.entries({
  viewer: ["Overview", "Jobs", "Alerts", "Bulk acts", "Agents", "Hosts", "Limits", "Schedules", "Definitions", "Webhooks", "Nodes"],
  submitter: ["Jobs", "Definitions", "Submit"],
  agent: [],
  operator: ["Overview", "Jobs", "Alerts", "Bulk acts", "Agents", "Hosts", "Limits", "Schedules", "Definitions", "Webhooks", "Nodes", "Submit"],
  admin: ["Overview", "Jobs", "Alerts", "Bulk acts", "Agents", "Hosts", "Limits", "Schedules", "Definitions", "Webhooks", "Nodes", "Submit"],
})) {
  test(`the user role ${who} sees its pages, and no page makes a call that is refused`, async (t) => {
    const page = await openAs(t, who, "");
    const refused = [];
    page.on("response", (response) => response.status() === 403 && refused.push(response.url()));
    for (const path of pages) {
      await page.goto(full + path);
      await loaded(page);
      const links = (await page.getByRole("navigation", { name: "Pages" }).getByRole("link").allTextContents()).map((text) => text.replace(/\d.*/, ""));
      assert.deepEqual(links, shown);
      await page.waitForTimeout(200);
    }
    assert.deepEqual(refused, []);
    if (shown.length === 12) return;
    await page.goto(full + (who === "viewer" ? "submit" : "alerts"));
    const needed = { viewer: "submitter or operator", submitter: "viewer or operator", agent: "viewer or operator" }[who];
    await page.getByRole("heading", { name: `This page needs the user role ${needed}` }).waitFor();
    await page.goto(full + "tokens");
    await page.getByRole("heading", { name: "This page needs the user role admin" }).waitFor();
    await violations(page, `${who}: no access`, { at });
  });
}

test("buttons of acts are disabled for a viewer, and name the user role", async (t) => {
  const page = await openAs(t, "viewer", "jobs/order-1002?step=charge");
  const needs = async (button, role = "operator") => {
    await button.waitFor();
    assert.ok(await button.isDisabled(), await button.textContent());
    const [description] = await button.evaluate((element) => [element.title]);
    assert.equal(description, `needs the user role ${role}`);
  };
  const panel = page.getByRole("complementary", { name: "Step charge" });
  for (const act of ["Resume …", "Edit input …", "Settle …", "Skip …"]) await needs(panel.getByRole("button", { name: act }));
  await needs(page.locator(".job-head").getByRole("button", { name: "Undo …" }));
  await page.getByLabel("More actions").click();
  await needs(page.getByRole("button", { name: "Give up …" }));
  await needs(page.getByRole("button", { name: "Submit a similar job …" }), "submitter or operator");
  await page.goto(full + "jobs/expense-12");
  for (const act of ["Approve sign …", "Reject sign …"]) {
    const button = page.getByRole("button", { name: act });
    await button.waitFor();
    assert.deepEqual([await button.isDisabled(), await button.evaluate((element) => element.title)], [true, "needs the group finance"]);
  }
  await page.goto(full + "jobs?type=order");
  await page.getByLabel("Select order-1042").check();
  for (const act of ["Resume …", "Undo …", "Redo …", "Give up …"]) await needs(page.getByRole("region", { name: "Selected jobs" }).getByRole("button", { name: act }));
  await violations(page, "selection of a viewer", { at });
  await page.goto(full + "limits");
  await needs(page.getByRole("button", { name: "New limit …" }));
  await needs(page.getByRole("button", { name: "Set the limit agent:payments" }));
  await page.goto(full + "webhooks");
  await needs(page.getByRole("button", { name: "New receiver …" }), "admin");
  await page.goto(full + "webhooks/shop");
  for (const act of ["Test …", "Pause …", "Resend …"]) await needs(page.getByRole("button", { name: act }));
  for (const act of ["Edit …", "Delete …"]) await needs(page.getByRole("button", { name: act }), "admin");
  await violations(page, "a receiver, for a viewer", { at });
  await page.goto(full + "hosts/h1");
  for (const act of ["Drain …", "Remove …"]) await needs(page.getByRole("button", { name: act }));
  await violations(page, "a host, for a viewer", { at });
  await page.goto(full + "agents");
  await needs(page.getByRole("button", { name: "20: set the limit agent:payments" }));
  await violations(page, "agents of a viewer", { at });
});

test("an operator tests, pauses and resends a receiver, and admins change it", async (t) => {
  await must("PUT", "webhooks/shop-2", { token: tokens.admin, body: { url: "http://127.0.0.1:1/hooks" } });
  const page = await openAs(t, "operator", "webhooks/shop-2");
  for (const act of ["Test …", "Pause …", "Resend …"]) assert.ok(await page.getByRole("button", { name: act }).isEnabled(), act);
  for (const act of ["Rotate the secret …", "Edit …", "Delete …"]) {
    const button = page.getByRole("button", { name: act });
    assert.ok(await button.isDisabled(), act);
    assert.equal(await button.getAttribute("title"), "needs the user role admin");
  }
  await page.getByRole("button", { name: "Pause …" }).click();
  await page.getByRole("button", { name: "Pause the receiver" }).click();
  await page.getByText("Nothing is delivered: paused by olaf").waitFor();
});

test("the page of tokens creates, rotates and revokes, and ends sessions", async (t) => {
  const page = await openAs(t, "admin", "");
  page.expectedErrors.push(/422/);
  await page.getByLabel("User ada admin").click();
  await page.getByRole("link", { name: "Tokens and sessions" }).click();
  await page.getByRole("heading", { name: "Tokens" }).waitFor();
  await page.getByRole("cell", { name: "vera", exact: false }).first().waitFor();
  await page.getByText(html).first().waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  await violations(page, "tokens");

  await page.getByRole("button", { name: "New token …" }).click();
  const form = page.getByRole("dialog", { name: "A new token" });
  await form.getByLabel("Name: the program").fill("loader");
  await form.getByLabel("submitter").check();
  await form.getByLabel("Types of jobs").fill("import, refund");
  await form.getByLabel("Groups").fill("night shift, ops");
  await form.getByText("perdure tokens create --name loader --role submitter --type import --type refund --group 'night shift' --group ops --expires 365d").waitFor();
  await violations(page, "a new token");
  await form.getByLabel("Valid for").fill("1000y");
  await form.getByRole("button", { name: "Create the token" }).click();
  await form.getByText("invalid").first().waitFor();
  await form.getByLabel("Valid for").fill("90d");
  await form.getByRole("button", { name: "Create the token" }).click();
  const secret = page.getByRole("dialog", { name: "Token loader", exact: true });
  const first = (await secret.locator("code").textContent()).trim();
  assert.match(first, /^pdr_/);
  for (let i = 0; i < 2; i++) await page.keyboard.press("Escape");
  assert.ok(await secret.isVisible(), "Esc does not close it");
  await violations(page, "the text of a token");
  const { answer: identity } = await call("GET", "me", { token: first });
  assert.deepEqual([identity.name, identity.role, identity.types, identity.groups], ["loader", "submitter", ["import", "refund"], ["night shift", "ops"]]);
  await secret.getByRole("button", { name: "Close" }).click();
  await eventually(async () => assert.ok(!(await page.content()).includes(first), "the text is gone"));

  await page.getByRole("button", { name: "Rotate the token loader" }).click();
  const rotate = page.getByRole("dialog", { name: "Rotate the token loader" });
  await rotate.getByLabel("The secret of now stays valid").fill("1h");
  await violations(page, "rotate");
  await rotate.getByRole("button", { name: "Give it another secret" }).click();
  const second = (await secret.locator("code").textContent()).trim();
  assert.notEqual(second, first);
  await secret.getByRole("button", { name: "Close" }).click();
  await page.waitForTimeout(5500); // for so long a node may remember the secrets of before
  for (const [which, token] of Object.entries({ first, second })) {
    const { response, answer } = await call("GET", "me", { token });
    assert.equal(response.status, 200, `${which}: ${JSON.stringify(answer)}`);
  }
  await page.getByText("its earlier secret until").waitFor();

  await page.getByRole("button", { name: "Revoke the token loader" }).click();
  const revoke = page.getByRole("dialog", { name: "Revoke the token loader" });
  await violations(page, "revoke");
  await revoke.getByRole("button", { name: "Revoke the token", exact: true }).click();
  await page.getByText("The token loader is revoked.").waitFor();
  await page.getByRole("button", { name: "Rotate the token loader" }).waitFor({ state: "hidden" });
  await page.waitForTimeout(5500); // not repeated: wrong tokens are counted
  assert.equal((await call("GET", "me", { token: second })).response.status, 401);

  const other = await session(tokens.hostile);
  await page.reload();
  const end = page.getByRole("button", { name: `End the session of ${html}` });
  await end.click();
  await end.waitFor({ state: "hidden" });
  await page.getByText(`The session of ${html} has ended.`).waitFor();
  assert.doesNotMatch(await page.title(), /broken/);
  await eventually(async () => assert.equal((await fetch(new URL("../v1/me", full), { headers: { Cookie: `${other.name}=${other.value}` } })).status, 401));
});

test("the audit log has filters, pages, and links to jobs", async (t) => {
  const { id } = await must("GET", "jobs/order-1002", { token: tokens.admin });
  for (let i = 0; i < 110; i++) await must("POST", `jobs/${id}/steps/charge/edit`, { token: tokens.hostile, body: { input: { fail: `again:${i}` }, reason: html } });
  await call("POST", `jobs/${id}/undo`, { token: tokens.viewer, body: {} }); // refused
  const page = await openAs(t, "admin", "audit");
  await page.getByRole("heading", { name: "Audit log" }).waitFor();
  await page.getByText("100 entries").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  await page.getByRole("button", { name: "More" }).click();
  await eventually(async () => assert.ok((await page.locator("tbody tr").count()) > 110));
  await page.getByLabel("Author").fill(html);
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.searchParams.get("author") === html);
  await page.getByText("100 entries").waitFor();
  const row = page.locator("tbody tr").first();
  await row.getByText("edit", { exact: true }).waitFor();
  await row.locator(".state.good", { hasText: "done" }).last().waitFor();
  await titled(page, "Audit log · Perdure");
  await page.getByLabel("Author").fill("vera");
  await page.getByLabel("Act").fill("undo");
  await page.keyboard.press("Enter");
  await eventually(async () => {
    await page.reload(); // refusals are recorded up to a second later
    await loaded(page);
    assert.equal(await page.locator("tbody tr").count(), 1);
  });
  await page.locator("tbody tr .state.bad", { hasText: "refused" }).last().waitFor();
  await page.getByText("forbidden").waitFor();
  await page.goto(full + "audit?job=order-1002&act=undo&since=1h"); // few rows: axe is slow on many
  await violations(page, "audit log");
  await page.locator("tbody tr").first().getByRole("link", { name: id }).last().click();
  await page.getByRole("heading", { name: "order-1002" }).waitFor();
  await page.goto(full + "audit?author=nobody");
  await page.getByRole("heading", { name: "No entry matches" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.getByRole("heading", { name: "Tokens" }).waitFor();
});

test("a token with HTML in its name is shown as text", async (t) => {
  const page = await openAs(t, "hostile", "limits");
  await page.getByLabel(`User ${html} operator`).click();
  await page.locator(".who dd", { hasText: html }).waitFor();
  assert.equal(await page.locator("header img").count(), 0);
  await violations(page, "long name", { covered: true, at });
});

test("a node that needs no token says so", async (t) => {
  const page = await open(t, "limits", { base: insecure });
  await page.getByText("Every caller may act without a token.").waitFor();
  await violations(page, "without tokens", { at });
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByText("Every caller may act without a token.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Log out" }).count(), 0);
});

test("the login does not cover the first token of an admin", async (t) => {
  const page = await open(t, "tokens", { base: empty });
  page.expectedErrors.push(/401/);
  await page.getByRole("heading", { name: "There are no tokens" }).waitFor();
  await page.getByLabel("User no token admin").click();
  await page.getByText("Callers on the node's own machine need no token").waitFor();
  await violations(page, "no tokens", { covered: true, at });
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "New token …" }).click();
  const form = page.getByRole("dialog", { name: "A new token" });
  await form.getByLabel("Name: the program").fill("first");
  await form.getByLabel("admin", { exact: false }).check();
  await form.getByText("this page asks you for it").waitFor();
  await form.getByRole("button", { name: "Create the token" }).click();
  const secret = page.getByRole("dialog", { name: "Token first" });
  const text = (await secret.locator("code").textContent()).trim();
  await eventually(async () => assert.equal((await call("GET", "me", { base: empty })).response.status, 401));
  await page.waitForTimeout(6000); // the page has loaded its lists again meanwhile
  assert.ok(await secret.isVisible());
  assert.equal(await page.getByRole("dialog", { name: "Log in" }).count(), 0);
  await secret.getByRole("button", { name: "Close" }).click();
  await page.getByRole("dialog", { name: "Log in" }).waitFor();
  await logIn(page, text);
  await page.getByLabel("User first admin").waitFor();
  await page.getByRole("button", { name: "Revoke the token first" }).waitFor();
});

test("after ten wrong tokens the login says when to try again", async (t) => {
  const page = await openOut(t, "jobs");
  page.expectedErrors.push(/429/);
  for (let i = 0; i < 12; i++) await call("GET", "me", { token: "pdr_wrong" });
  await logIn(page, "pdr_wrong");
  await page.getByText("too many wrong tokens from this address").waitFor();
  await page.getByText(/Try again in \d+ seconds/).waitFor();
  assert.ok(await page.getByRole("button", { name: "Log in" }).isDisabled());
  await violations(page, "login, too many");
});
