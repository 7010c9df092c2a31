package failover

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
)

// cluster is three servers, each behind a proxy whose address stays the same: one primary and two standbys. Any one
// standby must have a commit before it is acknowledged.
type cluster struct {
	t       *testing.T
	servers [3]*pgtest.Server
	ways    [3]*rig.Proxy
	primary int
	disks   string // where small disks are mounted; "": the test may not mount any
	mounts  int
	disk    [3]string // of each server
}

const diskSize = "3g"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	dir, err := os.MkdirTemp("", "perdure-cluster-") // the user of the servers must be able to enter it
	c.must(err)
	c.must(os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.disks = dir
	c.onDisk(0)
	c.servers[0] = pgtest.NewServer(t, false, "synchronous_commit=on", "synchronous_standby_names=ANY 1 (s0, s1, s2)", "max_connections=60",
		"wal_keep_size=256MB", "wal_receiver_timeout=5s", "wal_sender_timeout=5s", "wal_retrieve_retry_interval=200ms")
	for i := range c.ways {
		c.ways[i] = rig.NewProxy(t, c.servers[0].Addr())
	}
	c.join(1)
	c.join(2)
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// onDisk puts the next server on a small disk, if the test may mount one.
func (c *cluster) onDisk(i int) {
	if c.disks == "" {
		return
	}
	at := filepath.Join(c.disks, fmt.Sprint(c.mounts))
	if c.mounts++; !rig.SmallDisk(c.t, at, diskSize) {
		c.disks = ""
		return
	}
	c.disk[i] = at
	c.t.Setenv("TMPDIR", at)
}

// join starts a standby of the present primary.
func (c *cluster) join(i int) {
	c.onDisk(i)
	c.servers[i] = c.servers[c.primary].Standby(fmt.Sprint("s", i), c.ways[c.primary].Addr)
	c.ways[i].Lead(c.servers[i].Addr())
}

// url names all servers: a node connects to the one that accepts writes.
func (c *cluster) url() string {
	u, err := url.Parse(c.servers[0].URL)
	c.must(err)
	var hosts []string
	for _, way := range c.ways {
		hosts = append(hosts, way.Addr)
	}
	u.Host = strings.Join(hosts, ",")
	u.RawQuery = "sslmode=disable&target_session_attrs=read-write&connect_timeout=2"
	return u.String()
}

// promote is the promotion script: it promotes the standby that has most of the log, and lets the other one follow it.
// The former primary must be cut off or dead by then, so that it cannot acknowledge anything.
func (c *cluster) promote() {
	c.t.Helper()
	best, other, most := -1, -1, int64(-1) // a standby that has just been started may have no position yet
	for i, s := range c.servers {
		if i == c.primary {
			continue
		}
		var has int64
		c.query(s.URL, "select (coalesce(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') - '0/0'::pg_lsn)::int8", &has)
		if has > most {
			best, other, most = i, best, has
		} else {
			other = i
		}
	}
	c.servers[best].Promote()
	c.primary = best
	c.servers[other].Follow(fmt.Sprint("s", other), c.ways[best].Addr)
}

func (c *cluster) query(url, sql string, into any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	c.must(err)
	defer conn.Close(ctx)
	c.must(conn.QueryRow(ctx, sql).Scan(into))
}

// rejoin replaces a former primary by a new standby.
func (c *cluster) rejoin(i int) {
	c.ways[i].Cut()
	c.servers[i].Remove()
	c.ways[i].Heal()
	if c.disk[i] != "" {
		_ = exec.Command("umount", "-l", c.disk[i]).Run()
	}
	c.join(i)
}

// fill fills a server's disk.
func (c *cluster) fill(i int) {
	if exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(c.disk[i], "ballast"), "bs=1M").Run() == nil {
		c.t.Error("the disk is not full")
	}
}
