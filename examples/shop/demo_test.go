package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The demo from end to end, small: real processes, killed with SIGKILL, and an audit that is not fooled
// afterwards (F007, F035 to F038, F055, F088 to F092).
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole shop for half a minute")
	}
	bin, dir := t.TempDir(), ""
	shop, node := filepath.Join(bin, "shop"), filepath.Join(bin, "perdure")
	for path, pkg := range map[string]string{shop: "github.com/perdure/perdure/examples/shop", node: "github.com/perdure/perdure/cmd/perdure"} {
		if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", pkg, err, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for try, enough := 1, false; !enough; try++ { // all may be over before the demo has come to kill
		dir = filepath.Join(t.TempDir(), "shop")
		demo := exec.CommandContext(ctx, shop, "demo", "--perdure", node, "--orders", "20", "--seed", "4", "--timeout", "4m", "--dir", dir)
		demo.Cancel = func() error { return demo.Process.Signal(syscall.SIGTERM) } // it ends its processes
		demo.WaitDelay = 20 * time.Second
		out, err := demo.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		killed := func(name string) int { return bytes.Count(out, []byte("kill -9 "+name+"\n")) }
		enough = killed(nodeName) >= 2 && killed(agentName) >= 2
		if !enough && try == 3 {
			t.Fatalf("killed too rarely\n%s", out)
		}
	}

	if out, err := exec.Command(shop, "audit", "--dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("the audit alone: %v\n%s", err, out)
	}
	// Forget one effect: the audit must see it.
	path := ledgerFile(dir, payment.Name)
	ledger, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	forgotten := 0
	for _, line := range strings.SplitAfter(string(ledger), "\n") {
		if forgotten == 0 && strings.Contains(line, `"kind":"effect"`) {
			forgotten++
			continue
		}
		kept = append(kept, line)
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	audit := exec.Command(shop, "audit", "--dir", dir)
	if out, _ := audit.CombinedOutput(); audit.ProcessState.ExitCode() != 1 {
		t.Errorf("without one effect the audit exits %d\n%s", audit.ProcessState.ExitCode(), out)
	}
}

func TestKeeper(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	k := NewKeeper(t.TempDir(), 10*time.Millisecond)
	if err := k.Keep("sleeper", "sleep", "60"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for deadline := time.Now().Add(30 * time.Second); !k.Kill("sleeper"); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it does not come back")
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	began := time.Now()
	k.Stop(time.Minute)
	if killed, died := k.Count(); killed < 3 || died != 0 || time.Since(began) > 30*time.Second {
		t.Errorf("%d killed, %d died, the stop took %s", killed, died, time.Since(began))
	}
	if err := k.Failed(); err != nil {
		t.Error(err)
	}

	k = NewKeeper(t.TempDir(), time.Millisecond)
	if err := k.Keep("hopeless", "false"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); k.Failed() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process that does not stay up is tried for ever")
		}
	}
	k.Stop(time.Second)
}

func TestKillsAreInTheMiddle(t *testing.T) {
	for seed := range uint64(100) {
		n, last := map[string]int{}, 0.0
		for _, k := range makeKills(seed) {
			n[k.name]++
			if k.at < last || k.at < 0.05 || k.at > 0.76 {
				t.Fatalf("seed %d kills %s at %v after %v", seed, k.name, k.at, last)
			}
			last = k.at
		}
		if n[nodeName] < 2 || n[agentName] < 2 {
			t.Fatalf("seed %d: %v", seed, n)
		}
	}
}

// Everything that a subcommand needs to say no.
func TestCommands(t *testing.T) {
	stderr := os.Stderr
	os.Stderr, _ = os.Open(os.DevNull)
	defer func() { os.Stderr = stderr }()
	for _, args := range [][]string{nil, {"nothing"}, {"audit", "extra"}, {"stock", "--nothing"}, {"audit", "--dir", t.TempDir()}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q is fine?", args)
		}
	}
}

func TestOrdersOverHTTP(t *testing.T) {
	db, err := OpenDatabase(filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, db.Handler()) }()
	front := "http://" + listener.Addr().String()

	if status, _ := request(t, "POST", front+"/orders", `{"customer":"unknown"}`, "", ""); status != 400 {
		t.Errorf("an order without an id: %d", status)
	}
	for range 2 {
		if status, _ := request(t, "POST", front+"/orders", `{"id":"order-0001","sku":"assam"}`, "", ""); status != 202 {
			t.Errorf("an order: %d", status)
		}
	}
	if _, err := (orderClient{front}).Order(ctx, "order-0001"); err == nil {
		t.Error("an order is known before it was taken on")
	}
	s := newSubmission(t, &fakeNode{})
	s.DB = db
	if taken, err := s.take(ctx); taken != 1 || err != nil {
		t.Fatalf("took %d, %v", taken, err)
	}
	if o, err := (orderClient{front}).Order(ctx, "order-0001"); err != nil || o.SKU != "assam" {
		t.Errorf("%+v, %v", o, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
