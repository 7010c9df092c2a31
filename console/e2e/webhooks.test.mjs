// The pages of webhooks, with real receivers: what operators do there, what arrives, and what the page says when nothing does.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { after, before } from "node:test";
import { api, counted, empty, eventually, full, loaded, open, test, titled, violations } from "./browser.mjs";

const html = "<img src=x onerror=document.title='broken'>";

/** A receiver answers with the status that is set for the path; 204 if there is none. */
const receiver = { status: {}, got: [], url: "" };
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    const status = receiver.status[request.url] ?? 204;
    receiver.got.push({ path: request.url, headers: request.headers, body, status });
    response.statusCode = status;
    response.end();
  });
});
before(async () => {
  await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
  receiver.url = `http://127.0.0.1:${server.address().port}`;
});
after(() => server.close());

/** The deliveries that a path has accepted. */
const accepted = (path) => receiver.got.filter((one) => one.path === path && one.status < 300);

/** Whether a delivery has a signature with a secret. */
function signed({ headers, body }, secret) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const text = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
  return headers["webhook-signature"].split(" ").includes(`v1,${createHmac("sha256", key).update(text).digest("base64")}`);
}

async function call(method, path, body, author = "anna") {
  const response = await fetch(new URL(`../v1/${path}`, full), { method, headers: { "Content-Type": "application/json", "Perdure-Author": author }, ...(body && { body: JSON.stringify(body) }) });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text && JSON.parse(text);
}

let jobs = 0;
/** Submits jobs that are done at once. */
async function submit(n, type = "paid") {
  for (let i = 0; i < n; i++) await api("jobs", { type, key: `${type}-${++jobs}`, steps: { reserve: { agent: "stock" } } });
}

const act = (page, name) => page.locator(".title").getByRole("button", { name: `${name} …`, exact: true }).click();
const rows = (page) => page.getByRole("table", { name: "Deliveries" }).locator("tbody tr");
const pill = (page, word) => page.locator(".title .state.pill", { hasText: word }).waitFor();

test("a store without receivers explains what they are", async (t) => {
  const page = await open(t, "", { base: empty });
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await page.getByRole("heading", { name: "There are no receivers" }).waitFor();
  await page.getByText("perdure webhooks create shop https://shop.example/hooks").waitFor();
  await titled(page, "Webhooks · Perdure");
  await violations(page, "no receivers");
});

test("a receiver is created, its secret is shown once, and a test arrives that is signed with it", async (t) => {
  const page = await open(t, "webhooks");
  page.expectedErrors.push(/422/, /409/);
  await page.getByRole("button", { name: "New receiver …" }).click();
  const form = page.getByRole("dialog", { name: "A new receiver" });
  const create = form.getByRole("button", { name: "Create the receiver" });
  assert.ok(await create.isDisabled());
  await form.getByLabel("Name: letters").fill("shop");
  await form.getByLabel("URL: http").fill("ftp://shop.example");
  await form.getByLabel("received").check();
  await form.getByLabel("Types of jobs").fill("paid\nlarge-heavy");
  await form.getByText(`perdure webhooks create shop ftp://shop.example --on received,parked,done,undone --types paid,large-heavy --server`).waitFor();
  await create.click();
  await form.getByText("must begin with https:// or http://, and name a host").first().waitFor();
  await violations(page, "a new receiver that is refused");
  await form.getByLabel("URL: http").fill(`${receiver.url}/shop?key=4711`);
  await create.click();

  const dialog = page.getByRole("dialog", { name: "Secret of shop" });
  const secret = (await dialog.locator(".secret code").textContent()).trim();
  assert.match(secret, /^whsec_/);
  await dialog.getByRole("button", { name: "Copy the secret" }).waitFor();
  await dialog.getByText("Standard Webhooks").waitFor();
  for (let i = 0; i < 2; i++) await page.keyboard.press("Escape");
  assert.ok(await dialog.isVisible(), "Esc does not close it");
  await violations(page, "the secret");
  await dialog.getByRole("button", { name: "Close" }).click();
  await dialog.waitFor({ state: "detached" });
  assert.ok(!(await page.content()).includes(secret), "the secret is gone");
  const { on, types, url } = await call("GET", "webhooks/shop");
  assert.deepEqual([on, types, url], [["received", "parked", "done", "undone"], ["paid", "large-heavy"], `${receiver.url}/shop?key=4711`]);

  const row = page.getByRole("row", { name: /^shop/ });
  assert.ok(!(await row.textContent()).includes("4711"), "the list has no path");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Webhook shop" }).waitFor();
  await page.getByText("Nothing was reported to this receiver yet").waitFor();
  assert.ok(!(await page.content()).includes("4711"), "the path is shown if it is asked for");
  await page.getByRole("button", { name: "Show the path" }).click();
  await page.getByText(`${receiver.url}/shop?key=4711`).waitFor();

  await act(page, "Test");
  const ask = page.getByRole("dialog", { name: "Test shop" });
  await ask.getByText("perdure webhooks test shop --server").waitFor();
  await violations(page, "the dialog of a test");
  await ask.getByRole("button", { name: "Send a test" }).click();
  await page.getByText(/The test ntc_\w+ is stored/).waitFor();
  await rows(page).filter({ hasText: "delivered" }).first().waitFor();
  await counted(rows(page), 1);
  const [delivery, ...more] = accepted("/shop?key=4711");
  assert.equal(more.length, 0);
  assert.equal(JSON.parse(delivery.body).type, "perdure.test");
  assert.ok(signed(delivery, secret));
  assert.ok(!signed(delivery, "whsec_AAAA"));

  await page.goto(full + "webhooks");
  await page.getByRole("button", { name: "New receiver …" }).click();
  await form.getByLabel("Name: letters").fill("shop");
  await form.getByLabel("URL: http").fill(receiver.url);
  await create.click();
  await form.getByText("there is a receiver shop already").waitFor();
});

