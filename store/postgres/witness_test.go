package postgres

import (
	"slices"
	"testing"
	"time"
)

// F016: several transactions of a process reach a new primary at once. The first one compares and removes the witnesses;
// the others find none, and must not treat that as a loss.
func TestOnlyTheFirstComparisonCounts(t *testing.T) {
	var c clock
	before, after := reading{start: time.Unix(1, 0)}, reading{start: time.Unix(2, 0)}
	c.remember(before, recognition{origin: "1/00000001", hasAllAcknowledged: true})
	c.remember(after, recognition{origin: "1/00000002", hasAllAcknowledged: true})
	c.remember(after, recognition{origin: "1/00000002"})
	if origin, changed := c.confirmedOrigin(); origin != "1/00000002" || !changed {
		t.Errorf("the confirmed origin is %q, changed %v", origin, changed)
	}
	c.remember(reading{start: time.Unix(3, 0)}, recognition{origin: "1/00000003"})
	if origin, _ := c.confirmedOrigin(); origin != "" {
		t.Errorf("commits are missing, but the origin is %q", origin)
	}
}

// A witness is dropped when a later commit makes it unnecessary; a commit that was in progress at the same time does
// not. Witnesses of few servers are kept.
func TestOnlyNeededWitnessesAreKept(t *testing.T) {
	var ws witnesses
	server := time.Unix(1, 0)
	early, late := ws.sent(), ws.sent()
	ws.acknowledged(witness{server: server, xid: 1, lsn: 10}, early)
	ws.acknowledged(witness{server: server, xid: 2, lsn: 20}, late)
	if got := xidsOf(ws.from(server)); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("after two concurrent commits: %v", got)
	}
	ws.acknowledged(witness{server: server, lsn: 25}, ws.sent())
	ws.acknowledged(witness{server: server, xid: 3, lsn: 30}, late)
	if got := xidsOf(ws.from(server)); !slices.Equal(got, []int64{0, 3}) {
		t.Errorf("after a later commit and one concurrent with it: %v", got)
	}
	ws.acknowledged(witness{server: server}, ws.sent()) // acknowledged by a standby
	for i := range 3 * maxServers {
		ws.acknowledged(witness{server: time.Unix(int64(2+i), 0), xid: 1, lsn: 1}, ws.sent())
		if len(ws.of) > maxServers {
			t.Fatalf("witnesses of %d servers are kept, want at most %d", len(ws.of), maxServers)
		}
	}
}

func xidsOf(list []witness) (xids []int64) {
	for _, w := range list {
		xids = append(xids, w.xid)
	}
	slices.Sort(xids)
	return xids
}
