package main

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// A node's heap may grow to four times its live bytes before it is collected: usually some megabytes are live, and with
// Go's default the collector took a tenth of a busy node's time. If much is live, for example many large answers, four
// times as much would be too much: above largeHeap, the heap grows to twice its live bytes, which is Go's default.
const (
	smallHeapPercent = 300
	largeHeapPercent = 100
	largeHeap        = 64 << 20
)

// collector adjusts the garbage collector after each of its cycles. Nothing refers to a collector, so each cycle runs
// its finalizer, which registers itself again.
type collector struct {
	percent int
	_       *byte // a pointer makes it an allocation of its own: a finalizer of a tiny object may never run
}

// paceCollector starts a collector, unless GOGC is set.
func paceCollector() {
	if os.Getenv("GOGC") == "" {
		new(collector).collected()
	}
}

func (c *collector) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if percent := heapPercent(live[0].Value.Uint64()); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.SetFinalizer(c, (*collector).collected)
}

func heapPercent(live uint64) int {
	if live < largeHeap {
		return smallHeapPercent
	}
	return largeHeapPercent
}

// memoryShare is the share of the container's memory that becomes the memory limit of the Go runtime. The rest is for
// memory that the runtime does not count: SQLite's page caches, which are mapped outside of its heap, and the program
// itself.
const memoryShare = 0.8

// limitMemory sets the memory limit of the Go runtime from that of the container, unless GOMEMLIMIT is set. It returns
// the limit that it has set; 0: none.
func limitMemory() int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	most := containerMemory(os.DirFS("/"))
	if most == 0 {
		return 0
	}
	limit := int64(float64(most) * memoryShare)
	debug.SetMemoryLimit(limit)
	return limit
}

// unlimitedMemory is the least value that means unlimited in version 1 of cgroups.
const unlimitedMemory = 1 << 60

// containerMemory is the lowest memory limit of the cgroups that this process is in, of version 2 and 1; 0: none. Each
// group is bound by those above it. In a container the path may be the host's, and the container's own group the root.
func containerMemory(root fs.FS) (least int64) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0 // not Linux
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case fields[1] == "":
		case strings.Contains(","+fields[1]+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			if n := memoryLimitIn(root, path.Join(mount, group, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

func memoryLimitIn(root fs.FS, file string) int64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // or "max"
	if err != nil || n >= unlimitedMemory {
		return 0
	}
	return n
}
