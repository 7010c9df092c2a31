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
	powerJobs    = 40 // of the recorded process
	powerReopens = 20 // it closes the store and opens it again after so many
	powerPages   = 24 // its write-ahead log is copied into the file after so many pages, so that this happens often

	envPower   = "PERDURE_TEST_POWER"
	envRequire = "PERDURE_TEST_REQUIRE_STRACE"
)

// powerLoop is the process that is recorded: it submits jobs and says each number once its commit was answered. Of two
// jobs, the second is committed while the commit of the first is synced. Between them it writes hints, which do not wait
// for the disk.
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
			go func() { second <- saveAndSay(s, n+1) }()
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

func saveAndSay(s *Store, n uint32) error {
	if err := save(s, numbered(n)); err != nil {
		return err
	}
	fmt.Println(n)
	return nil
}

// numbered is the submission of job n, with three steps.
func numbered(n uint32) *kernel.Changes {
	j := &kernel.Job{Type: "t", Phase: perdure.Waiting, Unsettled: 3}
	binary.BigEndian.PutUint32(j.ID[:], n)
	nj := kernel.NewJob{Job: j, Shape: []byte("{}")}
	for i := range 3 {
		nj.Steps = append(nj.Steps, &kernel.Step{StepRef: kernel.StepRef{Job: j.ID, Index: i}, Name: fmt.Sprint(i)})
	}
	return &kernel.Changes{NewJobs: []kernel.NewJob{nj}}
}

// F108, F005, I1: the power goes at any write. What the process wrote is recorded (strace), and every disk is built
// that may be left of it: what was synced is there; of what came after it any part, in pieces of a sector; names in
// the directory as well as bytes. On each the store opens, nothing is wrong with it, all that was acknowledged is
// there, whole, and of the rest at most the two that were under way.
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
		if o.kind == opSync { // the moment before it, when most is at stake
			syncs++
			try(i, "nothing of what was not synced", disk.cut(func() fate { return lostWhole }))
			try(i, "all of what was not synced", disk.cut(func() fate { return keptWhole }))
			for range powerDraws {
				try(i, "some of what was not synced", disk.cut(func() fate { return fate(rng.IntN(int(fates))) }))
			}
		}
		disk.apply(&o)
		if o.kind == opAck {
			acked = max(acked, o.job)
			try(i, "just acknowledged", disk.cut(func() fate { return lostWhole }))
		}
		if t.Failed() {
			return
		}
	}
	if acked != powerJobs || syncs < powerJobs/2 || disk.checkpoints == 0 {
		t.Errorf("the record is not what was meant: %d jobs, %d syncs, %d writes to the database itself", acked, syncs, disk.checkpoints)
	}
	t.Logf("%d operations, %d syncs, %d disks", len(ops), syncs, states)
}

// powerDraws is how many disks are drawn at each sync.
const powerDraws = 3

func fingerprint(files map[string][]byte, acked int) [sha256.Size]byte {
	h := sha256.New()
	for _, name := range []string{"perdure.db", "perdure.db-wal", "perdure.db-journal"} {
		data, there := files[name]
		fmt.Fprintln(h, name, there, len(data), acked)
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// afterPowerCut opens the store on what is left, and looks at it.
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
	// What is left of the index in shared memory says nothing.
	if err := os.WriteFile(filepath.Join(dir, "perdure.db-shm"), []byte(strings.Repeat("what was here before", 1638)), 0o600); err != nil {
		return err
	}
	s, err := Open(filepath.Join(dir, "perdure.db"))
	if err != nil {
		return err
	}
	err = whole(s, acked)
	return errors.Join(err, s.Close())
}

// whole looks for all jobs that were acknowledged, whole, and for at most two more.
func whole(s *Store, acked int) error {
	faults, err := s.Check(ctx)
	if len(faults) > 0 || err != nil {
		return errors.Join(fmt.Errorf("check: %v", faults), err)
	}
	jobs, err := one(s.write, (*row).int, `SELECT count(*) FROM jobs`)
	if err != nil || jobs < acked || jobs > acked+2 {
		return errors.Join(fmt.Errorf("%d jobs", jobs), err)
	}
	for n := uint32(1); n <= uint32(jobs); n++ {
		want := numbered(n).NewJobs[0]
		steps, err := s.StepsOf(context.Background(), want.Job.ID, time.Time{})
		if err != nil || len(steps) != len(want.Steps) {
			return errors.Join(fmt.Errorf("job %d has %d steps", n, len(steps)), err)
		}
	}
	return save(s, numbered(uint32(jobs)+1)) // and it goes on
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
		t.Fatalf("%v: %s", err, out)
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