test("a receiver that fails shows the error and the attempts, and what is due arrives when it is back", async (t) => {
  receiver.status["/crm"] = 503;
  await call("POST", "webhooks", { name: "crm", url: `${receiver.url}/crm`, on: ["done"], types: ["paid"] });
  await submit(1);
  const page = await open(t, "webhooks");
  await page.getByRole("row", { name: /^crm/ }).getByText("failing").waitFor();
  await page.getByRole("row", { name: /^crm/ }).getByText("the receiver answered 503").filter({ visible: true }).waitFor();
  await violations(page, "list with a receiver that fails");
  await page.getByRole("link", { name: "1 pending of crm" }).click();
  await page.waitForURL(full + "webhooks/crm?state=pending");
  await pill(page, "failing");
  await page.getByText("The latest attempt has failed: the receiver answered 503").waitFor();
  await page.getByText(/after \d+ attempts?; the next one is due/).waitFor();
  const row = rows(page).first();
  await row.getByText("job.done").waitFor();
  await row.getByText("the receiver answered 503").filter({ visible: true }).waitFor();
  assert.ok(Number(await row.locator("td").nth(4).textContent()) >= 1);
  await violations(page, "a receiver that fails");
  delete receiver.status["/crm"];
  await call("POST", "webhooks/crm/resume"); // the next attempt may be due in minutes
  await pill(page, "active");
  await row.getByText("no longer pending").waitFor(); // the row stays where it is
  await page.getByLabel("State").selectOption("delivered");
  await page.waitForURL(full + "webhooks/crm?state=delivered");
  await rows(page).first().getByText("job.done").waitFor();
  assert.equal(accepted("/crm").length, 1);
  await rows(page).first().locator("td").nth(2).getByRole("link").click();
  await page.getByRole("heading", { name: `paid-${jobs}` }).waitFor();
});

test("a receiver that fails is tried again at once", async (t) => {
  receiver.status["/again"] = 503;
  await call("POST", "webhooks", { name: "again", url: `${receiver.url}/again`, on: ["givenUp"] });
  await call("POST", "webhooks/again/test");
  const page = await open(t, "webhooks/again");
  await eventually(async () => assert.ok(Number(await rows(page).filter({ hasText: /503/ }).first().locator("td").nth(4).textContent()) >= 2)); // the third attempt is due after 30 s
  delete receiver.status["/again"];
  await act(page, "Try again");
  await page.getByRole("dialog", { name: "Try again again" }).getByText("perdure webhooks resume again").waitFor();
  await page.getByRole("button", { name: "Try again now" }).click();
  await pill(page, "active");
  await rows(page).filter({ hasText: "delivered" }).first().waitFor();
  assert.equal(accepted("/again").length, 1);
});

