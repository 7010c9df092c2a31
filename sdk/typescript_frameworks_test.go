package sdk

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The web applications with Express and Fastify: the agent starts and stops with the application. One that is told to stop
// in the middle finishes the runs that it has begun, leaves none behind that would have to expire, and ends with 0; the next
// one does the rest. Each order is packed once.
func TestTypeScriptFrameworks(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	t.Parallel()
	for _, framework := range []string{"express", "fastify"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			run := node(t)
			if _, err := os.Stat("typescript/node_modules/" + framework); err != nil {
				t.Fatal("sdk/typescript/node_modules is out of date: run `npm ci` there")
			}
			perdure := serve(t)
			const orders = 12 // three times as many as there are slots
			parcels := t.TempDir()
			limit := perdure + "/v1/limits/agent:parcels"
			change(t, "PUT", limit, `{"max":0}`) // until all orders are there
			shop := startShop(t, run, framework, perdure, parcels)
			for i := range orders {
				if status, body := shop.ask("PUT", i, `{"item":"tea"}`); status != 201 || body["current"] != "undone" {
					t.Fatal(status, body)
				}
			}
			if status, _ := shop.ask("PUT", 0, `{"item":"tea"}`); status != 200 {
				t.Errorf("the same order again: %d", status)
			}
			if status, body := shop.ask("PUT", 0, `{"item":"coffee"}`); status != 409 || body["code"] != "conflict" {
				t.Errorf("another order with the same number: %d %v", status, body)
			}
			if status, body := shop.ask("GET", 99, ""); status != 404 || body["code"] != "notFound" {
				t.Errorf("an order that does not exist: %d %v", status, body)
			}
			change(t, "DELETE", limit, "")
			eventually(t, "first parcel", func() bool { return len(filesIn(t, parcels)) > 0 }) // other runs are in progress
			shop.stop()
			if err := shop.wait(); err != nil {
				t.Fatalf("the application did not drain: %v", err)
			}
			if left := stepsIn(t, perdure, "running"); len(left) > 0 {
				t.Errorf("runs that nobody has any more: %v", left)
			}
			if len(filesIn(t, parcels)) == orders {
				t.Error("all orders were packed before it stopped: the test did not stop it in the middle")
			}

			shop = startShop(t, run, framework, perdure, parcels)
			for i := range orders {
				eventually(t, fmt.Sprintf("order %d", i), func() bool { _, body := shop.ask("GET", i, ""); return body["current"] == "done" })
				for _, entry := range get(t, fmt.Sprintf("%s/v1/jobs/order-%d/history", perdure, i))["items"].([]any) {
					if event := entry.(map[string]any)["event"]; event != "returned" { // it had not started
						t.Errorf("a run of order %d was lost: %v", i, entry)
					}
				}
			}
			if files := filesIn(t, parcels); len(files) != orders {
				t.Errorf("%d parcels of %d orders", len(files), orders)
			}
			if status, _ := shop.ask("DELETE", 3, ""); status != 202 {
				t.Errorf("cancel: %d", status)
			}
			eventually(t, "the cancelled order", func() bool { _, body := shop.ask("GET", 3, ""); return body["current"] == "undone" })
			if files := filesIn(t, parcels); len(files) != orders-1 {
				t.Errorf("%d parcels after an order was cancelled", len(files))
			}
			shop.stop()
			if err := shop.wait(); err != nil {
				t.Errorf("an idle application did not drain: %v", err)
			}
		})
	}
}

// shop is one of the applications.
type shop struct {
	*process
	t   *testing.T
	url string
}

func startShop(t *testing.T, node, framework, perdure, parcels string) *shop {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	env := append(environment(t), "PORT="+port, "PERDURE_SERVER="+perdure, "PARCELS="+parcels, "WORK_MS=1500")
	s := &shop{spawnIn(t, "", env, node, absolute(t, "typescript/build/examples/"+framework+".js")), t, "http://127.0.0.1:" + port}
	eventually(t, "listening "+framework, func() bool {
		resp, err := http.Get(s.url)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return s
}

func (s *shop) ask(method string, order int, body string) (status int, answer map[string]any) {
	s.t.Helper()
	req, err := http.NewRequest(method, fmt.Sprintf("%s/orders/%d", s.url, order), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(text, &answer) != nil {
		s.t.Fatalf("%s order %d: %d %s %v", method, order, resp.StatusCode, text, err)
	}
	return resp.StatusCode, answer
}

// stepsIn are the jobs of which a step is in that phase.
func stepsIn(t *testing.T, perdure, phase string) (keys []string) {
	t.Helper()
	for _, item := range get(t, perdure+"/v1/jobs?limit=100")["items"].([]any) {
		key := item.(map[string]any)["key"].(string)
		for _, step := range get(t, perdure+"/v1/jobs/"+key)["steps"].(map[string]any) {
			if step.(map[string]any)["phase"] == phase {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func get(t *testing.T, url string) (answer map[string]any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %v %v", url, resp.StatusCode, answer, err)
	}
	return answer
}

func change(t *testing.T, method, url, body string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatal(method, url, resp.Status)
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %s", what, patience)
		}
	}
}
