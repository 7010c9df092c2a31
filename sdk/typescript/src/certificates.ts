// HTTPS with PEM files: the authorities of the server's certificate, and the client's own certificate and key. The fetch of
// Node.js has no setting for them without a package, so node:https carries these requests.

import { readFileSync } from "node:fs";
import type { ClientRequestArgs } from "node:http";
import { Agent, request } from "node:https";
import { type Duplex, Readable } from "node:stream";
import { createSecureContext } from "node:tls";

import { PerdureError } from "./errors.ts";

export interface CertificateFiles {
  serverCA?: string | undefined;
  clientCert?: string | undefined;
  clientKey?: string | undefined;
}

interface Pem {
  ca?: Buffer;
  cert?: Buffer;
  key?: Buffer;
}

function readPem(files: CertificateFiles): Pem {
  const pem: Pem = {};
  let name = "";
  const read = (file: string): Buffer => readFileSync(name = file);
  try {
    if (files.serverCA) pem.ca = read(files.serverCA);
    if (pem.ca && !pem.ca.includes("-----BEGIN CERTIFICATE-----")) throw new Error("it has no certificate");
    if (files.clientCert && files.clientKey) {
      pem.cert = read(files.clientCert);
      pem.key = read(files.clientKey);
      name = `${files.clientCert} and ${files.clientKey}`;
    }
    createSecureContext(pem);
    return pem;
  } catch (e) {
    throw new PerdureError("invalid", `the certificates cannot be used: ${name}: ${e instanceof Error ? e.message : String(e)}`,
      { hint: "the files must be in PEM form" });
  }
}

/** Reads the files for each connection, because certificates are renewed. */
class RenewingAgent extends Agent {
  readonly #files: CertificateFiles;
  #latest: Pem;

  constructor(files: CertificateFiles) {
    super({ keepAlive: true, noDelay: true });
    this.#files = files;
    this.#latest = readPem(files);
  }

  override createConnection(options: ClientRequestArgs, callback?: (error: Error | null, stream: Duplex) => void): Duplex {
    try {
      this.#latest = readPem(this.#files);
    } catch {
      // Half of the files were replaced so far.
    }
    return super.createConnection({ ...options, ...this.#latest }, callback);
  }
}

/** A request as `fetch` takes it, as far as Transport uses it. */
export interface Sent {
  method?: string;
  headers: Record<string, string>;
  body?: string;
  signal: AbortSignal;
  redirect: "manual";
}

export type Fetch = (url: string, sent: Sent) => Promise<Response>;

/** Returns what sends requests with the files; fetch itself if there are none. */
export function fetchWith(url: string, files: CertificateFiles): Fetch {
  if (!files.serverCA && !files.clientCert && !files.clientKey) return (target, sent) => fetch(target, sent);
  if (Boolean(files.clientCert) !== Boolean(files.clientKey)) throw new TypeError("clientCert and clientKey: give both");
  if (!/^https:/i.test(url)) throw new TypeError("certificates are given, but the URL of the server is not https://HOST:PORT");
  const agent = new RenewingAgent(files);
  return (target, { method = "GET", headers, body, signal }) => new Promise((answer, fail) => {
    const sent = request(target, { method, headers, agent, signal }, (got) => {
      const empty = got.statusCode === 204 || got.statusCode === 304;
      if (empty) got.resume();
      const fields = Object.entries(got.headers).map(([name, value]): [string, string] => [name, String(value)]);
      answer(new Response(empty ? null : Readable.toWeb(got) as ReadableStream<Uint8Array>,
        { status: got.statusCode ?? 0, statusText: got.statusMessage ?? "", headers: fields }));
    });
    sent.on("error", fail);
    sent.end(body);
  });
}