test("a receiver is paused and resumed, and gets what was stored meanwhile", async (t) => {
  await call("POST", "webhooks", { name: "mail", url: `${receiver.url}/mail`, on: ["done"], types: ["paid"] });
  const page = await open(t, "webhooks/mail");
  await act(page, "Pause");
  await page.getByRole("dialog", { name: "Pause mail" }).getByText("each is dead three days after its change").waitFor();
  await page.getByRole("button", { name: "Pause the receiver" }).click();
  await pill(page, "paused");
  await page.getByText(/Nothing is delivered: paused by /).waitFor();
  await counted(page.locator(".title").getByRole("button", { name: "Pause …" }), 0);
  await submit(2);
  await rows(page).nth(1).getByText("pending").waitFor();
  assert.equal(accepted("/mail").length, 0);
  await violations(page, "a receiver that is paused");
  await act(page, "Resume");
  await page.getByRole("dialog", { name: "Resume mail" }).getByText("2 pending notifications are delivered").waitFor();
  await page.getByRole("button", { name: "Resume the receiver" }).click();
  await pill(page, "active");
  await eventually(async () => assert.equal(accepted("/mail").length, 2));
  await counted(rows(page).filter({ hasText: "delivered" }), 2);
});

test("another secret signs beside the one before", async (t) => {
  const { secret: before } = await call("POST", "webhooks", { name: "rotated", url: `${receiver.url}/rotated` });
  const page = await open(t, "webhooks/rotated");
  await act(page, "Rotate the secret");
  await page.getByText("perdure webhooks rotate rotated --server").waitFor();
  await page.getByRole("button", { name: "Give it another secret" }).click();
  const dialog = page.getByRole("dialog", { name: "Secret of rotated" });
  const secret = (await dialog.locator(".secret code").textContent()).trim();
  assert.notEqual(secret, before);
  await dialog.getByRole("button", { name: "Close" }).click();
  await call("POST", "webhooks/rotated/test", {});
  await eventually(async () => assert.equal(accepted("/rotated").length, 1));
  for (const one of [before, secret]) assert.ok(signed(accepted("/rotated")[0], one));
});

test("settings are replaced, and the rest of the receiver stays", async (t) => {
  const types = ["paid", "large-heavy", "t".repeat(128)];
  await call("POST", "webhooks", { name: "edited", url: `${receiver.url}/edited`, on: ["parked"], types });
  await call("POST", "webhooks/edited/pause", {});
  const page = await open(t, "webhooks/edited");
  await act(page, "Edit");
  const form = page.getByRole("dialog", { name: "Settings of edited" });
  assert.equal(await form.getByLabel("URL: http").inputValue(), `${receiver.url}/edited`);
  assert.equal(await form.getByLabel("Types of jobs").inputValue(), types.join("\n"));
  await form.getByLabel("parked").uncheck();
  assert.ok(await form.getByRole("button", { name: "Replace the settings" }).isDisabled());
  await form.getByLabel("alertRaised").check();
  await form.getByLabel("Format of the body").selectOption("slack");
  await form.getByText("--on alertRaised --types").waitFor();
  await form.getByText("--format slack --server").waitFor();
  await violations(page, "settings");
  await form.getByRole("button", { name: "Replace the settings" }).click();
  await page.getByText("The settings of edited are replaced.").waitFor();
  const hook = await call("GET", "webhooks/edited");
  assert.deepEqual([hook.on, hook.types, hook.format, hook.url, hook.state], [["alertRaised"], types, "slack", `${receiver.url}/edited`, "paused"]);
  await page.locator("dd", { hasText: "large-heavy" }).waitFor();
});

