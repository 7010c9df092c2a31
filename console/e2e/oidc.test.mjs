// Logins at a provider of OpenID Connect, on another site, with its real pages and redirects. The provider has the users ada
// (admin), olaf (operator), vera (viewer) and guest, without a user role.
import assert from "node:assert/strict";
import process from "node:process";
import { loaded, open, test, violations } from "./browser.mjs";

const base = process.env.OIDC_CONSOLE_URL;
const parked = "jobs?type=order&phase=parked";

/** Opens a page without a session. */
async function openOut(t, path) {
  const page = await open(t, path, { base });
  page.expectedErrors.push(/401/);
  await page.getByRole("dialog", { name: "Log in" }).waitFor();
  return page;
}

/** Goes to the provider, and continues there as a user. Returns the query with which the console has sent the browser. */
async function logIn(page, user, button = "Continue") {
  await page.getByRole("link", { name: "Log in with OpenID Connect" }).click();
  await page.getByRole("heading", { name: "Log in at the provider" }).waitFor();
  const there = new URL(page.url());
  await page.getByLabel("User").fill(user);
  await page.getByRole("button", { name: button }).click();
  return there;
}

async function logOut(page, user, role) {
  await page.getByLabel(`User ${user} ${role}`).click();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByText("Log in at your provider, or with a token.").waitFor(); // a page that was loaded again: it knows no user
}

/** The identity that the node sees in this browser; undefined: none. */
async function me(page) {
  return page.evaluate(async (url) => {
    const response = await fetch(url);
    return response.ok ? response.json() : undefined;
  }, String(new URL("../v1/me", base)));
}

test("a login at the provider returns to the page where it began, with the name and user role", async (t) => {
  const page = await openOut(t, parked);
  await violations(page, "login at a provider");
  const there = await logIn(page, "olaf");
  assert.notEqual(there.hostname, new URL(base).hostname, "the provider is another site");
  const query = Object.fromEntries(there.searchParams);
  assert.equal(query.response_type, "code");
  assert.equal(query.redirect_uri, base + "oidc/callback");
  assert.equal(query.code_challenge_method, "S256");
  assert.ok(query.code_challenge.length >= 43 && query.state.length >= 20 && query.nonce.length >= 20);
  await page.getByRole("link", { name: "order-1042" }).waitFor();
  assert.equal(page.url(), base + parked);
  await page.getByLabel("User olaf operator").click();
  await page.getByRole("definition").filter({ hasText: "staff, sre" }).waitFor();
  const identity = await me(page);
  assert.deepEqual([identity.name, identity.role, identity.via, identity.groups], ["olaf", "operator", "session", ["staff", "sre"]]);
  const cookies = await page.context().cookies();
  assert.deepEqual(cookies.map((c) => [c.name, c.httpOnly, c.sameSite]), [["perdure", true, "Lax"]], "the cookie of the login is gone");
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.equal(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }])).then((kept) => /code|nonce|olaf/.test(kept)), false);
});

test("after a logout another user logs in, and sees a page of their own", async (t) => {
  const page = await openOut(t, "limits");
  await logIn(page, "olaf");
  await page.getByRole("button", { name: "New limit …" }).waitFor();
  const [{ value }] = await page.context().cookies();
  await logOut(page, "olaf", "operator");
  assert.equal(page.url(), base + "limits");
  assert.equal(await me(page), undefined);
  const old = await fetch(new URL("../v1/me", base), { headers: { Cookie: `perdure=${value}` } });
  assert.equal(old.status, 401, "the session has ended at the node");
  await logIn(page, "vera");
  await page.getByLabel("User vera viewer").waitFor();
  assert.equal(page.url(), base + "limits");
  assert.ok(!(await page.getByRole("button", { name: "New limit …" }).isEnabled()));
  await logOut(page, "vera", "viewer");
  await logIn(page, "ada");
  await page.getByLabel("User ada admin").waitFor();
  await page.goto(base + "audit?act=login");
  await page.locator("tbody tr", { hasText: "vera" }).first().waitFor();
});

test("a user without a user role is refused, on a page that says so, and another one can log in", async (t) => {
  const page = await openOut(t, parked);
  await logIn(page, "guest");
  const login = page.getByRole("dialog", { name: "Log in" });
  await login.getByText("The login at the provider succeeded, but your account has no user role here.").waitFor();
  await login.getByText("Ask an admin of this node.").waitFor();
  assert.equal(page.url(), base + parked);
  assert.equal(await me(page), undefined);
  assert.deepEqual(await page.context().cookies(), []);
  await violations(page, "refused login");
  await page.reload();
  await loaded(page);
  assert.equal(await page.getByText("no user role here").count(), 0, "the message is shown once");
  await logIn(page, "vera");
  await page.getByLabel("User vera viewer").waitFor();
  assert.equal(page.url(), base + parked);
});

test("a login that is cancelled at the provider, or that this browser has not begun, fails", async (t) => {
  const page = await openOut(t, "alerts");
  await logIn(page, "vera", "Cancel");
  await page.getByText("The login at the provider has failed.").waitFor();
  assert.equal(page.url(), base + "alerts");
  await page.goto(base + "oidc/callback?code=x&state=y");
  await page.getByText("The login at the provider has failed.").waitFor();
  assert.equal(page.url(), base);
  assert.equal(await me(page), undefined);
});

test("the address of one login does not log in another browser, nor again", async (t) => {
  const page = await openOut(t, "");
  let back;
  page.on("request", (request) => (back = request.url().includes("/oidc/callback") ? request.url() : back));
  await logIn(page, "ada");
  await page.getByLabel("User ada admin").waitFor();
  const other = await openOut(t, "");
  await other.goto(back);
  await other.getByText("The login at the provider has failed.").waitFor();
  assert.equal(await me(other), undefined);
  await page.context().clearCookies();
  await page.goto(back);
  await page.getByText("The login at the provider has failed.").waitFor();
  assert.equal(await me(page), undefined);
});

test("no link to a login leads to another site", async (t) => {
  const page = await openOut(t, "");
  for (const to of ["https://example.org/", "//example.org/perdure/ui/", "/\\example.org/perdure/ui/", "/perdure/ui/../../x", "javascript:alert(1)"]) {
    await page.context().clearCookies();
    await page.goto(base + "oidc/start?to=" + encodeURIComponent(to));
    await page.getByLabel("User").fill("vera");
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByLabel("User vera viewer").waitFor();
    assert.equal(page.url(), base, to);
  }
});
