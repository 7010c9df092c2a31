package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

const (
	powerJobs    = 40 // submitted by the recorded process
	powerReopens = 20 // the process reopens the store after so many jobs
	powerPages   = 24 // the write-ahead log is copied into the file after so many pages, so that this happens often

	envPower   = "PERDURE_TEST_POWER"
	envRequire = "PERDURE_TEST_REQUIRE_STRACE"
)

// powerLoop is the recorded process. It submits jobs, and prints the number of each job whose commit was acknowledged.
// Of two jobs, the second is committed while the commit of the first is synced. Before them it calls ReportNode, which
// does not wait for the disk.
func powerLoop(path string) error {
	var s *Store
	for n := uint32(1); n <= powerJobs; n += 2 {
		if n%powerReopens == 1 {
			if s != nil {
				if err := s.Close(); err != nil {
					return err
				}
			}
			var err error
			if s, err = Open(path); err != nil {
				return err
			}
			if err := s.write.once(fmt.Sprintf(`PRAGMA wal_autocheckpoint = %d`, powerPages)); err != nil {
				return err
			}
		}
		if _, err := s.ReportNode(ctx, kernel.NodeReport{Node: kernel.Node{ID: fmt.Sprint("node", n%3)}, TTL: time.Minute}); err != nil {
			return err
		}
		second := make(chan error, 1)
		if err := s.Update(ctx, func(tx kernel.Tx) error {
			go func() { second <- saveAndPrint(s, n+1) }()
			return tx.Save(numbered(n))
		}); err != nil {
			return err
		}
		fmt.Println(n)
		if err := <-second; err != nil {
			return err
		}
	}
	return nil
}

func saveAndPrint(s *Store, n uint32) error {
	if err := save(s, numbered(n)); err != nil {
		return err
	}
	fmt.Println(n)
	return nil
}

// numbered returns the submission of job n, with three steps.
func numbered(n uint32) *kernel.Changes {
	j := &kernel.Job{Type: "t", Phase: perdure.Waiting, Unsettled: 3}
	binary.BigEndian.PutUint32(j.ID[:], n)
	nj := kernel.NewJob{Job: j, Shape: []byte("{}")}
	for i := range 3 {
		nj.Steps = append(nj.Steps, &kernel.Step{StepRef: kernel.StepRef{Job: j.ID, Index: i}, Name: fmt.Sprint(i)})
	}
	return &kernel.Changes{NewJobs: []kernel.NewJob{nj}}
}

// F108, F005, I1: a power cut may happen at any write. The file operations of a process are recorded with strace, and
// disks are built from them as a power cut may leave them. Synced writes and names are there. Of later ones any part is
// there, in units of a sector. On each disk the store opens, Check finds nothing, every acknowledged job is stored
// completely, and of the others at most the two in progress are stored.
func TestAcknowledgedJobsSurvivePowerCut(t *testing.T) {
	racedetector.Skip(t)
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	ops := record(t, filepath.Join(t.TempDir(), "perdure.db"))
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	disk, acked := newDisk(), 0
	seen := map[[sha256.Size]byte]bool{}
	states, syncs := 0, 0
	try := func(at int, how string, files map[string][]byte) {
		sum := fingerprint(files, acked)
		if seen[sum] {
			return
		}
		seen[sum] = true
		states++
		if err := afterPowerCut(filepath.Join(dir, fmt.Sprint(states)), files, acked); err != nil {
			t.Errorf("seed %d, operation %d of %d, %s, job %d acknowledged: %v", seed, at, len(ops), how, acked, err)
		}
	}
	for i, o := range ops {
		if o.kind == opSync { // before a sync most operations are at risk
			syncs++
			try(i, "all writes since the last sync lost", disk.cut(func() fate { return lostWhole }))
			try(i, "all writes kept", disk.cut(func() fate { return keptWhole }))
			for range powerDraws {
				try(i, "some writes since the last sync lost", disk.cut(func() fate { return fate(rng.IntN(int(fates))) }))
			}
		}
		disk.apply(&o)
		if o.kind == opAck {
			acked = max(acked, o.job)
			try(i, "after an acknowledgement", disk.cut(func() fate { return lostWhole }))
		}
		if t.Failed() {
			return
		}
	}
	if acked != powerJobs || syncs < powerJobs/2 || disk.checkpoints == 0 {
		t.Errorf("unexpected record: %d jobs, %d syncs, %d writes to the database file", acked, syncs, disk.checkpoints)
	}
	t.Logf("%d operations, %d syncs, %d disks", len(ops), syncs, states)
}

// powerDraws is the number of disks that are drawn at each sync.
const powerDraws = 3

func fingerprint(files map[string][]byte, acked int) [sha256.Size]byte {
	h := sha256.New()
	for _, name := range []string{"perdure.db", "perdure.db-wal", "perdure.db-journal"} {
		data, exists := files[name]
		fmt.Fprintln(h, name, exists, len(data), acked)
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// afterPowerCut opens and checks the store on the files that a power cut has left.
func afterPowerCut(dir string, files map[string][]byte, acked int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	// SQLite must not trust the index in shared memory.
	if err := os.WriteFile(filepath.Join(dir, "perdure.db-shm"), []byte(strings.Repeat("from before the cut..", 1638)), 0o600); err != nil {
		return err
	}
	s, err := Open(filepath.Join(dir, "perdure.db"))
	if err != nil {
		return err
	}
	err = whole(s, acked)
	return errors.Join(err, s.Close())
}

// whole returns an error unless all acknowledged jobs are stored completely, and at most two others.
func whole(s *Store, acked int) error {
	faults, err := s.Check(ctx)
	if len(faults) > 0 || err != nil {
		return errors.Join(fmt.Errorf("check: %v", faults), err)
	}
	jobs, err := one(s.write, (*row).int, `SELECT count(*) FROM jobs`)
	if err != nil || jobs < acked || jobs > acked+2 {
		return errors.Join(fmt.Errorf("%d jobs, %d acknowledged", jobs, acked), err)
	}
	for n := uint32(1); n <= uint32(jobs); n++ {
		want := numbered(n).NewJobs[0]
		steps, err := s.StepsOf(context.Background(), want.Job.ID, time.Time{})
		if err != nil || len(steps) != len(want.Steps) {
			return errors.Join(fmt.Errorf("job %d has %d steps", n, len(steps)), err)
		}
	}
	return save(s, numbered(uint32(jobs)+1)) // the store accepts jobs
}

// record runs powerLoop under strace.
func record(t *testing.T, path string) []op {
	t.Helper()
	if out, err := exec.Command("strace", "-f", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		if os.Getenv(envRequire) == "1" {
			t.Fatalf("%s=1, and strace does not work here: %v: %s", envRequire, err, out)
		}
		t.Skipf("strace does not work here (scripts/setup installs it; a container may forbid ptrace): %v: %s", err, out)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-xx", "-s", "1000000", "-o", trace,
		"-e", "trace=open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,fsync,fdatasync,sync_file_range,unlink,unlinkat,rename,renameat,renameat2",
		os.Args[0])
	cmd.Env = append(os.Environ(), envPower+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the recorded process: %v: %s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := readTrace(string(text), filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	return ops
}