test("dead notifications of a receiver that was deleted are sent to a new one of its name; its alert leads there, and is closed", async (t) => {
  const page = await open(t, "webhooks/returns");
  page.expectedErrors.push(/404/);
  await page.getByText("there is no receiver returns").waitFor();
  await violations(page, "no such receiver");
  await call("POST", "webhooks", { name: "returns", url: `${receiver.url}/returns`, on: ["done"], types: ["returned"] });
  await call("POST", "webhooks/returns/pause", {});
  await submit(3, "returned");
  await eventually(async () => assert.equal((await call("GET", "webhooks/returns")).pending, 3));
  await page.goto(full + "webhooks/returns");
  await loaded(page);
  await act(page, "Delete");
  const ask = page.getByRole("dialog", { name: "Delete returns" });
  await ask.getByText("3 pending notifications are dead then. Its secret is gone").waitFor();
  await violations(page, "the dialog of a deletion");
  await ask.getByRole("button", { name: "Delete the receiver" }).click();
  await page.getByText("The receiver returns is deleted.").waitFor();
  await page.waitForURL(full + "webhooks");
  await counted(page.getByRole("row", { name: /^returns/ }), 0);

  await call("POST", "webhooks", { name: "returns", url: `${receiver.url}/returns`, on: ["done"], types: ["returned"] });
  await page.goto(full + "webhooks");
  await page.getByRole("link", { name: "3 dead of returns" }).waitFor();
  await page.goto(full + "alerts?kind=undelivered");
  await page.getByRole("link", { name: "returns", exact: true }).click();
  await page.getByRole("heading", { name: "Webhook returns" }).waitFor();
  await page.getByText("notifications to returns are dead: the receiver was deleted").first().waitFor();
  await counted(rows(page).filter({ hasText: "dead" }), 3);
  await violations(page, "a receiver with dead notifications");
  await act(page, "Resend");
  const resend = page.getByRole("dialog", { name: "Resend to returns" });
  page.expectedErrors.push(/422/);
  await resend.getByLabel("Of changes in the last").fill("soon");
  await resend.getByRole("button", { name: "Send dead ones again" }).click();
  await resend.getByRole("alert").waitFor();
  await resend.getByLabel("Of changes in the last").fill("1d");
  await resend.getByText("perdure webhooks resend returns --since 1d --server").waitFor();
  await violations(page, "the dialog that sends again");
  await resend.getByRole("button", { name: "Send dead ones again" }).click();
  await page.getByText("3 dead notifications are pending again.").waitFor();
  await eventually(async () => assert.equal(accepted("/returns").length, 3));
  await counted(rows(page).filter({ hasText: "delivered" }), 3);
  await page.getByRole("button", { name: "Close the alert …" }).click();
  await page.getByRole("dialog", { name: "Close the alert of returns" }).getByRole("button", { name: "Close the alert", exact: true }).click();
  await page.getByText("notifications to returns are dead").first().waitFor({ state: "detached" });
  assert.equal((await call("GET", "alerts?kind=undelivered")).items.length, 0);
});

test("a stream says how it is read, and has no secret", async (t) => {
  const page = await open(t, "webhooks");
  await page.getByRole("button", { name: "New receiver …" }).click();
  const form = page.getByRole("dialog", { name: "A new receiver" });
  await form.getByLabel("Name: letters").fill("audit");
  await form.getByLabel("a stream that programs read").check();
  for (const label of ["URL: http", "Format of the body"]) await counted(form.getByLabel(label), 0);
  await form.getByLabel("received").check();
  await form.getByLabel("Types of jobs").fill("paid");
  await violations(page, "a new stream");
  await form.getByRole("button", { name: "Create the receiver" }).click();
  await page.getByRole("heading", { name: "Webhook audit" }).waitFor();
  await submit(1);
  await rows(page).filter({ hasText: "delivered" }).first().waitFor();
  assert.equal(await page.getByRole("button", { name: "Rotate the secret …" }).count(), 0);
  const command = await page.locator("dd code").first().textContent();
  const [, url] = /^curl -N '([^']+)' -H 'Last-Event-ID: 0'$/.exec(command);
  const stop = new AbortController();
  const response = await fetch(url, { headers: { "Last-Event-ID": "0" }, signal: stop.signal });
  let text = "";
  for await (const part of response.body) if ((text += Buffer.from(part)).includes("perdure.job.done")) break;
  stop.abort();
  assert.match(text, /perdure\.job\.received/);
  await violations(page, "a stream");
});

