package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"
)

// F157: the lowest limit counts, of the process' own cgroup and of those above it, in both versions.
func TestContainerMemory(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no cgroups":            {nil, 0},
		"version 2, container":  {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"version 2, no limit":   {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, above":      {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1000000\n"}, 1_000_000},
		"version 2, the lowest": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "2000000\n", "sys/fs/cgroup/a/memory.max": "3000000\n"}, 2_000_000},
		"version 1": {map[string]string{"proc/self/cgroup": "3:cpu,memory:/docker/x\n2:pids:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 256 << 20},
		"version 1, no limit": {map[string]string{"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		"both":                {map[string]string{"proc/self/cgroup": "3:memory:/x\n0::/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "5000000\n"}, 5_000_000},
		"another controller":  {map[string]string{"proc/self/cgroup": "3:hugememory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000000\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for path, text := range c.files {
				files[path] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := containerMemory(files); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestGOMEMLIMITGoesBeforeTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Setenv("GOMEMLIMIT", "1GiB")
	if set := limitMemory(); set != 0 || debug.SetMemoryLimit(-1) != before {
		t.Errorf("%d was set", set)
	}
	if before != math.MaxInt64 {
		t.Logf("this process has a limit: %d", before)
	}
}

// F157: a small live heap may have three times as much garbage, and a large one as much as is live.
func TestHeapPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: smallHeapPercent, largeHeap - 1: smallHeapPercent, largeHeap: largeHeapPercent, 1 << 40: largeHeapPercent} {
		if got := heapPercent(live); got != want {
			t.Errorf("%d bytes: %d", live, got)
		}
	}
}

// F157: a collector runs its finalizer after each cycle, also beside small values that live for long. Objects of less than
// 16 bytes without a pointer share their place with others, and would not.
func TestCollectorIsAnAllocationOfItsOwn(t *testing.T) {
	const all = 100
	var ran atomic.Int64
	var kept []*int64
	for range all {
		kept = append(kept, new(int64))
		runtime.SetFinalizer(new(collector), func(*collector) { ran.Add(1) })
	}
	for end := time.Now().Add(5 * time.Second); ran.Load() < all && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
	}
	if n := ran.Load(); n != all {
		t.Errorf("%d of %d finalizers ran", n, all)
	}
	runtime.KeepAlive(kept)
}
