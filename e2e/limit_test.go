package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/e2e/rig"
)

// nginxConfig refuses the eleventh request at once with 503, and takes a while for each.
const nginxConfig = `
worker_processes 1; daemon off; error_log %[1]s/error.log; pid %[1]s/pid;
events { worker_connections 1024; }
http {
	access_log %[1]s/access.log;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	limit_conn_zone $server_name zone=z:1m;
	server {
		listen %[2]s;
		location / { limit_conn z 10; limit_conn_status 503; limit_rate 400k; root %[1]s/www; }
	}
}
`

func startNginx(t *testing.T) (url, accessLog string) {
	t.Helper()
	addr, dir := runNginx(t, func(dir, addr string) string { return fmt.Sprintf(nginxConfig, dir, addr) })
	return "http://" + addr + "/f", dir + "/access.log"
}

// runNginx runs nginx with a configuration that listens on addr and keeps its files in dir.
func runNginx(t *testing.T, config func(dir, addr string) string) (addr, dir string) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx"
		if _, err := os.Stat(nginx); err != nil {
			if os.Getenv("PERDURE_TEST_REQUIRE_NGINX") != "" {
				t.Fatal("nginx is required and not there")
			}
			t.Skip("nginx is not there")
		}
	}
	dir, err = os.MkdirTemp("", "perdure-nginx-") // its workers run as another user, who must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr = rig.FreeAddress(t)
	for _, err := range []error{
		os.Chmod(dir, 0o755),
		os.Mkdir(dir+"/www", 0o755),
		os.WriteFile(dir+"/www/f", make([]byte, 20_000), 0o644),
		os.WriteFile(dir+"/nginx.conf", []byte(config(dir, addr)), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(nginx, "-c", dir+"/nginx.conf")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
	eventually(t, "nginx answers", func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr, dir
}

// I12: an agent has a limit of 10, 500 steps wait, and a server refuses the eleventh request at once.
func TestLimitProtectsAService(t *testing.T) {
	target, log := startNginx(t)
	store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	url, _ := serve(t, "--store", store, "--agents", "http", "--allow-private-targets", "--slots", "200")
	must(t, "limits", "set", "agent:http", "10", "--server", url)
	steps := map[string]any{}
	const n = 500
	for i := range n {
		steps[fmt.Sprint("s", i)] = object{"agent": "http", "with": object{"url": target}, "retry": object{"attempts": 1}}
	}
	body, err := json.Marshal(object{"type": "many", "key": "many", "steps": steps})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "many.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "submit", file, "--wait", "--timeout", "2m", "--server", url)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if ok := strings.Count(string(text), `" 200 `); ok != n || strings.Contains(string(text), `" 503 `) {
		t.Errorf("%d of %d calls were answered 200, %d were refused", ok, n, strings.Count(string(text), `" 503 `))
	}
}

// partnerConfig answers each customer five times a second, and refuses what is more than four requests too early.
const partnerConfig = `
worker_processes 1; daemon off; error_log %[1]s/error.log; pid %[1]s/pid;
events { worker_connections 1024; }
http {
	log_format calls '$arg_customer $status';
	access_log %[1]s/access.log calls;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	limit_req_zone $arg_customer zone=z:1m rate=5r/s;
	server {
		listen %[2]s;
		location / { limit_req zone=z burst=4 nodelay; limit_req_status 503; root %[1]s/www; }
	}
}
`

// The partner of examples/rate.yaml allows each customer five requests a second. It refuses none, although more jobs wait
// than it would answer in that time, and the node is killed and started again.
func TestRateProtectsAPartner(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	addr, dir := runNginx(t, func(dir, addr string) string { return fmt.Sprintf(partnerConfig, dir, addr) })
	at := rig.FreeAddress(t)
	url := "http://" + at
	args := []string{"serve", "--listen", at, "--store", "sqlite:" + filepath.Join(t.TempDir(), "perdure.db"), "--agents", "http", "--allow-private-targets", "--slots", "100"}
	node := begin(t, args...)
	eventually(t, "the node is ready", func() bool { return ready(url) })
	must(t, "limits", "set", "partner-calls", "--key-rate", "5/s", "--key-burst", "1", "--server", url)
	const each = 60
	customers := []string{"acme", "bolt", "cork"}
	for _, c := range customers {
		args := []string{"submit", "-i", "customer=" + c, "-i", "url=http://" + addr + "/f", "--server", url}
		must(t, append(args, slices.Repeat([]string{"../examples/rate.yaml"}, each)...)...)
	}
	calls := func() string {
		text, err := os.ReadFile(dir + "/access.log")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(t, "some have been called", func() bool { return strings.Count(calls(), "acme 200") > 5 })
	if err := node.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = node.Wait()
	if n := strings.Count(calls(), " 200\n"); n >= each*len(customers) {
		t.Fatalf("all %d calls were made before the kill", n)
	}
	begin(t, args...)
	eventually(t, "the node is ready", func() bool { return ready(url) })
	eventually(t, "all jobs are done", func() bool {
		return strings.Count(must(t, "list", "--current", "done", "--limit", "500", "-o", "json", "--server", url), "\n") == each*len(customers)
	})
	for _, c := range customers {
		if n := strings.Count(calls(), c+" 200\n"); n < each {
			t.Errorf("%s was called %d times, want at least %d", c, n, each)
		}
	}
	if n := strings.Count(calls(), " 503\n"); n > 0 {
		t.Errorf("%d calls were refused", n)
	}
}