test("a long list of deliveries has pages; newer rows wait until they are asked for", async (t) => {
  await call("POST", "webhooks", { name: "many", url: `${receiver.url}/many`, on: ["received"], types: ["counted"] });
  await submit(60, "counted");
  const page = await open(t, "webhooks/many");
  await counted(rows(page), 50);
  const first = await rows(page).first().locator("code").first().textContent();
  await submit(2, "counted");
  await page.getByRole("button", { name: "Show 2 newer notifications" }).waitFor();
  assert.equal(await rows(page).first().locator("code").first().textContent(), first);
  await page.getByRole("button", { name: "More", exact: true }).click();
  await counted(rows(page), 60);
  await counted(page.getByRole("button", { name: "More", exact: true }), 0);
  const ids = await rows(page).locator("td:nth-child(2) code").allTextContents();
  assert.equal(new Set(ids).size, 60);
  await page.getByRole("button", { name: "Show 2 newer notifications" }).click();
  await eventually(async () => assert.notEqual(await rows(page).first().locator("code").first().textContent(), first));
});

test("long and hostile texts are shown as text, and fit", async (t) => {
  const long = `${receiver.url}/long/`, name = "n".repeat(64);
  receiver.status[long] = 500;
  await call("POST", "webhooks", { name, url: long + "p".repeat(2048 - long.length), types: ["t".repeat(128)], on: ["received", "running", "parked", "done", "undoing", "undone", "givenUp", "alertRaised", "alertClosed"] });
  await call("POST", `webhooks/${name}/pause`, {}, html + "m".repeat(40));
  const page = await open(t, "webhooks");
  for (const path of ["webhooks", `webhooks/${name}`]) {
    await page.goto(full + path);
    await loaded(page);
    await page.getByText(html).filter({ visible: true }).first().waitFor();
    if (path !== "webhooks") await page.getByRole("button", { name: "Show the path" }).click();
    await violations(page, path);
    assert.doesNotMatch(await page.title(), /broken/);
    assert.equal(await page.locator("main img").count(), 0);
  }
});

test("while the server cannot be reached, the page keeps its data and acts are disabled", async (t) => {
  const page = await open(t, "webhooks/shop");
  page.expectedErrors.push(/ERR_FAILED/);
  await page.route("**/v1/**", (route) => route.abort());
  await page.route("**/healthz", (route) => route.abort());
  await page.getByText(/No response since/).waitFor();
  await page.getByRole("heading", { name: "Webhook shop" }).waitFor();
  for (const name of ["Test …", "Pause …", "Edit …", "Delete …"]) assert.ok(await page.getByRole("button", { name, exact: true }).isDisabled(), name);
  await page.unroute("**/v1/**");
  await page.unroute("**/healthz");
  await page.getByRole("button", { name: "Try now" }).click();
  await page.getByText(/No response since/).waitFor({ state: "detached" });
  await eventually(async () => assert.ok(await page.getByRole("button", { name: "Test …", exact: true }).isEnabled()));
});

test("the deliveries to a URL that a definition names are listed", async (t) => {
  const url = `${receiver.url}/reply/4711?a=<b>&c`;
  const { id } = await api("jobs", { type: "paid", key: "reply-1", notify: [{ webhook: url, on: ["done"] }], steps: { reserve: { agent: "stock" } } });
  await eventually(async () => assert.equal(accepted("/reply/4711?a=<b>&c").length, 1));
  const page = await open(t, "webhooks");
  const field = page.getByLabel("Deliveries to a URL that a definition names");
  await field.fill(url);
  await field.press("Enter");
  await page.getByRole("heading", { name: `Deliveries to ${receiver.url}` }).waitFor();
  await counted(rows(page), 1);
  await rows(page).getByText("✓").waitFor();
  await violations(page, "deliveries to a URL");
  await page.reload(); // the address has the URL
  await loaded(page);
  await counted(rows(page), 1);
  await page.getByLabel("State").selectOption("dead");
  await page.getByText("No notification is dead.").waitFor();
  await page.getByLabel("State").selectOption("delivered");
  await rows(page).getByRole("link", { name: `…${id.slice(-8)}` }).click();
  await page.getByRole("heading", { name: "reply-1" }).waitFor();
  await page.goto(`${full}webhooks/${encodeURIComponent("https://nobody.example/")}`);
  await page.getByText("Nothing was reported to this URL.").waitFor();
});
