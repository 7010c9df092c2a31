package failover

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
)

// F150, F151, F152, I1: the synchronous standby is away. A submission is answered 503, and so is its repetition, even
// if the primary has restarted and shows the job. The node is not ready, and gives the reason. When the standby is
// back, the submission is acknowledged, and its job exists after the standby's promotion.
func TestSubmissionsAreRefusedWithoutStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for name, meanwhile := range map[string]func(*pgtest.Server){
		"the primary waits":    func(*pgtest.Server) {},
		"the primary restarts": func(s *pgtest.Server) { s.Stop(true); s.Start() },
	} {
		t.Run(name, func(t *testing.T) {
			primary := pgtest.NewServer(t, false, "synchronous_commit=on", "synchronous_standby_names=one", "wal_sender_timeout=60s")
			standby := primary.Standby("one", primary.Addr())
			addr := rig.FreeAddress(t)
			store := strings.Replace(primary.URL, primary.Addr(), primary.Addr()+","+standby.Addr(), 1) + "&target_session_attrs=read-write&connect_timeout=2"
			node := &rig.Process{Name: "node", Args: []string{"serve", "--listen", addr, "--migrate", "--store", store, "--agents", "none"}}
			if err := node.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(node.Dismiss)
			url := "http://" + addr
			rig.Ready(t, url)

			standby.Freeze()
			c := http.Client{Timeout: 15 * time.Second}
			post := func(key string) (int, string) {
				resp, err := c.Post(url+"/v1/jobs", "application/json", strings.NewReader(fmt.Sprintf(`{"type": "t", "key": %q, "steps": {"s": {"agent": "absent"}}}`, key)))
				if err != nil {
					t.Fatalf("not answered: %v", err)
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(body)
			}
			if status, body := post("k"); status != http.StatusServiceUnavailable {
				t.Errorf("without the standby: %d %s", status, body)
			}
			// Another primary may have the job meanwhile, so the answer is not that it does not exist (F153).
			if resp, err := c.Post(url+"/v1/jobs/unknown/undo", "application/json", nil); err != nil {
				t.Errorf("not answered: %v", err)
			} else if resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("an act on a job that is not there, without the standby: %d", resp.StatusCode)
			}
			meanwhile(primary)
			ready := ""
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !strings.Contains(ready, "synchronous standby"); {
				if status, body := post("k"); status != http.StatusServiceUnavailable {
					t.Fatalf("repeated without the standby: %d %s", status, body)
				}
				resp, err := c.Get(url + "/readyz")
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				ready = fmt.Sprint(resp.StatusCode, " ", string(body))
			}
			if !strings.HasPrefix(ready, "503 ") || !strings.Contains(ready, "the store's synchronous standby does not answer") {
				t.Errorf("/readyz: %s", ready)
			}
			if log := node.Log.String(); !strings.Contains(log, "synchronous standby does not answer") {
				t.Errorf("log:\n%s", log)
			}

			standby.Thaw()
			rig.Ready(t, url)
			if status, body := post("k"); status != http.StatusOK && status != http.StatusCreated {
				t.Errorf("with the standby: %d %s", status, body)
			}
			primary.Stop(true)
			standby.Promote()
			resp, err := c.Get(url + "/v1/jobs/k")
			for deadline := time.Now().Add(20 * time.Second); err == nil && resp.StatusCode == http.StatusServiceUnavailable && time.Now().Before(deadline); {
				resp.Body.Close()
				time.Sleep(100 * time.Millisecond)
				resp, err = c.Get(url + "/v1/jobs/k")
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("what was acknowledged is lost: %v, %v", resp, err)
			}
			if err == nil {
				resp.Body.Close()
			}
		})
	}
}
