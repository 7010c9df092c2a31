package sdk

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/internal/tlsfiles/tlstest"
)

// The programs call a server that requires client certificates: with the files as options, and by the environment. Without
// a certificate, and without the server's authority, they print which option is missing.
const (
	pythonCertificates = `
import os, sys
from perdure import Client, Error
url, options = sys.argv[1], dict(zip(("server_ca", "client_cert", "client_key"), sys.argv[2:]))
def attempt(name, **given):
    try:
        with Client(url, **given) as client:
            print(name, client.get("a")["id"], [j["phase"] for j in client.follow("a")])
    except (Error, ValueError) as e:
        print(name, type(e).__name__, e)
attempt("options", **options)
attempt("no certificate", server_ca=options["server_ca"])
attempt("no authority", client_cert=options["client_cert"], client_key=options["client_key"])
attempt("no key", client_cert=options["client_cert"])
attempt("no file", server_ca="none.pem")
attempt("not PEM", server_ca=options["server_ca"], client_cert=__file__, client_key=options["client_key"])
for name, value in options.items():
    os.environ["PERDURE_" + name.upper()] = value
attempt("environment")
url = "http://127.0.0.1:1"
attempt("no HTTPS")
`
	typescriptCertificates = `
import { Client } from "perdure";
let [url, serverCA, clientCert, clientKey] = process.argv.slice(2);
async function attempt(name, given) {
  try {
    const client = new Client(url, given);
    const { id } = await client.get("a");
    const phases = [];
    for await (const job of client.follow("a")) phases.push("'" + job.phase + "'");
    console.log(name, id, "[" + phases + "]");
  } catch (e) {
    console.log(name, e.name, e.message);
  }
}
await attempt("options", { serverCA, clientCert, clientKey });
await attempt("no certificate", { serverCA });
await attempt("no authority", { clientCert, clientKey });
await attempt("no key", { clientCert });
await attempt("no file", { serverCA: "none.pem" });
await attempt("not PEM", { serverCA, clientCert: process.argv[1], clientKey });
Object.assign(process.env, { PERDURE_SERVER_CA: serverCA, PERDURE_CLIENT_CERT: clientCert, PERDURE_CLIENT_KEY: clientKey });
await attempt("environment", {});
url = "http://127.0.0.1:1";
await attempt("no HTTPS", {});
process.exit();
`
)

func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tlstest.Write(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	cfg, err := tlsfiles.New(tlsfiles.Config{Cert: file("cert.pem"), Key: file("key.pem"), ClientCA: file("ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			const job = `{"id":"job_1","phase":"settled"}`
			if strings.HasSuffix(r.URL.Path, "/events") {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "event: job\ndata: "+job+"\n\nevent: rest\ndata: {}\n\n")
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, job)
		})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	for name, program := range map[string]struct {
		text string
		file string
		run  func(*testing.T) string
		hint [2]string // without a certificate, without the authority
	}{
		"python":     {pythonCertificates, filepath.Join(dir, "program.py"), python, [2]string{"client_cert", "server_ca"}},
		"typescript": {typescriptCertificates, "typescript/build/certificates.mjs", node, [2]string{"clientCert", "serverCA"}},
	} {
		t.Run(name, func(t *testing.T) {
			interpreter := program.run(t)
			if err := os.WriteFile(program.file, []byte(program.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), interpreter, program.file, "https://"+l.Addr().String(), file("ca.pem"), file("client.pem"), file("client.key"))
			cmd.Env = environment(t)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(string(out), "\n")
			for i, want := range [][]string{
				{"options job_1 ['settled']"}, {"no certificate", "cannot be reached", program.hint[0]}, {"no authority", "cannot be reached", program.hint[1]},
				{"no key", "give both"}, {"no file", "none.pem", "PEM form"}, {"not PEM", filepath.Base(program.file), "PEM form"},
				{"environment job_1 ['settled']"}, {"no HTTPS", "https://HOST:PORT"},
			} {
				for _, words := range want {
					if i >= len(lines) || !strings.Contains(lines[i], words) {
						t.Errorf("line %d has no %q in\n%s", i+1, words, out)
					}
				}
			}
		})
	}
}
